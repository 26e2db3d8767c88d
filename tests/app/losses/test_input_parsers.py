"""One table of parsers, which the service and the command share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.losses.input_parsers import PARSERS, beginning_of, kinds_of, parse_input, read_input
from app.losses.inputs import KINDS
from core.errors import InputError
from core.losses.inputs import (
    encode_occurrence,
    parse_event_rates,
    parse_occurrence,
    parse_periods,
    parse_summary_info,
)
from tests.streams import Block, Stream

BAD = b"\0\0\0"


def test_the_service_stores_what_can_be_parsed() -> None:
    assert tuple(PARSERS) == KINDS


@pytest.mark.parametrize("name", PARSERS)
def test_every_parser_names_the_file_at_fault(name: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_input(name, BAD, 3, "model.bin")
    assert caught.value.source == "model.bin"


def test_numbers_of_periods_matter_where_files_have_none() -> None:
    rows = b"event_id,period_no,occ_date_id\n1,2,735000\n"
    assert parse_input("occurrence", rows, 3).periods == 3
    weights = b"period_no,weighting\n1,0.5\n2,0.5\n"
    assert len(parse_input("periods", weights, 2).weights) == 2
    # One that another file has no use for is left alone.
    assert parse_input("quantiles", b"quantile\n0.5\n", 3).tolist() == [0.5]


KINDS_OF = {
    "quantiles": (b"quantile\n0.5\n", np.array([0, 0.25, 0.5, 0.9], "<f4").tobytes()),
    "return_periods": (b"return_period\n100\n50\n", np.array([1000, 50], "<i4").tobytes()),
    "periods": (
        b"period_no,weighting\n1,0.5\n2,0.5\n",
        np.array([(1, 0.1), (2, 0.9)], "<i4,<f8").tobytes(),
    ),
    "event_rates": (
        b"EventIds,Event_rates\n1,0.25\n",
        np.array([(1, 0.25), (2, 0.3)], "<i4,<f4").tobytes(),
    ),
    "occurrence": (
        b"event_id,period_no,occ_date_id\n7,1,735000\n",
        np.array([1, 3, 7, 1, 735000, 7, 2, 735001], "<i4").tobytes(),
    ),
    "summary_xref": (
        b"item_id,summary_id,summaryset_id\n1,1,1\n",
        np.array([(1, 1, 1), (2, 1, 1)], "<i4,<i4,<i4").tobytes(),
    ),
    "summary_map": (b"loc_id,item_id,building_id\n1,1,1\n",),
    "summary_info": (b"summary_id,tiv\n1,5\n",),
}


@pytest.mark.parametrize("kind", PARSERS)
def test_a_file_that_is_another_input_is_named(kind: str) -> None:
    for data in KINDS_OF[kind]:
        kinds = kinds_of(data)
        # An xref has all columns of a summary info.
        assert kinds == [kind, *(["summary_info"] if data.startswith(b"item_id") else [])]
        for name in set(PARSERS).difference(kinds):
            with pytest.raises(InputError, match=f"the input {kind.replace('_', ' ')}[: ]"):
                parse_input(name, data, None, "x")
    stream = Stream("summary", 1, 4, (Block(1, 1, ((-1, 2.0), (1, 3.0))),)).encode()
    with pytest.raises(InputError, match="looks like a loss stream, which is no input"):
        parse_input(kind, stream)


@pytest.mark.parametrize("row", [b"-1,1,1\n", b"a,1,1\n"])
def test_a_wrong_row_under_the_right_header_is_told_as_such(row: bytes) -> None:
    with pytest.raises(InputError, match="line 2: ") as caught:
        parse_input("summary_xref", b"item_id,summary_id,summaryset_id\n" + row)
    assert "looks like" not in str(caught.value.hint)


def test_the_beginning_of_a_long_file_tells_its_kind() -> None:
    weights = np.zeros(100_000, [("period_no", "<i4"), ("weighting", "<f8")])
    weights["period_no"], weights["weighting"] = np.arange(1, 100_001), 1 / 100_000
    for data in (weights.tobytes(), b"period_no,weighting\n" + b"1,0.5\n" * 9999):
        begin = beginning_of(len(data))
        assert begin < 50_000
        assert kinds_of(data[:begin])[:1] == (["periods"] if 0 in data else [])
    lines = "".join(f"{i},{1 / 9999:.9f}\n" for i in range(1, 10_000))
    assert kinds_of(f"period_no,weighting\n{lines}".encode()) == ["periods"]
    # One that is cut off is of its kind, and not told to be another.
    with pytest.raises(InputError, match="is cut off after") as caught:
        parse_input("periods", weights.tobytes()[:-4])
    assert "looks like" not in str(caught.value)


def test_the_kind_of_a_table_is_told_by_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "p.parquet", period_no=[1, 2], weighting=[0.5, 0.5])
    with pytest.raises(
        InputError, match=r"of another kind\. It looks like the input periods: give it as that one$"
    ):
        parse_input("occurrence", read_input(path))


def test_what_is_nothing_known_keeps_its_fault() -> None:
    with pytest.raises(InputError, match=r"is cut off after .* It was read as packed records"):
        parse_input("periods", bytes(13))
    with pytest.raises(
        InputError, match=r"a form, as curl -F sends it\. Send the file alone: curl"
    ):
        parse_input("periods", b"--------------9f\r\nContent-Disposition: form-data")


@pytest.mark.parametrize("text", ["\u00a0100", "\U00050eca", "\u0665"])
def test_numbers_have_ascii_digits_alone(text: str) -> None:
    # numpy's reader takes the first for 100, and some processes end over the second.
    with pytest.raises(InputError, match="is not a 64-bit integer"):
        parse_input("return_periods", f"return_period\n50\n{text}\n".encode())


def test_whole_numbers_are_no_rates() -> None:
    with pytest.raises(InputError, match="looks like one of whole numbers") as caught:
        parse_event_rates(np.array([1000, 500, 250, 200], "<i4").tobytes())
    assert caught.value.offset == 4
    with pytest.raises(InputError, match="looks like one of whole numbers"):
        parse_periods(np.array([(1, 1, 1), (2, 1, 1)], "<i4,<i4,<i4").tobytes())


def write(path: Path, **columns: Any) -> str:  # noqa: ANN401 - anything pyarrow takes
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_parquet_gives_the_occurrences_of_csv(tmp_path: Path) -> None:
    text = b"event_id,period_no,occ_year,occ_month,occ_day\n7,1,2063,1,31\n7,2,2064,2,29\n"
    path = tmp_path / "occurrence.csv"
    path.write_bytes(text)
    assert read_input(str(path)) == text
    parquet = write(
        tmp_path / "occurrence.parquet",
        event_id=pa.array([7, 7], pa.int32()),
        period_no=pa.array([1, 2], pa.int32()),
        occ_year=pa.array([2063, 2064], pa.int16()),
        occ_month=pa.array([1, 2], pa.int8()),
        occ_day=pa.array([31, 29], pa.int64()),
    )
    expected = encode_occurrence(parse_occurrence(text, 2), "bin")
    assert encode_occurrence(parse_occurrence(read_input(parquet), 2), "bin") == expected


def test_texts_of_parquet_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "info.parquet", summary_id=[2, 1], name=["two", "eins, \u00e4"])
    columns = parse_summary_info(read_input(path)).columns
    assert columns["name"].tolist() == ["eins, \u00e4", "two"]


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "x.parquet", a=np.arange(100)))
    data = path.read_bytes()
    for damaged in (data[:-9], b"PAR1", data[:40] + b"\xff" * 40 + data[80:-60] + b"PAR1"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged") as caught:
            read_input(str(path))
        assert caught.value.source == str(path)
        assert caught.value.hint


def test_missing_values_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", event_id=[1, None])
    with pytest.raises(InputError, match="column event_id has missing values"):
        read_input(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.*cannot be read"):
        read_input(str(tmp_path / "none"))
