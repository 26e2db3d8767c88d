from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.oasis.shims import concatenating
from core.arrays import Rows
from core.losses.reports import REPORTS
from core.losses.tables import CsvEncoder
from tests.app.oasis.shims.tools import clean_environment, is_lost, logs, run

MELT = REPORTS["melt"]
PLT = REPORTS["qplt"]


@pytest.fixture(autouse=True)
def _run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    # A few records at a time, so that tables are merged in pieces.
    monkeypatch.setattr(concatenating, "_PIECE", 200)
    monkeypatch.setattr(concatenating, "_PARQUET_ROWS", 3)


def melt(events: list[int], first: float) -> Rows:
    rows = np.zeros(len(events), MELT.dtype(4))
    rows["EventId"] = events
    rows["MeanLoss"] = first + np.arange(len(events))
    return rows


def write(rows: Rows, path: str) -> None:
    if path.endswith(".csv"):
        Path(path).write_bytes(
            MELT.header.encode() + b"\n" + bytes(CsvEncoder(MELT, 4).encode(rows))
        )
    elif path.endswith(".parquet"):
        pq.write_table(pa.table({name: rows[name].copy() for name in rows.dtype.names or ()}), path)
    else:
        rows.tofile(path)


def read(path: str) -> list[tuple[int, float]]:
    """Events and means of a table."""
    if path.endswith(".parquet"):
        table = pq.read_table(path, columns=["EventId", "MeanLoss"])
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    if path.endswith(".csv"):
        header, *lines = Path(path).read_text().splitlines()
        assert header == MELT.header
        return [(int(line.split(",")[0]), float(line.split(",")[5])) for line in lines]
    rows = np.fromfile(path, MELT.dtype(4))
    return list(zip(rows["EventId"].tolist(), rows["MeanLoss"].tolist(), strict=True))


PARTS = [melt([1, 1, 4, 4, 7], 0), melt([], 0), melt([2, 4, 4, 9], 100)]
BY_EVENT = [(1, 0), (1, 1), (2, 100), (4, 2), (4, 3), (4, 101), (4, 102), (7, 4), (9, 103)]
ONE_BY_ONE = [(1, 0), (1, 1), (4, 2), (4, 3), (7, 4), (2, 100), (4, 101), (4, 102), (9, 103)]


@pytest.mark.parametrize("suffix", ["", ".bin", ".csv", ".parquet"])
@pytest.mark.parametrize("words", [[], ["-u"]])
def test_tables_are_merged_by_event_or_one_after_another(words: list[str], suffix: str) -> None:
    names = [f"P{k}{suffix}" for k in range(3)]
    for name, part in zip(names, PARTS, strict=True):
        write(part, name)
    out = "out" + (suffix or ".csv")
    kind = [] if suffix else ["-f", "bin"]
    assert run("katpy", "-m", *kind, *words, "-i", *names, "-o", out) == 0
    assert read(out) == (ONE_BY_ONE if words else BY_EVENT)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("words", [[], ["-u"]])
def test_packed_records_become_csv_or_parquet(words: list[str], suffix: str) -> None:
    for number, part in enumerate(PARTS):
        write(part, f"P{number}.bin")
    assert run("katpy", "-m", *words, "-d", ".", "-o", f"out{suffix}") == 0
    assert read(f"out{suffix}") == (ONE_BY_ONE if words else BY_EVENT)


def test_tables_by_period_are_merged_by_event_then_period() -> None:
    rows = np.zeros(3, PLT.dtype(4))
    rows["EventId"], rows["Period"] = [1, 1, 3], [5, 9, 2]
    rows.tofile("P1")
    rows["Period"] = [4, 7, 1]
    rows.tofile("P2")
    assert run("katpy", "-Q", "-f", "bin", "-i", "P1", "P2", "-o", "out.bin") == 0
    merged = np.fromfile("out.bin", PLT.dtype(4))
    assert merged[["EventId", "Period"]].tolist() == [
        (1, 4), (1, 5), (1, 7), (1, 9), (3, 1), (3, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("words", [[], ["-u"]])
def test_what_is_no_whole_records_is_left_out_with_a_warning(words: list[str]) -> None:
    Path("P1").write_bytes(PARTS[0].tobytes()[:-1])
    assert run("katpy", "-m", "-f", "bin", *words, "-i", "P1", "-o", "out.csv") == 0
    assert Path("out.csv").read_text() == MELT.header + "\n"
    (log,) = logs("katpy")
    assert not is_lost(log)
    assert "not a multiple of the record size" in log
    assert run("katpy", "-m", "-f", "bin", *words, "-i", "P1", "-o", "out.parquet") == 0
    assert pq.read_table("out.parquet").num_rows == 0


def test_csv_without_a_header_line_is_merged_with_one_that_has_it() -> None:
    write(PARTS[0], "P1.csv")
    Path("P2.csv").write_bytes(bytes(CsvEncoder(MELT, 4).encode(PARTS[2]))[:-1])
    assert run("katpy", "-m", "-i", "P1.csv", "P2.csv", "-o", "out.csv") == 0
    assert read("out.csv") == BY_EVENT


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-i", "P1.bin", "-o", "o.csv"], "one of -s"),
        (["-s", "-m", "-i", "P1.bin", "-o", "o.csv"], "one of -s"),
        (["-m", "-o", "o.csv"], "no tables"),
        (["-m", "-i", "absent.bin", "-o", "o.csv"], "absent.bin"),
        (["-m", "-d", "absent", "-o", "o.csv"], "absent"),
        (["-m", "-i", "P1.bin", "P1.csv", "-o", "o.csv"], "several formats"),
        (["-m", "-i", "P1", "-o", "o.csv"], "-f csv"),
        (["-m", "-i", "P1.csv", "-o", "o.bin"], "cannot be written to o.bin"),
        (["-m", "-i", "P1.bin", "-o", "o"], "cannot be written to o"),
        (["-s", "-i", "P1.csv", "-o", "o.csv"], "not those of the table"),
        (["-m", "-i", "bare.csv", "-o", "o.csv"], "header line of MELT"),
        (["-m", "-i", "P1.csv", "bad.csv", "-o", "o.csv"], "bad.csv: a line is not"),
        (["-m", "-i", "P1.parquet", "-o", "o.parquet"], "unusable"),
    ],
)
def test_what_cannot_be_concatenated_is_a_fault_and_leaves_no_table(
    words: list[str], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("P1", "P1.bin", "P1.csv"):
        write(PARTS[0], name)
    Path("bare.csv").write_bytes(bytes(CsvEncoder(MELT, 4).encode(PARTS[0])))
    Path("bad.csv").write_text("1,x\nno,number\n")
    Path("P1.parquet").write_bytes(b"PAR1 is all there is")
    assert run("katpy", *words) == 1
    assert reason in capfd.readouterr().err
    assert [path.name for path in Path().iterdir() if re.match(r"\.?o(\.|$)", path.name)] == []
