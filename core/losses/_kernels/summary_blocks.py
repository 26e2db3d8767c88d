"""The pass over an item stream that writes the summaries of each event as blocks of streams."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import inlined, kernel
from ...arrays import Indices
from ..format import SIDX_CHANCE, SIDX_MAX_LOSS, SIDX_MEAN
from . import layout
from .block import report_fault, take_block
from .layout import Bits, Losses, Record, Scratch, Seen, Words
from .scan import close_event, log_block, open_event, pass_block
from .summary_sums import (
    EXPOSURE,
    MAXIMUM,
    MEAN,
    SPECIAL_COLUMNS,
    WORD_BITS,
    Places,
    Sums,
    add_block,
    find_item,
    missing_set,
    spread,
)

WIDE = 21
"""The chain of row ``row`` in PROGRESS is too long to be added up here."""
OVERFLOW = 22
"""Losses of summary ``summary`` in PROGRESS add up to more than the float width holds."""

_U = np.uintp
_U1 = np.uintp(1)
_U2 = np.uintp(2)
_LOW_WORD = 0xFFFFFFFF
_SIGN = 0x80000000


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


@inlined
def _put(words: Words, at: int, value: int, width: int) -> int:
    """Write the bits of a loss; return the word after them."""
    low = value & _LOW_WORD
    words[at] = (low ^ _SIGN) - _SIGN
    if width == 8:
        words[at + 1] = value >> 32
        return at + 2
    return at + 1


@inlined
def _put_special(words: Words, at: int, sidx: int, value: int, width: int) -> int:
    words[at] = sidx
    return _put(words, at + 1, value, width)


@inlined
def _put_samples(words: Words, at: int, width: int, zeros: int, written: Written) -> int:
    """Write the samples that are not 0, or all; return the word after them."""
    columns = len(written.losses) - 1
    # Without a branch: a sample of 0 is overwritten by the next pair.
    if width == 4:
        # Unsigned indices need no test for negative ones, which takes a third of the time.
        end = _U(at)
        always = _U(2 * zeros)
        bits = written.bits[SPECIAL_COLUMNS:columns]
        for i in range(len(bits)):
            loss = bits[_U(i)]
            words[end] = i + 1
            words[end + _U1] = loss
            # Zero but for the sign.
            end += always | _U2 * _U(np.int64(loss) << 33 != 0)
        return int(np.int64(end))
    for i in range(SPECIAL_COLUMNS, columns):
        words[at] = i - (SPECIAL_COLUMNS - 1)
        _put(words, at + 1, int(written.bits[i]), width)
        at += 3 * int(zeros | np.int64(written.losses[i] != 0))
    return at


@inlined
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


@inlined
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
        return layout.FULL
    if sums.above[row] >= 0 and sums.above[sums.above[row]] >= 0:
        p["row"] = row
        return WIDE
    losses = written.losses
    bits = written.bits
    if not _round(row, sums, losses):
        p["summary"] = summary
        return OVERFLOW
    # Samples, too, unlike the peer: an insured mean may be 0 where some of them are not.
    if not (zeros or losses[EXPOSURE] or losses[MEAN] or losses[SPECIAL_COLUMNS:columns].any()):
        return layout.OK
    at = int(written.ends[k])
    written.starts[k, written.blocks[k]] = at
    written.ids[k, written.blocks[k]] = places.summary_ids[summary]
    written.blocks[k] += 1
    words = written.words[k]
    words[at] = state[0]["event"]
    words[at + 1] = places.summary_ids[summary]
    at = _put(words, at + 2, int(bits[EXPOSURE]), width)
    at = _put_special(words, at, SIDX_MAX_LOSS, int(bits[MAXIMUM]), width)
    if len(places.pairs):
        losses[columns] = sums.risks[row]
        at = _put_special(words, at, SIDX_CHANCE, int(bits[columns]), width)
    at = _put_special(words, at, SIDX_MEAN, int(bits[MEAN]), width)
    at = _put_samples(words, at, width, zeros, written)
    written.ends[k] = _put_special(words, at, 0, 0, width)
    return layout.OK


@kernel
def write_summaries(
    rules: Record, state: Record, places: Places, sums: Sums, written: Written, zeros: int
) -> int:
    """Write the summaries of the open event, by set and id, and clear its sums.

    ``zeros`` is 1 if losses of 0 are written too. Returns OK, FULL, WIDE or OVERFLOW; called
    again, it goes on with the summary it is about.
    """
    p = sums.progress[0]
    while p["word"] < len(sums.touched):
        word = p["word"]
        for bit in range(WORD_BITS if sums.touched[word] else 0):
            if (sums.touched[word] >> bit) & 1:
                summary = word * WORD_BITS + bit
                status = _write_summary(summary, rules, state, places, sums, written, zeros)
                if status != layout.OK:
                    return status
                sums.slots[summary] = -1
                sums.touched[word] &= ~(1 << bit)
        p["word"] += 1
    p["word"] = 0
    p["used"] = 0
    return layout.OK


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
        status = take_block(words, stop, rules, state, scratch)
        if status != layout.OK:
            return status
        if b["event"] != s["event"]:
            if s["event"] != 0:
                status = write_summaries(rules, state, places, sums, written, zeros)
                if status != layout.OK:
                    return status
                close_event(state)
            if s["events"] >= max_events:
                return layout.EVENT_DONE
            status = open_event(rules, state, scratch.block, seen)
            if status != layout.OK:
                return status
        if s["logged"] == len(seen.log):
            return layout.GROW_LOG
        item = find_item(b["id"], places.items)
        missing = missing_set(item, places)
        if missing >= 0:
            offset = s["base"] + 4 * s["at"] + 4
            set_id = int(places.set_ids[missing])
            return report_fault(
                state, layout.FAULT_ITEM_UNKNOWN, offset, b["event"], b["id"], set_id, 0.0
            )
        count = spread(scratch, sums)
        status = add_block(item, count, rules[0]["width"], s["serial"], places, sums)
        if status != layout.OK:
            return status
        if log_block(state, scratch.block, seen) == layout.FAULT:
            return layout.FAULT
        pass_block(state, scratch.block)
