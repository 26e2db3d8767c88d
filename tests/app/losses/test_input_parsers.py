"""One table of parsers, which the service and the command share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.losses.input_parsers import PARSERS, parse_input, read_input
from app.losses.inputs import KINDS
from core.errors import InputError
from core.losses.inputs import encode_occurrence, parse_occurrence, parse_summary_info

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
