"""Memory of a pass that writes summaries: sums of the open event, and blocks written."""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Array, Floats, Octets, Rows
from .._kernels.summary_blocks import Written
from .._kernels.summary_sums import PROGRESS, SPECIAL_COLUMNS, WORD_BITS, Sums
from ..format import LOSS_DTYPES
from .sets import SummarySets

INDEX = np.dtype([("summary_id", "<i4"), ("offset", "<i8")])
"""A row of the peer's ``.idx``: a summary, and the byte at which a block of it begins."""

_FIRST_ROWS_BYTES = 1 << 20
"""Memory of the rows to begin with, as far as the sets can fill it."""
_WRITTEN_BYTES = 1 << 18
"""Memory of the blocks of a set that wait to be handed on: within the second-level cache."""
_SHORTEST_BLOCK = 8
"""Words of the shortest block, about."""


def rows_bytes(sets: SummarySets, samples: int, most: int) -> int:
    """Bytes of the rows of an event that touches every summary, ``most`` at most."""
    return min(8 * (SPECIAL_COLUMNS + samples) * sets.summaries, most)


def first_bytes(sets: SummarySets, samples: int, float_width: int) -> int:
    """About the bytes of sums without rows, and of the first blocks written."""
    of_columns = (SPECIAL_COLUMNS + samples) * (28 + float_width)
    of_blocks = _WRITTEN_BYTES + 3 * (_WRITTEN_BYTES // _SHORTEST_BLOCK)
    return of_columns + 4 * sets.summaries + 8 * sets.pair_count + of_blocks * len(sets.set_ids)


def held_bytes(sums: Sums, written: Written) -> int:
    """Bytes of sums without rows, and of blocks written."""
    arrays = (*sums[1:], *written)
    return sum(array.nbytes for array in arrays if array.base is None)


def make_sums(sets: SummarySets, samples: int) -> Sums:
    """Sums of an event without a loss."""
    columns = SPECIAL_COLUMNS + samples
    capacity = max(1, min(sets.summaries, _FIRST_ROWS_BYTES // (8 * columns)))
    progress = np.zeros(1, PROGRESS)
    progress["chain"] = -1
    return Sums(
        rows=np.zeros((capacity, columns)),
        above=np.zeros(capacity, np.int32),
        risks=np.zeros(capacity, np.int32),
        bounds=np.zeros((capacity, 2)),
        slots=np.full(sets.summaries, -1, np.int32),
        touched=np.zeros(-(-sets.summaries // WORD_BITS), np.int64),
        stamps=np.zeros(sets.pair_count, np.int64),
        values=np.zeros(columns),
        extremes=np.zeros(2),
        columns=np.arange(columns, dtype=np.int32),
        errors=np.zeros((2, columns)),
        progress=progress,
    )


def grow_sums(sums: Sums, capacity: int) -> Sums:
    """The same sums with room for so many rows."""
    used = int(sums.progress["used"][0])

    def grown(array: Array) -> Array:
        target = np.empty((capacity, *array.shape[1:]), array.dtype)
        target[:used] = array[:used]
        return target

    names = ("rows", "above", "risks", "bounds")
    return sums._replace(**{name: grown(getattr(sums, name)) for name in names})


def collapse(sums: Sums, row: int) -> None:
    """Add up a chain of any length exactly, into its first row."""
    chain = [row]
    while (above := int(sums.above[chain[-1]])) >= 0:
        chain.append(above)
    sums.rows[row] = [_sum(column) for column in sums.rows[chain].T]
    sums.above[row] = -1


def _sum(column: Floats) -> float:
    # What is infinite has overflown already, and the errors with it are nothing.
    return math.fsum(column) if np.isfinite(column[0]) else float(column[0])


def make_written(sets: int, samples: int, float_width: int, least: int = 0) -> Written:
    """Room for blocks, with ``least`` words at least for each set."""
    capacity = max(_WRITTEN_BYTES // 4, least)
    blocks = capacity // _SHORTEST_BLOCK
    losses = np.zeros(SPECIAL_COLUMNS + samples + 1, LOSS_DTYPES[float_width])
    return Written(
        words=np.zeros((sets, capacity), np.int32),
        ends=np.zeros(sets, np.int64),
        blocks=np.zeros(sets, np.int64),
        starts=np.zeros((sets, blocks), np.int64),
        ids=np.zeros((sets, blocks), np.int32),
        losses=losses,
        bits=losses.view(f"i{float_width}"),
    )


def grow_written(written: Written, needed: int) -> Written:
    """The same blocks with at least twice as much room, and ``needed`` words more."""
    sets, capacity = written.words.shape
    grown = make_written(sets, 0, written.losses.itemsize, 2 * capacity + needed)
    grown.ends[:] = written.ends
    grown.blocks[:] = written.blocks
    for index in range(sets):
        end, blocks = int(written.ends[index]), int(written.blocks[index])
        grown.words[index, :end] = written.words[index, :end]
        grown.starts[index, :blocks] = written.starts[index, :blocks]
        grown.ids[index, :blocks] = written.ids[index, :blocks]
    return grown._replace(losses=written.losses, bits=written.bits)


def clear_written(written: Written) -> None:
    """Forget the blocks."""
    written.ends[:] = 0
    written.blocks[:] = 0


def written_octets(written: Written, index: int) -> Octets:
    """The bytes of the blocks of a set, by its index."""
    octets: Octets = written.words[index, : int(written.ends[index])].view(np.uint8)
    return octets


def written_rows(written: Written, index: int, offset: int) -> Rows:
    """The index of the blocks of a set, the first of which begins at byte ``offset``."""
    blocks = int(written.blocks[index])
    rows = np.zeros(blocks, INDEX)
    rows["summary_id"] = written.ids[index, :blocks]
    rows["offset"] = 4 * written.starts[index, :blocks] + offset
    return rows
