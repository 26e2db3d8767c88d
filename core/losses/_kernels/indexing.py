"""Passes over a window that note where events and blocks begin, or copy all pairs out."""

from __future__ import annotations

import numpy as np

from ..._jit import inlined, kernel
from ...arrays import Floats, Indices
from . import layout
from .block import take_block
from .layout import Losses, Ranks, Record, Scratch, Seen, Sidx, Words
from .scan import close_event, log_block, open_event, pass_block

INDEX = np.dtype(
    [
        ("spacing", "i8"),  # least bytes between two points
        ("room", "i8"),  # most pairs of an event
        ("pairs_before", "i8"),  # pairs of the events before the open one
        ("event_points", "i8"),
        ("block_points", "i8"),
    ]
)
"""Where an index stands; owned by the caller."""


@inlined
def _note(points: Indices, count: int, spacing: int, offset: int, number: int) -> int:
    """Add a point if the last one is far enough away; return how many there are."""
    if count and offset - points[count - 1, 0] < spacing:
        return count
    points[count, 0] = offset
    points[count, 1] = number
    return count + 1


@kernel
def index(
    words: Words,
    stop: int,
    rules: Record,
    state: Record,
    scratch: Scratch,
    seen: Seen,
    progress: Record,
    events: Indices,
    blocks: Indices,
) -> int:
    """Check all blocks of a window; note about every ``spacing`` bytes where one begins.

    A point, in ``events`` and ``blocks`` of shape (n, 2), is the offset and the number of an
    event or block. Returns MORE, FULL (points, or pairs of the event), GROW_SEEN, GROW_LOG or
    FAULT, never OK.
    """
    s = state[0]
    p = progress[0]
    b = scratch.block[0]
    while True:
        status = take_block(words, stop, rules, state, scratch)
        if status != layout.OK:
            return status
        if max(p["event_points"], p["block_points"]) == len(blocks):
            return layout.FULL
        offset = s["base"] + 4 * s["at"]
        if b["event"] != s["event"]:
            close_event(state)
            status = open_event(rules, state, scratch.block, seen)
            if status != layout.OK:
                return status
            p["pairs_before"] = s["pairs"]
            number = s["events"] - 1
            p["event_points"] = _note(events, p["event_points"], p["spacing"], offset, number)
        if s["pairs"] - p["pairs_before"] + b["pairs"] > p["room"]:
            return layout.FULL
        if s["logged"] == len(seen.log):
            return layout.GROW_LOG
        if log_block(state, scratch.block, seen) == layout.FAULT:
            return layout.FAULT
        p["block_points"] = _note(blocks, p["block_points"], p["spacing"], offset, s["blocks"])
        pass_block(state, scratch.block)


@kernel
def gather(
    words: Words,
    stop: int,
    rules: Record,
    state: Record,
    scratch: Scratch,
    seen: Seen,
    events: Sidx,
    firsts: Indices,
    idents: Sidx,
    exposures: Floats,
    starts: Ranks,
    sidx: Sidx,
    losses: Losses,
) -> int:
    """Copy all blocks of a window out, into arrays that have room for them.

    ``events`` and, one longer, ``firsts`` receive the id of each event and its first block;
    ``idents``, ``exposures`` and, one longer, ``starts`` the id and exposure of each block
    and its first pair. Returns MORE, GROW_SEEN, GROW_LOG or FAULT, never OK.
    """
    s = state[0]
    b = scratch.block[0]
    while True:
        status = take_block(words, stop, rules, state, scratch)
        if status != layout.OK:
            return status
        if b["event"] != s["event"]:
            close_event(state)
            status = open_event(rules, state, scratch.block, seen)
            if status != layout.OK:
                return status
        if s["logged"] == len(seen.log):
            return layout.GROW_LOG
        if log_block(state, scratch.block, seen) == layout.FAULT:
            return layout.FAULT
        k = s["blocks"]
        begin = s["pairs"]
        for i in range(b["pairs"]):
            sidx[begin + i] = scratch.sidx[i]
            losses[begin + i] = scratch.losses[i]
        idents[k] = b["id"]
        exposures[k] = b["exposure"]
        pass_block(state, scratch.block)
        starts[k + 1] = s["pairs"]
        events[s["events"] - 1] = s["event"]
        firsts[s["events"]] = k + 1


@kernel
def find_event(words: Words, zeros: int) -> int:
    """First word of a block that belongs to another event than the block before; -1 if none.

    A block ends with a pair of zeros, and the id of an event, which follows, is not 0. Within
    a block there is never a run of so many zero words: a sample id, which is not 0 either,
    separates a loss of 0 from the next. So the end of such a run is the end of a block,
    wherever in the stream the words begin.

    Args:
        words: of the stream, from any word on.
        zeros: words of the pair that ends a block: 2 or 3.
    """
    run = layout.ZERO
    event = layout.ZERO
    for i in range(len(words)):
        word = int(words[i])
        if word == 0:
            run += 1
            continue
        if run >= zeros:
            if event != 0 and word != event:
                return i
            event = word
        run = layout.ZERO
    return -1
