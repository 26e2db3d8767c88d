"""Quantiles, from csv (``quantile``), packed f4 or a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .rows import (
    Data,
    Form,
    Origin,
    Rows,
    column_rows,
    csv_rows,
    encode_rows,
    packed_rows,
    rows_of_lines,
    text_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    values = [value.strip() for value in text.split(",")]
    origin = Origin(source, "A list of quantiles is like 0.5,0.9", "value")
    return _checked_quantiles(rows_of_lines(values, _CSV, origin))


def _checked_quantiles(rows: Rows) -> NDArray[np.float32]:
    rows.limit_points("quantile")
    values = rows.data["quantile"]
    rows.require((values >= 0) & (values <= 1), "quantile", "is not in 0 to 1")
    # abs() makes 0 of -0, which would show in reports.
    quantiles: NDArray[np.float32] = np.abs(values.astype(np.float32))
    # Their bits order as they do, and sort as integers.
    rows.require_unique(quantiles.view(np.int32), "quantile")
    return quantiles


def encode_quantiles(quantiles: NDArray[np.float32], form: Form) -> bytes:
    """Write quantiles as the peer's file of this form."""
    return encode_rows(quantiles.astype(_BIN["quantile"]).view(_BIN), form)
