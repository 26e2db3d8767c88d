"""Keys for counter-based random numbers, and permutations with random access.

Training code needs many independent random streams (one per epoch, shard or worker) that
can be resumed anywhere and do not depend on which process draws first. Here a stream is
not an object with state but a :class:`Key` of 128 bits, and a random number is a pure
function of a key and an index::

    seed --derive--> Key --child("epoch")--> Key --nth(3)--> Key
                                                              |
                                        bits / uniform / below (key, index)
                                        Permutation(n, key).at(index)

Each step of a path is hashed with SHAKE-128, so neighbouring seeds and paths give
unrelated keys. Hashing is fast enough to name a stream but not to draw every number, so
numbers come from the much cheaper mixer in :mod:`.kernels`.

This is order version 1; golden vectors in the tests freeze its output.
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

MAX_SEED = 2**63 - 1
MAX_LENGTH = 2**48
"""Maximum length of a permutation."""
SMALL = 65_536
"""Up to this length a permutation is a table, drawn uniformly from all n! orders."""

_MAX_STEP = 2**64
_DOMAIN = b"thalweg order 1"


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of a random stream: two words of 64 bits."""

    first: int
    second: int

    def child(self, *path: str | int) -> Key:
        """Derive the key at the end of a path.

        Paths compose: ``key.child(a, b) == key.child(a).child(b)``.

        Args:
            path: names, or numbers from 0 to 2**64 - 1.

        Raises:
            OptionError: a number is outside that range.
        """
        key = self
        for step in path:
            words = key.first.to_bytes(8, "little") + key.second.to_bytes(8, "little")
            key = _hash(words + _encoded(step))
        return key

    def nth(self, index: int) -> Key:
        """Derive the key of one of many equals, such as an epoch, from bits 2i and 2i + 1.

        Cheaper than :meth:`child`, and for indices only.
        """
        first, second = bits(self, np.array([2 * index, 2 * index + 1], np.uint64))
        return Key(int(first), int(second))

    @property
    def words(self) -> Words:
        """Both words as kernels take them: uint64, shape (2,)."""
        return np.array([self.first, self.second], np.uint64)


def _encoded(step: str | int) -> bytes:
    if isinstance(step, str):
        return b"s" + step.encode()
    if not 0 <= step < _MAX_STEP:
        raise OptionError(f"the path of a key contains {step}, not a number from 0 to 2**64 - 1")
    return b"i" + step.to_bytes(8, "little")


def _hash(data: bytes) -> Key:
    digest = hashlib.shake_128(_DOMAIN + data).digest(16)
    return Key(int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"))


def derive(seed: int, *path: str | int) -> Key:
    """Derive the key of a seed and a path, with SHAKE-128.

    Raises:
        OptionError: the seed is outside 0..2**63-1.
    """
    if not 0 <= seed <= MAX_SEED:
        raise OptionError(f"the seed is {seed}", hint="Use a seed from 0 to 2**63 - 1.")
    return _hash(seed.to_bytes(8, "little")).child(*path)


def bits(key: Key, indices: Words) -> Words:
    """Draw 64 random bits per index, shape (k,)."""
    out = np.empty(len(indices), np.uint64)
    fill_bits(key.words, _writable(indices), out)
    return out


def uniform(key: Key, indices: Words) -> Floats:
    """Draw a multiple of 2**-53 in [0, 1) per index, shape (k,)."""
    out = np.empty(len(indices), np.float64)
    fill_uniform(key.words, _writable(indices), out)
    return out


def below(key: Key, indices: Words, n: int) -> Indices:
    """Draw a number from 0 to n - 1 per index, shape (k,).

    Raises:
        OptionError: n is outside 1..2**63-1.
    """
    if not 1 <= n <= MAX_SEED:
        raise OptionError(f"a range of random numbers has {n} values")
    out = np.empty(len(indices), np.int64)
    fill_below(key.words, _writable(indices), np.uint64(n), out)
    return out


@dataclass(frozen=True, slots=True)
class Draws:
    """Random numbers for a block of items: functions of a key and the items' positions."""

    key: Key
    positions: Indices

    def bits(self, *path: str | int) -> Words:
        """64 random bits for every item, different for every path."""
        return bits(self.key.child(*path), self.positions.view(np.uint64))

    def uniform(self, *path: str | int) -> Floats:
        """A number in [0, 1) for every item."""
        return uniform(self.key.child(*path), self.positions.view(np.uint64))

    def below(self, n: int, *path: str | int) -> Indices:
        """A number from 0 to n - 1 for every item."""
        return below(self.key.child(*path), self.positions.view(np.uint64), n)


def _writable(values: Words) -> Words:
    """Make values contiguous and writable: read-only arrays need kernels of another type."""
    return np.require(values, np.uint64, ["C", "W"])


class Permutation:
    """A random permutation of 0..n-1, given by n and a key, with O(1) random access.

    Up to ``SMALL`` items it is drawn uniformly from all n! orders and kept in a table, built
    on first use. A longer one is a Feistel network and takes no memory.

    Args:
        n: number of items.
        key: the key the order depends on.

    Raises:
        OptionError: n is outside 0..2**48.
    """

    def __init__(self, n: int, key: Key) -> None:
        if not 0 <= n <= MAX_LENGTH:
            raise OptionError(f"a permutation of {n} items", hint="Permute at most 2**48 items.")
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
        """Return the values at these positions, shape (k,).

        Raises:
            PositionError: a position is outside 0..n-1.
        """
        indices = self._checked(indices)
        if self.n <= SMALL:
            return self._table[indices].astype(np.int64)
        out = np.empty(len(indices), np.int64)
        network(np.uint64(self.n), self._rounds, 0, indices, out)
        return out

    def inverse(self, values: Indices) -> Indices:
        """Return the positions of these values, so that ``inverse(at(i)) == i``.

        Raises:
            PositionError: a value is outside 0..n-1.
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
            raise PositionError(f"a position is outside the permutation of {self.n} items")
        return indices
