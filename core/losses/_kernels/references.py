"""References: where the stretches of a summary in a period are, without looking into them.

A reference is a key, made of summary and period, and the place of a stretch. A block has one for
each occurrence of its event, a stretch of a run has one. Sorted by key, the references of one group
are neighbours (``groups``).

In place of a stretch, a ledger may have the place of a block in its stream. Memory that a process
has never touched costs several times a copy: the system zeroes it, and beneath a hypervisor it has
to be found first. The bytes of a file that has just been read are in memory already. So the pass
over a file need not copy losses: it leaves a stretch's head, and where the block is::

    owner  summary  code | REFERRED  count | stream and byte offset of the block, 64 bits

What looks for events, periods and sizes sees no difference. The losses of a few summaries at a
time are then read from the file, as the pass reads them, into stretches in memory that is used
again for the next ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Indices
from ...slices import SLICE
from ...sorting import lower_bound
from .block import take_block
from .layout import OK, ZERO, Record, Scratch, Words
from .stretches import (
    HEAD,
    KIND,
    LISTED,
    OFFSET_BITS,
    PAIRED,
    REFERRED,
    Arena,
    append_block,
    stretch_size,
)


@kernel
def refer_to_blocks(
    words: npt.NDArray[np.int32],
    stop: int,
    samples: int,
    width: int,
    events: npt.NDArray[np.int32],
    starts: Indices,
    periods: npt.NDArray[np.int32],
    keys: Indices,
    places: Indices,
) -> tuple[int, int]:
    """Make a reference for each occurrence of each block.

    Args:
        words: stretches of blocks.
        stop: word at or after which no further block is taken, as none is once many references are
            made.
        samples: len_sample.
        width: bytes of a loss.
        events: that occur, ascending.
        starts: first occurrence of each, shape (events + 1,).
        periods: of the occurrences.
        keys: receives summary and period; if empty, references are only counted.
        places: receives the word of each stretch.

    Returns:
        References, and the words of the blocks taken.
    """
    at = ZERO
    k = ZERO
    event = ZERO
    begin = ZERO
    end = ZERO
    while at < stop and (k < SLICE or len(keys) == 0):
        if words[at] != event:
            event = int(words[at])
            place = lower_bound(events, event, ZERO, len(events))
            begin = starts[place]
            end = starts[place + 1] if place < len(events) and events[place] == event else begin
        if len(keys):
            summary = int(words[at + 1]) << 32
            for i in range(begin, end):
                keys[k] = summary | int(periods[i])
                places[k] = at
                k += 1
        else:
            k += end - begin
        at += stretch_size(int(words[at + 2]), int(words[at + 3]), samples, width)
    return k, at


@kernel
def find_events(
    words: npt.NDArray[np.int32], stop: int, samples: int, width: int, events: npt.NDArray[np.int32]
) -> int:
    """Collect the events of blocks as they come; with empty ``events`` only count them."""
    at = ZERO
    k = ZERO
    event = ZERO
    while at < stop:
        if words[at] != event:
            event = int(words[at])
            if len(events):
                events[k] = event
            k += 1
        at += stretch_size(int(words[at + 2]), int(words[at + 3]), samples, width)
    return k


@kernel
def refer_to_run(
    words: npt.NDArray[np.int32],
    begin: int,
    stop: int,
    samples: int,
    width: int,
    keys: Indices,
    places: Indices,
) -> int:
    """Make a reference for each stretch of a run; return how many.

    With empty ``keys`` they are only counted; a negative number is the word, less 1, of a
    stretch that cannot be one.
    """
    at = begin
    k = ZERO
    while at < stop:
        if at + HEAD > stop or not _is_plausible(words, at, samples):
            return -1 - at
        if len(keys):
            keys[k] = (int(words[at + 1]) << 32) | int(words[at])
            places[k] = at
        k += 1
        at += stretch_size(int(words[at + 2]), int(words[at + 3]), samples, width)
    return k if at == stop else -1 - stop


@subkernel
def _is_plausible(words: npt.NDArray[np.int32], at: int, samples: int) -> bool:
    code = words[at + 2]
    return bool(
        words[at] > 0
        and words[at + 1] > 0
        and 0 <= code < 2 * LISTED
        and code & KIND <= PAIRED
        and 0 <= words[at + 3] <= samples + 1
    )


@kernel
def count_cells(places: Indices, words: npt.NDArray[np.int32]) -> int:
    """Cells at the most of references."""
    cells = ZERO
    for i in range(len(places)):
        cells += int(words[places[i] + 3])
    return cells


@kernel
def find_summaries(
    words: npt.NDArray[np.int32],
    stop: int,
    samples: int,
    width: int,
    summaries: npt.NDArray[np.int32],
    starts: Indices,
) -> int:
    """Where each summary of a sorted run begins; return how many there are.

    With empty ``summaries`` they are only counted. A negative number is the word, less 1, at
    which summaries or periods stop to ascend.
    """
    at = ZERO
    k = ZERO
    before = ZERO
    while at < stop:
        key = (int(words[at + 1]) << 32) | int(words[at])
        if key < before:
            return -1 - at
        if key >> 32 != before >> 32:
            if len(summaries):
                summaries[k] = key >> 32
                starts[k] = at
            k += 1
        before = key
        at += stretch_size(int(words[at + 2]), int(words[at + 3]), samples, width)
    return k


@kernel
def originals_size(words: npt.NDArray[np.int32], places: Indices, samples: int, width: int) -> int:
    """Words of the stretches that references stand for."""
    size = ZERO
    for i in range(len(places)):
        at = places[i]
        code = int(words[at + 2]) & ~REFERRED
        size += stretch_size(code, int(words[at + 3]), samples, width)
    return size


@kernel
def read_originals(
    references: Arena,
    places: Indices,
    stream: int,
    words: Words,
    rules: Record,
    state: Record,
    scratch: Scratch,
    arena: Arena,
    moved: Indices,
) -> int:
    """Append the blocks of one stream, to which references refer, as stretches.

    Args:
        references: where the references are.
        places: words of them; those of other streams are passed over.
        stream: index of the stream.
        words: all words of the stream.
        rules: RULES record, by which blocks are accepted and appended.
        state: STATE record; ``ledger_words`` is where the next stretch goes.
        scratch: for a block.
        arena: receives the stretches.
        moved: receives their words; shape of ``places``.

    Returns:
        Number of the first reference whose block is another than it was; else how many there are.
    """
    s = state[0]
    b = scratch.block[0]
    for i in range(len(places)):
        at = places[i]
        original = references.longs[(at + HEAD) >> 1]
        if original >> OFFSET_BITS != stream:
            continue
        s["at"] = (original & ((1 << OFFSET_BITS) - 1)) >> 2
        s["probe"] = 0
        if take_block(words, len(words), rules, state, scratch) != OK:
            return i
        moved[i] = s["ledger_words"]
        if append_block(rules, state, scratch, arena) != OK:
            return i
        to = moved[i]
        if (
            b["event"] != references.words[at]
            or b["id"] != references.words[at + 1]
            or arena.words[to + 2] != references.words[at + 2] & ~REFERRED
            or arena.words[to + 3] != references.words[at + 3]
        ):
            return i
    return len(places)
