"""A reservoir whose slots are a function of a key and the number of the item.

Items 0 to B - 1 fill the slots in order. From B on, item k goes into slot(k) and pushes out the
item there. So a slot holds the item that entered it last, which a backward scan over k finds.
"""

from __future__ import annotations

import numpy as np

from ..._jit import kernel
from ...arrays import Indices, Words
from ...rng.kernels import U, mix, scale


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
