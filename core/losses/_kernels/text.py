"""Report rows as csv text, the bytes of C's ``%d`` and ``%.{d}f``.

Why the digits are exact. C prints the decimal nearest to the float's true value, and
the even one of two that are equally near. Here a float is split into its integral
and fractional parts, which is exact, and ``fraction * 10**d`` is rounded half to even
by ``rint``. Only the multiplication can err, by half a unit in the last place::

    true product      ... 4.4999999999999999   |   4.5   |   4.5000000000000001 ...
    rounded product   ...         4.5          |   4.5   |           4.5        ...

Rounding is monotonic, so it never carries a product across a tie (4.5); at worst it
lands on one, as the first and last do. A true tie, times 10**-d, is a multiple of
``2**-(d + 1)``, and whether the fraction is such a multiple can be tested exactly.
A product that looks like a tie but is none is left to the caller, who prints that
row with Python's integers; every other value is exact. (With ``float32`` and six
decimals the product has 24 + 14 bits, fits a ``float64``, and is exact as well.)

Why it is fast. Digits come three at a time from a table; text is stored eight bytes
at a time, wherever it ends, because the next store overwrites the excess; and a cell
equal to the one above it (ids, exposures, zeros) is copied, not printed again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Indices, Rows

MAX_DECIMALS = 6
"""With its point and its separator a fraction then fits one store."""

MAX_INTEGRAL_DIGITS = 18
"""Numbers with more digits before the point are left to the caller."""

SLACK = 32
"""Bytes that a store or copy may write past the text; the buffer needs as many more."""

COLUMN = np.dtype(
    [
        ("tail", "<i8"),
        ("tail_size", "<i8"),
        ("scale", "<f8"),
        ("halves", "<f8"),
        ("pad", "<i8"),
        ("separator", "<i8"),
    ]
)
"""How one column is printed.

