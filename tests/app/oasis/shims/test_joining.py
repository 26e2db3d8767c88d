from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.oasis.shims.tools import clean_environment, run

INFO = 'summary_id,LocName,tiv\n1,"Smith, Sons",100.50\n3,,007\n'
TABLE = "EventId,SummaryId,Loss\n5,1,1.25\n5,2,2.00\n6,3,0.10\n7,9,4.00\n"
JOINED = (
    "EventId,SummaryId,Loss,LocName,tiv\n"
    '5,1,1.25,"Smith, Sons",100.50\n5,2,2.00,,\n6,3,0.10,,007\n7,9,4.00,,\n'
)


@pytest.fixture(autouse=True)
def _run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    Path("info.csv").write_text(INFO)
    Path("table.csv").write_text(TABLE)


def test_columns_are_appended_as_they_are_and_quoted_cells_stay_whole() -> None:
    assert run("join-summary-info", "-s", "info.csv", "-d", "table.csv", "-o", "out.csv") == 0
    assert Path("out.csv").read_text() == JOINED
    assert Path("table.csv").read_text() == TABLE


def test_a_table_can_be_replaced_by_the_joined_one() -> None:
    assert run("join-summary-info", "-s", "info.csv", "-d", "table.csv", "-o", "table.csv") == 0
    assert Path("table.csv").read_text() == JOINED


def test_the_id_may_be_any_column_of_the_file_that_describes() -> None:
    Path("info.csv").write_text("tiv,summary_id,LocName\n100.50,1,Smith\n")
    assert run("join-summary-info", "-s", "info.csv", "-d", "table.csv", "-o", "out.csv") == 0
    header, first = Path("out.csv").read_text().splitlines()[:2]
    assert header == "EventId,SummaryId,Loss,tiv,LocName"
    assert first == "5,1,1.25,100.50,Smith"


def test_in_parquet_the_columns_keep_their_types() -> None:
    info = {"summary_id": [3, 1], "LocName": ["a,b", None], "tiv": [7.5, 100.5]}
    pq.write_table(pa.table(info), "info.parquet")
    ids = pa.array([1, 2, 3, 9], pa.int32())
    pq.write_table(
        pa.table({"SummaryId": ids, "Loss": pa.array([1, 2, 3, 4], pa.float32())}), "t.parquet"
    )
    assert run("join-summary-info", "-s", "info.parquet", "-d", "t.parquet", "-o", "t.parquet") == 0
    joined = pq.read_table("t.parquet")
    assert joined.schema.field("tiv").type == pa.float64()
    assert joined.schema.field("Loss").type == pa.float32()
    assert joined.column("tiv").to_pylist() == [100.5, None, 7.5, None]
    assert joined.column("LocName").to_pylist() == [None, None, "a,b", None]


def test_nothing_is_described_by_an_empty_parquet_file() -> None:
    pq.write_table(
        pa.table({"summary_id": pa.array([], pa.int64()), "a": pa.array([], pa.string())}),
        "i.parquet",
    )
    pq.write_table(pa.table({"SummaryId": [1]}), "t.parquet")
    assert run("join-summary-info", "-s", "i.parquet", "-d", "t.parquet", "-o", "o.parquet") == 0
    assert pq.read_table("o.parquet").to_pydict() == {"SummaryId": [1], "a": [None]}


@pytest.mark.parametrize(
    ("info", "table", "reason"),
    [
        ("a,b\n1,2\n", TABLE, "summary_id"),
        ("summary_id,b\nx,2\n", TABLE, "line 2"),
        (INFO, "EventId,Loss\n1,2\n", "SummaryId"),
        (None, TABLE, "info.csv"),
    ],
)
def test_what_cannot_be_joined_is_a_fault(
    info: str | None, table: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("info.csv").unlink()
    if info is not None:
        Path("info.csv").write_text(info)
    Path("table.csv").write_text(table)
    assert run("join-summary-info", "-s", "info.csv", "-d", "table.csv", "-o", "table.csv") == 1
    assert reason in capfd.readouterr().err
    assert Path("table.csv").read_text() == table


def test_files_of_different_formats_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("join-summary-info", "-s", "info.csv", "-d", "table.csv", "-o", "o.parquet") == 1
    assert "all .csv" in capfd.readouterr().err
