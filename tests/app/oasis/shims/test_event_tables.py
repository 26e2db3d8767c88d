from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.app.oasis.shims.tools import (
    FIXTURES,
    RUN,
    clean_environment,
    is_lost,
    logs,
    names_of_sets,
    needs_conformance,
    run,
    summary_streams,
)
from tests.streams import Block, Stream

LOSSES = ((-5, 9.0), (-1, 2.0), (1, 3.0), (2, 4.0))


@pytest.fixture(autouse=True)
def _run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    Path("input").mkdir()


def write_stream(path: str, width: int = 4, samples: int = 2) -> bytes:
    blocks = (Block(3, 1, LOSSES), Block(5, 2, LOSSES))
    octets = Stream("summary", samples, width, blocks).encode()
    Path(path).write_bytes(octets)
    return octets


@needs_conformance
@pytest.mark.parametrize("form", ["csv", "bin"])
@pytest.mark.parametrize("rates", [False, True])
def test_event_tables_equal_the_peers_fixtures(form: str, rates: bool) -> None:
    shutil.copy(FIXTURES / "elt/input/quantile.bin", "input")
    if rates:
        shutil.copy(FIXTURES / "elt/input/er.csv", "input/event_rates.csv")
    outputs = [f"s.{form}", f"m.{form}", f"q.{form}"]
    words = ["-s", outputs[0], "-m", outputs[1], "-q", outputs[2]]
    assert run("eltpy", "-E", form, "-i", FIXTURES / "elt/summarypy.bin", *words) == 0
    names = ["py_selt", "py_melt_er" if rates else "py_melt", "py_qelt"]
    for output, name in zip(outputs, names, strict=True):
        assert Path(output).read_bytes() == (FIXTURES / f"elt/{name}.{form}").read_bytes()


@needs_conformance
@pytest.mark.parametrize("form", ["csv", "bin"])
@pytest.mark.parametrize("case", ["plt_periods", "plt_no_periods"])
def test_period_tables_equal_the_peers_fixtures(case: str, form: str) -> None:
    folder = FIXTURES / case
    words = [f"{flag}{name}.{form}" for flag, name in (("-s", "s"), ("--mplt=", "m"), ("-q", "q"))]
    stream = ["-i", str(folder / "summarypy.bin")]
    assert run("pltpy", "--run_dir", folder, "-E", form, *words, *stream) == 0
    for letter in "smq":
        written = Path(f"{letter}.{form}").read_bytes()
        assert written == (folder / f"py_{letter}plt.{form}").read_bytes()


@needs_conformance
@pytest.mark.parametrize("name", list(names_of_sets()))
def test_tables_of_a_run_equal_the_peers_when_concatenated(name: str) -> None:
    from tests.app.oasis.shims.tools import expected

    for part, stream in enumerate(summary_streams(name)):
        common = ["--run_dir", str(RUN / "run"), "-E", "bin", "-i", str(stream)]
        for tool, kind in (("eltpy", "elt"), ("pltpy", "plt")):
            files = [f"-{letter}{letter}{kind}_{part}" for letter in "smq"]
            assert run(tool, *common, *files) == 0
    for letter, kind in ((letter, kind) for kind in ("elt", "plt") for letter in "smq"):
        report = f"{letter}{kind}"
        flag = letter if kind == "elt" else letter.upper()
        words = [f"-{flag}", "-f", "bin", "-i", f"{report}_0", f"{report}_1"]
        assert run("katpy", *words, "-o", f"{report}.csv") == 0
        assert Path(f"{report}.csv").read_bytes() == expected(f"{name}_{report}")


def test_noheader_leaves_out_the_header_of_csv() -> None:
    write_stream("in")
    assert run("eltpy", "-i", "in", "-s", "with.csv") == 0
    assert run("eltpy", "-H", "-i", "in", "-s", "without.csv") == 0
    first, _, rest = Path("with.csv").read_bytes().partition(b"\n")
    assert first == REPORTS["selt"].header.encode()
    assert Path("without.csv").read_bytes() == rest != b""