``tail`` is the text after the integral digits, as a word with its first character
lowest: the point, the places of the fraction, the separator. A ``0`` is subtracted
from each of six places, because the fraction is added as six characters.
``tail_size`` is its length in characters. ``scale`` is ``10**d``, or 0 for an integer,
``halves`` ``2**(d + 1)`` and ``pad`` ``10**(6 - d)``.
"""

_LIMIT = 10.0**MAX_INTEGRAL_DIGITS
_TENS = np.array([10**power for power in range(MAX_INTEGRAL_DIGITS + 1)], np.int64)
_MINUS = ord("-")
_NAN = int.from_bytes(b"nan", "little")
_INF = int.from_bytes(b"inf", "little")


def _word(text: str) -> int:
    return int.from_bytes(text.encode(), "little")


_THREE = np.array([_word(f"{number:03d}") for number in range(1000)], np.int64)
"""Three digits as characters, the first one lowest."""

_at = np.uintp
"""Positions are never negative: numba spares unsigned ones the wrap-around (a quarter faster)."""


def column(decimals: int | None, separator: str) -> tuple[int, int, float, float, int, int]:
    """One ``COLUMN`` record: integers if ``decimals`` is None, else 1 to ``MAX_DECIMALS``."""
    end = ord(separator)
    if decimals is None:
        return (end, 1, 0.0, 0.0, 0, end)
    if not 1 <= decimals <= MAX_DECIMALS:
        raise ValueError(f"{decimals} decimals; 1 to {MAX_DECIMALS} can be printed")
    blank = _word("." + "0" * decimals + separator)
    tail = blank - (_word("0" * MAX_DECIMALS) << 8)
    return (
        tail,
        decimals + 2,
        10.0**decimals,
        2.0 ** (decimals + 1),
        10 ** (MAX_DECIMALS - decimals),
        end,
    )


def least_digits(exponent_bits: int) -> Indices:
    """Integral digits of the smallest number with each biased exponent.

    Others with that exponent have as many, or one more. Exponents of numbers that
    are not printed here have 1. Shape ``(2**exponent_bits,)``.
    """
    bias = (1 << (exponent_bits - 1)) - 1
    digits = np.ones(1 << exponent_bits, np.int64)
    for power in range(_TENS[-1].item().bit_length()):
        digits[bias + power] = len(str(1 << power))
    return digits


@subkernel
def _eight_digits(number: np.int64) -> int:
    """Eight characters of ``0 <= number < 10**8``, the first one lowest."""
    # A multiplication and a shift divide by 1000: exact below 4.9e9.
    high = (number * 274_877_907) >> 38
    top = (high * 274_877_907) >> 38
    return int(
        (_THREE[_at(top)] >> 8)
        | (_THREE[_at(high - top * 1000)] << 16)
        | (_THREE[_at(number - high * 1000)] << 40)
    )


@kernel
def write_rows(
    bits: npt.NDArray[np.signedinteger],
    values: npt.NDArray[np.floating],
    columns: Rows,
    digits: Indices,
    exponent_shift: int,
    first: int,
    out: Indices,
    position: int,
    starts: Indices,
    sizes: Indices,
) -> tuple[int, int]:
    """Print rows from ``first`` on; stop before one that needs exact arithmetic.

    Args:
        bits: the cells as integers, shape (rows, columns), int32 or int64.
        values: the same memory as floats of the same width. Integers are taken
            from ``bits``, floats from here.
        columns: ``COLUMN`` records, shape (columns,).
        digits: ``least_digits`` of the floats.
        exponent_shift: where the exponent is in a float's bits.
        first: the row to begin with.
        out: every eight bytes of the buffer as an integer: byte ``i`` of the
            buffer is where ``out[i]`` begins. There must be room for all rows,
            and ``SLACK``.
        position: where in ``out`` the text begins.
        starts: scratch, shape (columns,): where each column was printed last.
        sizes: scratch, shape (columns,): how long that was.

    Returns:
        The row it stopped at, or the number of rows; and where the text ends.
    """
    rows, width = bits.shape
    for row in range(first, rows):
        row_start = position
        for col in range(width):
            cell = bits[row, col]
            if row > first and cell == bits[row - 1, col]:
                # Ids, exposures and zeros repeat. The first text of a run is the
                # one to copy: reading what was written just now stalls.
                source = starts[col]
                size = sizes[col]
                out[_at(position)] = out[_at(source)]
                out[_at(position + 8)] = out[_at(source + 8)]
                copied = 16
                while copied < size:
                    out[_at(position + copied)] = out[_at(source + copied)]
                    copied += 8
                position += size
                continue
            start = position
            tail = columns[col]["tail"]
            scale = columns[col]["scale"]
            if scale == 0.0:
                integral = abs(np.int64(cell))
                count = 1
                while integral >= _TENS[_at(count)]:
                    count += 1
                if cell < 0:
                    out[_at(position)] = _MINUS
                    position += 1
            else:
                value = abs(np.float64(values[row, col]))
                if cell < 0 and not np.isnan(value):
                    out[_at(position)] = _MINUS
                    position += 1
                if not value < _LIMIT:
                    if value == np.inf or np.isnan(value):
                        word = _INF if value == np.inf else _NAN
                        out[_at(position)] = word | (columns[col]["separator"] << 24)
                        position += 4
                        starts[col] = start
                        sizes[col] = position - start
                        continue
                    return row, row_start
                integral = np.int64(value)
                fraction = value - integral
                product = fraction * scale
                rounded = np.rint(product)
                if abs(product - rounded) == 0.5:
                    halves = fraction * columns[col]["halves"]
                    if halves != np.floor(halves):
                        return row, row_start
                decimals = np.int64(rounded)
                if rounded == scale:
                    integral += 1
                    decimals = np.int64(0)
                decimals *= columns[col]["pad"]
                high = (decimals * 274_877_907) >> 38
                tail += (_THREE[_at(high)] << 8) | (_THREE[_at(decimals - high * 1000)] << 32)
                count = digits[_at((cell >> exponent_shift) & (len(digits) - 1))]
                count += integral >= _TENS[_at(count)]
            if count > 16:
                high = integral // 10**16
                out[_at(position)] = _eight_digits(high) >> (8 * (24 - count))
                position += count - 16
                integral -= high * 10**16
                count = 16
            if count > 8:
                high = integral // 10**8
                out[_at(position)] = _eight_digits(high) >> (8 * (16 - count))
                position += count - 8
                integral -= high * 10**8
                count = 8
            out[_at(position)] = _eight_digits(integral) >> (8 * (8 - count))
            position += count
            out[_at(position)] = tail
            position += columns[col]["tail_size"]
            starts[col] = start
            sizes[col] = position - start
    return rows, position
