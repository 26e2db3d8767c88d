from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from app.command.main import main
from app.losses import merging
from app.losses.tables import table_encoder
from core.arrays import Rows
from core.losses.reports import REPORTS


def table(report: str, events: list[int], start: int = 0) -> Rows:
    """Rows of these events, each row another."""
    rows = np.zeros(len(events), REPORTS[report].dtype(4))
    rows["EventId"] = events
    rows["SummaryId"] = np.arange(start, start + len(events))
    if "Period" in (rows.dtype.names or ()):
        rows["Period"] = (7 * np.arange(len(events))) % 5 + 1
    return rows


def write(path: Path, report: str, rows: Rows) -> Path:
    encoder = table_encoder(path.suffix[1:], REPORTS[report], 4)
    parts = [
        encoder.begin(),
        *(bytes(encoder.encode(rows[i : i + 7])) for i in range(0, len(rows), 7)),
    ]
    path.write_bytes(b"".join([*parts, encoder.end()]))
    return path


def dealt(report: str, parts: int) -> tuple[list[Rows], Rows]:
    """Events dealt to partitions, several rows each, and all of them in order."""
    rng = np.random.default_rng(5)
    events = np.repeat(np.arange(1, 61), rng.integers(1, 9, 60))
    whole = table(report, events.tolist())
    part_of = rng.integers(0, parts, 61)
    return [whole[part_of[whole["EventId"]] == part] for part in range(parts)], whole


@pytest.fixture(params=[1, 64, 1 << 22])
def _piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_PIECE", max(request.param, 44))


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize("form", ["csv", "bin", "parquet"])
@pytest.mark.parametrize(
    ("report", "by"), [("selt", "event"), ("melt", "event"), ("splt", "event,period")]
)
def test_merged_tables_are_those_of_the_whole_run(
    tmp_path: Path, form: str, report: str, by: str
) -> None:
    parts, whole = dealt(report, 4)
    files = [
        str(write(tmp_path / f"{number}.{form}", report, rows)) for number, rows in enumerate(parts)
    ]
    if by == "event,period":
        whole = whole[np.lexsort((whole["Period"], whole["EventId"]))]
    expected = write(tmp_path / f"whole.{form}", report, whole)
    out = tmp_path / "out" / f"{report}.{form}"
    command = ["merge", *files, "--out", str(out), "--by", by, "--report", report]
    assert main(command) == 0
    assert main(command) == 2
    assert main([*command, "--force"]) == 0
    if form == "parquet":
        assert pq.read_table(out).equals(pq.read_table(expected))
    else:
        assert out.read_bytes() == expected.read_bytes()


def test_empty_tables_are_merged(tmp_path: Path) -> None:
    nothing = table("melt", [])
    files = [str(write(tmp_path / f"{n}.csv", "melt", nothing)) for n in (1, 2)]
    assert main(["merge", *files, "--out", str(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "1.csv").read_bytes()


@pytest.mark.parametrize(
    ("tables", "options", "code", "message"),
    [
        ([("a.csv", [1, 3]), ("b.csv", [3, 4])], [], 1, "event 3 is in "),
        ([("a.csv", [1, 3, 2])], [], 1, "a.csv: row 3: event 2 comes after 3"),
        ([("a.csv", [1]), ("b.bin", [2])], [], 2, "not of one format"),
        ([("a.arrow", [1])], [], 2, "not of one format that can be merged"),
        ([("a.bin", [1])], [], 2, "packed records do not tell their report"),
        ([("a.bin", [1])], ["--report", "melt"], 1, "not a multiple of the record size 44"),
        ([("a.csv", [1])], ["--by", "event,period"], 2, "the tables have no column Period"),
        (
            [("a.csv", [1])],
            ["--report", "ept"],
            2,
            "--report is ept, but a.csv has the columns of selt",
        ),
        ([("a.parquet", [1])], ["--report", "melt"], 2, "a.parquet has the columns of selt."),
        ([("a.csv", [1])], ["missing.csv"], 1, "missing.csv: cannot be read"),
    ],
)
def test_tables_that_cannot_be_merged_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tables: list[Any],
    options: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, events in tables:
        write(Path(name), "selt", table("selt", events))
    command = ["merge", *(name for name, _ in tables), *options, "--out", "out.csv"]
    assert main(command) == code
    assert message in capsys.readouterr().err
    assert not Path("out.csv").exists()


def test_tables_of_other_columns_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ("csv", "parquet"):
        one = write(tmp_path / f"a.{form}", "selt", table("selt", [1]))
        two = write(tmp_path / f"b.{form}", "melt", table("melt", [2]))
        assert main(["merge", str(one), str(two), "--out", str(tmp_path / "out")]) == 1
        assert "its columns are not those of" in capsys.readouterr().err


def test_lines_that_are_no_rows_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut, latin = "EventId,Loss\n1,1\n4,4", "L\xf6ss\n1\n"
    for text in ("EventId,Loss\n1\n", "EventId,Loss\nx,1\n", cut, latin, "Loss\n1\n"):
        (tmp_path / "a.csv").write_text(text, "latin-1")
        assert main(["merge", str(tmp_path / "a.csv"), "--out", str(tmp_path / "out.csv")]) == 1
        said = capsys.readouterr().err
        assert "a.csv: " in said
        assert ("--partial-out of each partition" in said) == (text in {latin, "Loss\n1\n"})
        assert ("its last line has no end" in said) == (text == cut)


@pytest.mark.usefixtures("_piece")
def test_rows_of_several_lines_stay_whole_and_blank_lines_go(tmp_path: Path) -> None:
    one = '\ufeffEventId,Name\r\n1,"a\n\nb ""c"""\r\n\r\n5,d\r\n\r\n'
    (tmp_path / "1.csv").write_text(one, newline="")
    (tmp_path / "2.csv").write_text('EventId,Name\n2,"e\r\n"\n\n7,f\n', newline="")
    files = [str(tmp_path / name) for name in ("1.csv", "2.csv")]
    assert main(["merge", *files, "--out", str(tmp_path / "out.csv")]) == 0
    merged = b'EventId,Name\n1,"a\n\nb ""c"""\r\n2,"e\r\n"\n5,d\r\n7,f\n'
    assert (tmp_path / "out.csv").read_bytes() == merged


@pytest.mark.usefixtures("_piece")
def test_a_quote_that_is_never_closed_swallows_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{event},x\n" for event in range(2, 99))
    (tmp_path / "1.csv").write_text(f'EventId,Name\n1,"a\n{rows}')
    assert main(["merge", str(tmp_path / "1.csv"), "--out", str(tmp_path / "out.csv")]) == 1
    assert "a quote is not closed: b'1,\"a" in capsys.readouterr().err
