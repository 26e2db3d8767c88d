"""A permutation of every block of a range, block j under its own key.

Positions are looked up in whichever order they come. Two tables of small blocks are kept,
block j in slot j mod 2, so that neighbouring blocks do not drive each other out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel
from ...arrays import Indices, Words
from ...rng.kernels import U, fill_rounds, mix, network, shuffle

Tables = npt.NDArray[np.uint16]

_2, _1 = U(2), U(1)


@kernel
def count_misses(positions: Indices, lead: int, size: int) -> int:
    """How often a table would have to be made, were none there.

    Args:
        positions: shape (k,), not negative.
        lead: length by which block 0 is shorter than the others.
        size: of a block.
    """
    even, odd = -1, -1
    low, high = 0, -1
    misses = 0
    for i in range(len(positions)):
        p = positions[i] + lead
        if p < low or p > high:
            block = p // size
            low, high = block * size, block * size + size - 1
            if block % 2 == 0:
                misses += even != block
                even = block
            else:
                misses += odd != block
                odd = block
    return misses


@kernel
def permute_small(
    key: Words,
    lead: int,
    size: int,
    total: int,
    absolute: int,
    positions: Indices,
    owners: Indices,
    tables: Tables,
    out: Indices,
) -> None:
    """Images of positions within their blocks, where blocks are small enough for tables.

    Args:
        key: of all blocks; that of block j is bits 2j and 2j + 1.
        lead: length by which block 0 is shorter than the others.
        size: of a block.
        total: number of positions there are; the last block may be short.
        absolute: 1 for images counted from 0, 0 for images counted from their block.
        positions: shape (k,).
        owners: shape (2,), the blocks whose tables are there, -1 for none; updated.
        tables: shape (2, size); updated.
        out: shape (k,).
    """
    first, second = key[0], key[1]
    low, high = 0, -1
    slot = 0
    for i in range(len(positions)):
        p = positions[i]
        if p < low or p > high:
            block = (p + lead) // size
            low = block * size - lead
            high = low + size - 1
            if low < 0:
                low = 0
            if high >= total:
                high = total - 1
            slot = block % 2
            if owners[slot] != block:
                one = mix(U(block) * _2, first, second)
                two = mix(U(block) * _2 + _1, first, second)
                shuffle(one, two, tables[slot, : high - low + 1])
                owners[slot] = block
        out[i] = tables[slot, p - low] + absolute * low


@kernel
def permute_big(
    key: Words,
    lead: int,
    size: int,
    total: int,
    absolute: int,
    positions: Indices,
    rounds: Words,
    out: Indices,
) -> None:
    """The same where blocks are too big for tables.

    Args:
        key: of all blocks.
        lead: length by which block 0 is shorter than the others.
        size: of a block.
        total: number of positions there are.
        absolute: as above.
        positions: shape (k,), all in blocks that are too big for tables.
        rounds: shape (rounds,), scratch.
        out: shape (k,).
    """
    first, second = key[0], key[1]
    at = 0
    while at < len(positions):
        block = (positions[at] + lead) // size
        low = block * size - lead
        high = low + size - 1
        if low < 0:
            low = 0
        if high >= total:
            high = total - 1
        one = mix(U(block) * _2, first, second)
        two = mix(U(block) * _2 + _1, first, second)
        fill_rounds(one, two, rounds)
        begin = at
        while at < len(positions) and low <= positions[at] <= high:
            at += 1
        network(U(high - low + 1), rounds, low, positions[begin:at], out[begin:at])
        for i in range(begin, at):
            out[i] += absolute * low
