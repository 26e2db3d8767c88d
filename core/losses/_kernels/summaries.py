"""Adding the blocks of item streams up into summaries, and writing these as blocks.

All sets are computed in the same pass. Their summaries are numbered together, by set and then
by id, and the losses of those that the open event touches add up in rows::

    item 17 --places--> summary 3 (set 1), summary 41 (set 2)
                            |                   |
                          slots               slots        -1 where the event has no loss yet
                            v                   v
    rows     [mean, exposure, maximum, sample 1, sample 2, ...]   exact, see ``expansions``

Rows are given out as an event needs them, so that memory is bounded by what an event touches,
not by how many summaries there are. A bitmap of the touched ones makes their order that of
their numbers without sorting. A block's losses are spread over columns once, then added to a
row of each set: contiguous additions are worth spreading unless the block is very sparse.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Floats, Indices
from ..format import SIDX_CHANCE, SIDX_MAX_LOSS, SIDX_MEAN
from .block import read_block, report_fault
from .expansions import add_dense, add_sparse, clear_odd
from .layout import (
    EVENT_DONE,
    FAULT,
    FAULT_ITEM_UNKNOWN,
    FULL,
    GROW_LOG,
    OK,
    Bits,
    Losses,
    Record,
    Scratch,
    Seen,
    Sidx,
    Words,
)
from .scan import close_event, log_block, open_event, pass_block

GROW_ROWS = 20
"""There is no row left for a summary."""
WIDE = 21
"""The chain of row ``row`` in PROGRESS is too long to be added up here."""
OVERFLOW = 22
"""Losses of summary ``summary`` in PROGRESS add up to more than the float width holds."""

MEAN = 0
EXPOSURE = 1
MAXIMUM = 2
SPECIAL_COLUMNS = 3
"""Columns before that of sample 1."""

_LOW_WORD = 0xFFFFFFFF
_SIGN = 0x80000000
_BITS = 32
"""Summaries in a word of the bitmap."""
_SPARSE = 4
"""Columns per loss from which on a block is added loss by loss."""

PROGRESS = np.dtype(
    [
        ("used", "i8"),  # rows given out
        ("set", "i8"),  # next set of the block at the cursor
        ("chain", "i8"),  # row whose errors wait for a row above it, -1 if none
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
    slots: npt.NDArray[np.int32]
    """Row of each summary, -1 for none; shape (summaries,)."""
    touched: Indices
    """Bitmap of the summaries that have a row."""
    stamps: Indices
    """Serial of the last event that had each pair of summary and risk."""
    values: Floats
    """Losses of the block at the cursor, shape (columns,)."""
    columns: Sidx
    """Their columns, where not all columns have one; same shape."""
    errors: Floats
    """Errors of rounding on their way up a chain, shape (2, columns)."""
    progress: Record


class Written(NamedTuple):
    """Blocks of summaries that wait to be handed on, by set."""

    words: npt.NDArray[np.int32]
    """Shape (sets, capacity)."""
    ends: Indices
    """Words of each set, shape (sets,)."""
    blocks: Indices
    """Blocks of each set, shape (sets,)."""
    starts: Indices
    """First word of each block, shape (sets, capacity of blocks)."""
    ids: npt.NDArray[np.int32]
    """Summary of each block, same shape."""
    losses: Losses
    """For rounding, shape (columns + 1,)."""
    bits: Bits
    """The same memory as integers."""


@subkernel
def _find_item(item: int, items: npt.NDArray[np.int32]) -> int:
    """Index of an item; -1 if it is not there. Items without gaps are found at once."""
    guess = item - items[0]
    if 0 <= guess < len(items) and items[guess] == item:
        return int(guess)
    low = 0
    high = len(items)
    while low < high:
        middle = (low + high) >> 1
        if items[middle] < item:
            low = middle + 1
        else:
            high = middle
    if low < len(items) and items[low] == item:
        return low
    return -1


@subkernel
def _spread(scratch: Scratch, sums: Sums) -> int:
    """Spread the block's losses over columns; return their number, or all columns if dense."""
    b = scratch.block[0]
    first = b["first"]
    count = b["count"]
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
            samples[sidx[i] - 1] = losses[i]
    return len(values)


