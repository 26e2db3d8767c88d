from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from app.oasis.shims import loss_tables
from core.losses.reports import REPORTS
from tests.app.oasis.shims.tools import (
    FIXTURES,
    RUN,
    assert_close,
    clean_environment,
    is_lost,
    logs,
    needs_conformance,
    rows_of,
    run,
    summary_streams,
)
from tests.streams import Block, Stream

ALL = ["-F", "-f", "-S", "-s", "-M", "-m", "-W", "-w", "-O", "ept.csv", "-o", "psept.csv"]


@pytest.fixture(autouse=True)
def _run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    Path("input").mkdir()
    Path("work/lec").mkdir(parents=True)


def write_run(blocks: int = 6, samples: int = 3) -> None:
    losses = tuple((sidx, float(sidx + 10)) for sidx in (-1, *range(1, samples + 1)))
    events = tuple(Block(1 + k // 2, 1 + k % 2, losses) for k in range(blocks))
    Path("work/lec/P1.bin").write_bytes(Stream("summary", samples, 4, events).encode())
    header = np.array([1, 10], "<i4").tobytes()
    records = np.array([(e, e, 7) for e in range(1, 6)], "<i4")
    Path("input/occurrence.bin").write_bytes(header + records.tobytes())


@needs_conformance
def test_curves_equal_the_peers_fixture_row_by_row() -> None:
    for report in ("ept", "psept"):
        assert run("lecpy", "--run_dir", FIXTURES / "lec_rp", "-Kgul", "-r", *ALL) == 0
        peer = rows_of((FIXTURES / f"lec_rp/py_{report}.csv").read_bytes(), report)
        assert_close(rows_of(Path(f"{report}.csv").read_bytes(), report), peer)


@needs_conformance
@pytest.mark.parametrize("name", ["gul_S1", "gul_S2", "il_S1", "il_S2", "ri_S2"])
@pytest.mark.parametrize("spooled", [loss_tables._IN_MEMORY, 1])
def test_curves_of_a_run_equal_the_peers_row_by_row(
    name: str, spooled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_tables, "_IN_MEMORY", spooled)
    for file in ("occurrence.bin", "returnperiods.bin"):
        Path("input", file).write_bytes((RUN / "run/input" / file).read_bytes())
    for stream in summary_streams(name):
        Path("work/lec", stream.name).write_bytes(stream.read_bytes())
    assert run("lecpy", *(["-r"] if name.endswith("1") else []), "-Klec", *ALL) == 0
    for report in ("ept", "psept"):
        path = RUN / f"expected_unweighted/{name}_{report}.csv.gz"
        peer = rows_of(gzip.decompress(path.read_bytes()), report)
        assert_close(rows_of(Path(f"{report}.csv").read_bytes(), report), peer)


def test_an_index_beside_every_stream_orders_rows_by_summary_first() -> None:
    write_run()
    Path("work/lec/P2.bin").write_bytes(Stream("summary", 3, 4, ()).encode())
    orders = {}
    for indices in ([], ["P1"], ["P1", "P2"]):
        for name in indices:
            # What is in it is the peer's business: the streams are read in one pass.
            Path(f"work/lec/{name}.idx").write_bytes(b"not an index")
        assert run("lecpy", "-Klec", *ALL) == 0
        rows = rows_of(Path("ept.csv").read_bytes(), "ept")
        orders[len(indices)] = rows[["SummaryId", "EPCalc", "EPType"]].tolist()
    by_calculation = sorted(orders[0], key=lambda row: (row[1], row[2], row[0]))
    assert orders[0] == orders[1] == by_calculation
    assert orders[2] == sorted(orders[0])
    assert len(set(orders[0])) > 10


def test_tables_hold_the_curves_that_are_asked_for() -> None:
    write_run()
    assert run("lecpy", "-Klec", "-f", "-w", "-O", "ept.csv", "-o", "psept.csv") == 0
    ept = rows_of(Path("ept.csv").read_bytes(), "ept")
    assert set(ept["EPCalc"].tolist()) == {1, 2}
    assert set(ept["EPType"].tolist()) == {1, 2}
    psept = rows_of(Path("psept.csv").read_bytes(), "psept")
    assert set(psept["EPType"].tolist()) == {1, 2}


@pytest.mark.parametrize(
    "words", [["-F", "-W"], ["-W", "-O", "ept.csv"], ["-F", "-o", "psept.csv"]]
)
def test_no_file_without_a_curve_for_it(words: list[str]) -> None:
    write_run()
    assert run("lecpy", "-Klec", *words) == 0
    assert sorted(path.name for path in Path().iterdir()) == ["input", "log", "work"]
    assert "no curve" in logs("lecpy")[0]


def test_streams_without_a_block_leave_no_file_and_those_without_an_occurrence_a_header() -> None:
    write_run(blocks=0)
    assert run("lecpy", "-Klec", *ALL) == 0
    assert not Path("ept.csv").exists()
    write_run()
    Path("input/occurrence.bin").write_bytes(np.array([1, 10, 99, 1, 1], "<i4").tobytes())
    assert run("lecpy", "-Klec", *ALL) == 0
    assert Path("ept.csv").read_text() == REPORTS["ept"].header + "\n"
    assert Path("psept.csv").read_text() == REPORTS["psept"].header + "\n"


def test_return_periods_are_required_only_where_they_are_used(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_run()
    assert run("lecpy", "-Klec", "-F", "-O", "ept.csv") == 0
    assert run("lecpy", "-r", "-Klec", "-F", "-O", "at.csv") == 1
    assert "returnperiods.bin" in capfd.readouterr().err
    assert is_lost(logs("lecpy")[-1]) or is_lost(logs("lecpy")[0])
    np.array([5, 2], "<i4").tofile("input/returnperiods.bin")
    assert run("lecpy", "-r", "-Klec", "-F", "-O", "at.csv") == 0
    at = rows_of(Path("at.csv").read_bytes(), "ept")
    assert set(at["ReturnPeriod"].tolist()) <= {5.0, 2.0}
    Path("input/returnperiods.bin").write_bytes(b"")
    assert run("lecpy", "-r", "-Klec", "-F", "-O", "every.csv") == 0
    assert Path("every.csv").read_bytes() == Path("ept.csv").read_bytes()


def test_temporary_files_are_where_the_run_wants_them_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_run()
    assert run("lecpy", "-Klec", *ALL) == 0
    in_memory = Path("ept.csv").read_bytes()
    monkeypatch.setattr(loss_tables, "_IN_MEMORY", 1)
    monkeypatch.setenv("OASIS_TMPDIR", "deep/temporary")
    assert run("lecpy", "-Klec", *ALL) == 0
    assert Path("ept.csv").read_bytes() == in_memory
    assert list(Path("deep/temporary").iterdir()) == []
    assert [path.name for path in Path("work/lec").iterdir()] == ["P1.bin"]
