"""Chunks of a run, merged, are the run; what is missing or foreign is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.command.main import main
from app.oasis.chunks import merge_rows
from tests.oasis_runs import NAMES, RUN, copy_run, edit_settings, streams

pytestmark = pytest.mark.skipif(not RUN.is_dir(), reason="the peer's conformance data are not here")


def _compute(directory: Path, chunk: int, chunks: int = 2) -> Path:
    options = ["--chunk", f"{chunk}/{chunks}", *streams(NAMES, [chunk])]
    assert main(["aggregate", "--run-dir", str(directory), *options]) == 0
    return directory / f"{chunk}.work"


def _merge(directory: Path, chunks: int = 2, *options: str) -> int:
    command = ["aggregate", "--run-dir", str(directory), "--merge-chunks", str(chunks)]
    return main([*command, *options])


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with the work folders of both chunks in ``work``."""
    directory = copy_run(tmp_path_factory.mktemp("chunks") / "run")
    for chunk in (1, 2):
        shutil.copytree(_compute(directory, chunk), directory / "work", dirs_exist_ok=True)
    return directory


@pytest.fixture
def copied(computed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(computed, tmp_path / "run"))


def test_merged_chunks_are_the_run(computed: Path, tmp_path: Path) -> None:
    whole = copy_run(tmp_path / "whole")
    assert main(["aggregate", "--run-dir", str(whole), *streams()]) == 0
    assert _merge(computed) == 0
    expected = {path.name: path.read_bytes() for path in (whole / "output").iterdir()}
    merged = {path.name: path.read_bytes() for path in (computed / "output").iterdir()}
    assert merged == expected


def test_merged_sums_spill_where_they_are_told_to(copied: Path, tmp_path: Path) -> None:
    spilled = tmp_path / "spilled"
    assert _merge(copied, 2, "--memory-budget", "600kB", "--spill-dir", str(spilled)) == 0
    assert list(spilled.iterdir()) == []


def test_chunks_leave_the_files_that_oasis_expects(computed: Path) -> None:
    for chunk in (1, 2):
        work = computed / f"{chunk}.work"
        for stem in [f"{losses}_S{number}" for losses in NAMES for number in (1, 2)]:
            for folder in ("summary_palt", "summary_altmeanonly", "summaryleccalc"):
                assert (work / f"{stem}_{folder}" / f"P{chunk}.bin").stat().st_size > 0
            for table in ("elt_sample", "elt_moment", "elt_quantile", "plt_sample"):
                assert (work / "kat" / f"{stem}_{table}_P{chunk}").stat().st_size > 0


def _forget(directory: Path) -> None:
    for path in (directory / "work").glob("thalweg_*_P2.json"):
        path.unlink()


def _cut(directory: Path) -> None:
    path = directory / "work" / "gul_S1_summary_palt" / "P2.bin"
    path.write_bytes(path.read_bytes()[:-1])


def _lose(directory: Path) -> None:
    (directory / "work" / "kat" / "il_S2_plt_moment_P1").unlink()


def _change(directory: Path) -> None:
    edit_settings(directory, lambda d: d["gul_summaries"][1]["ord_output"].pop("elt_sample"))


def _recount(directory: Path) -> None:
    path = directory / "work" / "thalweg_gul_P1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"processes": 3}))


BREAKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (_forget, "chunk 2 of 2 of gul is missing"),
    "cut": (_cut, "P2.bin: is not the file that chunk 2 left: it is cut, damaged or of another"),
    "a file is missing": (_lose, "il_S2_plt_moment_P1: a file of chunk 1 is missing"),
    "of another run": (_change, "thalweg_gul_P1.json: is of another run"),
    "of another number": (_recount, "is of a run with 3 chunks, not 2"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_chunks_that_do_not_belong_are_refused(
    copied: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    damage, message = BREAKS[name]
    damage(copied)
    before = {path.name for path in (RUN / "run" / "output").iterdir()}
    for path in (copied / "output").iterdir():
        if path.name not in before:
            path.unlink()
    assert _merge(copied) == 1
    assert message in capsys.readouterr().err
    assert {path.name for path in (copied / "output").iterdir()} == before


@pytest.mark.parametrize("piece", [1, 3, 100])
def test_rows_are_merged_by_event_in_pieces_of_any_size(piece: int) -> None:
    rng = np.random.default_rng(piece)
    dtype = np.dtype([("EventId", "<i4"), ("SummaryId", "<i4")])
    owner = rng.integers(0, 3, 60)
    parts = []
    for part in range(3):
        events = np.repeat(np.flatnonzero(owner == part) + 1, 4)
        rows = np.zeros(len(events), dtype)
        rows["EventId"], rows["SummaryId"] = events, np.arange(len(events))
        parts.append(rows)
    merged = np.concatenate([rows.copy() for rows in merge_rows([*parts, parts[0][:0]], piece)])
    whole = np.concatenate(parts)
    np.testing.assert_array_equal(merged, whole[np.argsort(whole["EventId"], kind="stable")])
