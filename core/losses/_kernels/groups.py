"""Groups of stretches: all that a ledger has on one summary in one period.

A sequence of stretches is in the order of arrival, or in that of the run it came from. A
*reference* is a key, made of summary and period, and the place of a stretch. Sorted by key,
the references of one group are neighbours::

    stretches   [e7 s1][e7 s2][e9 s1] ...          event 7 occurs in periods 3 and 5
    references  s1 p3 ^   s1 p5 ^   s1 p8 ^   s2 p3 ^ ...
                |------ groups of one stretch: copied ------|

A group of one stretch, the commonest, is copied: its losses are its sums. Any other is added
up in scratch memory of one cell a sample, which stays in the caches, as a pair of floats that
is exact (``exact``). A group in which that loses bits is added again in limbs where its sums
are wanted, and is left as it is where a run is written: then nothing is ever rounded twice.
"""

from __future__ import annotations

import numpy as np

from ..._jit import kernel, subkernel
from ...arrays import Indices
from ...sorting import copy
from .cells import Cells, Sums, copy_dense, copy_list, read_losses
from .exact import LIMBS, add_all_to_pairs, add_to_limbs, add_to_pair, rounded, two_sum
from .layout import ARENA_FULL, OK, ZERO
from .stretches import (
    HEAD,
    KIND,
    LISTED,
    PAIRED,
    PLAIN,
    SUMMED,
    Arena,
    better_code,
    bitmap_longs,
    cells_of,
    largest_at,
    store,
    stretch_size,
    values_at,
    write_head,
)

_PERIOD = 0x7FFFFFFF
TILE = 64
"""Cells whose limbs are in memory at once."""


@subkernel
def _group_end(keys: Indices, begin: int) -> int:
    end = begin + 1
    while end < len(keys) and keys[end] == keys[begin]:
        end += 1
    return end


@subkernel
def _add_list(arena: Arena, at: int, samples: int, width: int, sums: Sums) -> bool:
    code = int(arena.words[at + 2])
    count = int(arena.words[at + 3])
    kind = code & KIND
    ids = arena.words[at + HEAD : at + HEAD + count]
    read_losses(arena, at, samples, width, sums)
    largest = sums.losses[:count]
    values = (at + values_at(code, count, samples)) >> 1
    lost = False
    for i in range(count):
        cell = int(ids[i])
        x = largest[i]
        sums.largest[cell] = max(sums.largest[cell], x)
        sums.marks[cell >> 6] |= np.int64(1) << np.int64(cell & 63)
        if kind != PLAIN:
            x = arena.doubles[values + i]
        lost |= add_to_pair(sums.high, sums.low, cell, x)
        if kind == PAIRED:
            lost |= add_to_pair(sums.high, sums.low, cell, arena.doubles[values + count + i])
    return lost


@subkernel
def _add_dense(arena: Arena, at: int, samples: int, width: int, sums: Sums) -> bool:
    code = int(arena.words[at + 2])
    kind = code & KIND
    cells = samples + 1
    bitmap = (at + HEAD) >> 1
    for i in range(bitmap_longs(samples)):
        sums.marks[i] |= arena.longs[bitmap + i]
    read_losses(arena, at, samples, width, sums)
    largest = sums.losses[:cells]
    for i in range(cells):
        sums.largest[i] = max(sums.largest[i], largest[i])
    if kind == PLAIN:
        return add_all_to_pairs(sums.high, sums.low, largest)
    values = (at + values_at(code, cells, samples)) >> 1
    lost = add_all_to_pairs(sums.high, sums.low, arena.doubles[values : values + cells])
    if kind == PAIRED:
        values += cells
        lost |= add_all_to_pairs(sums.high, sums.low, arena.doubles[values : values + cells])
    return lost


@subkernel
def add_group(places: Indices, arena: Arena, samples: int, width: int, sums: Sums) -> bool:
    """Add the stretches of a group; return whether the sum of a cell lost bits."""
    lost = False
    for i in range(len(places)):
        at = places[i]
        if arena.words[at + 2] & LISTED:
            lost |= _add_list(arena, at, samples, width, sums)
        else:
            lost |= _add_dense(arena, at, samples, width, sums)
    return lost


