from __future__ import annotations

import struct

import numpy as np
import pytest

from core.errors import InputError
from core.losses.inputs import (
    parse_event_rates,
    parse_occurrence,
    parse_quantiles,
    quantiles_from_text,
)
from tests.auxiliary import assert_refused, packed_occurrence

OCCURRENCE_HEADER = b"event_id,period_no,occ_year,occ_month,occ_day"
GRANULAR_HEADER = OCCURRENCE_HEADER + b",occ_hour,occ_minute"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "there is no data"),
        (b"\xef\xbb\xbf \r\n", "there is no data"),
        (b"quantile\n", "there is a header line but no other"),
        (b"q\n0.5", "line 1: the columns are q. They have to be quantile"),
        (b"0.5\nx\n0.7", "line 2: quantile 'x' is not a number"),
        (b"0.5\n\n0.7", "line 2: there are no values"),
        (b"quantile\r\n0.5\r\n\r\n0.7", "line 3: there are no values"),
        (b"0.5\r\r\n0.7", "line 2: there are no values"),
        (b"0.5\n0.1,0.2", "line 2: the number of columns is 2 and has to be 1"),
        (b"0.1;0.2\n", "line 1: quantile '0.1;0.2' is not a number"),
        (b"0.5\n1.5", "line 2: quantile 1.5 is not in 0 to 1"),
        (b"-0.1", "line 1: quantile -0.1 is not in 0 to 1"),
        (b"nan", "line 1: quantile nan is not in 0 to 1"),
        (b"inf", "line 1: quantile inf is not in 0 to 1"),
        (b"1e999", "line 1: quantile inf is not in 0 to 1"),
        (b"1.000000001", "line 1: quantile 1.000000001 is not in 0 to 1"),
        (b"quantile\n0.5\n0.7\n0.5", "line 4: quantile 0.5 is already in line 2"),
        (b"0.7\n0.5\n0.7\n0.5", "line 3: quantile 0.7 is already in line 1"),
        (b"0.1\n0.1000000001", "line 2: quantile 0.1000000001 is already in line 1"),
        ("0.5\n½".encode(), "line 2: quantile '½' is not a number"),
        (b"x" * 1000, "line 1: the columns are " + "x" * 60 + ". They"),
        (b"0.5\n" + b"y" * 1000, "line 2: quantile '" + "y" * 60 + "' is not a number"),
    ],
)
def test_quantile_csv_is_refused(data: bytes, message: str) -> None:
    assert_refused(message, None, parse_quantiles, data)


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (struct.pack("<ff", 0, 0.5)[:-1], "record 2 is cut off after 3 of 4 bytes", 4),
        (struct.pack("<ff", 0, 1.5), "record 2: quantile 1.5 is not in 0 to 1", 4),
        (struct.pack("<f", np.nan), "record 1: quantile nan is not in 0 to 1", 0),
        (
            struct.pack("<fii", 0, 250, 100),
            "record 2: quantile ",
            4,
        ),
        (struct.pack("<fff", 0, 0.5, 0), "record 3: quantile 0.0 is already in record 1", 8),
    ],
)
def test_packed_quantiles_are_refused(data: bytes, message: str, offset: int) -> None:
    assert_refused(message, offset, parse_quantiles, data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "value 1: there are no values"),
        ("0.5,", "value 2: there are no values"),
        ("0.1,a", "value 2: quantile 'a' is not a number"),
        ("0.1,2", "value 2: quantile 2.0 is not in 0 to 1"),
        ("0.1,0.2,0.1", "value 3: quantile 0.1 is already in value 1"),
        ("quantile,0.1", "value 1: quantile 'quantile' is not a number"),
    ],
)
def test_a_list_of_quantiles_is_refused(text: str, message: str) -> None:
    assert_refused(message, None, quantiles_from_text, text)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "there is no data"),
        (b"EventIds,Event_rates\n", "there is a header line but no other"),
        (b"EventIds\n1", "line 1: the columns are EventIds. They have to be EventIds,Event_rates"),
        (b"EventIds,EventIds\n1,1", "line 1: the columns are EventIds,EventIds"),
        (b"EventIds,Event_rates,x\n1,1,1", "line 1: the columns are EventIds,Event_rates,x"),
        (b"1,0.5\n2", "line 2: the number of columns is 1 and has to be 2"),
        (b"1,2,3\n1,2,3", "line 1: the number of columns is 3 and has to be 2"),
        (b"1,0.5\n,0.5", "line 2: EventIds '' is not a 64-bit integer"),
        (b"1,0.5\n2,", "line 2: Event_rates '' is not a number"),
        (b"1,0.5\n,", "line 2: there are no values"),
        (b"1.0,0.5", "line 1: EventIds '1.0' is not a 64-bit integer"),
        (b"a,b,\n1,2", "line 1: the number of columns is 3 and has to be 2"),
        (b"99999999999999999999,1", "line 1: EventIds '99999999999999999999' is not a 64-bit"),
        (b"x,y z", "line 1: EventIds 'x' is not a 64-bit integer; Event_rates 'y z' is not a"),
        (b"2147483648,1", "line 1: EventIds 2147483648 is not in 1 to 2147483647"),
        (b"1,1\n0,1", "line 2: EventIds 0 is not in 1 to 2147483647"),
        (b"-4,1", "line 1: EventIds -4 is not in 1 to 2147483647"),
        (b"1,nan", "line 1: Event_rates nan is negative or not finite"),
        (b"1,inf", "line 1: Event_rates inf is negative or not finite"),
        (b"1,-1", "line 1: Event_rates -1.0 is negative or not finite"),
        (b"EventIds,Event_rates\n3,1\n5,1\n4,1\n5,2", "line 5: EventIds 5 is already in line 3"),
    ],
)
def test_event_rate_csv_is_refused(data: bytes, message: str) -> None:
    assert_refused(message, None, parse_event_rates, data)


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (struct.pack("<ifi", 1, 0.5, 2), "record 2 is cut off after 4 of 8 bytes", 8),
        (struct.pack("<ifif", 1, 0.5, 0, 1), "record 2: EventIds 0 is not in 1", 8),
        (struct.pack("<ifif", 1, 0.5, 2, -1), "record 2: Event_rates -1.0 is negative", 12),
        (struct.pack("<if", 1, np.inf), "record 1: Event_rates inf is negative or not", 4),
        (struct.pack("<ifif", 3, 0, 3, 1), "record 2: EventIds 3 is already in record 1", 8),
        # As many bytes as records have, with the end of a file of DOS, or in Latin-1.
        (b"EventIds,Event_rates\r\n00001,0.3\r\n2,0.4\r\n5,0.7\r\n\x1a", "the byte 0x1a", 47),
        (b"EventIds,Event_rates,x\n1,0.25,\xf6\n", "the bytes are not UTF-8 text", None),
    ],
)
def test_packed_event_rates_are_refused(data: bytes, message: str, offset: int | None) -> None:
    assert_refused(message, offset, parse_event_rates, data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "there is no data"),
        (OCCURRENCE_HEADER, "there is a header line but no other"),
        (b"event_id,period_no\n1,1", "line 1: the columns are event_id,period_no. They have to"),
        (OCCURRENCE_HEADER + b",occ_hour\n1,1,1,1,1,1", "line 1: the columns are event_id,"),
        (b"1,1,2000,1,1,3", "line 1: the number of columns is 6 and has to be 5"),
        (b"1,1,2000,1,1\n1,1,2000,1", "line 2: the number of columns is 4 and has to be 5"),
        (b"1,11,2000,1,1", "line 1: period_no 11 is not in 1 to 10"),
        (b"1,0,2000,1,1", "line 1: period_no 0 is not in 1 to 10"),
        (b"0,1,2000,1,1", "line 1: event_id 0 is not in 1 to 2147483647"),
        (b"1,1,0,1,1", "line 1: occ_year 0 is not in 1 to 5879609"),
        (b"1,1,5879610,1,1", "line 1: occ_year 5879610 is not in 1 to 5879609"),
        (b"1,1,2000,0,1", "line 1: occ_month 0 is not in 1 to 12"),
        (b"1,1,2000,13,1", "line 1: occ_month 13 is not in 1 to 12"),
        (b"1,1,2000,1,0", "line 1: occ_day 0 is not in 1 to 31"),
        (b"1,1,2000,12,32", "line 1: occ_day 32 is not in 1 to 31"),
        (b"1,1,1900,2,29", "line 1: occ_day 29 is beyond the end of its month"),
        (GRANULAR_HEADER + b"\n1,1,2000,1,1,24,0", "line 2: occ_hour 24 is not in 0 to 23"),
        (GRANULAR_HEADER + b"\n1,1,2000,1,1,0,60", "line 2: occ_minute 60 is not in 0 to 59"),
        (b"1,1,2000,1,1,-1,0", "line 1: occ_hour -1 is not in 0 to 23"),
        (b"1,1,-1", "line 1: occ_date_id -1 is not in 0 to 2147483647"),
        (b"1,1,2147483648", "line 1: occ_date_id 2147483648 is not in 0 to 2147483647"),
    ],
)
def test_occurrence_csv_is_refused(data: bytes, message: str) -> None:
    assert_refused(message, None, parse_occurrence, data, 10)


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (b"\1\0\0\0\1", "an occurrence header has 8 bytes, and here are 5", 5),
        (packed_occurrence(), "there are no records", 8),
        (packed_occurrence((1, 1, 1), options=5), "date options 5 have bits beyond", 0),
        (packed_occurrence((1, 1, 1), options=-1), "date options -1 have bits beyond", 0),
        (packed_occurrence((1, 1, 1), options=2), "date options 2 say granular dates", 0),
        (packed_occurrence((1, 1, 1), periods=0), "the number of periods, 0, is below 1", 4),
        (packed_occurrence((1, 1, 1), periods=-3), "the number of periods, -3, is below", 4),
        (packed_occurrence((1, 1, 1)) + b"\0\0", "record 2 is cut off after 2 of 12 bytes", 20),
        (
            packed_occurrence((1, 1, 1), options=3) + b"\0",
            "record 2 is cut off after 1 of 16 bytes",
            24,
        ),
        (packed_occurrence((1, 1, 1), (0, 1, 1)), "record 2: event_id 0 is not in 1 to", 20),
        (packed_occurrence((1, 1, 1), (1, 11, 1)), "record 2: period_no 11 is not in 1 to 10", 24),
        (packed_occurrence((1, 0, 1)), "record 1: period_no 0 is not in 1 to 10", 12),
        (packed_occurrence((1, 1, -1)), "record 1: occ_date_id -1 is negative", 16),
        (
            packed_occurrence((1, 1, 1), (1, 1, -(2**40)), options=3),
            "record 2: occ_date_id -1099511627776 is negative",
            32,
        ),
    ],
)
def test_packed_occurrences_are_refused(data: bytes, message: str, offset: int) -> None:
    assert_refused(message, offset, parse_occurrence, data)


def test_occurrences_in_csv_need_the_number_of_periods() -> None:
    with pytest.raises(InputError, match="number of periods") as caught:
        parse_occurrence(b"1,1,5", source="occ.csv")
    assert caught.value.hint is not None
    assert "no_of_periods" in caught.value.hint
    assert caught.value.source == "occ.csv"


def test_another_number_of_periods_than_the_file_has_is_refused() -> None:
    data = packed_occurrence((1, 1, 1), periods=10)
    assert parse_occurrence(data, 10).periods == 10
    assert_refused("the file is of 10 periods, and 11 were given", 4, parse_occurrence, data, 11)


@pytest.mark.parametrize("periods", [0, -1, 2**31])
@pytest.mark.parametrize("data", [b"1,1,5", packed_occurrence((1, 1, 1))])
def test_an_absurd_number_of_periods_is_refused(data: bytes, periods: int) -> None:
    message = f"the number of periods, {periods}, is not in 1 to 2147483647"
    assert_refused(message, None, parse_occurrence, data, periods)


def test_a_signalling_nan_is_refused_without_a_warning() -> None:
    data = struct.pack("<iI", 1, 0x7F800001)
    with pytest.raises(InputError, match="not finite"):
        parse_event_rates(data)
