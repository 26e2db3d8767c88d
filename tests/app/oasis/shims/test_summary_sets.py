from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from app.oasis.shims.summarising import Prepared, read_sets
from core.errors import InputError
from core.losses.summaries import SummarySets
from tests.app.oasis.shims.tools import RUN, clean_environment, needs_conformance, run

XREF = "output,summary_id,summaryset_id\n1,1,1\n3,4,1\n4,2,1\n1,1,3\n3,1,3\n"
MAP = "loc_id,output_id,building_id\n8,1,1\n8,3,2\n5,4,1\n"


@pytest.fixture(autouse=True)
def _run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)


def assert_same(sets: SummarySets, others: SummarySets) -> None:
    assert sets.set_ids == others.set_ids
    assert sets.counts_risks == others.counts_risks
    for ours, theirs in zip(sets.places, others.places, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def write_files() -> Path:
    Path("input").mkdir()
    Path("input/fmsummaryxref.csv").write_text(XREF)
    Path("input/fm_summary_map.csv").write_text(MAP)
    return Path("input")


@pytest.mark.parametrize("perspective", ["il", "ri"])
def test_prepared_arrays_say_what_the_files_say_and_win_over_them(perspective: str) -> None:
    folder = write_files()
    from_files = read_sets(folder, perspective, [3, 1])
    assert run("summarypy", "--create-summarypy-files", "-t", perspective) == 0
    Path("input/fmsummaryxref.csv").write_text("no xref")
    assert_same(read_sets(folder, perspective, [3, 1]), from_files)
    assert from_files.counts_risks is (perspective == "il")


@needs_conformance
@pytest.mark.parametrize(
    ("perspective", "folder"), [("gul", "."), ("il", "."), ("ri", "RI_1"), ("ri", "RI_2")]
)
def test_prepared_arrays_equal_those_of_the_peer(perspective: str, folder: str) -> None:
    shutil.copytree(RUN / "run/input", "input")
    peers = RUN / "run/input" / folder / perspective
    shutil.rmtree(Path("input", folder, perspective))
    words = ["-t", perspective, "-p", f"input/{folder}"]
    assert run("summarypy", "--create-summarypy-files", *words) == 0
    for name in Prepared._fields:
        ours = np.load(Path("input", folder, perspective, f"{name}.npy"))
        theirs = np.load(peers / f"{name}.npy")
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_packed_maps_are_read() -> None:
    folder = write_files()
    from_csv = read_sets(folder, "il", [1])
    Path("input/fm_summary_map.csv").unlink()
    np.array([(8, 1, 1), (8, 3, 2), (5, 4, 1)], "<i4").tofile("input/fm_summary_map.bin")
    assert_same(read_sets(folder, "il", [1]), from_csv)


def test_a_packed_xref_wins_over_csv() -> None:
    folder = write_files()
    np.array([(1, 1, 9), (3, 1, 9), (4, 1, 9)], "<i4").tofile("input/fmsummaryxref.bin")
    assert read_sets(folder, "il", [9]).set_ids == (9,)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("item_id_to_summary_id", np.zeros(5, np.int32)),
        ("item_id_to_risks_i", np.zeros(1, np.int32)),
        ("summary_set_id_to_summary_set_index", np.array([0, 9], np.int32)),
        ("summary_info", np.zeros(1)),
    ],
)
def test_arrays_of_another_xref_are_refused(name: str, array: npt.NDArray[Any]) -> None:
    folder = write_files()
    assert run("summarypy", "--create-summarypy-files", "-t", "il") == 0
    np.save(f"input/il/{name}.npy", array)
    with pytest.raises(InputError, match="not of one summary xref"):
        read_sets(folder, "il", [1])


def test_a_missing_array_is_named() -> None:
    folder = write_files()
    assert run("summarypy", "--create-summarypy-files", "-t", "il") == 0
    Path("input/il/item_id_to_risks_i.npy").unlink()
    with pytest.raises(InputError, match="item_id_to_risks_i"):
        read_sets(folder, "il", [1])
