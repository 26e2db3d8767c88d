"""The pass over a window of a stream that copies the pairs of all its blocks out."""

from __future__ import annotations

from ..._jit import kernel
from ...arrays import Floats, Indices
from .block import take_block
from .layout import FAULT, GROW_LOG, OK, Losses, Ranks, Record, Scratch, Seen, Sidx, Words
from .scan import close_event, log_block, open_event, pass_block


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
        if status != OK:
            return status
        if b["event"] != s["event"]:
            close_event(state)
            status = open_event(rules, state, scratch.block, seen)
            if status != OK:
                return status
        if s["logged"] == len(seen.log):
            return GROW_LOG
        if log_block(state, scratch.block, seen) == FAULT:
            return FAULT
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
