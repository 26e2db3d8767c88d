from __future__ import annotations

import struct

import numpy as np
import pytest

from core.losses.inputs import (
    Data,
    encode_return_periods,
    parse_return_periods,
    return_periods_from_text,
)
from tests.auxiliary import assert_refused, conformance


def test_return_periods_of_the_csv_are_those_of_the_packed_file() -> None:
    data = conformance("aux_files/returnperiods.bin")
    text = conformance("aux_files/returnperiods.csv")
    years = parse_return_periods(data).years
    assert years.tolist() == parse_return_periods(text).years.tolist()
    assert years.dtype == np.int32
    assert (np.diff(years) < 0).all()
    assert encode_return_periods(parse_return_periods(text), "bin") == data
    assert encode_return_periods(parse_return_periods(data), "csv").split() == text.split()


@pytest.mark.parametrize(
    "data",
    [
        b"50\n200\n100\n",
        b"return_period\n100\n200\n50",
        {"Return_Period": np.array([100, 50, 200])},
    ],
)
def test_return_periods_of_csv_and_columns_are_sorted(data: Data) -> None:
    assert parse_return_periods(data).years.tolist() == [200, 100, 50]


def test_a_list_of_return_periods_is_read() -> None:
    assert return_periods_from_text("50, 200,100").years.tolist() == [200, 100, 50]


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (b"", "there is no data", None),
        (b"10\n0", "line 2: return_period 0 is not in 1 to 2147483647", None),
        (b"10\n2.5", "line 2: return_period '2.5' is not a 64-bit integer", None),
        (b"10\n5\n10", "line 3: return_period 10 is already in line 1", None),
        (struct.pack("<3i", 100, 10, 50), "record 3: return_period 50 is above the one", 8),
        (struct.pack("<3i", 100, 10, 10), "record 3: return_period 10 is already in", 8),
        (struct.pack("<2i", 100, -1), "record 2: return_period -1 is not in 1 to", 4),
        (struct.pack("<2i", 100, 1)[:-1], "record 2 is cut off after 3 of 4 bytes", 4),
    ],
)
def test_return_periods_are_refused(data: Data, message: str, offset: int | None) -> None:
    assert_refused(message, offset, parse_return_periods, data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "value 1: there are no values"),
        ("10,x", "value 2: return_period 'x' is not a 64-bit integer"),
        ("10,0", "value 2: return_period 0 is not in 1"),
        ("10,10", "value 2: return_period 10 is already in value 1"),
    ],
)
def test_a_list_of_return_periods_is_refused(text: str, message: str) -> None:
    assert_refused(message, None, return_periods_from_text, text)
