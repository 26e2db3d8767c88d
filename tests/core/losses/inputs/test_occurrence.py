from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.losses.inputs import (
    Data,
    Occurrence,
    calendar_dates,
    day_ids,
    encode_occurrence,
    parse_occurrence,
)
from tests.auxiliary import assert_refused, conformance, packed_occurrence
from tests.scale import examples


@given(st.datetimes())
@example(dt.datetime(1, 1, 1, tzinfo=dt.UTC))
@example(dt.datetime(2063, 1, 31, 23, 59, tzinfo=dt.UTC))
@example(dt.datetime(2063, 3, 31, 0, 1, tzinfo=dt.UTC))
@example(dt.datetime(2000, 2, 29, 12, tzinfo=dt.UTC))
@settings(max_examples=examples(100))
def test_calendar_dates_are_the_inverse_of_date_ids(when: dt.datetime) -> None:
    days = np.array([when.toordinal() + 305])
    parts = [part.tolist() for part in calendar_dates(days, granular=False)]
    assert parts == [[when.year], [when.month], [when.day], [0], [0]]
    minutes = days * 1440 + when.hour * 60 + when.minute
    parts = [part.tolist() for part in calendar_dates(minutes, granular=True)]
    assert parts == [[when.year], [when.month], [when.day], [when.hour], [when.minute]]


def test_calendar_dates_hold_to_the_last_year_there_is() -> None:
    days = np.concatenate(
        [np.arange(0, 800_000, 7), np.arange(2**31 - 400_000, 2**31, 3), np.arange(1_460)]
    )
    year, month, day, _, _ = calendar_dates(days, granular=False)
    assert (day_ids(year, month, day) == days).all()
    assert ((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all()


@pytest.mark.parametrize(
    "stem",
    ["aux_files/occurrence", "aux_files/occurrence_gran", "plt_periods/input/occurrence"],
)
def test_occurrences_are_written_as_the_peer_writes_them(stem: str) -> None:
    packed, text = conformance(f"{stem}.bin"), conformance(f"{stem}.csv")
    occurrence = parse_occurrence(packed)
    assert encode_occurrence(occurrence, "bin") == packed
    assert encode_occurrence(occurrence, "csv").split() == text.split()
    assert encode_occurrence(parse_occurrence(text, occurrence.periods), "bin") == packed


def test_occurrences_of_a_model_without_calendar_are_written() -> None:
    packed = packed_occurrence((3, 1, 77), (1, 10, 5), options=0)
    occurrence = parse_occurrence(packed)
    assert not occurrence.calendar
    assert encode_occurrence(occurrence, "bin") == packed
    text = encode_occurrence(occurrence, "csv")
    assert text == b"event_id,period_no,occ_date_id\n3,1,77\n1,10,5\n"
    assert encode_occurrence(parse_occurrence(text, 10), "bin") == packed


def test_columns_are_read_as_csv_is() -> None:
    columns: Data = {
        "event_id": np.array([5, 5], np.int32),
        "period_no": np.array([1, 10], np.uint8),
        "occ_year": np.array([1, 2000]),
        "occ_month": np.array([3, 2], np.int8),
        "occ_day": np.array([1, 29], np.int16),
    }
    packed = packed_occurrence((5, 1, 365), (5, 10, 730484))
    assert encode_occurrence(parse_occurrence(columns, 10), "bin") == packed
    assert_refused("occurrences in columns do not tell the", None, parse_occurrence, columns, None)


def test_a_date_after_the_last_day_is_refused() -> None:
    last = 2**31 * 1440
    assert parse_occurrence(packed_occurrence((1, 1, last - 1), options=3)).granular
    message = f"record 1: occ_date_id {last} is after the last day there is"
    data = packed_occurrence((1, 1, last), options=3)
    assert_refused(message, 16, parse_occurrence, data)


def test_occurrences_are_found_by_event() -> None:
    events = np.array([9, 2, 9, 4, 2, 9], np.int32)
    occurrence = Occurrence(6, events, np.arange(1, 7, dtype=np.int32), np.zeros(6, np.int64))
    index = occurrence.by_event()
    assert index.event_ids.tolist() == [2, 4, 9]
    spans = zip(index.starts[:-1], index.starts[1:], strict=True)
    found = [occurrence.period_numbers[index.order[a:b]].tolist() for a, b in spans]
    assert found == [[2, 5], [4], [1, 3, 6]]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 7)), min_size=1, max_size=60))
@settings(max_examples=examples(50))
def test_event_rates_are_counts_over_periods(pairs: list[tuple[int, int]]) -> None:
    rates = parse_occurrence(
        packed_occurrence(*((e, p, 0) for e, p in pairs), periods=7)
    ).event_rates()
    counts = {event: sum(e == event for e, _ in pairs) for event, _ in pairs}
    assert rates.event_ids.tolist() == sorted(counts)
    assert rates.rates.tolist() == [counts[event] / 7 for event in sorted(counts)]
