"""The pass over an item stream that writes streams of summaries."""

from __future__ import annotations

from ..._jit import kernel
from .block import report_fault, take_block
from .layout import (
    EVENT_DONE,
    FAULT,
    FAULT_ITEM_UNKNOWN,
    GROW_LOG,
    OK,
    Record,
    Scratch,
    Seen,
    Words,
)
from .scan import close_event, log_block, open_event, pass_block
from .summary_blocks import Written, write_summaries
from .summary_sums import Places, Sums, add_block, find_item, missing_set, spread


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
        item = find_item(b["id"], places.items)
        missing = missing_set(item, places)
        if missing >= 0:
            offset = s["base"] + 4 * s["at"] + 4
            set_id = int(places.set_ids[missing])
            return report_fault(state, FAULT_ITEM_UNKNOWN, offset, b["event"], b["id"], set_id, 0.0)
        count = spread(scratch, sums)
        status = add_block(item, count, rules[0]["width"], s["serial"], places, sums)
        if status != OK:
            return status
        if log_block(state, scratch.block, seen) == FAULT:
            return FAULT
        pass_block(state, scratch.block)
