"""Return periods, from csv (``return_period``), packed i4 or a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from .rows import Data, Form, Origin, Rows, decode_rows, encode_rows, rows_of_lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CSV: Final = np.dtype([("return_period", "<i8")])
_BIN: Final = np.dtype([("return_period", "<i4")])


@dataclass(frozen=True, slots=True, eq=False)
class ReturnPeriods:
    """Return periods at which exceedance curves are reported."""

    years: NDArray[np.int32]
    """At least 1, strictly descending; shape (k,), k at least 1."""


def parse_return_periods(data: Data, source: str | None = None) -> ReturnPeriods:
    """Read return periods.

    A packed file must have them in descending order already, as the peer's tools want it;
    csv and columns are sorted, as the peer's ``csvtobin`` does.

    Args:
        data: the whole file, or its column.
        source: name of the file, for messages.

    Raises:
        InputError: the file is of another form or empty, or has a return period that is below
            1, comes twice or, in a packed file, is above the one before.
    """
    rows = decode_rows(data, (_CSV,), _BIN, source)
    rows.limit_points("return_period")
    years = rows.integers("return_period", 1)
    rows.require_unique(years, "return_period")
    if rows.origin.base is not None:
        descending = np.diff(years, prepend=np.iinfo(np.int64).max) < 0
        rows.require(descending, "return_period", "is above the one before: they have to descend")
    return _sorted(years)


def return_periods_from_text(text: str, source: str | None = None) -> ReturnPeriods:
    """Read a comma-separated list of return periods in any order.

    Args:
        text: such as ``200,100,50``.
        source: name of the option or parameter, for messages.

    Raises:
        InputError: a value is not a return period or comes twice, or there is none.
    """
    values = [value.strip() for value in text.split(",")]
    origin = Origin(source, "A list of return periods is like 200,100,50", "value")
    rows: Rows = rows_of_lines(values, _CSV, origin)
    rows.limit_points("return_period")
    years = rows.integers("return_period", 1)
    rows.require_unique(years, "return_period")
    return _sorted(years)


def _sorted(years: NDArray[np.int64]) -> ReturnPeriods:
    return ReturnPeriods(np.sort(years)[::-1].astype(np.int32))


def encode_return_periods(return_periods: ReturnPeriods, form: Form) -> bytes:
    """Write return periods as the peer's file of this form."""
    return encode_rows(return_periods.years.astype(_BIN["return_period"]).view(_BIN), form)
