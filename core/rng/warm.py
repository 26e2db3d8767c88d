"""Warm-up: compile every random-number kernel by using it once."""

from __future__ import annotations

import numpy as np

from .keys import SMALL, Permutation, below, bits, derive, uniform

_FEW = 8


def use_random_numbers() -> None:
    """Draw and permute a few numbers."""
    key = derive(0)
    indices = np.arange(_FEW, dtype=np.uint64)
    bits(key, indices)
    uniform(key, indices)
    below(key, indices, _FEW)
    for n in (_FEW, SMALL + 1):
        order = Permutation(n, key)
        order.inverse(order.at(np.arange(_FEW)))
