"""Points at which reports are read, from csv, packed records or a list.

Quantiles have the column ``quantile`` (packed f4), return periods ``return_period`` (packed i4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .rows import (
    Data,
    Form,
    Origin,
    Rows,
    column_rows,
    csv_rows,
    decode_rows,
    encode_rows,
    packed_rows,
    rows_of_lines,
    text_of,
)

_CSV: Final = np.dtype([("quantile", "<f8")])
_BIN: Final = np.dtype([("quantile", "<f4")])


def parse_quantiles(data: Data, source: str | None = None) -> NDArray[np.float32]:
    """Read quantiles from csv (``quantile``) or packed f4.

    Args:
        data: the whole file, or its column.
        source: name of the file, for messages.

    Returns:
        Quantiles in [0, 1] in the order of the file, distinct as float32; shape (k,),
        k at least 1.

    Raises:
        InputError: the file is neither of the two, is empty, or has a value that is not
            a quantile or comes twice.
    """
    if not isinstance(data, bytes):
        return _checked_quantiles(column_rows(data, (_CSV,), source))
    text = text_of(data, source)
    # Some float32 are text, 0.9 is "fff?": from 0.0078 up their last byte is one of
    # four, which csv of numbers does not have at all.
    if text is None or (len(data) % 4 == 0 and not data[3::4].translate(None, b"<=>?")):
        return _checked_quantiles(packed_rows(data, _BIN, 0, source))
    return _checked_quantiles(csv_rows(text, (_CSV,), source))


def quantiles_from_text(text: str, source: str | None = None) -> NDArray[np.float32]:
    """Read a comma-separated list of quantiles, as a command line or a query has it.

    Args:
        text: such as ``0.1,0.5``.
        source: name of the option or parameter, for messages.

    Returns:
        Quantiles as ``parse_quantiles`` returns them; shape (k,), k at least 1.

    Raises:
        InputError: a value is not a quantile or comes twice, or there is none.
    """
    example = "A list of quantiles is like 0.5,0.9"
    return _checked_quantiles(_listed(text, _CSV, example, source))


def _listed(text: str, layout: np.dtype[np.void], example: str, source: str | None) -> Rows:
    values = [value.strip() for value in text.split(",")]
    return rows_of_lines(values, layout, Origin(source, example, "value"))


def _checked_quantiles(rows: Rows) -> NDArray[np.float32]:
    rows.limit_points("quantile")
    values = rows.data["quantile"]
    rows.require((values >= 0) & (values <= 1), "quantile", "is not in 0 to 1")
    rows.require_float("quantile", "return periods")
    # abs() makes 0 of -0, which would show in reports.
    quantiles: NDArray[np.float32] = np.abs(values.astype(np.float32))
    # Their bits order as they do, and sort as integers.
    rows.require_unique(quantiles.view(np.int32), "quantile")
    return quantiles


def encode_quantiles(quantiles: NDArray[np.float32], form: Form) -> bytes:
    """Write quantiles as the peer's file of this form."""
    return encode_rows(quantiles.astype(_BIN["quantile"]).view(_BIN), form)


_YEARS_CSV: Final = np.dtype([("return_period", "<i8")])
_YEARS_BIN: Final = np.dtype([("return_period", "<i4")])


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
    rows = decode_rows(data, (_YEARS_CSV,), _YEARS_BIN, source)
    years = _checked_years(rows)
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
    example = "Return periods are whole numbers of years, such as 250,100: those of the exceedance"
    example += " probabilities 0.004 and 0.01"
    return _sorted(_checked_years(_listed(text, _YEARS_CSV, example, source)))


def _checked_years(rows: Rows) -> NDArray[np.int64]:
    rows.limit_points("return_period")
    years = rows.integers("return_period", 1)
    rows.require_unique(years, "return_period")
    return years


def _sorted(years: NDArray[np.int64]) -> ReturnPeriods:
    return ReturnPeriods(np.sort(years)[::-1].astype(np.int32))


def encode_return_periods(return_periods: ReturnPeriods, form: Form) -> bytes:
    """Write return periods as the peer's file of this form."""
    return encode_rows(
        return_periods.years.astype(_YEARS_BIN["return_period"]).view(_YEARS_BIN), form
    )
