"""Period weights, from csv (``period_no,weighting``) or packed (i4, f8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ...arrays import Floats
from ...errors import InputError
from .rows import INT_MAX, Data, Form, decode_rows, encode_rows

_CSV: Final = np.dtype([("period_no", "<i8"), ("weighting", "<f8")])
_BIN: Final = np.dtype([("period_no", "<i4"), ("weighting", "<f8")])

_TOLERANCE: Final = 1e-6
"""Weights printed with nine decimals sum to one within this, however many they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Periods:
    """How much each period counts in a mean over periods."""

    weights: Floats
    """Weight of period p at p - 1, finite and not negative; shape (periods,)."""

    @property
    def total(self) -> float:
        """Sum of the weights: 1 in a sound model."""
        return float(self.weights.sum())

    @property
    def sum_to_one(self) -> bool:
        """Whether the weights sum to 1, up to the rounding of a csv."""
        return abs(self.total - 1) <= _TOLERANCE


def parse_periods(data: Data, count: int | None = None, source: str | None = None) -> Periods:
    """Read the weight of every period, in any order.

    Args:
        data: the whole file, or its columns.
        count: number of periods of the occurrences, if known.
        source: name of the file, for messages.

    Raises:
        InputError: the file is of another form or empty, has a period below 1, above ``count``
            or twice, lacks one, or has a weight that is negative or not finite.
    """
    rows = decode_rows(data, (_CSV,), _BIN, source)
    numbers = rows.integers("period_no", 1, INT_MAX if count is None else count)
    weights = rows.weights("weighting")
    rows.require_unique(numbers, "period_no")
    expected = int(numbers.max()) if count is None else count
    if len(numbers) < expected:
        ordered = np.sort(numbers)
        gaps = np.flatnonzero(ordered != np.arange(1, len(ordered) + 1))
        missing = int(gaps[0]) + 1 if len(gaps) else len(ordered) + 1
        raise InputError(
            f"{expected - len(numbers)} of {expected} periods have no weight, the first is"
            f" period {missing}",
            hint="Give every period from 1 to the number of periods a weight, which may be 0",
            source=source,
        )
    ordered_weights = np.empty(expected)
    ordered_weights[numbers - 1] = weights
    return Periods(ordered_weights)


def encode_periods(periods: Periods, form: Form) -> bytes:
    """Write the weights as the peer's file of this form."""
    rows = np.empty(len(periods.weights), _BIN)
    rows["period_no"] = np.arange(1, len(rows) + 1)
    rows["weighting"] = periods.weights
    return encode_rows(rows, form)
