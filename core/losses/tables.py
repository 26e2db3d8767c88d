"""Report rows as the bytes of a table: csv as the peer prints it, or packed records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..arrays import Indices, Rows
from ._kernels.text import COLUMN, SLACK, column, least_digits, write_rows
from .reports import Report

_EXPONENTS = {4: (8, 23), 8: (11, 52)}
"""Float width to (bits of the exponent, bits below it)."""

_LONGEST_INTEGER = 11
"""Characters of the least int32."""
_LONGEST_FLOAT = 1 + 18 + 1
"""Characters of a float before its decimals, as far as the kernel prints it."""


class CsvEncoder:
    """Csv text of a report's rows, equal byte for byte to C's ``%d`` and ``%.{d}f``.

    Args:
        report: which columns there are, and with how many decimals.
        float_width: bytes of a loss in the rows, 4 or 8.
    """

    def __init__(self, report: Report, float_width: int) -> None:
        self._report = report
        self._dtype = report.dtype(float_width)
        self._names = self._dtype.names or ()
        sizes = {self._dtype[name].itemsize for name in self._names}
        self._uniform = sizes == {4}
        width = 4 if self._uniform else 8
        exponent_bits, self._exponent_shift = _EXPONENTS[width]
        self._digits = least_digits(exponent_bits)
        last = len(report.columns) - 1
        self._columns = np.array(
            [column(c.decimals, "\n" if i == last else ",") for i, c in enumerate(report.columns)],
            COLUMN,
        )
        self._row_size = sum(
            1 + (_LONGEST_INTEGER if c.decimals is None else _LONGEST_FLOAT + c.decimals)
            for c in report.columns
        )
        self._formats = ["%d" if c.decimals is None else f"%.{c.decimals}f" for c in report.columns]
        self._starts = np.zeros(len(report.columns), np.int64)
        self._sizes = np.zeros(len(report.columns), np.int64)
        self._resize(1 << 16)

    def header(self) -> bytes:
        """The header line."""
        return self._report.header.encode() + b"\n"

    def encode(self, rows: Rows) -> memoryview:
        """The lines of some rows, shape (n,); valid until the next call."""
        bits, values = self._cells(rows)
        self._reserve(len(rows) * self._row_size)
        row = 0
        end = 0
        while True:
            cells = (bits, values, self._columns, self._digits, self._exponent_shift)
            row, end = write_rows(*cells, row, self._words, end, self._starts, self._sizes)
            if row == len(rows):
                return self._text.data[:end]
            end = self._write_slowly(rows, row, end)
            row += 1

    def _cells(self, rows: Rows) -> tuple[npt.NDArray[np.signedinteger], npt.NDArray[np.floating]]:
        """The rows as a matrix of integers and, over the same memory, of floats."""
        if self._uniform:
            bits: npt.NDArray[np.signedinteger] = np.ascontiguousarray(rows).view(np.int32)
            values: npt.NDArray[np.floating] = bits.view(np.float32)
        else:
            values = np.empty((len(rows), len(self._names)))
            bits = values.view(np.int64)
            for i, name in enumerate(self._names):
                target = bits if self._dtype[name].kind == "i" else values
                target[:, i] = rows[name]
        shape = (len(rows), len(self._names))
        bits, values = bits.reshape(shape), values.reshape(shape)
        # One compiled signature serves writable and read-only rows.
        bits.flags.writeable = values.flags.writeable = False
        return bits, values

    def _write_slowly(self, rows: Rows, row: int, end: int) -> int:
        """Print a row with numbers that need exact arithmetic."""
        cells = zip(self._formats, rows[row].item(), strict=True)
        line = ",".join(form % cell for form, cell in cells).encode() + b"\n"
        # Such a line can be longer than any the kernel prints.
        self._reserve(end + len(line) + (len(rows) - row) * self._row_size)
        self._text[end : end + len(line)] = np.frombuffer(line, np.uint8)
        return end + len(line)

    def _reserve(self, size: int) -> None:
        if size + SLACK > len(self._text):
            held = self._text
            self._resize(max(size + SLACK, 2 * len(held)))
            self._text[: len(held)] = held

    def _resize(self, size: int) -> None:
        self._text = np.zeros(size, np.uint8)
        # Every byte begins a word, so that the kernel can store eight at once anywhere.
        self._words: Indices = np.ndarray((size - 7,), np.int64, self._text.data, strides=(1,))


class BinEncoder:
    """Packed records, as the peer's ``.bin``: the rows' own bytes, and no header."""

    def header(self) -> bytes:
        """Nothing."""
        return b""

    def encode(self, rows: Rows) -> memoryview:
        """The bytes of some rows, shape (n,); a view of them where they are contiguous."""
        return np.ascontiguousarray(rows).view(np.uint8).data.cast("B")
