"""Adding the blocks of an event up into summaries of several sets.

All sets are computed in the same pass. Their summaries are numbered together, by set and then
by id, and the losses of those that the open event touches add up in rows::

    item 17 --places--> summary 3 (set 1), summary 41 (set 2)
                            |                   |
                          slots               slots        -1 where the event has no loss yet
                            v                   v
    rows     [mean, exposure, maximum, sample 1, sample 2, ...]   exact, as below

Rows are given out as an event needs them, so that memory is bounded by what an event touches,
not by how many summaries there are. A bitmap of the touched ones makes their order that of
their numbers without sorting. A block's losses are spread over columns once, then added to a
row of each set: contiguous additions are worth spreading unless the block is very sparse.

Looking for errors takes most of the time of an addition, and hardly ever finds one in samples of
four bytes. Such a sample x is a multiple of a power of two above ``x / 2**24``. If ``least`` is
the smallest sample added to a row, all its cells are multiples of one above ``least / 2**24``, so
they are exact up to ``2**53`` times that: while the largest samples of its blocks add up to at
most ``2**29 * least``, nobody has to look.

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

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import inlined, subkernel
from ...arrays import Floats, Indices
from ...sorting import place_of
from .exact import two_sum
from .layout import OK, Record, Scratch, Sidx


@inlined
def add_dense(row: Floats, values: Floats, errors: Floats) -> bool:
    """Add a value to each cell; store the errors, and return whether there are any."""
    lost = np.int64(0)
    for i in range(len(values)):
        row[i], e = two_sum(row[i], values[i])
        errors[i] = e
        lost |= np.int64(e != 0.0)
    return bool(lost)


@subkernel
def add_sparse(row: Floats, columns: Sidx, values: Floats, errors: Floats) -> bool:
    """Add value i to cell ``columns[i]``; store the errors, and return whether there are any."""
    lost = np.int64(0)
    for i in range(len(values)):
        row[columns[i]], e = two_sum(row[columns[i]], values[i])
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


GROW_ROWS = 20
"""There is no row left for a summary."""

MEAN = 0
EXPOSURE = 1
MAXIMUM = 2
SPECIAL_COLUMNS = 3
"""Columns before that of sample 1."""

LARGEST = 0
LEAST = 1

WORD_SHIFT = 5
WORD_BITS = 1 << WORD_SHIFT
"""Summaries in a word of the bitmap."""
_REACH = 2.0**29
"""Sum per smallest sample of four bytes up to which no sum has an error; of eight bytes, 1."""
_SPARSE = 4
"""Columns per loss from which on a block is added loss by loss."""

PROGRESS = np.dtype(
    [
        ("used", "i8"),  # rows given out
        ("set", "i8"),  # next set of the block at the cursor
        ("chain", "i8"),  # row whose errors wait for a row above it, -1 if none
        ("lost", "i8"),  # columns of those errors
        ("side", "i8"),  # which half of the errors they are in
        ("word", "i8"),  # of the bitmap, from which on summaries are to be written
        ("needed", "i8"),  # words of output that the next block may need
        ("row", "i8"),
        ("summary", "i8"),
    ]
)
"""How far a block or an event has been taken when a kernel returns in the midst of it."""


class Places(NamedTuple):
    """Where the losses of each item belong; constant over a stream."""

    items: npt.NDArray[np.int32]
    """Ascending, shape (n,)."""
    summaries: npt.NDArray[np.int32]
    """Number of the summary in each set, -1 if it is in none; shape (n, sets)."""
    pairs: npt.NDArray[np.int32]
    """Number of the pair of summary and risk, shape (n, sets); (0, sets) without risks."""
    summary_ids: npt.NDArray[np.int32]
    """Id of each summary, shape (summaries,)."""
    set_indices: npt.NDArray[np.int32]
    """Set of each summary, from 0; shape (summaries,)."""
    set_ids: npt.NDArray[np.int32]
    """Shape (sets,)."""


class Sums(NamedTuple):
    """Sums of the open event."""

    rows: Floats
    """Shape (capacity, SPECIAL_COLUMNS + samples)."""
    above: npt.NDArray[np.int32]
    """Row of the errors of each row, -1 if it has none; shape (capacity,)."""
    risks: npt.NDArray[np.int32]
    """Number of affected risks of the summary of each row, shape (capacity,)."""
    bounds: Floats
    """Bound of the samples' sums, and the smallest sample, of each row; shape (capacity, 2)."""
    slots: npt.NDArray[np.int32]
    """Row of each summary, -1 for none; shape (summaries,)."""
    touched: Indices
    """Bitmap of the summaries that have a row."""
    stamps: Indices
    """Serial of the last event that had each pair of summary and risk."""
    values: Floats
    """Losses of the block at the cursor, shape (columns,)."""
    extremes: Floats
    """Largest and smallest sample of the block, shape (2,)."""
    columns: Sidx
    """Their columns, where not all columns have one; same shape."""
    errors: Floats
    """Errors of rounding on their way up a chain, shape (2, columns)."""
    progress: Record