@subkernel
def _add_exactly(value: float, cell: int, sums: Sums) -> None:
    sums.value[0] = value
    add_to_limbs(sums.limbs, cell * LIMBS, int(sums.bits[0]))


@subkernel
def _add_value(
    arena: Arena, at: int, index: int, cell: int, samples: int, width: int, sums: Sums
) -> None:
    """Add value ``index`` of a stretch to the limbs of a cell of the tile."""
    code = int(arena.words[at + 2])
    count = cells_of(code, int(arena.words[at + 3]), samples)
    kind = code & KIND
    if kind == PLAIN:
        first = at + largest_at(code, count, samples)
        if width == 4:
            _add_exactly(np.float64(arena.singles[first + index]), cell, sums)
        else:
            _add_exactly(arena.doubles[(first >> 1) + index], cell, sums)
        return
    values = (at + values_at(code, count, samples)) >> 1
    _add_exactly(arena.doubles[values + index], cell, sums)
    if kind == PAIRED:
        _add_exactly(arena.doubles[values + count + index], cell, sums)


@subkernel
def sum_in_limbs(places: Indices, arena: Arena, samples: int, width: int, sums: Sums) -> None:
    """Replace the sums of a group by sums in limbs, a tile of cells at a time."""
    sums.cursors[: len(places)] = 0
    for begin in range(0, samples + 1, TILE):
        end = min(begin + TILE, samples + 1)
        for i in range(len(places)):
            at = places[i]
            if arena.words[at + 2] & LISTED:
                k = sums.cursors[i]
                while k < arena.words[at + 3] and arena.words[at + HEAD + k] < end:
                    cell = int(arena.words[at + HEAD + k]) - begin
                    _add_value(arena, at, k, cell, samples, width, sums)
                    k += 1
                sums.cursors[i] = k
            else:
                for cell in range(begin, end):
                    _add_value(arena, at, cell, cell - begin, samples, width, sums)
        for cell in range(begin, end):
            sums.high[cell] = rounded(sums.limbs, (cell - begin) * LIMBS)
            sums.low[cell] = 0.0


@subkernel
def clear(samples: int, sums: Sums) -> None:
    """Make scratch ready for the next group."""
    sums.high[: samples + 1] = 0.0
    sums.low[: samples + 1] = 0.0
    sums.largest[: samples + 1] = 0.0
    sums.marks[:] = 0


@subkernel
def _take_cells(samples: int, sums: Sums, cells: Cells, k: int) -> int:
    """Move the cells of scratch that are there to the output; return the cell after them."""
    high = sums.high
    low = sums.low
    largest = sums.largest
    for word in range(len(sums.marks)):
        marks = sums.marks[word]
        if marks == 0:
            continue
        first = word << 6
        for j in range(min(64, samples + 1 - first)):
            # Written for every cell, and kept if it is there: no branch to mispredict.
            cells.samples[k] = first + j
            cells.sums[k] = high[first + j] + low[first + j]
            cells.largest[k] = largest[first + j]
            k += int((marks >> j) & 1)
    return k


@kernel
def sum_cells(
    keys: Indices, places: Indices, arena: Arena, samples: int, width: int, sums: Sums, cells: Cells
) -> int:
    """Add up the groups of sorted references; return the cells.

    Args:
        keys: summaries and periods, ascending.
        places: words of the stretches.
        arena: holds the stretches.
        samples: len_sample.
        width: bytes of a loss.
        sums: scratch.
        cells: receives the groups, of the lengths that ``measure`` tells; its arrays of cells
            have 64 elements to spare.
    """
    k = ZERO
    group = 0
    begin = 0
    while begin < len(keys):
        end = _group_end(keys, begin)
        cells.summaries[group] = keys[begin] >> 32
        cells.periods[group] = keys[begin] & _PERIOD
        cells.starts[group] = k
        at = places[begin]
        code = int(arena.words[at + 2])
        if end == begin + 1 and code & LISTED:
            k = copy_list(arena, at, samples, width, sums, cells, k)
        elif end == begin + 1 and code & KIND == PLAIN:
            k = copy_dense(arena, at, samples, width, sums, cells, k)
        else:
            if add_group(places[begin:end], arena, samples, width, sums):
                sum_in_limbs(places[begin:end], arena, samples, width, sums)
            k = _take_cells(samples, sums, cells, k)
            clear(samples, sums)
        group += 1
        begin = end
    cells.starts[group] = k
    return k


