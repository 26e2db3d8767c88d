"""Kernels of the random order in which a shuffle puts positions.

Positions are sorted by a key: the SplitMix64 finaliser (Steele et al., 2014) of
(position + 1) * increment + seed. It permutes the words, so no two positions have one key, and a
key tells its position: keys can be sorted alone.
"""

from __future__ import annotations

from ..._jit import kernel, subkernel
from ...arrays import Array, Indices, Words
from ...rng.kernels import U

_WORDS = 2**64
_FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_GAMMA, _M1, _M2 = U(_FACTORS[0]), U(_FACTORS[1]), U(_FACTORS[2])
_UNDO_GAMMA, _UNDO_M1, _UNDO_M2 = (
    U(pow(_FACTORS[0], -1, _WORDS)),
    U(pow(_FACTORS[1], -1, _WORDS)),
    U(pow(_FACTORS[2], -1, _WORDS)),
)
_1, _27, _30, _31, _54, _60, _62 = U(1), U(27), U(30), U(31), U(54), U(60), U(62)


@subkernel
def _key(position: int, seed: U) -> U:
    z = (U(position) + _1) * _GAMMA + seed
    z = (z ^ (z >> _30)) * _M1
    z = (z ^ (z >> _27)) * _M2
    return z ^ (z >> _31)


@kernel
def count_keys(seed: U, first: int, stop: int, shift: U, counts: Indices) -> None:
    """Count the keys of positions ``first`` to ``stop`` by their upper bits.

    Args:
        seed: of the order.
        first: first position.
        stop: position after the last.
        shift: number of lower bits that do not count.
        counts: the counts, which grow.
    """
    for position in range(first, stop):
        counts[_key(position, seed) >> shift] += 1


@kernel
def collect_keys(seed: U, first: int, stop: int, least: U, most: U, keys: Words, count: int) -> int:
    """Append the keys of positions ``first`` to ``stop`` that lie between two others.

    Args:
        seed: of the order.
        first: first position.
        stop: position after the last.
        least: least key.
        most: greatest key.
        keys: the keys, with room for one more than there are.
        count: how many are there already.

    Returns:
        How many are there now.
    """
    for position in range(first, stop):
        key = _key(position, seed)
        # Written in any case, so that nothing has to be predicted.
        keys[count] = key
        count += int((key >= least) & (key <= most))
    return count


@kernel
def find_positions(seed: U, keys: Words, positions: Array) -> None:
    """Fill ``positions``, int32, with those that have these keys."""
    for i in range(len(keys)):
        z = keys[i]
        z = (z ^ (z >> _31) ^ (z >> _62)) * _UNDO_M2
        z = (z ^ (z >> _27) ^ (z >> _54)) * _UNDO_M1
        z = z ^ (z >> _30) ^ (z >> _60)
        positions[i] = (z - seed) * _UNDO_GAMMA - _1
