"""Random maps and shuffles.

:class:`BufferedShuffleIterator` is the hard one. Every item goes to a random slot of a buffer
and pushes out the item that is there; when the items end, the buffer is emptied. The usual
checkpoint of such a shuffle is the whole buffer with the state of the generator, half a
megabyte at 100,000 slots. Here a checkpoint is a few numbers: the buffer is *rebuilt* by
reading the source again from a place before its oldest item, which is possible because the
slot of every item is known from its index.

To make that possible, the iterator drops *anchors* while it runs: the number of items taken,
the place in the random numbers, and the state of the source. An anchor is kept while the buffer
holds an item that came after it and before the next anchor::

    items taken   0 .... A1 .... A2 .... A3 .... now
    in the buffer         x         x  xx   xx xxx        (x: an item still in a slot)
                          ^ the checkpoint names A1 and "now"

An item stays for B = ``buffer_size`` others on average, so the oldest is some B ln B items back,
and with an anchor for every B/4 items there are few anchors. From an anchor on, ``_next_slot``
repeats the same slots, in either order of random numbers.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...rng import Permutation, below
from ..checkpoints import Saved
from ..errors import DataChangedError
from ._base import CheckpointableIterator, OneSource, positive
from ._items import FixedBatchIterator, SelectManyIterator
from ._random import CountedRandom, Seed, draws, order_of

_CHUNK = 1024
_EMPTY = object()


class SamplingRandomMapIterator(OneSource):
    """``transform(random, item)`` for every item, with a ``random.Random``.

    Args:
        source_iterator: the items.
        transform: may draw any random numbers, but not seed the generator.
        seed: None draws one, which the checkpoint holds.
        order: ``mersenne`` uses one generator for all items, ``random.Random(seed)``, and
            draws its words again when going to a checkpoint; ``counter`` uses a new
            generator for every item.
    """

    _fields: ClassVar[tuple[str, ...]] = ("source", "random")

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        transform: Callable[[random.Random, Any], Any],
        seed: int | None = 0,
        order: str = "mersenne",
    ) -> None:
        super().__init__(source_iterator)
        self._transform = transform
        self._draws = draws(seed, order, "sampling")
        self.setstate(None)

    def _save(self) -> dict[str, Any]:
        return {**super()._save(), "random": self._draws.save()}

    def _load(self, saved: Saved) -> None:
        super()._load(saved)
        self._draws.load(saved["random"])

    def __next__(self) -> Any:  # noqa: ANN401 - items are anything
        item = next(self._source)
        return self._transform(self._draws.turn(), item)


def _shuffled(generator: random.Random, block: list[Any]) -> list[Any]:
    generator.shuffle(block)
    return block


class BlockwiseShuffleIterator(SelectManyIterator):
    """Items shuffled within blocks of ``block_size`` consecutive items.

    A checkpoint holds the source's state before the block and the place in it. Going there
    reads the block again.

    Args:
        source_iterator: the items.
        block_size: items in a block; the last may be shorter.
        seed: None draws one, which the checkpoint holds.
        order: as in ``SamplingRandomMapIterator``.
    """

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        block_size: int,
        seed: int | None = 0,
        order: str = "mersenne",
    ) -> None:
        blocks = FixedBatchIterator(source_iterator, positive(block_size, "block_size"))
        super().__init__(SamplingRandomMapIterator(blocks, _shuffled, seed, order))


class _MersenneSlots:
    """The slots of ``random.Random(seed).randrange(size)``; a place is the words drawn."""

    def __init__(self, seed: Seed, size: int, _index: int, place: int) -> None:
        self._random = CountedRandom(seed.value)
        self._random.skip(place)
        self.place = place
        self._width = size.bit_length()
        self._size = size

    def __iter__(self) -> Iterator[int]:
        # Like randrange, without its checks for every item.
        draw, width, size = super(CountedRandom, self._random).getrandbits, self._width, self._size
        while True:
            slot = draw(width)
            words = 1
            while slot >= size:
                slot = draw(width)
                words += 1
            self.place += words
            yield slot


class _CounterSlots:
    """Slots by counter; the index of an item is its place."""

    place = 0

    def __init__(self, seed: Seed, size: int, index: int, _place: int) -> None:
        self._key = seed.key("buffered")
        self._size = size
        self._index = index

    def __iter__(self) -> Iterator[int]:
        index = self._index
        while True:
            indices = np.arange(index, index + _CHUNK, dtype=np.uint64)
            yield from below(self._key, indices, self._size).tolist()
            index += _CHUNK


class _Anchor(NamedTuple):
    """A place in the source from which the buffer can be rebuilt."""

    items: int
    """Items before it."""
    place: int
    """Place of the next slot in the random numbers."""
    state: Any
    """State of the source."""


class BufferedShuffleIterator(OneSource):
    """Items shuffled through a buffer: each goes to a random slot and pushes out another.

    A checkpoint does not hold the buffer, but a place in the source from which the buffer
    can be rebuilt, some ``buffer_size * ln(buffer_size)`` items back.

    Args:
        source_iterator: the items; resumed, it must return the same ones.
        buffer_size: slots of the buffer.
        seed: None draws one, which the checkpoint holds.
        order: ``mersenne`` for infinibatch's order to the last item, whose words are drawn
            again when going to a checkpoint; ``counter`` for an order that needs no such
            draws and also permutes the items that are in the buffer at the end.
    """

    _fields: ClassVar[tuple[str, ...]] = ("source", "anchor", "taken", "flushed", "random")

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        buffer_size: int,
        seed: int | None = 0,
        order: str = "mersenne",
    ) -> None:
        super().__init__(source_iterator)
        self._size = positive(buffer_size, "buffer_size")
        self._seed = Seed(seed, order_of(order))
        self._interval = max(1, buffer_size // 4)
        self.setstate(None)

    def _arguments_saved(self) -> dict[str, Any]:
        return {"buffer_size": self._size}

    def _save(self) -> dict[str, Any]:
        self._forget()
        oldest = self._anchors[0]
        return {
            "source": oldest.state,
            "anchor": oldest.items,
            "taken": self._count,
            "flushed": self._flushed,
            "random": [*self._seed.save(), oldest.place],
        }

    def _load(self, saved: Saved) -> None:
        count = saved.count("taken")
        anchor = saved.count("anchor", count)
        flushed = saved.count("flushed", self._size)
        place = self._seed.load_count(saved, "the number of words drawn")
        super()._load(saved)
        kind = _MersenneSlots if self._seed.order == "mersenne" else _CounterSlots
        self._slots: _MersenneSlots | _CounterSlots = kind(self._seed, self._size, anchor, place)
        self._next_slot = iter(self._slots).__next__
        self._items: list[Any] = [_EMPTY] * self._size
        # Index of the item in each slot; an empty slot has none that must be read again.
        self._indices = [sys.maxsize] * self._size
        self._anchors = deque([_Anchor(anchor, place, self._source.getstate())])
        self._count = anchor
        self._rest: list[Any] | None = None
        self._flushed = 0
        self._running = self._run()
        # Caught up at the first item, so that a checkpoint that is only passed on costs nothing.
        self._pending = (count, flushed)

    def getstate(self) -> dict[str, Any]:
        """A checkpoint of the chain."""
        checkpoint = super().getstate()
        count, flushed = self._pending
        if count > self._count or flushed:
            checkpoint.update(taken=count, flushed=flushed)
        return checkpoint

    def _catch_up(self) -> None:
        count, flushed = self._pending
        while self._count < count:
            try:
                self._put()
            except StopIteration:
                self._pending = (0, 0)
                raise DataChangedError(
                    f"a checkpoint lies after {count} items, but there are only {self._count}"
                ) from None
        self._pending = (0, 0)
        if flushed:
            self._flush(flushed)

    def _put(self) -> Any:  # noqa: ANN401 - items are anything
        """Put the next item into its slot; return the previous one, or ``_EMPTY``."""
        if self._count - self._anchors[-1].items >= self._interval:
            self._drop_anchor()
        item = next(self._source)
        slot = self._next_slot()
        previous, self._items[slot] = self._items[slot], item
        self._indices[slot] = self._count
        self._count += 1
        return previous

    def _run(self) -> Iterator[Any]:
        """The items pushed out of the buffer: ``_put`` in a loop, with its lookups hoisted."""
        items, indices = self._items, self._indices
        take, next_slot = self._source.__next__, self._next_slot
        while True:
            if self._count - self._anchors[-1].items >= self._interval:
                self._drop_anchor()
            try:
                item = take()
            except StopIteration:
                return
            slot = next_slot()
            previous = items[slot]
            items[slot] = item
            indices[slot] = self._count
            self._count += 1
            if previous is not _EMPTY:
                yield previous

    def _drop_anchor(self) -> None:
        self._forget()
        self._anchors.append(_Anchor(self._count, self._slots.place, self._source.getstate()))

    def _forget(self) -> None:
        """Forget places before the oldest item that is still in the buffer."""
        oldest = min(self._indices)
        while len(self._anchors) > 1 and self._anchors[1].items <= oldest:
            self._anchors.popleft()

    def _flush(self, skip: int = 0) -> None:
        """Arrange the items in the buffer in their final order, without the first ``skip``."""
        rest = [item for item in self._items if item is not _EMPTY]
        if self._seed.order == "counter":
            places = Permutation(len(rest), self._seed.key("flush")).at(np.arange(len(rest)))
            rest = [rest[place] for place in places.tolist()]
        if skip > len(rest):
            raise DataChangedError(
                f"a checkpoint lies after {skip} items of a buffer of {len(rest)}"
            )
        self._rest = rest[: len(rest) - skip]
        self._flushed = skip

    def __next__(self) -> Any:  # noqa: ANN401 - items are anything
        if self._pending != (0, 0):
            self._catch_up()
        if self._rest is None:
            try:
                return next(self._running)
            except StopIteration:
                self._flush()
            except BaseException:
                # An error ends the generator but not the items, so make a new one.
                self._running = self._run()
                raise
        if not self._rest:
            raise StopIteration
        self._flushed += 1
        return self._rest.pop()