@inlined
def find_item(item: int, items: npt.NDArray[np.int32]) -> int:
    """Index of an item; -1 if it is not there. Items without gaps are found at once."""
    guess = item - items[0]
    if 0 <= guess < len(items) and items[guess] == item:
        return int(guess)
    return place_of(item, items)


@inlined
def _find_extremes(scratch: Scratch, extremes: Floats) -> None:
    """Find the block's largest and smallest sample; infinity and 0 if one is negative."""
    b = scratch.block[0]
    bits = scratch.bits[b["first"] : b["first"] + b["count"]]
    if b["negatives"]:
        extremes[LARGEST] = np.inf
        extremes[LEAST] = 0.0
        return
    # As integers, which order like the floats they encode: their loop is vectorised.
    largest = scratch.limits[2]
    least = scratch.limits[0]
    for i in range(len(bits)):
        largest = max(largest, bits[i])
        least = min(least, bits[i])
    # Scratch has room after the pairs.
    end = len(scratch.bits)
    scratch.bits[end - 1] = largest
    scratch.bits[end - 2] = least
    extremes[LARGEST] = scratch.losses[end - 1]
    extremes[LEAST] = scratch.losses[end - 2]


@inlined
def spread(scratch: Scratch, sums: Sums) -> int:
    """Spread the block's losses over columns; return their number, or all columns if dense."""
    b = scratch.block[0]
    first = b["first"]
    count = b["count"]
    _find_extremes(scratch, sums.extremes)
    sidx = scratch.sidx[first : first + count]
    losses = scratch.losses[first : first + count]
    values = sums.values
    values[MEAN] = b["mean"]
    values[EXPOSURE] = b["tiv"]
    values[MAXIMUM] = b["max_loss"]
    samples = values[SPECIAL_COLUMNS:]
    if _SPARSE * count < len(samples):
        columns = sums.columns[SPECIAL_COLUMNS:]
        for i in range(count):
            samples[i] = losses[i]
            columns[i] = sidx[i] + (SPECIAL_COLUMNS - 1)
        return int(count + SPECIAL_COLUMNS)
    if count == len(samples) and sidx[0] == 1 and sidx[count - 1] == count:
        for i in range(len(samples)):
            samples[i] = losses[i]
    else:
        samples[:] = 0.0
        for i in range(count):
            # An unsigned index needs no test for a negative one.
            samples[np.uintp(sidx[i] - 1)] = losses[i]
    return len(values)


@inlined
def _take_row(sums: Sums) -> int:
    """A row of zeros, or -1 if there is none left."""
    p = sums.progress[0]
    row = p["used"]
    if row == len(sums.rows):
        return -1
    p["used"] = row + 1
    sums.rows[row, :] = 0.0
    sums.above[row] = -1
    sums.risks[row] = 0
    sums.bounds[row, LARGEST] = 0.0
    sums.bounds[row, LEAST] = np.inf
    return int(row)


