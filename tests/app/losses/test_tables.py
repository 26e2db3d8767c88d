from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from app.command.main import main
from app.losses.arrow_tables import ROW_GROUP
from app.losses.tables import FORMATS, table_encoder
from core.errors import InputError, ReportError
from core.losses.inputs import SummaryInfo, parse_summary_info
from core.losses.reports import EVENTS, MELT, REPORTS, SELT, Report
from core.losses.samples import SampleSpec, generate_stream

Rows = npt.NDArray[np.void]


def some(report: Report, count: int, width: int = 4) -> Rows:
    rng = np.random.default_rng(count)
    rows = np.zeros(count, report.dtype(width))
    for column in report.columns:
        rows[column.name] = rng.integers(1, 9, count) if column.decimals is None else rng.random()
    return rows


def encoded(name: str, report: Report, pieces: list[Rows], width: int = 4) -> bytes:
    encoder = table_encoder(name, report, width)
    parts = [encoder.begin()]
    parts += [bytes(encoder.encode(piece)) for piece in pieces]
    return b"".join([*parts, encoder.end()])


def arrays_equal(table: pa.Table, rows: Rows) -> bool:
    return all(
        np.array_equal(table[name].to_numpy(), rows[name], equal_nan=rows[name].dtype.kind == "f")
        for name in rows.dtype.names or ()
    )


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("report", REPORTS.values(), ids=list(REPORTS))
def test_arrow_reads_back(report: Report, width: int) -> None:
    rows = some(report, 500, width)
    data = encoded("arrow", report, [rows[:200], rows[:0], rows[200:]], width)
    table = pa.ipc.open_stream(data).read_all()
    assert arrays_equal(table, rows)
    assert table.schema.metadata[b"report"] == report.name.encode()


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("report", REPORTS.values(), ids=list(REPORTS))
def test_parquet_reads_back(report: Report, width: int) -> None:
    rows = some(report, 500, width)
    data = encoded("parquet", report, [rows[:200], rows[:0], rows[200:]], width)
    table = pq.read_table(io.BytesIO(data))
    assert arrays_equal(table, rows)
    assert table.schema.metadata[b"float_width"] == str(width).encode()
    first = report.columns[0]
    described = (table.schema.field(first.name).metadata or {})[b"description"]
    assert described == first.description.encode()


@pytest.mark.parametrize("pieces", [1, 3, 10_000])
def test_parquet_row_groups_do_not_depend_on_how_rows_come(pieces: int) -> None:
    rows = some(SELT, 2 * ROW_GROUP + 1000)
    data = encoded("parquet", SELT, np.array_split(rows, pieces))
    file = pq.ParquetFile(io.BytesIO(data))
    groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert groups == [ROW_GROUP, ROW_GROUP, 1000]
    assert arrays_equal(file.read(), rows)


@pytest.mark.parametrize("name", FORMATS)
def test_memory_is_given_back_while_a_table_grows(name: str) -> None:
    """What is held between calls does not grow with the table."""
    encoder = table_encoder(name, MELT, 4)
    encoder.begin()
    rows = some(MELT, ROW_GROUP // 2)
    piece = rows[:1000] if name in {"csv", "ndjson"} else rows
    sizes = [len(encoder.encode(piece)) for _ in range(6)]
    encoder.end()
    if name == "parquet":
        assert all(size > 0 for size in sizes[1::2])
    else:
        assert all(size > 0 for size in sizes)


def test_ndjson_numbers_are_the_shortest_that_read_back() -> None:
    rows = np.zeros(2, MELT.dtype(4))
    rows["EventId"] = [1, 2]
    rows["MeanLoss"] = [0.1, 1e20]
    rows["EventRate"] = [np.nan, 0.25]
    rows["MaxLoss"] = [np.inf, 3]
    lines = encoded("ndjson", MELT, [rows, rows[:0]]).splitlines()
    first, second = (json.loads(line) for line in lines)
    assert first["EventId"] == 1
    assert first["MeanLoss"] == 0.1
    assert first["EventRate"] is None
    assert first["MaxLoss"] is None
    assert second["EventRate"] == 0.25
    assert math.isclose(second["MeanLoss"], 1e20, rel_tol=1e-6)
    assert list(first) == [column.name for column in MELT.columns]


def test_ndjson_keeps_every_digit_of_a_float64() -> None:
    rows = np.zeros(1, EVENTS.dtype(4))
    rows["SampleMean"] = 0.1 + 0.2
    assert json.loads(encoded("ndjson", EVENTS, [rows]))["SampleMean"] == 0.1 + 0.2


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_table_is_a_table(name: str) -> None:
    data = encoded(name, SELT, [])
    if name == "csv":
        assert data == b"EventId,SummaryId,SampleId,Loss,ImpactedExposure\n"
    elif name == "arrow":
        assert pa.ipc.open_stream(data).read_all().num_rows == 0
    elif name == "parquet":
        assert pq.read_table(io.BytesIO(data)).num_rows == 0
    else:
        assert data == b""


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ReportError, match="xml") as caught:
        table_encoder("xml", SELT, 4)
    assert "parquet" in (caught.value.hint or "")


