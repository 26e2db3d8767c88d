"""A reservoir whose slots are a function of a key and the number of the item.

Item k, from B on, is put into slot(k), and what was there comes out. So what a slot holds
after any step is the last item that went into it, which a scan backwards finds.
"""

from __future__ import annotations

import numpy as np

from ..._jit import kernel
from ...arrays import Indices, Words
from ...rng.kernels import U, mix, scale


@kernel
def refill(key: Words, emitted: int, slots: Indices) -> None:
    """What the reservoir holds when ``given`` items have come out, shape (B,).

    Expected work is B ln B, as for whoever collects all of B coupons.
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
    """The next items that come out when ``given`` have; one goes in for each.

    Slots are drawn before any is used: that loop has no dependencies and is vectorised.
    """
    first, second = key[0], key[1]
    size = len(slots)
    for i in range(len(out)):
        out[i] = np.int64(scale(mix(U(size + emitted + i), first, second), U(size)))
    for i in range(len(out)):
        slot = out[i]
        out[i] = slots[slot]
        slots[slot] = size + emitted + i
