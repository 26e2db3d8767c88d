from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from core.losses.reports import REPORTS
from tests.app.oasis.shims.tools import (
    RUN,
    assert_close,
    clean_environment,
    expected,
    is_lost,
    logs,
    names_of_sets,
    needs_conformance,
    rows_of,
    run,
    summary_streams,
)
from tests.streams import Block, Stream


@pytest.fixture(autouse=True)
def _run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    Path("input").mkdir()
    Path("work/palt").mkdir(parents=True)


def copy_run(name: str, folder: str) -> None:
    """The streams of a set and the inputs of the run, in this run directory."""
    shutil.copytree(RUN / "run/input", "input", dirs_exist_ok=True)
    for stream in summary_streams(name):
        shutil.copy(stream, Path("work", folder, stream.name))


def write_run(events: dict[str, list[int]], occurring: list[int]) -> None:
    """Streams of events, and occurrences of some of them."""
    for name, of_stream in events.items():
        blocks = tuple(Block(e, 2, ((-1, 2.0), (1, 3.0), (2, 1.0))) for e in of_stream)
        Path("work/palt", name).write_bytes(Stream("summary", 2, 4, blocks).encode())
    header = np.array([1, 10], "<i4").tobytes()
    records = np.array([(e, e % 10 + 1, 7) for e in occurring], "<i4")
    Path("input/occurrence.bin").write_bytes(header + records.tobytes())


@needs_conformance
@pytest.mark.parametrize("name", list(names_of_sets()))
def test_average_annual_losses_equal_the_peers(name: str) -> None:
    copy_run(name, "palt")
    level = "0.95" if name.endswith("1") else "0.9"
    assert run("aalpy", "-Kpalt", "-a", "a.csv", "-c", "c.csv", "-l", level) == 0
    for file, report in (("a.csv", "aal"), ("c.csv", "alct")):
        peer = rows_of(expected(f"{name}_{'palt' if report == 'aal' else 'alct'}"), report)
        ours = rows_of(Path(file).read_bytes(), report)
        if report == "alct":
            # Where the variance is what a cancellation leaves, both are noise.
            noise = 1e-9 * np.maximum(peer["SDLoss"], peer["MeanLoss"]) ** 2
            sound = np.abs(peer["VarElementVuln"]) > noise
            ours, peer = ours[sound], peer[sound]
        assert_close(ours, peer)


@needs_conformance
def test_the_option_for_means_leaves_out_deviations_and_nothing_else_does() -> None:
    copy_run("gul_S1", "palt")
    Path("input/periods.bin").unlink()
    assert run("aalpy", "-M", "-Kpalt", "-a", "means.csv") == 0
    import gzip

    path = RUN / "expected_unweighted/gul_S1_aalmeanonly.csv.gz"
    peer = rows_of(gzip.decompress(path.read_bytes()), "aal_mean")
    assert_close(rows_of(Path("means.csv").read_bytes(), "aal_mean"), peer)
    assert run("aalpy", "-Kpalt", "-a", "altmeanonly.csv") == 0
    assert Path("altmeanonly.csv").read_text().partition("\n")[0] == REPORTS["aal"].header


@pytest.mark.parametrize("form", ["csv", "bin", "parquet"])
def test_tables_in_every_format(form: str) -> None:
    write_run({"P1.bin": [1, 2], "P2.bin": [3]}, [1, 2, 3])
    words = ["-E", form, "-H", "-a", f"a.{form}", "-c", f"c.{form}"]
    assert run("aalpy", "-Kpalt", *words) == 0
    if form == "parquet":
        assert pq.read_table("a.parquet").column("SampleType").to_pylist() == [1, 2]
    elif form == "bin":
        rows = np.fromfile("a.bin", REPORTS["aal"].dtype(4))
        np.testing.assert_allclose(rows["MeanLoss"], [0.6, 0.6])
    else:
        assert Path("a.csv").read_text().startswith("2,1,0.600000,")


