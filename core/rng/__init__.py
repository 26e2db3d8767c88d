"""Counter-based random numbers and permutations with random access.

A :class:`Key` is derived from a seed and a path, and every number is a function of a key
and an index. There is no generator state: numbers can be drawn in any order, on any
machine.
"""

from .keys import MAX_LENGTH, MAX_SEED, SMALL, Draws, Key, Permutation, below, bits, derive, uniform

__all__ = [
    "MAX_LENGTH",
    "MAX_SEED",
    "SMALL",
    "Draws",
    "Key",
    "Permutation",
    "below",
    "bits",
    "derive",
    "uniform",
]
