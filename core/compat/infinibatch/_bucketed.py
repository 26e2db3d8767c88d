"""Batches of items of similar size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, ClassVar

from ..checkpoints import Saved
from ..errors import ArgumentError
from ._base import Again, CheckpointableIterator, advance, positive
from ._random import Draws, draws

_NOTHING = object()


class BucketedReadaheadBatchIterator(Again):
    """Lists of items with similar keys: reads ahead, sorts, cuts batches and shuffles them.

    The sort is stable, highest key first. A checkpoint holds the source's state before the
    items that were read ahead, and the number of batches served of them. Going there reads
    and sorts those items again.

    Args:
        source_iterator: the items.
        read_ahead: items read at once, from 1.
        key: sort key; None keeps the order of the source.
        batch_size: items in a batch, or a function of the first item of a batch that
            returns the number.
        boundary_key: all items of a batch have the same boundary key, which is never None.
        shuffle: False keeps batches in the order of keys.
        seed: of the order of batches; None draws one, which the checkpoint holds.
        order: ``mersenne`` for infinibatch's order; ``counter`` for an order that resumes
            without drawing again.

    Raises:
        ArgumentError: a size is below 1; when iterating, also if ``batch_size`` returns
            such a size, or a boundary key is None.
    """

    _fields: ClassVar[tuple[str, ...]] = ("source", "random", "num_served")

    def __init__(  # noqa: PLR0913, PLR0917 - the peer's arguments
        self,
        source_iterator: CheckpointableIterator,
        read_ahead: int,
        key: Callable[[Any], Any] | None,
        batch_size: int | Callable[[Any], int],
        boundary_key: Callable[[Any], Any] | None = None,
        shuffle: bool = True,
        seed: int | None = 0,
        order: str = "mersenne",
    ) -> None:
        super().__init__(source_iterator)
        self._read_ahead = positive(read_ahead, "read_ahead")
        self._key = key
        self._size = batch_size if callable(batch_size) else positive(batch_size, "batch_size")
        self._boundary = boundary_key
        self._draws: Draws | None = draws(seed, order, "bucketed") if shuffle else None
        self.setstate(None)

    def _arguments_saved(self) -> dict[str, Any]:
        size = None if callable(self._size) else self._size
        return {"read_ahead": self._read_ahead, "batch_size": size}

    def _save(self) -> dict[str, Any]:
        return {**super()._save(), "random": self._place}

    def _load(self, saved: Saved) -> None:
        super()._load(saved)
        if self._draws is not None:
            self._draws.load(saved["random"])
        self._batches: Iterator[list[Any]] = iter(())
        self._mark()

    def _mark(self) -> None:
        """Remember the place before the items to read next."""
        self._before = self._source.getstate()
        self._place = None if self._draws is None else self._draws.save()

    def _read(self) -> None:
        self._mark()
        self._served = 0
        items = list(islice(self._source, self._read_ahead))
        if not items and not self._skip:
            raise StopIteration
        try:
            if self._key is not None:
                items.sort(key=self._key, reverse=True)
            batches = list(self._cut(items))
        except Exception:
            self._source.setstate(self._before)  # the next call reads the items again
            raise
        if self._draws is not None:
            self._draws.turn().shuffle(batches)
        self._batches = iter(batches)
        self._served = advance(self._batches, self._skip)
        self._skip = 0

    def _cut(self, items: list[Any]) -> Iterator[list[Any]]:
        """Cut sorted items into batches, each as full as its first item allows."""
        batch: list[Any] = []
        size, last = 0, _NOTHING
        for item in items:
            boundary = self._boundary_of(item)
            if batch and (len(batch) == size or boundary != last):
                yield batch
                batch = []
            if not batch:
                size = self._size_for(item)
            batch.append(item)
            last = boundary
        if batch:
            yield batch

    def _boundary_of(self, item: object) -> object:
        if self._boundary is None:
            return _NOTHING
        boundary = self._boundary(item)
        if boundary is None:
            raise ArgumentError("boundary_key is None for an item", hint=f"The item is {item!r}.")
        return boundary

    def _size_for(self, item: object) -> int:
        if not callable(self._size):
            return self._size
        size = self._size(item)
        if size < 1:
            raise ArgumentError(
                f"batch_size returns {size} for an item", hint=f"The item is {item!r}."
            )
        return size

    def __next__(self) -> list[Any]:
        while True:
            for batch in self._batches:
                self._served += 1
                return batch
            self._read()