def test_convergence_has_rows_of_the_summaries_without_a_loss_before_the_last_with_one() -> None:
    losses = ((-1, 2.0), (1, 3.0), (2, 1.0))
    blocks = tuple(Block(1, summary, losses) for summary in (2, 3, 6))
    blocks += (Block(2, 8, losses),)
    write_run({"P1.bin": []}, [1])
    Path("work/palt/P1.bin").write_bytes(Stream("summary", 2, 4, blocks).encode())
    assert run("aalpy", "-Kpalt", "-c", "c.csv", "-a", "a.csv") == 0
    lines = Path("c.csv").read_text().splitlines()[1:]
    ids = [int(line.split(",")[0]) for line in lines]
    assert ids == [summary for summary in range(1, 7) for _ in range(2)]
    zero = "0.000000"
    for line, size in ((lines[0], 1), (lines[1], 2), (lines[-4], 1)):
        cells = line.split(",")[1:]
        assert cells == [*(zero, zero, str(size), *[zero] * 3, "nan"), *[*[zero] * 2, "nan"] * 2]
    analytical = [line.split(",")[0] for line in Path("a.csv").read_text().splitlines()[1:4]]
    assert analytical == ["2", "3", "6"]


def test_a_run_in_which_nothing_occurs_leaves_no_file() -> None:
    write_run({"P1.bin": [1], "P2.bin": []}, [5])
    assert run("aalpy", "-Kpalt", "-a", "a.csv", "-c", "c.csv") == 0
    assert sorted(path.name for path in Path().iterdir()) == ["input", "log", "work"]
    assert not is_lost(logs("aalpy")[0])


def test_little_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    write_run({"P1.bin": list(range(1, 400)), "P2.bin": [1000]}, [*range(1, 400), 1000])
    assert run("aalpy", "-Kpalt", "-a", "much.csv", "-c", "much_c.csv") == 0
    monkeypatch.setenv("OASIS_AAL_MEMORY", "0.00002")
    monkeypatch.setenv("OASIS_TMPDIR", "spilled")
    assert run("aalpy", "-Kpalt", "-a", "little.csv", "-c", "little_c.csv") == 0
    assert Path("spilled").is_dir()
    assert list(Path("spilled").iterdir()) == []
    assert Path("little.csv").read_bytes() == Path("much.csv").read_bytes()
    assert Path("little_c.csv").read_bytes() == Path("much_c.csv").read_bytes()


@pytest.mark.parametrize(
    ("removed", "reason"),
    [
        (["work/palt/P1.bin", "work/palt/P2.bin", "work/palt/P3.bin"], "no .bin file"),
        (["work/palt/P2.bin"], "P2.bin"),
        (["input/occurrence.bin"], "occurrence.bin"),
    ],
)
def test_what_is_missing_is_a_fault(
    removed: list[str], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write_run({"P1.bin": [1], "P2.bin": [2], "P3.bin": [3]}, [1, 2, 3])
    for path in removed:
        Path(path).unlink()
    assert run("aalpy", "-Kpalt", "-a", "a.csv") == 1
    assert reason in capfd.readouterr().err
    assert not Path("a.csv").exists()
    assert is_lost(logs("aalpy")[0])


def test_a_stream_whose_index_alone_is_there_is_missing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_run({"one.bin": [1], "two.bin": [2]}, [1, 2])
    Path("work/palt/two.bin").rename("work/palt/two.idx")
    assert run("aalpy", "-Kpalt", "-a", "a.csv") == 1
    assert "two.bin" in capfd.readouterr().err


def test_a_cut_or_empty_stream_is_a_fault(capfd: pytest.CaptureFixture[str]) -> None:
    write_run({"P1.bin": [1, 2], "P2.bin": [3]}, [1, 2, 3])
    octets = Path("work/palt/P2.bin").read_bytes()
    for size in (0, len(octets) - 8, len(octets) - 30):
        Path("work/palt/P2.bin").write_bytes(octets[:size])
        assert run("aalpy", "-Kpalt", "-a", "a.csv") == 1
        assert "P2.bin" in capfd.readouterr().err
        assert not Path("a.csv").exists()


def test_there_must_be_a_work_folder(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("aalpy", "-Kabsent", "-a", "a.csv") == 1
    assert "work/absent" in capfd.readouterr().err