def test_every_column_is_described() -> None:
    for report in REPORTS.values():
        for column in report.columns:
            assert report.describe(column.name)["description"]


INFO = b'summary_id,LocNumber,tiv,note\n7,007,12.5,"a, b"\n2,L02,3,plain\n'


def joined_text(form: str, info: SummaryInfo, report: str = "selt") -> bytes:
    rows = np.zeros(3, REPORTS[report].dtype(4))
    if report == "selt":
        rows["SummaryId"] = [2, 7, 5]
    encoder = table_encoder(form, REPORTS[report], 4, info)
    return encoder.begin() + bytes(encoder.encode(rows)) + encoder.end()


def test_csv_has_the_texts_of_the_file() -> None:
    lines = joined_text("csv", parse_summary_info(INFO)).decode().splitlines()
    assert [line.split(",", 5)[-1] for line in lines] == [
        "LocNumber,tiv,note",
        "L02,3,plain",
        '007,12.5,"a, b"',
        ",,",
    ]


def test_a_cell_of_several_lines_stays_one() -> None:
    info = SummaryInfo(np.array([2], np.int32), {"x": np.array(["a\rb"])})
    rows = list(csv.reader(io.StringIO(joined_text("csv", info).decode(), newline="")))
    assert [row[-1] for row in rows] == ["x", "a\rb", "", ""]


def test_typed_formats_have_numbers_where_all_texts_are() -> None:
    info = parse_summary_info(INFO)
    parquet = pq.read_table(io.BytesIO(joined_text("parquet", info)))
    arrow = pa.ipc.open_stream(joined_text("arrow", info)).read_all()
    lines = [orjson.loads(line) for line in joined_text("ndjson", info).splitlines()]
    for table in (parquet, arrow, pa.Table.from_pylist(lines)):
        assert table.column("LocNumber").to_pylist() == ["L02", "007", None]
        assert table.column("tiv").to_pylist() == [3.0, 12.5, None]
        assert table.column("note").to_pylist() == ["plain", "a, b", None]


@pytest.mark.parametrize(
    ("texts", "values"),
    [(["1", "20"], [1, 20]), (["1", "02"], ["1", "02"]), (["1e3", "2"], [1e3, 2.0])]
    # Numbers of other digits than the text, and infinite ones, are worse than texts.
    + [([a, "0.5"], [a, "0.5"]) for a in ("12345678901234567891", "9007199254740993", "1E400")]
    # Of two texts that are one number, nobody could tell which is which.
    + [([a, b], [a, b]) for a, b in (("10", "1e1"), ("1", "1.0"), ("9" * 20, "9" * 19 + "8"))],
)
def test_names_that_look_like_numbers_stay_texts(texts: list[str], values: list[object]) -> None:
    info = SummaryInfo(np.array([2, 7], np.int32), {"x": np.array(texts)})
    table = pq.read_table(io.BytesIO(joined_text("parquet", info)))
    assert table.column("x").to_pylist() == [*values, None]


def test_reports_without_summaries_are_not_joined() -> None:
    assert joined_text("csv", parse_summary_info(INFO), "events").startswith(
        REPORTS["events"].header.encode() + b"\n"
    )


def test_packed_records_and_names_of_columns_there_are_refused() -> None:
    with pytest.raises(ReportError, match="packed records"):
        joined_text("bin", parse_summary_info(INFO))
    with pytest.raises(InputError, match="SELT has a column 'Loss' already"):
        joined_text("csv", parse_summary_info(b"summary_id,Loss\n1,2\n"))


def test_aggregate_joins_what_summaries_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = tmp_path / "summary.bin"
    stream.write_bytes(b"".join(generate_stream(SampleSpec(events=3, summaries=7, samples=4))))
    info = tmp_path / "info.csv"
    info.write_bytes(INFO)
    command = ["aggregate", str(stream), "--reports", "melt", "--no-progress"]
    command += ["--out", str(tmp_path), "--summary-info"]
    assert main([*command, str(info)]) == 0
    table = pa_csv.read_csv(tmp_path / "melt.csv")
    pairs = zip(table["SummaryId"].to_pylist(), table["LocNumber"].to_pylist(), strict=True)
    known: dict[object, str] = {7: "007", 2: "L02"}
    assert all((name or None) == known.get(summary) for summary, name in pairs)
    for texts in ([f"3={info}"], [str(info), str(info)]):
        assert main([*command, *texts]) == 2
        assert "of no requested set, or of one twice" in capsys.readouterr().err