@subkernel
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
    return int(row)


@subkernel
def _row_of(summary: int, sums: Sums) -> int:
    """The row of a summary, or -1 if it has none and there is none left."""
    row = int(sums.slots[summary])
    if row < 0:
        row = _take_row(sums)
        if row >= 0:
            sums.slots[summary] = row
            sums.touched[summary // _BITS] |= 1 << (summary % _BITS)
    return row


@subkernel
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


@subkernel
def _add_block(item: int, count: int, serial: int, places: Places, sums: Sums) -> int:
    """Add the spread block to the rows of its summaries: OK, or GROW_ROWS in the midst of it."""
    p = sums.progress[0]
    while p["set"] < places.summaries.shape[1]:
        if p["chain"] < 0:
            row = _row_of(int(places.summaries[item, p["set"]]), sums)
            if row < 0:
                return GROW_ROWS
            if len(places.pairs):
                pair = places.pairs[item, p["set"]]
                if sums.stamps[pair] != serial:
                    sums.stamps[pair] = serial
                    sums.risks[row] += 1
            p["side"] = 0
            if _add(row, count, sums.values, sums.errors[0], sums):
                p["chain"] = row
        status = _climb(count, sums)
        if status != OK:
            return status
        p["set"] += 1
    p["set"] = 0
    return OK


@subkernel
def _missing_set(item: int, places: Places) -> int:
    """Index of a set in which the item at this index has no summary; -1 if there is none."""
    if item < 0:
        return 0
    for k in range(places.summaries.shape[1]):
        if places.summaries[item, k] < 0:
            return k
    return -1


@subkernel
def _put(words: Words, at: int, value: int, width: int) -> int:
    """Write the bits of a loss; return the word after them."""
    words[at] = ((value & _LOW_WORD) ^ _SIGN) - _SIGN
    if width == 8:
        words[at + 1] = value >> 32
        return at + 2
    return at + 1


@subkernel
def _put_special(words: Words, at: int, sidx: int, value: int, width: int) -> int:
    words[at] = sidx
    return _put(words, at + 1, value, width)


@subkernel
def _put_samples(words: Words, at: int, width: int, zeros: int, written: Written) -> int:
    """Write the samples that are not 0, or all; return the word after them."""
    columns = len(written.losses) - 1
    step = 1 + (width >> 2)
    for i in range(SPECIAL_COLUMNS, columns):
        words[at] = i - (SPECIAL_COLUMNS - 1)
        _put(words, at + 1, written.bits[i], width)
        # Without a branch: a sample of 0 is overwritten by the next pair.
        at += step * np.int64(zeros | np.int64(written.losses[i] != 0))
    return at


@subkernel
def _round(row: int, sums: Sums, losses: Losses) -> bool:
    """Round the sums of a chain of up to two rows; return whether all are finite."""
    columns = sums.rows.shape[1]
    first = sums.rows[row]
    odd = np.int64(0)
    if sums.above[row] < 0:
        for i in range(columns):
            losses[i] = first[i]
            odd |= np.int64(not (abs(losses[i]) < np.inf))
    else:
        second = sums.rows[sums.above[row]]
        for i in range(columns):
            losses[i] = first[i] + second[i]
            odd |= np.int64(not (abs(losses[i]) < np.inf))
    return not odd


@subkernel
def _write_summary(
    summary: int,
    rules: Record,
    state: Record,
    places: Places,
    sums: Sums,
    written: Written,
    zeros: int,
) -> int:
    """Write the block of a summary: OK, FULL, WIDE or OVERFLOW."""
    p = sums.progress[0]
    width = rules[0]["width"]
    k = places.set_indices[summary]
    row = int(sums.slots[summary])
    columns = sums.rows.shape[1]
    needed = 2 + (width >> 2) + (columns + 3) * (1 + (width >> 2))
    if (
        written.ends[k] + needed > written.words.shape[1]
        or written.blocks[k] == written.starts.shape[1]
    ):
        p["needed"] = needed
        return FULL
    if sums.above[row] >= 0 and sums.above[sums.above[row]] >= 0:
        p["row"] = row
        return WIDE
    losses = written.losses
    bits = written.bits
    if not _round(row, sums, losses):
        p["summary"] = summary
        return OVERFLOW
    if not zeros and losses[EXPOSURE] == 0 and losses[MEAN] == 0:
        return OK
    at = int(written.ends[k])
    written.starts[k, written.blocks[k]] = at
    written.ids[k, written.blocks[k]] = places.summary_ids[summary]
    written.blocks[k] += 1
    words = written.words[k]
    words[at] = state[0]["event"]
    words[at + 1] = places.summary_ids[summary]
    at = _put(words, at + 2, bits[EXPOSURE], width)
    at = _put_special(words, at, SIDX_MAX_LOSS, bits[MAXIMUM], width)
    if len(places.pairs):
        losses[columns] = sums.risks[row]
        at = _put_special(words, at, SIDX_CHANCE, bits[columns], width)
    at = _put_special(words, at, SIDX_MEAN, bits[MEAN], width)
    at = _put_samples(words, at, width, zeros, written)
    written.ends[k] = _put_special(words, at, 0, 0, width)
    return OK


@kernel
def write_summaries(
    rules: Record, state: Record, places: Places, sums: Sums, written: Written, zeros: int
) -> int:
    """Write the summaries of the open event, by set and id, and clear its sums.

    ``zeros`` is 1 if losses of 0 are written too. Returns OK, FULL, WIDE or OVERFLOW; called again, it goes on with the summary it is about.
    """
    p = sums.progress[0]
    while p["word"] < len(sums.touched):
        word = p["word"]
        for bit in range(_BITS if sums.touched[word] else 0):
            if (sums.touched[word] >> bit) & 1:
                summary = word * _BITS + bit
                status = _write_summary(summary, rules, state, places, sums, written, zeros)
                if status != OK:
                    return status
                sums.slots[summary] = -1
                sums.touched[word] &= ~(1 << bit)
        p["word"] += 1
    p["word"] = 0
    p["used"] = 0
    return OK


@kernel
def summarise(
    words: Words,
    stop: int,
    rules: Record,
    state: Record,
    scratch: Scratch,
    seen: Seen,
    places: Places,
    sums: Sums,
    written: Written,
    zeros: int,
    max_events: int,
) -> int:
    """Take the blocks of a window; write the summaries of each event before the next one.

    Returns MORE, EVENT_DONE where there would be more than ``max_events`` events, FULL,
    GROW_SEEN, GROW_LOG, GROW_ROWS, WIDE, OVERFLOW or FAULT. Called again once the caller has
    done what the status asks for, it goes on where it stopped.
    """
    s = state[0]
    b = scratch.block[0]
    while True:
        status = read_block(words, stop, rules, state, scratch)
        if status != OK:
            return status
        if b["event"] != s["event"]:
            if s["event"] != 0:
                status = write_summaries(rules, state, places, sums, written, zeros)
                if status != OK:
                    return status
                close_event(state)
            if s["events"] >= max_events:
                return EVENT_DONE
            status = open_event(rules, state, scratch.block, seen)
            if status != OK:
                return status
        if s["logged"] == len(seen.log):
            return GROW_LOG
        item = _find_item(b["id"], places.items)
        missing = _missing_set(item, places)
        if missing >= 0:
            offset = s["base"] + 4 * s["at"] + 4
            set_id = int(places.set_ids[missing])
            return report_fault(
                state, FAULT_ITEM_UNKNOWN, offset, b["event"], b["id"], set_id, 0.0
            )
        count = _spread(scratch, sums)
        status = _add_block(item, count, s["serial"], places, sums)
        if status != OK:
            return status
        if log_block(state, scratch.block, seen) == FAULT:
            return FAULT
        pass_block(state, scratch.block)
