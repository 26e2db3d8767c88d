"""Base classes of iterators with checkpoints.

A checkpoint is a dict of JSON values whose size does not depend on the position. It names its
iterator and version, so that an iterator refuses the checkpoints of others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self, SupportsIndex

from ...errors import StateError
from ..checkpoints import BEGINNING, VERSION, Saved
from ..errors import ArgumentError, DataChangedError

Checkpoint = dict[str, Any]


class CheckpointableIterator(Iterator[Any]):
    """An iterator with checkpoints.

    Iterators form chains; ``getstate``, ``setstate`` and ``close`` of the last iterator act
    on the whole chain. An iterator can be pickled if its arguments can; the copy continues
    where the original was.
    """

    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:  # noqa: ANN401 - any argument
        self = super().__new__(cls)
        self._arguments = (args, kwargs)
        return self

    def __iter__(self) -> Self:
        return self

    @abstractmethod
    def __next__(self) -> Any:  # noqa: ANN401 - items are anything
        """The next item."""

    @abstractmethod
    def getstate(self) -> Any:  # noqa: ANN401 - opaque, as in the peer
        """A checkpoint of the chain; opaque, and unaffected by later iteration."""

    @abstractmethod
    def setstate(self, checkpoint: Any) -> None:  # noqa: ANN401 - opaque, as in the peer
        """Go to a checkpoint of the chain; None is the state after construction."""

    @abstractmethod
    def close(self) -> None:
        """End the processes and threads of the chain."""

    def __getstate__(self) -> object:
        return self.getstate()

    def __setstate__(self, checkpoint: Any) -> None:  # noqa: ANN401 - opaque
        self.setstate(checkpoint)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
        args, kwargs = self._arguments
        return _rebuilt, (type(self), args, kwargs), self.getstate()


def _rebuilt(
    cls: type[CheckpointableIterator], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> CheckpointableIterator:
    # Pickles name this function: a new name would break those of earlier releases.
    return cls(*args, **kwargs)


class Stage(CheckpointableIterator):
    """Base of the iterators of this package; names and checks their checkpoints."""

    _fields: ClassVar[tuple[str, ...]] = ()
    """Fields of a checkpoint, besides its name, version and arguments."""
    _optional: ClassVar[tuple[str, ...]] = ()
    """Further fields, which checkpoints of earlier releases lack."""

    def _arguments_saved(self) -> dict[str, Any]:
        """Arguments that a checkpoint depends on, such as a batch size."""
        return {}

    @abstractmethod
    def _save(self) -> dict[str, Any]:
        """The values of ``_fields``."""

    @abstractmethod
    def _load(self, saved: Saved) -> None:
        """Go to a saved place, or to the beginning."""

    def getstate(self) -> Checkpoint:
        """A checkpoint of the chain."""
        head = {"iterator": type(self).__name__, "version": VERSION}
        return {**head, **self._arguments_saved(), **self._save()}

    def setstate(self, checkpoint: Any) -> None:  # noqa: ANN401 - checked inside
        """Go to a checkpoint, or with None to the beginning.

        Raises:
            CheckpointError: it is not a checkpoint of this iterator; the chain starts over.
            DataChangedError: the data has changed; the chain starts over.
        """
        if checkpoint is None:
            self._load(BEGINNING)
            return
        try:
            name, arguments = type(self).__name__, self._arguments_saved()
            self._load(Saved(name, self._fields, checkpoint, arguments, self._optional))
        except StateError:
            self._load(BEGINNING)
            raise

    def close(self) -> None:
        """Do nothing; stages with processes, threads or sources override this."""


class OneSource(Stage):
    """Base of the iterators over one other iterator."""

    _fields: ClassVar[tuple[str, ...]] = ("source",)

    def __init__(self, source_iterator: CheckpointableIterator) -> None:
        self._source = checkpointable(source_iterator)

    def _save(self) -> dict[str, Any]:
        return {"source": self._source.getstate()}

    def _load(self, saved: Saved) -> None:
        self._source.setstate(saved["source"])

    def close(self) -> None:
        """End the processes and threads of the chain."""
        self._source.close()


class Again(OneSource):
    """Base of those that read a group of items of the source at once, and serve it in parts.

    A checkpoint holds the source's state before the group, and how much of it was served; the
    field of that number is the last of ``_fields``. Going there reads the group again.
    """

    def _save(self) -> dict[str, Any]:
        return {"source": self._before, self._fields[-1]: self._served}

    def _load(self, saved: Saved) -> None:
        self._served = self._skip = saved.count(self._fields[-1])
        super()._load(saved)
        self._before = self._source.getstate()


def checkpointable(source: object, name: str = "source_iterator") -> CheckpointableIterator:
    """Check that a source has checkpoints.

    Raises:
        ArgumentError: it is not a CheckpointableIterator.
    """
    if not isinstance(source, CheckpointableIterator):
        raise ArgumentError(f"{name} has to be a CheckpointableIterator")
    return source


def positive(value: object, name: str) -> int:
    """Check that an argument is a positive integer.

    Raises:
        ArgumentError: it is not.
    """
    # Numpy's integers are some, too.
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or value.__index__() < 1:
        raise ArgumentError(f"{name} has to be a positive integer, not {value!r}")
    return value.__index__()


def advance(iterator: Iterator[Any], count: int) -> int:
    """Skip ``count`` items of an iterator, and return the count.

    Raises:
        DataChangedError: there are fewer items.
    """
    for index in range(count):
        try:
            next(iterator)
        except StopIteration:
            raise DataChangedError(
                f"a checkpoint lies after {count} items, but there are only {index}"
            ) from None
    return count


def iterate_from(collection: Iterable[Any], count: int) -> Iterator[Any]:
    """Iterate over a collection from item ``count`` on.

    Raises:
        DataChangedError: there are fewer items.
    """
    if not count or not isinstance(collection, Sequence):
        iterator = iter(collection)
        advance(iterator, count)
        return iterator
    if count > len(collection):
        raise DataChangedError(
            f"a checkpoint lies after {count} items of a collection of {len(collection)}"
        )
    return map(collection.__getitem__, range(count, len(collection)))
