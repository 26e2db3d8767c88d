"""Splits into training and validation items that survive growing data.

To shuffle all items and cut the list would move items from one side to the other whenever the
data grows, and a model would be validated on items it was trained on. So each item decides
alone: a random word, drawn from the seed and its position (or the bytes of its key), is compared
with a threshold. Neither depends on the number of items. Items with equal keys share a word, and
thus a side.

A side then has as many items as chance gives it, and random access must answer "where is item r
of this side?". One pass at construction counts the items of the side in every chunk of 1024, and
the running sums lead to the right chunk, whose words are drawn again::

    side          T T V T | V T T T | T T V V        chunks of 4
    ends of T           3 |       6 |       8
    item 4 of T   ends[0] = 3 <= 4 < 6 = ends[1], so item 4 - 3 = 1 of T in chunk 1

So a split of n items by position keeps n / 1024 numbers; by key, it also keeps n words.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator
from typing import Literal

import numpy as np

from ..arrays import Array, Indices, Mask, Words
from ..budget import Scope, current
from ..errors import PipelineError
from ..rng import Key, bits
from .base import Indexed, Ragged
from .columns import block_bytes
from .options import one_of, refuse, seed_key
from .positions import Reordering

Part = Literal["train", "validation"]

MAX_SPLIT = 1 << 28
"""Most items that can be split, since the construction visits each."""
CHUNK = 1024
"""Items whose sides are counted together."""

_PARTS = ("train", "validation")
_READ = 1 << 16
_READ_BYTES = 16 << 20
"""Bytes of items whose keys are read at once; a single item may be larger."""
_CHECKED = 64
"""Chunks drawn again between two checks of the budget."""
_WORD = 8


class _Split(Reordering):
    """The items on one side, found a chunk at a time."""

    def __init__(self, inner: Indexed, *, fraction: float, part: str) -> None:
        one_of("part", part, _PARTS)
        if not 0 < fraction < 1:
            raise refuse(f"fraction is {fraction}", "Above 0 and below 1.", "fraction")
        self._n = _splittable(inner)
        self._threshold = np.uint64(int(fraction * 2.0**64))
        self._validation = part == "validation"
        self.inner = inner
        counts = np.fromiter(self._counts(), np.int64)
        self._ends = np.cumsum(counts)
        super().__init__(inner, int(self._ends[-1]) if len(counts) else 0)

    @abstractmethod
    def _words(self, start: int, stop: int) -> Words:
        """Random words of items start to stop - 1; both are multiples of CHUNK, or the end."""

    def _on_side(self, start: int, stop: int) -> Mask:
        side = self._words(start, stop) < self._threshold
        return side if self._validation else ~side

    def _counts(self) -> Iterator[int]:
        for start in range(0, self._n, _READ):
            current().spend("split", min(_READ, self._n - start))
            on_side = self._on_side(start, min(start + _READ, self._n))
            yield from np.add.reduceat(on_side, np.arange(0, len(on_side), CHUNK), dtype=np.int64)

    def where(self, positions: Indices) -> Indices:
        """Find the positions in the inner stage of the items of this side."""
        chunks = np.searchsorted(self._ends, positions, side="right")
        out = np.empty(len(positions), np.int64)
        for number, chunk in enumerate(np.unique(chunks)):
            if number % _CHECKED == 0:
                current().check("split")
            start = int(chunk) * CHUNK
            on_side = np.flatnonzero(self._on_side(start, min(start + CHUNK, self._n)))
            here = chunks == chunk
            rank = positions[here] - (self._ends[chunk] - len(on_side))
            out[here] = on_side[rank] + start
        return out


class Split(_Split):
    """One side of a split by position.

    Item p is for validation where ``bits(derive(seed, "split"), p) < fraction * 2**64``.

    Args:
        inner: stage to split.
        fraction: share of the items that is for validation, above 0 and below 1.
        part: ``train`` or ``validation``.
        seed: from 0 to 2**63 - 1.

    Raises:
        PipelineError: an option is invalid, or the inner stage is endless or too long.
    """

    def __init__(self, inner: Indexed, *, fraction: float, part: Part, seed: int = 0) -> None:
        self._key = seed_key(seed, "split")
        super().__init__(inner, fraction=fraction, part=part)

    def _words(self, start: int, stop: int) -> Words:
        return bits(self._key, np.arange(start, stop, dtype=np.uint64))


class KeySplit(_Split):
    """One side of a split by the values of a field.

    The random word of a value is BLAKE2b over its bytes, little endian, keyed by the seed.
    The field is read once, when the stage is built.

    Args:
        inner: stage to split.
        field: whose values decide.
        fraction: share of the values that is for validation, above 0 and below 1.
        part: ``train`` or ``validation``.
        seed: from 0 to 2**63 - 1.

    Raises:
        PipelineError: an option is invalid, there is no such field, or the inner stage is
            endless or too long.
    """

    def __init__(
        self, inner: Indexed, field: str, *, fraction: float, part: Part, seed: int = 0
    ) -> None:
        if field not in (value.name for value in inner.schema):
            raise refuse(f"there is no field {field!r} to split by", option="key")
        key = seed_key(seed, "split", field)
        n = _splittable(inner)
        current().hold("split", 8 * n)
        self._hashes = np.empty(n, np.uint64)
        start, size = 0, 1
        while start < n:
            with Scope() as budget:
                budget.check("split")
                block = inner.at(np.arange(start, min(start + size, n), dtype=np.int64))
                self._hashes[start : start + size] = _hash_items(block[field], key)
                most = max(_READ_BYTES * size // (block_bytes(block) + 1), 1)
            start, size = start + size, min(2 * size, most, _READ)
        super().__init__(inner, fraction=fraction, part=part)

    def _words(self, start: int, stop: int) -> Words:
        return self._hashes[start:stop]


def _splittable(inner: Indexed) -> int:
    n = inner.length
    if n is None or n > MAX_SPLIT:
        raise PipelineError(
            f"{'an endless stage' if n is None else f'a stage of {n} items'} cannot be split",
            hint=f"Split at most {MAX_SPLIT} items, such as a range of the source.",
        )
    return n


def _hash_items(column: Array | Ragged, key: Key) -> Words:
    """A random word for every item of a column, equal for equal bytes."""
    if not isinstance(column, Ragged):
        unique, inverse = np.unique(_rows(column), return_inverse=True)
        words = [_word(value.tobytes(), key) for value in unique]
        return np.array(words, np.uint64)[inverse.reshape(-1)]
    words = [_word(_little_endian(column[k]).tobytes(), key) for k in range(len(column))]
    return np.array(words, np.uint64)


def _rows(column: Array) -> Array:
    """Every item as one value of its bytes, so that -0.0 differs from 0.0."""
    flat = _little_endian(column).reshape(len(column), -1)
    return flat.view(np.dtype((np.void, max(flat.shape[1] * flat.itemsize, 1)))).reshape(-1)


def _little_endian(values: Array) -> Array:
    return np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))


def _word(data: bytes, key: Key) -> int:
    digest = hashlib.blake2b(
        data, digest_size=_WORD, key=key.words.astype("<u8").tobytes()
    ).digest()
    return int.from_bytes(digest, "little")