def test_parquet_has_the_columns_and_types_of_packed_records() -> None:
    write_stream("in")
    for form in ("bin", "parquet"):
        assert run("eltpy", "-E", form, "-i", "in", "-m", f"m.{form}") == 0
    packed = np.fromfile("m.bin", REPORTS["melt"].dtype(4))
    table = pq.read_table("m.parquet")
    assert table.column_names == list(packed.dtype.names or ())
    for name in table.column_names:
        column = table.column(name).to_numpy()
        assert column.dtype == packed.dtype[name]
        np.testing.assert_array_equal(column, packed[name])


def test_a_stream_of_no_events_gives_tables_of_no_rows() -> None:
    Path("in").write_bytes(Stream("summary", 2, 4, ()).encode())
    assert run("eltpy", "-i", "in", "-s", "s.csv") == 0
    assert Path("s.csv").read_text() == REPORTS["selt"].header + "\n"
    assert run("eltpy", "-E", "bin", "-i", "in", "-s", "s.bin") == 0
    assert Path("s.bin").read_bytes() == b""
    assert run("eltpy", "-E", "parquet", "-i", "in", "-s", "s.parquet") == 0
    assert pq.read_table("s.parquet").num_rows == 0


def test_streams_of_several_processes_are_read_together() -> None:
    events = (3, 5, 8)
    for event in events:
        octets = Stream("summary", 2, 4, (Block(event, 1, LOSSES),)).encode()
        Path(f"P{event}").write_bytes(octets)
    assert run("eltpy", "-i", "P3", "P5", "P8", "-E", "bin", "-m", "m") == 0
    rows = np.fromfile("m", REPORTS["melt"].dtype(4))
    assert sorted(set(rows["EventId"].tolist())) == list(events)


def test_losses_of_eight_bytes_are_read_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    write_stream("in", width=8)
    monkeypatch.setenv("OASIS_FLOAT", "f8")
    np.array([(3, 0.25), (5, 0.5)], [("e", "<i4"), ("r", "<f8")]).tofile("input/event_rates.bin")
    assert run("eltpy", "-E", "bin", "-i", "in", "-m", "m") == 0
    rows = np.fromfile("m", REPORTS["melt"].dtype(8))
    assert rows["EventRate"].tolist() == [0.25, 0.25, 0.5, 0.5]


def test_a_cut_stream_is_a_fault_and_leaves_no_table(capfd: pytest.CaptureFixture[str]) -> None:
    octets = write_stream("in")
    for size in (0, 6, 20, len(octets) - 8, len(octets) - 3):
        Path("in").write_bytes(octets[:size])
        assert run("eltpy", "-i", "in", "-m", "m.csv") == 1
        assert capfd.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["in", "input", "log"]
    assert all(map(is_lost, logs("eltpy")))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-q", "q.csv"], "quantile"),
        (["-s", "s.bin"], "s.bin"),
        (["-s", "absent/s.csv"], "absent/s.csv"),
        (["-i", "absent", "-s", "s.csv"], "absent"),
    ],
)
def test_what_is_missing_or_misnamed_is_told_in_one_line(
    words: list[str], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write_stream("in")
    assert run("eltpy", "-i", "in", *words) == 1
    error = capfd.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


def test_occurrences_are_required_for_tables_by_period(capfd: pytest.CaptureFixture[str]) -> None:
    write_stream("in")
    assert run("pltpy", "-i", "in", "-s", "s.csv") == 1
    assert "occurrence.bin" in capfd.readouterr().err


def test_a_stream_is_read_to_its_end_without_a_table() -> None:
    octets = write_stream("in")
    assert run("eltpy", "-i", "in") == 0
    assert "WARNING - No output files specified" in logs("eltpy")[0]
    Path("in").write_bytes(octets[:-1])
    assert run("eltpy", "-i", "in") == 1


def test_samples_may_come_in_any_order() -> None:
    spec = SampleSpec(events=3, summaries=2, samples=4)
    Path("in").write_bytes(b"".join(generate_stream(spec)))
    for name, data in generate_inputs(spec).items():
        Path("input", name).write_bytes(data)
    assert run("eltpy", "-i", "in", "-s", "s.csv") == 0
    turned = Stream("summary", 2, 4, (Block(3, 1, ((-1, 2.0), (-5, 9.0), (2, 4.0), (1, 3.0))),))
    Path("turned").write_bytes(turned.encode())
    assert run("eltpy", "-i", "turned", "-s", "t.csv") == 0
    lines = Path("t.csv").read_text().splitlines()[1:]
    assert [line.split(",")[2] for line in lines] == ["-1", "2", "1"]
