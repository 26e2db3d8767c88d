from __future__ import annotations

import itertools
import math

import pytest

from app.losses.pictures.panels import (
    choose_unit,
    log_ticks,
    short_number,
    three_digits,
    tick_labels,
    ticks_within,
)


@pytest.mark.parametrize(
    ("maxima", "currency", "label"),
    [
        ([], None, ""),
        ([0.0, 0.0], "EUR", "EUR"),
        ([899_999.0], None, ""),
        ([1e6, 3e8], None, "millions"),
        ([2e9, 5e12], "USD", "billion USD"),
        ([5e15], None, "trillions"),
        ([84_000.0, 950_000.0], None, "thousands"),
        ([10.0, 5e12], None, "billions"),  # in millions the long axis would have seven digits
    ],
)
def test_the_unit_suits_the_axes(maxima: list[float], currency: str | None, label: str) -> None:
    assert choose_unit(maxima, currency).label == label


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (0.0, 7.3e11), (-3.1, 2.2), (995.0, 1005.0), (0.0, 1e-9)]
)
def test_linear_ticks_are_even_and_within(low: float, high: float) -> None:
    ticks = ticks_within(low, high)
    assert 2 <= len(ticks) <= 6
    assert low - 1e-9 * high <= ticks[0] < ticks[-1] <= high * (1 + 1e-9)
    step = ticks[1] - ticks[0]
    assert all(math.isclose(b - a, step) for a, b in itertools.pairwise(ticks))
    labels = tick_labels(ticks, choose_unit([], None))
    assert len(set(labels)) == len(ticks)


def test_labels_have_separators_a_true_minus_and_as_many_decimals_as_needed() -> None:
    plain, million = choose_unit([1.0], None), choose_unit([1e6], None)
    assert tick_labels([0, 2500, 5000], plain) == ["0", "2,500", "5,000"]
    assert tick_labels([0, 2.5e4, 5e4], million) == ["0.000", "0.025", "0.050"]
    assert tick_labels([-1, 0, 1], plain) == ["\N{MINUS SIGN}1", "0", "1"]
    assert tick_labels([7], plain) == ["7"]


def test_logarithmic_ticks_are_one_two_five_or_powers_of_ten() -> None:
    assert log_ticks(2, 1000, 16) == [2, 5, 10, 20, 50, 100, 200, 500, 1000]
    assert log_ticks(2, 1000, 5) == [10, 100, 1000]
    assert len(log_ticks(1, 1e12, 5)) <= 5


def test_numbers_of_years_and_amounts_of_bars() -> None:
    assert short_number(100_000.0) == "100,000"
    assert short_number(2.5) == "2.5"
    unit = choose_unit([1e6], None)
    amounts = (0.0, 12_345_678.0, 123_456.0, 4_321_000_000.0)
    assert [three_digits(amount, unit) for amount in amounts] == ["0", "12.3", "0.123", "4,321"]
