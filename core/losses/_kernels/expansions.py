"""Exact sums of many columns at a time, in rows of float64.

A float64 sum depends on the order of its summands, because every addition rounds. Here it is
carried as a chain of rows: adding x to a cell of the first row leaves an error of rounding
that is itself a float64 (Knuth's two-sum), and where it is not 0 it is added to the same cell
of the next row, and so on. The sum of the rows of a chain is exact at any time::

    values  -->  row 0  --errors-->  row 7  --errors-->  ...     above[0] = 7, above[7] = -1

Most chains have one row, as losses of similar size add up without errors in 53 bits; few have
more than two, which hold about 106. So exactness costs a few more instructions of a loop that
waits for memory, and memory only where it is needed. Of one or two rows, ``first + second``
rounds the exact sum once, to a result that is a function of the summands alone; what adds up
longer chains must do so exactly, too.
"""

from __future__ import annotations

import numpy as np

from ..._jit import inlined, subkernel
from ...arrays import Floats
from .layout import Sidx


@inlined
def add_dense(row: Floats, values: Floats, errors: Floats) -> bool:
    """Add a value to each cell; store the errors, and return whether there are any."""
    lost = np.int64(0)
    for i in range(len(values)):
        h = row[i]
        x = values[i]
        s = h + x
        t = s - h
        e = (h - (s - t)) + (x - t)
        row[i] = s
        errors[i] = e
        lost |= np.int64(e != 0.0)
    return bool(lost)


@subkernel
def add_sparse(row: Floats, columns: Sidx, values: Floats, errors: Floats) -> bool:
    """Add value i to cell ``columns[i]``; store the errors, and return whether there are any."""
    lost = np.int64(0)
    for i in range(len(values)):
        h = row[columns[i]]
        x = values[i]
        s = h + x
        t = s - h
        e = (h - (s - t)) + (x - t)
        row[columns[i]] = s
        errors[i] = e
        lost |= np.int64(e != 0.0)
    return bool(lost)


@inlined
def add_exactly(row: Floats, values: Floats) -> None:
    """Add a value to each cell, where no sum can have an error."""
    for i in range(len(values)):
        row[i] += values[i]


@subkernel
def clear_odd(errors: Floats) -> None:
    """Forget the errors of sums that have become infinite, which have none."""
    for i in range(len(errors)):
        if not (abs(errors[i]) < np.inf):
            errors[i] = 0.0
