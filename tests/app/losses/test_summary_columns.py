from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from app.command.main import main
from app.losses.tables import table_encoder
from core.errors import InputError, ReportError
from core.losses.inputs import SummaryInfo, parse_summary_info
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_stream

INFO = b'summary_id,LocNumber,tiv,note\n7,007,12.5,"a, b"\n2,L02,3,plain\n'


def encoded(form: str, info: SummaryInfo, report: str = "selt") -> bytes:
    rows = np.zeros(3, REPORTS[report].dtype(4))
    if report == "selt":
        rows["SummaryId"] = [2, 7, 5]
    encoder = table_encoder(form, REPORTS[report], 4, info)
    return encoder.begin() + bytes(encoder.encode(rows)) + encoder.end()


def test_csv_has_the_texts_of_the_file() -> None:
    lines = encoded("csv", parse_summary_info(INFO)).decode().splitlines()
    assert [line.split(",", 5)[-1] for line in lines] == [
        "LocNumber,tiv,note",
        "L02,3,plain",
        '007,12.5,"a, b"',
        ",,",
    ]


def test_typed_formats_have_numbers_where_all_texts_are() -> None:
    info = parse_summary_info(INFO)
    parquet = pq.read_table(io.BytesIO(encoded("parquet", info)))
    arrow = pa.ipc.open_stream(encoded("arrow", info)).read_all()
    lines = [orjson.loads(line) for line in encoded("ndjson", info).splitlines()]
    for table in (parquet, arrow, pa.Table.from_pylist(lines)):
        assert table.column("LocNumber").to_pylist() == ["L02", "007", None]
        assert table.column("tiv").to_pylist() == [3.0, 12.5, None]
        assert table.column("note").to_pylist() == ["plain", "a, b", None]


@pytest.mark.parametrize(
    ("texts", "values"),
    [(["1", "20"], [1, 20]), (["1", "02"], ["1", "02"]), (["1e3", "2"], [1e3, 2.0])],
)
def test_names_that_look_like_numbers_stay_texts(texts: list[str], values: list[object]) -> None:
    info = SummaryInfo(np.array([2, 7], np.int32), {"x": np.array(texts)})
    table = pq.read_table(io.BytesIO(encoded("parquet", info)))
    assert table.column("x").to_pylist() == [*values, None]


def test_reports_without_summaries_are_not_joined() -> None:
    assert encoded("csv", parse_summary_info(INFO), "events").startswith(
        REPORTS["events"].header.encode() + b"\n"
    )


def test_packed_records_and_names_of_columns_there_are_refused() -> None:
    with pytest.raises(ReportError, match="packed records"):
        encoded("bin", parse_summary_info(INFO))
    with pytest.raises(InputError, match="SELT has a column 'Loss' already"):
        encoded("csv", parse_summary_info(b"summary_id,Loss\n1,2\n"))


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
