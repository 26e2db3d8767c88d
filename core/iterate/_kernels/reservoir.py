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
def refill(key: Words, emitted: int, slots: Indices) -> None:
    """Find the items in the reservoir after ``emitted`` came out.

    The scan goes back until every slot is known: B ln B draws on average.

    Args:
        key: of the slots.
        emitted: items that have come out.
        slots: shape (B,), receives the number of the item in each slot.
    """
    first, second = key[0], key[1]
    size = len(slots)
    for i in range(size):
        slots[i] = -1
    missing = size
    k = size + emitted - 1
    while missing > 0 and k >= size:
        slot = np.int64(scale(mix(U(k), first, second), U(size)))
        if slots[slot] < 0:
            slots[slot] = k
            missing -= 1
        k -= 1
    for i in range(size):
        if slots[i] < 0:
            slots[i] = i


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