@inlined
def _row_of(summary: int, sums: Sums) -> int:
    """The row of a summary, or -1 if it has none and there is none left."""
    row = int(sums.slots[summary])
    if row < 0:
        row = _take_row(sums)
        if row >= 0:
            sums.slots[summary] = row
            sums.touched[summary >> WORD_SHIFT] |= 1 << (summary & (WORD_BITS - 1))
    return row


@inlined
def _is_exact(row: int, reach: float, sums: Sums) -> bool:
    """Take the block's extremes into a row's; return whether its samples add up exactly."""
    bounds = sums.bounds[row]
    extremes = sums.extremes
    bounds[LARGEST] += extremes[LARGEST]
    bounds[LEAST] = min(bounds[LEAST], extremes[LEAST])
    return bool(bounds[LARGEST] <= reach * bounds[LEAST])


@inlined
def _add_specials(row: int, sums: Sums) -> bool:
    """Add the block's special columns; store the errors, and return whether there are any."""
    errors = sums.errors[0]
    lost = False
    for i in range(SPECIAL_COLUMNS):
        sums.rows[row, i], e = two_sum(sums.rows[row, i], sums.values[i])
        errors[i] = e
        lost |= e != 0.0
    return lost


@inlined
def _add(row: int, count: int, values: Floats, errors: Floats, sums: Sums) -> bool:
    if count == sums.rows.shape[1]:
        return add_dense(sums.rows[row], values, errors)
    return add_sparse(sums.rows[row], sums.columns[:count], values[:count], errors)


@subkernel
def _climb(count: int, sums: Sums) -> int:
    """Add the errors that wait to the rows of their chain: OK or GROW_ROWS."""
    p = sums.progress[0]
    while p["chain"] >= 0:
        row = int(sums.above[p["chain"]])
        if row < 0:
            row = _take_row(sums)
            if row < 0:
                return GROW_ROWS
            sums.above[p["chain"]] = row
        errors = sums.errors[p["side"]]
        clear_odd(errors[:count])
        p["side"] = 1 - p["side"]
        lost = _add(row, count, errors, sums.errors[p["side"]], sums)
        p["chain"] = row if lost else -1
    return OK


@inlined
def add_block(item: int, count: int, width: int, serial: int, places: Places, sums: Sums) -> int:
    """Add the spread block to the rows of its summaries: OK, or GROW_ROWS in the midst of it."""
    p = sums.progress[0]
    reach = _REACH if width == 4 else 1.0
    first = p["set"]
    p["set"] = 0
    for k in range(first, places.summaries.shape[1]):
        if p["chain"] < 0:
            row = _row_of(int(places.summaries[item, k]), sums)
            if row < 0:
                p["set"] = k
                return GROW_ROWS
            if len(places.pairs):
                pair = places.pairs[item, k]
                # Without a branch, which nobody can predict.
                sums.risks[row] += np.int32(sums.stamps[pair] != serial)
                sums.stamps[pair] = serial
            lost = count
            if _is_exact(row, reach, sums) and count == len(sums.values):
                add_exactly(sums.rows[row, SPECIAL_COLUMNS:], sums.values[SPECIAL_COLUMNS:])
                lost = SPECIAL_COLUMNS if _add_specials(row, sums) else 0
            elif not _add(row, count, sums.values, sums.errors[0], sums):
                lost = 0
            if lost == 0:
                continue
            p["side"] = 0
            p["chain"] = row
            p["lost"] = lost
        if _climb(int(p["lost"]), sums) != OK:
            p["set"] = k
            return GROW_ROWS
    return OK


@inlined
def missing_set(item: int, places: Places) -> int:
    """Index of a set in which the item at this index has no summary; -1 if there is none."""
    if item < 0:
        return 0
    for k in range(places.summaries.shape[1]):
        if places.summaries[item, k] < 0:
            return k
    return -1
