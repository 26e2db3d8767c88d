from __future__ import annotations

import datetime as dt
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.errors import InputError
from core.losses.inputs import (
    EventRates,
    Occurrence,
    day_ids,
    parse_event_rates,
    parse_occurrence,
    parse_quantiles,
    quantiles_from_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CONFORMANCE = Path(__file__).resolve().parents[4] / "shared" / "conformance" / "oasis"

OCCURRENCE_HEADER = b"event_id,period_no,occ_year,occ_month,occ_day"
GRANULAR_HEADER = OCCURRENCE_HEADER + b",occ_hour,occ_minute"


def conformance(name: str) -> bytes:
    path = CONFORMANCE / name
    if not path.exists():
        pytest.skip(f"no conformance data at {path}")
    return path.read_bytes()


def packed_occurrence(*records: tuple[int, int, int], options: int = 1, periods: int = 10) -> bytes:
    record = "<iiq" if options & 2 else "<iii"
    return struct.pack("<ii", options, periods) + b"".join(
        struct.pack(record, *fields) for fields in records
    )


def assert_same(one: Occurrence, other: Occurrence) -> None:
    assert one.periods == other.periods
    for name in ("event_ids", "period_numbers", "dates"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


# Conformance files


def test_quantiles_of_the_csv_are_those_of_the_packed_file() -> None:
    packed = parse_quantiles(conformance("aux_files/quantile.bin"))
    text = parse_quantiles(conformance("aux_files/quantile.csv"))
    assert text.tobytes() == packed.tobytes() == conformance("aux_files/quantile.bin")
    assert text.dtype == np.float32


@pytest.mark.parametrize(
    "stem",
    ["aux_files/occurrence", "aux_files/occurrence_gran", "plt_periods/input/occurrence"],
)
def test_occurrences_of_the_csv_are_those_of_the_packed_file(stem: str) -> None:
    packed = parse_occurrence(conformance(f"{stem}.bin"))
    text = parse_occurrence(conformance(f"{stem}.csv"), packed.periods)
    assert_same(text, packed)
    assert len(packed.event_ids) == packed.event_ids[-1] > 8
    assert packed.event_ids.dtype == packed.period_numbers.dtype == np.int32
    assert packed.dates.dtype == np.int64


def test_event_rates_of_the_conformance_file_come_sorted() -> None:
    rates = parse_event_rates(conformance("aux_files/event_rates.csv"))
    assert rates.event_ids.tolist() == [1, 12, 23]
    assert rates.rates.tolist() == [0.001, 0.052, 0.103]


# What is accepted


@pytest.mark.parametrize(
    "data",
    [
        b"0.9\n0.1\n",
        b"quantile\n0.9\n0.1\n",
        b"\xef\xbb\xbfquantile\r\n0.9\r\n0.1\r\n\r\n \r\n",
        b'"Quantile"\n 0.9 \n\t1e-1',
        b"0.9\r0.1\r",
        struct.pack("<2f", 0.9, 0.1),
    ],
)
def test_quantiles_are_read_in_the_order_of_the_file(data: bytes) -> None:
    quantiles = parse_quantiles(data)
    assert quantiles.dtype == np.float32
    assert quantiles.tolist() == np.array([0.9, 0.1], np.float32).tolist()


def test_packed_quantiles_that_are_printable_are_not_taken_for_text() -> None:
    data = np.array([0.9, 0.95], "<f4").tobytes()
    assert data.isascii()
    assert data.decode().isprintable()
    assert parse_quantiles(data).tobytes() == data


def test_negative_zero_becomes_zero() -> None:
    assert not np.signbit(parse_quantiles(b"-0.0\n"))[0]
    assert not np.signbit(parse_event_rates(b"1,-0.0\n").rates)[0]


def test_a_list_of_quantiles_is_read() -> None:
    assert quantiles_from_text("0, 0.5,1").tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    "data",
    [
        b"7,0.5\n2,0.25\n",
        b"EventIds,Event_rates\n7,0.5\n2,0.25\n",
        b"\xef\xbb\xbfevent_RATES , eventids\r\n0.5,7\r\n.25, 2\r\n\r\n",
        struct.pack("<ifif", 7, 0.5, 2, 0.25),
    ],
)
def test_event_rates_are_read_by_ascending_event(data: bytes) -> None:
    rates = parse_event_rates(data)
    assert rates.event_ids.tolist() == [2, 7]
    assert rates.rates.tolist() == [0.25, 0.5]
    assert rates.event_ids.dtype == np.int32
    assert rates.rates.dtype == np.float64


def test_event_rates_of_a_csv_keep_their_doubles() -> None:
    assert parse_event_rates(b"1,0.1").rates[0] == 0.1


@pytest.mark.parametrize(
    "data",
    [
        b"5,1,0001,3,1\n5,10,2000,2,29\n",
        OCCURRENCE_HEADER + b"\r\n5,1,1,3,1\r\n5,10,2000,2,29\r\n",
        b"OCC_DAY,occ_month,occ_year,period_no,event_id\n1,3,1,1,5\n29,2,2000,10,5",
        b"event_id,period_no,occ_date_id\n5,1,365\n5,10,730484\n",
        b"5,1,365\n5,10,730484\n",
    ],
)
def test_occurrences_of_any_csv_layout_are_read(data: bytes) -> None:
    packed = parse_occurrence(packed_occurrence((5, 1, 365), (5, 10, 730484)))
    assert_same(parse_occurrence(data, 10), packed)


def test_granular_dates_are_minutes() -> None:
    text = parse_occurrence(GRANULAR_HEADER + b"\n1,1,1,3,1,23,59\n", 10)
    assert text.dates.tolist() == [365 * 1440 + 23 * 60 + 59]
    packed = packed_occurrence((1, 1, 365 * 1440 + 23 * 60 + 59), options=3)
    assert_same(text, parse_occurrence(packed))


def test_packed_dates_without_calendar_are_taken_as_they_are() -> None:
    assert parse_occurrence(packed_occurrence((1, 1, 77), options=0), 10).dates.tolist() == [77]


def test_an_event_may_happen_twice_on_one_date() -> None:
    assert len(parse_occurrence(b"1,1,5\n1,1,5\n", 10).event_ids) == 2


def test_event_rates_are_occurrences_over_periods() -> None:
    occurrence = parse_occurrence(b"9,1,0\n2,3,0\n9,3,0\n9,4,0\n", 8)
    rates = occurrence.event_rates()
    assert isinstance(rates, EventRates)
    assert rates.event_ids.tolist() == [2, 9]
    assert rates.rates.tolist() == [1 / 8, 3 / 8]
    assert rates.event_ids.dtype == np.int32


@given(st.dates())
@example(dt.date(1, 1, 1))
@example(dt.date(2000, 2, 29))
@example(dt.date(9999, 12, 31))
@settings(deadline=None)
def test_date_ids_follow_the_gregorian_calendar(date: dt.date) -> None:
    parts = [np.array([part]) for part in (date.year, date.month, date.day)]
    assert day_ids(*parts).tolist() == [date.toordinal() + 305]


def test_the_last_day_of_every_month_is_accepted_and_no_later_one() -> None:
    for year in (1900, 1999, 2000, 2004, 12_000):
        for month in range(1, 13):
            leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
            length = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]
            parse_occurrence(f"1,1,{year},{month},{length}".encode(), 1)
            with pytest.raises(InputError, match=f"occ_day {length + 1} is"):
                parse_occurrence(f"1,1,{year},{month},{length + 1}".encode(), 1)