@subkernel
def _copy_stretch(arena: Arena, at: int, period: int, size: int, out: Arena, to: int) -> None:
    copy(arena.words[at : at + size], out.words[to : to + size])
    out.words[to] = period


@subkernel
def _count_marks(marks: Indices) -> int:
    count = ZERO
    for i in range(len(marks)):
        word = marks[i]
        for j in range(64):
            count += int((word >> j) & 1)
    return count


@subkernel
def _normalise(samples: int, sums: Sums) -> int:
    """Round the high part of every cell to the whole sum; return SUMMED or PAIRED."""
    kind = SUMMED
    for cell in range(samples + 1):
        sums.high[cell], e = two_sum(sums.high[cell], sums.low[cell])
        sums.low[cell] = e
        if e != 0.0:
            kind = PAIRED
    return kind


@subkernel
def _write_sums(
    summary: int, period: int, samples: int, width: int, sums: Sums, out: Arena, to: int
) -> int:
    """Write the cells of scratch as a stretch, if it fits; return its words."""
    kind = _normalise(samples, sums)
    count = _count_marks(sums.marks)
    code = better_code(kind, count, samples, width)
    size = stretch_size(code, count, samples, width)
    if to + size > len(out.words):
        return size
    write_head(out, to, period, summary, code, count)
    out.words[to + size - 1] = 0
    values = (to + values_at(code, count, samples)) >> 1
    first = to + largest_at(code, count, samples)
    first = first if width == 4 else first >> 1
    parts = cells_of(code, count, samples)
    if code & LISTED:
        if count & 1:
            out.words[to + HEAD + count] = 0
    else:
        bitmap = (to + HEAD) >> 1
        copy(sums.marks, out.longs[bitmap : bitmap + len(sums.marks)])
    k = 0
    for cell in range(samples + 1):
        if code & LISTED:
            if not (sums.marks[cell >> 6] >> (cell & 63)) & 1:
                continue
            out.words[to + HEAD + k] = cell
        out.doubles[values + k] = sums.high[cell]
        if kind == PAIRED:
            out.doubles[values + parts + k] = sums.low[cell]
        store(out, first + k, width, sums.largest[cell])
        k += 1
    return size


@kernel
def write_run(
    keys: Indices,
    places: Indices,
    arena: Arena,
    samples: int,
    width: int,
    sums: Sums,
    out: Arena,
    progress: Indices,
) -> int:
    """Write groups of sorted references as a run; return OK, or ARENA_FULL to be called again.

    Args:
        keys: summaries and periods, ascending.
        places: words of the stretches.
        arena: holds the stretches.
        samples: len_sample.
        width: bytes of a loss.
        sums: scratch.
        out: receives the run from word ``progress[1]`` on.
        progress: first reference of the next group, words written, words needed.
    """
    begin = progress[0]
    to = progress[1]
    while begin < len(keys):
        end = _group_end(keys, begin)
        period = keys[begin] & _PERIOD
        exact = end > begin + 1 and not add_group(places[begin:end], arena, samples, width, sums)
        size = ZERO
        if exact:
            size = _write_sums(keys[begin] >> 32, period, samples, width, sums, out, to)
        else:
            for i in range(begin, end):
                at = places[i]
                count = int(arena.words[at + 3])
                size += stretch_size(int(arena.words[at + 2]), count, samples, width)
        if end > begin + 1:
            clear(samples, sums)
        if to + size > len(out.words):
            progress[0] = begin
            progress[1] = to
            progress[2] = size
            return ARENA_FULL
        if not exact:
            copied = to
            for i in range(begin, end):
                at = places[i]
                count = int(arena.words[at + 3])
                part = stretch_size(int(arena.words[at + 2]), count, samples, width)
                _copy_stretch(arena, at, period, part, out, copied)
                copied += part
        to += size
        begin = end
    progress[0] = begin
    progress[1] = to
    return OK
