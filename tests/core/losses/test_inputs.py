from __future__ import annotations

import datetime as dt
import struct
from contextlib import suppress

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
from tests.auxiliary import conformance, packed_occurrence
from tests.scale import BOUNDS_CHECKED, PURE_PYTHON, examples

OCCURRENCE_HEADER = b"event_id,period_no,occ_year,occ_month,occ_day"
GRANULAR_HEADER = OCCURRENCE_HEADER + b",occ_hour,occ_minute"


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
    count = 50_000 if PURE_PYTHON or BOUNDS_CHECKED else 1_000_000
    lines = [f"{event},0.25" for event in range(1, count + 1)]
    assert len(parse_event_rates("\n".join(lines).encode()).rates) == count
    bad = count // 4 * 3 + 1
    lines[bad - 1] = f"{bad},x"
    with pytest.raises(InputError, match=rf"^line {bad}: Event_rates 'x' is not a number"):
        parse_event_rates("\n".join(lines).encode())


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
@settings(max_examples=examples(300))
def test_any_bytes_give_quantiles_or_an_input_error(data: bytes) -> None:
    with suppress(InputError):
        quantiles = parse_quantiles(data)
        assert len(np.unique(quantiles)) == len(quantiles) > 0
        assert ((quantiles >= 0) & (quantiles <= 1)).all()


@given(FUZZ)
@settings(max_examples=examples(300))
def test_any_bytes_give_event_rates_or_an_input_error(data: bytes) -> None:
    with suppress(InputError):
        rates = parse_event_rates(data)
        assert (np.diff(rates.event_ids, prepend=0) > 0).all()
        assert (np.isfinite(rates.rates) & (rates.rates >= 0)).all()


@given(FUZZ, st.sampled_from([None, 1, 10]))
@settings(max_examples=examples(300))
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
