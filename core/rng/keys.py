"""Random numbers by counter, and permutations with random access.

A :class:`Key` is derived from a seed and a path, and every number is a function of a key
and an index. So numbers can be had in any order, on any machine, without a state, and
neighbouring seeds, paths and indices have nothing to do with each other.

This is order version 1. Golden vectors in the tests freeze it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..arrays import Floats, Indices, Words
from ..errors import OptionError, PositionError
from .kernels import (
    ROUND_WORDS,
    fill_below,
    fill_bits,
    fill_rounds,
    fill_uniform,
    invert,
    network,
    shuffle,
    unpermute_large,
)

ORDER_VERSION = 1
MAX_SEED = 2**63 - 1
MAX_LENGTH = 2**48
"""Of a permutation."""
SMALL = 65_536
"""Up to this length a permutation is drawn from all there are, and kept as a table."""

_MAX_STEP = 2**64
_DOMAIN = b"thalweg order 1"


@dataclass(frozen=True, slots=True)
class Key:
    """What random numbers are a function of: two words of 64 bits."""

    first: int
    second: int

    def child(self, *path: str | int) -> Key:
        """The key further along a path; ``key.child(a, b) == key.child(a).child(b)``.

        Args:
            path: names, or numbers from 0 to 2**64 - 1.

        Raises:
            OptionError: a number outside that range.
        """
        key = self
        for step in path:
            words = key.first.to_bytes(8, "little") + key.second.to_bytes(8, "little")
            key = _hash(words + _encoded(step))
        return key

    def nth(self, index: int) -> Key:
        """The key of one of many like things, such as an epoch: bits 2i and 2i + 1."""
        first, second = bits(self, np.array([2 * index, 2 * index + 1], np.uint64))
        return Key(int(first), int(second))

    @property
    def words(self) -> Words:
        """Both words, shape (2,), as kernels take them."""
        return np.array([self.first, self.second], np.uint64)


def _encoded(step: str | int) -> bytes:
    if isinstance(step, str):
        return b"s" + step.encode()
    if not 0 <= step < _MAX_STEP:
        raise OptionError(f"a step of a key's path is {step}, not from 0 to 2**64 - 1")
    return b"i" + step.to_bytes(8, "little")


def _hash(data: bytes) -> Key:
    digest = hashlib.shake_128(_DOMAIN + data).digest(16)
    return Key(int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"))


def derive(seed: int, *path: str | int) -> Key:
    """The key of a seed and a path (SHAKE-128).

    Raises:
        OptionError: a seed outside 0..2**63-1.
    """
    if not 0 <= seed <= MAX_SEED:
        raise OptionError(f"a seed is {seed}", hint="Seeds are from 0 to 2**63 - 1.")
    return _hash(seed.to_bytes(8, "little")).child(*path)


def bits(key: Key, indices: Words) -> Words:
    """64 random bits for every index, shape (k,)."""
    out = np.empty(len(indices), np.uint64)
    fill_bits(key.words, _own(indices), out)
    return out


def uniform(key: Key, indices: Words) -> Floats:
    """A number in [0, 1) for every index, a multiple of 2**-53."""
    out = np.empty(len(indices), np.float64)
    fill_uniform(key.words, _own(indices), out)
    return out


def below(key: Key, indices: Words, n: int) -> Indices:
    """A number from 0 to n - 1 for every index; n from 1 to 2**63 - 1.

    Raises:
        OptionError: another n.
    """
    if not 1 <= n <= MAX_SEED:
        raise OptionError(f"a range of random numbers has {n} values")
    out = np.empty(len(indices), np.int64)
    fill_below(key.words, _own(indices), np.uint64(n), out)
    return out


def _own(values: Words) -> Words:
    """As kernels take it: contiguous and writable, which a read-only array is not."""
    return np.require(values, np.uint64, ["C", "W"])


class Permutation:
    """A random order of 0..n-1, a function of n and a key, any place of which is O(1).

    Up to ``SMALL`` it is drawn evenly from all n! orders, and is a table made on first
    use; above it is a Feistel network and takes no memory.
    """

    def __init__(self, n: int, key: Key) -> None:
        if not 0 <= n <= MAX_LENGTH:
            raise OptionError(f"a permutation of {n} items", hint="At most 2**48 can be permuted.")
        self.n = n
        self.key = key

    @cached_property
    def _table(self) -> npt.NDArray[np.uint16]:
        first, second = self.key.words
        table = np.zeros(self.n, np.uint16)
        shuffle(first, second, table)
        return table

    @cached_property
    def _inverse_table(self) -> npt.NDArray[np.uint16]:
        table = np.zeros(self.n, np.uint16)
        invert(self._table, table)
        return table

    @cached_property
    def _rounds(self) -> Words:
        first, second = self.key.words
        rounds = np.zeros(ROUND_WORDS, np.uint64)
        fill_rounds(first, second, rounds)
        return rounds

    def at(self, indices: Indices) -> Indices:
        """What is at these places, shape (k,).

        Raises:
            PositionError: a place outside 0..n-1.
        """
        indices = self._checked(indices)
        if self.n <= SMALL:
            return self._table[indices].astype(np.int64)
        out = np.empty(len(indices), np.int64)
        network(np.uint64(self.n), self._rounds, 0, indices, out)
        return out

    def inverse(self, values: Indices) -> Indices:
        """Where these values are: ``inverse(at(i)) == i``.

        Raises:
            PositionError: a value outside 0..n-1.
        """
        values = self._checked(values)
        if self.n <= SMALL:
            return self._inverse_table[values].astype(np.int64)
        out = np.empty(len(values), np.int64)
        unpermute_large(np.uint64(self.n), self._rounds, values, out)
        return out

    def _checked(self, indices: Indices) -> Indices:
        indices = np.require(indices, np.int64, ["C", "W"])
        if len(indices) and (indices.min() < 0 or indices.max() >= self.n):
            raise PositionError(f"a place outside the {self.n} of a permutation")
        return indices
