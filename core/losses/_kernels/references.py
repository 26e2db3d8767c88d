"""References: where the stretches of a summary in a period are, without looking into them.

A reference is a key, made of summary and period, and the place of a stretch. A block has one for
each occurrence of its event, a stretch of a run has one. Sorted by key, the references of one group
are neighbours (``groups``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Indices
from ...slices import SLICE
from .layout import ZERO
from .stretches import HEAD, LISTED, PAIRED, stretch_size

_KIND = 3


@subkernel
def _find(ids: npt.NDArray[np.int32], ident: int) -> int:
    """First place of ascending ids at or above one."""
    low = ZERO
    high = ZERO + len(ids)
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < ident:
            low = middle + 1
        else:
            high = middle
    return low


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
            place = _find(events, event)
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
    words: npt.NDArray[np.int32],
    stop: int,
    samples: int,
    width: int,
    events: npt.NDArray[np.int32],
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
        and code & _KIND <= PAIRED
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
