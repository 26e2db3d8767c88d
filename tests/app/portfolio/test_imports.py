"""Tables in every encoding that clients send."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.errors import problem_of
from app.portfolio.exchanging import parse
from core.errors import InputError
from core.portfolio.tables import Given
from tests.core.portfolio.test_tables import happenings, losses_of
from tests.decoders import DECODERS

TABLE = pa.table(
    {
        "Period": pa.array([1, 3, 3], pa.int32()),
        "EventId": pa.array([7, 7, 2], pa.uint32()),
        "Loss": pa.array([2.5, 2.5, 1], pa.float32()),
        "region": pa.array(["a", "a", "b"]),
    }
)
CSV = b"Period,EventId,Loss,region\n1,7,2.5,a\n3,7,2.5,a\n3,2,1,b\n"


def parquet(table: Any, **options: Any) -> bytes:  # noqa: ANN401 - pyarrow's
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def arrow(table: Any, *, stream: bool = False) -> bytes:  # noqa: ANN401 - as above
    file = io.BytesIO()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(pa.output_stream(file), table.schema) as writer:
        for batch in table.to_batches(max_chunksize=2):
            writer.write_batch(batch)
        written = file
    return written.getvalue()


@pytest.mark.parametrize(
    "body",
    [CSV, parquet(TABLE, row_group_size=2), arrow(TABLE), arrow(TABLE, stream=True)],
    ids=["csv", "parquet", "arrow-file", "arrow-stream"],
)
def test_a_table_is_the_same_set_in_every_encoding(body: bytes) -> None:
    made = parse("ylt", body, Given(periods=5), DECODERS, "the-file")
    assert losses_of(made.table) == {(2, 2, 1): 1.0, (7, 1, 1): 2.5}
    assert happenings(made.calendar) == [(1, 0, 7), (3, 0, 2), (3, 0, 7)]
    assert made.dimensions is not None
    assert made.dimensions.columns["region"].tolist() == ["a", "b"]


@pytest.mark.parametrize("coded", ["region", "EventId", "Loss"])
def test_dictionaries_are_decoded_where_they_can_be_found(coded: str) -> None:
    at = TABLE.column_names.index(coded)
    table = TABLE.set_column(at, coded, TABLE[coded].combine_chunks().dictionary_encode())
    for body in (parquet(table), arrow(table)):
        made = parse("ylt", body, Given(periods=5), DECODERS, "the-file")
        assert losses_of(made.table) == {(2, 2, 1): 1.0, (7, 1, 1): 2.5}
        assert made.dimensions is not None
        assert made.dimensions.columns["region"].tolist() == ["a", "b"]
    with pytest.raises(InputError, match=f"column '{coded}' has a dictionary.* stream") as caught:
        parse("ylt", arrow(table, stream=True), Given(periods=5), DECODERS)
    assert "Write an Arrow file" in str(caught.value.hint)
    assert problem_of(caught.value).code == "input"


@pytest.mark.parametrize("encode", [parquet, arrow])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_keep_their_time_of_day(encode: Callable[[Any], bytes], unit: str) -> None:
    texts = ["2001-02-27T23:00", "2001-02-28T01:00", "2001-02-28T00:00"]
    hours = {"Date": pa.array(np.array(texts, f"M8[{unit}]"))}
    dates = {
        "Year": pa.array([2001] * 3),
        "Month": pa.array([2] * 3),
        "Day": pa.array([27, 28, 28]),
        "Hour": pa.array([23, 1, 0]),
        "Minute": pa.array([0] * 3),
    }
    found = [
        parse("ylt", encode(_dated(columns)), Given(periods=5), DECODERS).calendar
        for columns in (hours, dates)
    ]
    assert all(calendar.granular for calendar in found)
    assert happenings(found[0]) == happenings(found[1])


@pytest.mark.parametrize("encode", [parquet, arrow])
def test_timestamps_that_tell_no_minute_of_a_day_are_refused(
    encode: Callable[[Any], bytes],
) -> None:
    times = pa.array(np.array(["2001-02-27T23:00:05"] * 3, "M8[us]"))
    table = _dated({"Date": times})
    with pytest.raises(InputError, match=r"row 1: Date .* has seconds"):
        parse("ylt", encode(table), Given(periods=5), DECODERS)
    zoned = _dated({"Date": times.cast(pa.timestamp("us", "Europe/Berlin"))})
    with pytest.raises(InputError, match=r"column Date is of the type .* without a time zone"):
        parse("ylt", encode(zoned), Given(periods=5), DECODERS)


def _dated(columns: dict[str, Any]) -> Any:  # noqa: ANN401 - pyarrow's
    named = {name: TABLE[name] for name in TABLE.column_names}
    return pa.table({**named, **columns})


@pytest.mark.parametrize("encode", [parquet, arrow])
def test_faults_of_decoded_tables_name_the_row(encode: Callable[[Any], bytes]) -> None:
    negative = TABLE.set_column(2, "Loss", pa.array([2.5, -1.0, 1.0]))
    with pytest.raises(InputError, match=r"row 2: Loss -1\.0 is negative"):
        parse("ylt", encode(negative), Given(periods=5), DECODERS)
    missing = TABLE.set_column(2, "Loss", pa.array([2.5, None, 1.0]))
    with pytest.raises(InputError, match="column Loss has missing values, the first in row 2"):
        parse("ylt", encode(missing), Given(periods=5), DECODERS)
    missing = TABLE.set_column(2, "Loss", pa.array([2, 1, None]))
    with pytest.raises(InputError, match=r"'Loss' has missing values \(value . of a part is null"):
        parse("ylt", encode(missing), Given(periods=5), DECODERS)
    text = TABLE.set_column(2, "Loss", pa.array(["x", "y", "z"]))
    with pytest.raises(InputError, match="column Loss has values of type object"):
        parse("ylt", encode(text), Given(periods=5), DECODERS)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (parquet(TABLE)[:-9] + b"x" * 9, "the parquet file is damaged"),
        (arrow(TABLE)[:200], "the arrow file is damaged"),
        (arrow(TABLE, stream=True)[:60], "the arrow file is damaged"),
        (arrow(TABLE, stream=True)[:-8], "the arrow file is damaged.* byte .* without its end"),
        (b"\x1f\x8b" + CSV, "it is compressed with gzip"),
        (b"", "there is no data"),
    ],
)
def test_damaged_files_are_refused(body: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse("ylt", body, Given(periods=5), DECODERS)
    assert caught.value.hint


def test_a_small_file_that_stands_for_many_rows_is_refused() -> None:
    million = pa.table({"Period": pa.array([1] * 2_000_000), "Loss": pa.array([1.0] * 2_000_000)})
    body = parquet(million, compression="zstd")
    assert len(body) < 100_000
    with pytest.raises(InputError, match="take more than"):
        parse("ylt", body, Given(periods=5), DECODERS)
