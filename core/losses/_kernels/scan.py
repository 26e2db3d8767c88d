"""The pass over a window of a stream: every block once, for every requested table.

A kernel cannot wait for bytes, grow an array or raise. So :func:`scan` runs until it
lacks something, returns a status that says what, and is called again::

                       +--------- caller fetches, flushes or grows ---------+
                       v                                                    |
    blocks ----> next block: whole? --no--> MORE (bytes)                    |
                       |                                                    |
                 of another event? --yes--> write the open event's row,     |
                       |                    open the next; FULL (table),    |
                       |                    GROW_SEEN (page of event ids),--+
                       |                    EVENT_DONE (enough events)
                 room for its rows? --no--> FULL, ARENA_FULL (ledger)
                       |
                 write rows, move the cursor

Everything that must survive between calls is in the ``state`` record, which is why a
stream can be cut at any byte and its state exported after any block. The cursor moves
last: a block is either taken into every table, or into none.
"""

from __future__ import annotations

from ..._jit import inlined, kernel, subkernel
from ...arrays import Floats
from ...sorting import place_of
from . import layout
from .block import report_fault, take_block
from .layout import Losses, Parameters, Ranks, Record, Scratch, Seen, Sidx, Tables, Totals, Words
from .moments import add_samples
from .rows import (
    add_to_event,
    event_rate,
    write_event,
    write_melt,
    write_mplt,
    write_quantiles,
    write_selt,
)
from .seen import NO_PAGE, SEEN, add_block, mark_event, test_event
from .stretches import Arena, append_block


@subkernel
def _fault_at_block(state: Record, block: Record, code: int, skip: int) -> int:
    s = state[0]
    offset = s["base"] + 4 * s["at"] + skip
    return report_fault(state, code, offset, block[0]["event"], block[0]["id"], 0, 0.0)


@kernel
def close_event(state: Record) -> None:
    """Forget the open event, whose row has been written."""
    s = state[0]
    s["event"] = 0
    s["mean_sum"] = 0.0
    s["max_sum"] = 0.0
    s["has_max"] = 0
    s["exposure_sum"] = 0.0
    s["has_exposure"] = 0


@subkernel
def open_event(rules: Record, state: Record, block: Record, seen: Seen) -> int:
    """Begin the event of the block at the cursor: OK, GROW_SEEN or FAULT."""
    s = state[0]
    event = block[0]["event"]
    known = test_event(event, seen.directory, seen.pages)
    if known == NO_PAGE:
        return layout.GROW_SEEN
    if known == SEEN:
        return _fault_at_block(state, block, layout.FAULT_REOPENED, 0)
    if event < s["last_event"]:
        if rules[0]["ascending"]:
            return _fault_at_block(state, block, layout.FAULT_EVENT_ORDER, 0)
        s["ascending"] = 0
    mark_event(event, seen.directory, seen.pages)
    s["closed_event"] = s["last_event"]
    s["event"] = event
    s["event_offset"] = s["base"] + 4 * s["at"]
    s["last_event"] = event
    s["event_blocks"] = 0
    s["events"] += 1
    s["serial"] += 1
    s["logged"] = 0
    return layout.OK


@inlined
def log_block(state: Record, block: Record, seen: Seen) -> int:
    """Remember the block's id: OK, or FAULT if the event had it before."""
    s = state[0]
    ident = block[0]["id"]
    if not add_block(ident, s["serial"], seen.table):
        return _fault_at_block(state, block, layout.FAULT_BLOCK_REPEATED, 4)
    seen.log[s["logged"]] = ident
    s["logged"] += 1
    return layout.OK


@inlined
def pass_block(state: Record, block: Record) -> None:
    """Move the cursor after the block."""
    s = state[0]
    s["event_blocks"] += 1
    s["blocks"] += 1
    s["pairs"] += block[0]["pairs"]
    s["at"] = block[0]["next"]
    s["probe"] = 0


@subkernel
def _enter_event(
    rules: Record,
    state: Record,
    scratch: Scratch,
    seen: Seen,
    totals: Totals,
    inputs: Parameters,
    tables: Tables,
    max_events: int,
) -> int:
    """Close the open event, if any, and open that of the block: OK, or what is missing."""
    s = state[0]
    if s["event"] != 0:
        if rules[0]["events"]:
            status = write_event(rules, state, totals, scratch.lanes, tables.events)
            if status != layout.OK:
                return status
        close_event(state)
    if s["events"] >= max_events:
        return layout.EVENT_DONE
    status = open_event(rules, state, scratch.block, seen)
    if status == layout.OK:
        if rules[0]["melt"]:
            s["rate"] = event_rate(s["event"], inputs.rate_ids, inputs.rates)
        if len(inputs.occurring) and place_of(s["event"], inputs.occurring) < 0:
            s["unplaced"] += 1
    return status