def test_a_million_lines_are_read_and_the_bad_one_is_found() -> None:
    lines = [f"{event},0.25" for event in range(1, 1_000_001)]
    assert len(parse_event_rates("\n".join(lines).encode()).rates) == 1_000_000
    lines[765_432] = "765433,x"
    with pytest.raises(InputError, match=r"^line 765433: Event_rates 'x' is not a number"):
        parse_event_rates("\n".join(lines).encode())


# What is refused


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
    ],
)
def test_packed_event_rates_are_refused(data: bytes, message: str, offset: int) -> None:
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
    assert "--no-of-periods" in caught.value.hint
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


# No bytes do anything else

CSV_LIKE = st.text(st.sampled_from("0123456789.,-+e \r\n\tnaif_\u2028\xa0"), max_size=60)
FUZZ = st.one_of(
    st.binary(max_size=64),
    CSV_LIKE.map(str.encode),
    st.binary(max_size=48).map(lambda body: struct.pack("<ii", 1, 10) + body),
)


@given(FUZZ)
@example(b"0.1\r\r\n0.2")
@example(b"0.1\x85\n0.2")
@settings(deadline=None, max_examples=300)
def test_any_bytes_give_quantiles_or_an_input_error(data: bytes) -> None:
    with suppress(InputError):
        quantiles = parse_quantiles(data)
        assert len(np.unique(quantiles)) == len(quantiles) > 0
        assert ((quantiles >= 0) & (quantiles <= 1)).all()


@given(FUZZ)
@settings(deadline=None, max_examples=300)
def test_any_bytes_give_event_rates_or_an_input_error(data: bytes) -> None:
    with suppress(InputError):
        rates = parse_event_rates(data)
        assert (np.diff(rates.event_ids, prepend=0) > 0).all()
        assert (np.isfinite(rates.rates) & (rates.rates >= 0)).all()


@given(FUZZ, st.sampled_from([None, 1, 10]))
@settings(deadline=None, max_examples=300)
def test_any_bytes_give_occurrences_or_an_input_error(data: bytes, periods: int | None) -> None:
    with suppress(InputError):
        occurrence = parse_occurrence(data, periods)
        assert len(occurrence.event_ids) == len(occurrence.dates) > 0
        assert (occurrence.event_ids >= 1).all()
        assert (occurrence.period_numbers >= 1).all()
        assert (occurrence.period_numbers <= occurrence.periods).all()


@given(
    st.lists(
        st.sampled_from(["1,2", " 3 ,4.5", "x,1", "", " ", "1", "1,2,3", "5,\t6", "7,"]),
        min_size=1,
        max_size=12,
    )
)
@settings(deadline=None)
def test_the_first_bad_line_is_named(lines: list[str]) -> None:
    good = {"1,2", " 3 ,4.5", "5,\t6"}
    lines = ["8,9", *lines, "9,9"]
    bad = [number for number, line in enumerate(lines, 1) if line not in good | {"8,9", "9,9"}]
    if not bad:
        return
    with pytest.raises(InputError, match=f"^line {bad[0]}: "):
        parse_event_rates("\n".join(lines).encode())


def assert_refused(
    message: str, offset: int | None, parse: Callable[..., object], *args: object
) -> None:
    with pytest.raises(InputError) as caught:
        parse(*args, source="the-file")
    error = caught.value
    assert str(error).startswith(f"the-file: {message}")
    assert error.source == "the-file"
    assert error.offset == offset
    assert error.hint
