"""Iterators that begin a chain."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, ClassVar

import numpy as np

from ...rng import Permutation, uniform
from ..checkpoints import BEGINNING, Saved, whole
from ..errors import ArgumentError, DataChangedError
from ._base import CheckpointableIterator, Stage, iterate_from, positive
from ._random import CountedRandom, Seed, order_of

_CHUNK = 1024
"""Random numbers or places computed at a time."""


def _check_rank(num_instances: int, instance_rank: int) -> None:
    positive(num_instances, "num_instances")
    if not 0 <= instance_rank < num_instances:
        raise ArgumentError(
            f"invalid instance_rank {instance_rank}", hint=f"It is from 0 to {num_instances - 1}."
        )


def _identity_of(items: object, identity: str | None) -> str | None:
    """The explicit identity, or the fingerprint of the items if they have one."""
    fingerprint = getattr(items, "fingerprint", None)
    if identity is None and isinstance(fingerprint, bytes):
        return fingerprint.hex()
    return identity


def _check_data(saved: Saved, length: int | None, identity: str | None) -> None:
    if saved is BEGINNING:
        return
    """Check that a checkpoint belongs to this data, as far as length and identity tell.

    Raises:
        DataChangedError: the data has another length or identity.
    """
    if saved["length"] != length:
        raise DataChangedError(f"a checkpoint over {saved['length']} items, but there are {length}")
    known = saved.get("identity", None)
    if known != identity:
        raise DataChangedError(f"a checkpoint over {known!r}, but this is {identity!r}")


def _data(length: int | None, identity: str | None) -> dict[str, Any]:
    """The fields of a checkpoint about the data; an unknown identity is left out."""
    return {"length": length} | ({} if identity is None else {"identity": identity})


class NativeCheckpointableIterator(Stage):
    """The items of an iterable, such as a list.

    Going to a checkpoint takes no time in a sequence; any other iterable is read again up
    to the place. A checkpoint holds the length of the iterable, if it has one, and its
    ``identity``, and is refused if they differ.

    Args:
        iterable: returns the same items every time; not an iterator.
        identity: identifies the data, such as a digest. None uses the ``fingerprint`` of an
            iterable that has one.

    Raises:
        ArgumentError: it is an iterator.
    """

    _fields: ClassVar[tuple[str, ...]] = ("num_items_yielded", "length")
    _optional: ClassVar[tuple[str, ...]] = ("identity",)

    def __init__(self, iterable: Iterable[Any], identity: str | None = None) -> None:
        if iter(iterable) is iterable:
            raise ArgumentError(
                "an iterator was given, but an iterable is needed",
                hint="An iterator cannot start over. Pass the iterable it came from.",
            )
        self._iterable = iterable
        self._identity = _identity_of(iterable, identity)
        self.setstate(None)

    def _length(self) -> int | None:
        return len(self._iterable) if isinstance(self._iterable, Sized) else None

    def _save(self) -> dict[str, Any]:
        return {"num_items_yielded": self._yielded, **_data(self._length(), self._identity)}

    def _load(self, saved: Saved) -> None:
        count = saved.count("num_items_yielded")
        _check_data(saved, self._length(), self._identity)
        self._yielded = 0
        self._iterator = iterate_from(self._iterable, count)
        self._yielded = count

    def __next__(self) -> Any:  # noqa: ANN401 - items are anything
        item = next(self._iterator)
        self._yielded += 1
        return item


class ChunkedSourceIterator(NativeCheckpointableIterator):
    """This rank's share of a list: consecutive items, shares differ by one item at most.

    Args:
        source_items: the list.
        num_instances: number of ranks.
        instance_rank: this rank, from 0.
        identity: of the whole list, as in :class:`NativeCheckpointableIterator`.

    Raises:
        ArgumentError: there is no such rank.
    """

    def __init__(
        self,
        source_items: Sequence[Any],
        num_instances: int = 1,
        instance_rank: int = 0,
        identity: str | None = None,
    ) -> None:
        _check_rank(num_instances, instance_rank)
        self._share = {"num_instances": num_instances, "instance_rank": instance_rank}
        share, larger = divmod(len(source_items), num_instances)
        first, last = (
            rank * share + min(rank, larger) for rank in (instance_rank, instance_rank + 1)
        )
        super().__init__(source_items[first:last], _identity_of(source_items, identity))

    def _arguments_saved(self) -> dict[str, Any]:
        # Shares of two ranks may be of one length, but never have the same items.
        return dict(self._share)


class _MersennePasses:
    """Passes in the order of one generator that shuffles again for each."""

    def __init__(self, n: int, seed: Seed) -> None:
        self._n = n
        self._seed = seed
        self.load(None)

    def load(self, saved: object) -> None:
        self._seed.reset()
        epoch, words = (0, 0) if saved is None else self._seed.load(saved, 4)
        whole(epoch, "the number of passes")
        whole(words, "the number of words drawn")
        self._random: CountedRandom | None = None
        self._epoch = epoch - 1
        self._starts = deque([(epoch, words)])

    def _shuffle(self, oldest: int) -> None:
        if self._random is None:
            self._random = CountedRandom(self._seed.value)
            self._random.skip(self._starts[-1][1])
        while len(self._starts) > 1 and self._starts[1][0] <= oldest:
            self._starts.popleft()
        self._places = list(range(self._n))
        self._random.shuffle(self._places)
        self._epoch += 1
        self._starts.append((self._epoch + 1, self._random.words))

    def place(self, epoch: int, offset: int, oldest: int) -> int:
        """The place of an item; passes before ``oldest`` are no longer needed."""
        while self._epoch < epoch:
            self._shuffle(oldest)
        return self._places[offset]

    def save(self, epoch: int) -> list[Any]:
        """[order, seed, pass, words drawn before it] of the last known pass up to ``epoch``."""
        while len(self._starts) > 1 and self._starts[1][0] <= epoch:
            self._starts.popleft()
        return [*self._seed.save(), *self._starts[0]]


class _CounterPasses:
    """Passes whose order is a function of the number of the pass."""

    def __init__(self, n: int, seed: Seed) -> None:
        self._n = n
        self._seed = seed
        self.load(None)

    def load(self, saved: object) -> None:
        self._seed.reset()
        if saved is not None:
            self._seed.load(saved, 2)
        self._key = self._seed.key("permutation")
        self._permutation: Permutation | None = None
        self._epoch = self._chunk = -1

    def place(self, epoch: int, offset: int, _oldest: int) -> int:
        if self._permutation is None or self._epoch != epoch:
            self._permutation = Permutation(self._n, self._key.child(epoch))
            self._epoch, self._chunk = epoch, -1
        chunk, within = divmod(offset, _CHUNK)
        if chunk != self._chunk:
            last = min((chunk + 1) * _CHUNK, self._n)
            self._places = self._permutation.at(np.arange(chunk * _CHUNK, last)).tolist()
            self._chunk = chunk
        place: int = self._places[within]
        return place

    def save(self, _epoch: int) -> list[Any]:
        return self._seed.save()


class InfinitePermutationSourceIterator(Stage):
    """The items of a list in endless passes, each in another order.

    Rank r of W has places r, r + W, ... of the endless sequence. A checkpoint holds the
    global place of all ranks, so it serves any rank, and another number of ranks if all were
    in step. Items are not copied.

    Args:
        source_items: the list, not empty.
        seed: of the order; None draws one, which the checkpoint holds.
        shuffle: False keeps the order of the list.
        num_instances: number of ranks.
        instance_rank: this rank, from 0.
        order: ``mersenne`` for infinibatch's order, in which every pass takes memory and
            time for the whole list and going to a checkpoint draws words again;
            ``counter`` for one that takes neither.
        identity: of the list, as in :class:`NativeCheckpointableIterator`.

    Raises:
        ArgumentError: an empty list, or no such rank.
    """

    _fields: ClassVar[tuple[str, ...]] = ("position", "length", "random")
    _optional: ClassVar[tuple[str, ...]] = ("identity",)

    def __init__(  # noqa: PLR0913, PLR0917 - the peer's arguments
        self,
        source_items: Sequence[Any],
        seed: int | None = 0,
        shuffle: bool = True,
        num_instances: int = 1,
        instance_rank: int = 0,
        order: str = "mersenne",
        identity: str | None = None,
    ) -> None:
        if len(source_items) == 0:
            raise ArgumentError("source must not be empty")
        _check_rank(num_instances, instance_rank)
        self._items = list(source_items) if isinstance(source_items, list) else source_items
        self._identity = _identity_of(source_items, identity)
        self._world = num_instances
        self._rank = instance_rank
        self._seed = Seed(seed, order_of(order))
        self._passes: _MersennePasses | _CounterPasses | None = None
        if shuffle:
            kind = _MersennePasses if order == "mersenne" else _CounterPasses
            self._passes = kind(len(source_items), self._seed)
        self.setstate(None)

    def _save(self) -> dict[str, Any]:
        n = len(self._items)
        place = None if self._passes is None else self._passes.save(self._position // n)
        return {"position": self._position, **_data(n, self._identity), "random": place}

    def _load(self, saved: Saved) -> None:
        position = saved.count("position")
        saved.count("length")
        _check_data(saved, len(self._items), self._identity)
        if self._passes is not None:
            self._passes.load(saved["random"])
        self._position = position

    def __next__(self) -> Any:  # noqa: ANN401 - items are anything
        n = len(self._items)
        epoch, offset = divmod(self._position + self._rank, n)
        if self._passes is not None:
            offset = self._passes.place(epoch, offset, self._position // n)
        self._position += self._world
        return self._items[offset]


def create_source_iterator(  # noqa: PLR0913, PLR0917 - the peer's arguments
    source_items: Sequence[Any],
    train: bool = True,
    seed: int | None = None,
    shuffle: bool = True,
    num_instances: int = 1,
    instance_rank: int = 0,
    order: str = "mersenne",
    identity: str | None = None,
) -> CheckpointableIterator:
    """An endless source for training, or one pass over this rank's share.

    Raises:
        ArgumentError: ``shuffle`` without ``train``, an empty list, or no such rank.
    """
    if not train and shuffle:
        raise ArgumentError("shuffling is not supported when train=False")
    if train:
        return InfinitePermutationSourceIterator(
            source_items, seed, shuffle, num_instances, instance_rank, order, identity
        )
    return ChunkedSourceIterator(source_items, num_instances, instance_rank, identity)


class RandomIterator(Stage):
    """Endless random numbers in [0, 1).

    Args:
        seed: None draws one, which the checkpoint holds.
        order: ``mersenne`` for those of ``random.Random(seed)``, or ``counter``.
    """

    _fields: ClassVar[tuple[str, ...]] = ("random",)

    def __init__(self, seed: int | None = 0, order: str = "mersenne") -> None:
        self._seed = Seed(seed, order_of(order))
        self.setstate(None)

    def _save(self) -> dict[str, Any]:
        return {"random": [*self._seed.save(), self._count]}

    def _load(self, saved: Saved) -> None:
        self._count = self._seed.load_count(saved, "the number of numbers drawn")
        self._numbers = self._mersenne() if self._seed.order == "mersenne" else self._counter()

    def _mersenne(self) -> Iterator[float]:
        generator = CountedRandom(self._seed.value)
        generator.skip(2 * self._count)
        while True:
            yield generator.random()

    def _counter(self) -> Iterator[float]:
        key, first = self._seed.key("random"), self._count
        while True:
            yield from uniform(key, np.arange(first, first + _CHUNK, dtype=np.uint64)).tolist()
            first += _CHUNK

    def __next__(self) -> float:
        number = next(self._numbers)
        self._count += 1
        return number