@subkernel
def _write_rows(
    rules: Record,
    state: Record,
    scratch: Scratch,
    totals: Totals,
    inputs: Parameters,
    tables: Tables,
) -> None:
    """Take the block into the requested tables other than MELT."""
    r = rules[0]
    b = scratch.block[0]
    first = b["first"]
    last = first + b["count"]
    samples = scratch.losses[first:last]
    if r["selt"]:
        write_selt(rules, state, scratch, tables.selt_words)
    if r["mplt"]:
        write_mplt(rules, state, scratch, samples, tables.mplt)
    if r["qelt"] or r["qplt"]:
        write_quantiles(rules, state, scratch, samples, inputs, tables)
    if r["events"]:
        add_samples(scratch.sidx[first:last], samples, totals)
        add_to_event(rules, state, scratch.block)


@kernel
def scan(
    words: Words,
    stop: int,
    rules: Record,
    state: Record,
    scratch: Scratch,
    seen: Seen,
    totals: Totals,
    inputs: Parameters,
    tables: Tables,
    arena: Arena,
    limit: int,
    max_events: int,
) -> int:
    """Take blocks of a window into every requested table; return why it stopped.

    Returns OK after ``limit`` blocks, and EVENT_DONE where the stream would come to
    have more than ``max_events`` events. Any status but OK is about the block that
    ``state`` points at: nothing has happened to it, except that the event before may
    have been closed, which is not repeated, so that the call can be made again once
    the caller has done what the status asks for.

    What is here and what is in functions decides a third of the speed: the commonest
    report stays in the loop, the others must not be inlined beside it.
    """
    s = state[0]
    r = rules[0]
    b = scratch.block[0]
    others = r["selt"] or r["qelt"] or r["mplt"] or r["qplt"] or r["events"]
    quantiles = len(inputs.quantiles)
    for _ in range(limit):
        status = take_block(words, stop, rules, state, scratch)
        if status != layout.OK:
            return status
        if b["event"] != s["event"]:
            status = _enter_event(rules, state, scratch, seen, totals, inputs, tables, max_events)
            if status != layout.OK:
                return status
        pairs = b["pairs"]
        if (
            (r["selt"] and s["selt_rows"] + pairs > len(tables.selt))
            or (r["melt"] and s["melt_rows"] + 2 > len(tables.melt))
            or (r["qelt"] and s["qelt_rows"] + quantiles > len(tables.qelt))
            or (r["mplt"] and s["mplt_rows"] + 2 > len(tables.mplt))
            or (r["qplt"] and s["qplt_rows"] + quantiles > len(tables.qplt))
        ):
            s["needed"] = max(pairs, 2, quantiles)
            return layout.FULL
        if s["logged"] == len(seen.log):
            return layout.GROW_LOG
        if r["ledger"]:
            status = append_block(rules, state, scratch, arena)
            if status != layout.OK:
                return status
        if log_block(state, scratch.block, seen) == layout.FAULT:
            return layout.FAULT
        if r["melt"]:
            first = b["first"]
            samples = scratch.losses[first : first + b["count"]]
            write_melt(rules, state, scratch.block, samples, scratch.lanes, tables.melt)
        if others:
            _write_rows(rules, state, scratch, totals, inputs, tables)
        pass_block(state, scratch.block)
    return layout.OK


@kernel
def collect(
    words: Words,
    stop: int,
    rules: Record,
    state: Record,
    scratch: Scratch,
    seen: Seen,
    exposures: Floats,
    starts: Ranks,
    sidx: Sidx,
    losses: Losses,
) -> int:
    """Copy the blocks of the open event out, up to the first block of another event.

    The block ids are in the log, ``exposures`` and, one longer, ``starts`` are as
    long as it; ``starts`` receives the first pair of each block in ``sidx`` and
    ``losses`` and, after the last, the pair count. Returns MORE, EVENT_DONE, FULL,
    GROW_SEEN, GROW_LOG or FAULT, never OK.
    """
    s = state[0]
    b = scratch.block[0]
    while True:
        status = take_block(words, stop, rules, state, scratch)
        if status != layout.OK:
            return status
        if b["event"] != s["event"]:
            if s["event"] != 0:
                return layout.EVENT_DONE
            status = open_event(rules, state, scratch.block, seen)
            if status != layout.OK:
                return status
        k = s["logged"]
        n = b["pairs"]
        begin = starts[k]
        if begin + n > len(sidx):
            s["needed"] = begin + n
            return layout.FULL
        if k == len(seen.log):
            return layout.GROW_LOG
        if log_block(state, scratch.block, seen) == layout.FAULT:
            return layout.FAULT
        for i in range(n):
            sidx[begin + i] = scratch.sidx[i]
            losses[begin + i] = scratch.losses[i]
        exposures[k] = b["exposure"]
        starts[k + 1] = begin + n
        pass_block(state, scratch.block)
