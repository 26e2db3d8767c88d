"""Local shuffles: a permutation of every block of a range, and a reservoir.

Block j is permuted under its own key. Positions may come in any order. Two tables of small blocks
are kept, block j in slot j mod 2, so that neighbouring blocks do not evict each other.

The slots of a reservoir are a function of a key and the number of the item. Items 0 to B - 1 fill
the slots in order. From B on, item k goes into slot(k) and pushes out the item there. So a slot
holds the item that entered it last, which a backward scan over k finds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel
from ...arrays import Indices, Words
from ...rng.kernels import U, fill_rounds, mix, network, scale, shuffle

Tables = npt.NDArray[np.uint16]

_2, _1 = U(2), U(1)


@kernel
def count_misses(positions: Indices, lead: int, size: int) -> int:
    """Count how often a table would be built for these positions, starting with none.

    Args:
        positions: shape (k,), not negative.
        lead: how much shorter block 0 is than the others.
        size: positions of a block.
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
    """Permute positions within blocks that are small enough for tables.

    Args:
        key: of all blocks; the key of block j is the words at 2 j and 2 j + 1.
        lead: how much shorter block 0 is than the others.
        size: positions of a block.
        total: number of positions; the last block may be shorter.
        absolute: 1 for images that count from 0, 0 for images that count from their block.
        positions: shape (k,).
        owners: shape (2,), the block of each table, -1 for none; updated.
        tables: shape (2, size); updated.
        out: shape (k,), receives the images.
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
    """Permute positions within blocks that are too big for tables.

    Args:
        key: of all blocks.
        lead: how much shorter block 0 is than the others.
        size: positions of a block.
        total: number of positions.
        absolute: as in :func:`permute_small`.
        positions: shape (k,), all in big blocks.
        rounds: shape (rounds,), scratch.
        out: shape (k,), receives the images.
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


@kernel
def refill(
    key: Words, slots: Indices, at: int, missing: int, draws: int, drawn: Indices
) -> tuple[int, int]:
    """Find the items in the reservoir, going back from the item that entered it last.

    A whole scan takes B ln B draws on average, so callers scan in stretches.

    Args:
        key: of the slots.
        slots: shape (B,), the number of the item in each slot, -1 where it is not known yet.
        at: the item to begin with.
        missing: number of slots not known yet.
        draws: maximum number of items to look at.
        drawn: shape (k,), k > 0, scratch.

    Returns:
        The item to go on with and the number of slots still unknown. Below item B, each unknown
        slot holds the item of its own number.
    """
    first, second = key[0], key[1]
    size = len(slots)
    stop = max(size, at + 1 - draws)
    while missing > 0 and at >= stop:
        # As in exchange: k slots are drawn before any is looked at, in a loop that vectorises.
        count = min(len(drawn), at + 1 - stop)
        for i in range(count):
            drawn[i] = np.int64(scale(mix(U(at - i), first, second), U(size)))
        seen = 0
        while missing > 0 and seen < count:
            slot = drawn[seen]
            if slots[slot] < 0:
                slots[slot] = at - seen
                missing -= 1
            seen += 1
        at -= seen
    return at, missing


@kernel
def exchange(key: Words, emitted: int, slots: Indices, out: Indices) -> None:
    """Put in as many items as come out, and note which those are.

    Args:
        key: of the slots.
        emitted: items that came out before.
        slots: shape (B,), the number of the item in each slot; updated.
        out: shape (k,), receives the items that come out.
    """
    # All slots are drawn before any is used: that loop has no dependencies and vectorises.
    first, second = key[0], key[1]
    size = len(slots)
    for i in range(len(out)):
        out[i] = np.int64(scale(mix(U(size + emitted + i), first, second), U(size)))
    for i in range(len(out)):
        slot = out[i]
        out[i] = slots[slot]
        slots[slot] = size + emitted + i
