"""Epochs over a stream that can be reopened.

A *natural* epoch is one pass over the stream. A *fixed* epoch has a given number of items
and ends without touching the stream, which continues in the next epoch and is reopened
whenever it runs out::

    stream        0 1 2 3 4 5 6 | 0 1 2 3 4 5 6 | 0 ...
    natural      [0 1 2 3 4 5 6] [0 1 2 3 4 5 6]
    size=3       [0 1 2][3 4 5] [6   0 1][2 3 4] [5 6 0] ...
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from ..errors import OptionError, PipelineError, StateError
from .prefetch import Resumable

T = TypeVar("T")

VERSION = 1
_NOTHING: Any = object()


class Place(NamedTuple):
    """A place between two items; a tuple, because there is one for every item."""

    epoch: int = 0
    """Epochs that have ended."""
    served: int = 0
    """Items since the epoch began."""
    offset: int = 0
    """Items since the stream was opened."""
    source: Any = None
    """State of the stream there, if it has states."""


class Epochs(Iterator[T], Generic[T]):
    """The items of a stream, epoch by epoch.

    Iteration stops at the end of each epoch; iterating again returns the next one. If the
    stream raises an exception, the next call reopens it at the same place, so a stream that
    fails never looks like one that ends.

    Args:
        open_stream: returns the stream from its beginning. A stream with ``getstate`` and
            ``setstate`` is resumed by its state; any other must return the same items each
            time, and is read again up to the place.
        size: items of an epoch; None for natural epochs.

    Raises:
        OptionError: the size is below 1.
        PipelineError: (while iterating) the stream has no items.
    """

    def __init__(self, open_stream: Callable[[], Iterable[T]], *, size: int | None = None) -> None:
        if size is not None and size < 1:
            raise OptionError(f"an epoch of {size} items", hint="Give 1 or more, or None.")
        self._open = open_stream
        self._size = size
        self._stream: Iterator[T] | None = None
        self._source: Resumable | None = None
        self.place = Place()
        """The place after the last item."""

    @property
    def epoch(self) -> int:
        """Number of the current epoch, from 0; between two epochs, that of the next one."""
        return self.place.epoch

    def go_to(self, place: Place) -> None:
        """Continue from a place; the stream is reopened there at the next item."""
        self.place = place
        self._stream = self._source = None

    def __next__(self) -> T:
        if self._size is not None and self.place.served >= self._size:
            self._end_epoch()
            raise StopIteration
        while True:
            stream = self._stream
            try:
                item = next(self._opened() if stream is None else stream)
            except StopIteration:
                self._end_stream()
                if self._size is None:
                    self._end_epoch()
                    raise
                continue
            except BaseException:
                self.go_to(self.place)
                raise
            epoch, served, offset, _ = self.place
            state = None if self._source is None else copy.deepcopy(self._source.getstate())
            self.place = Place(epoch, served + 1, offset + 1, state)
            return item

    def _end_epoch(self) -> None:
        self.place = self.place._replace(epoch=self.place.epoch + 1, served=0)

    def _end_stream(self) -> None:
        empty = self.place.offset == 0
        self.go_to(self.place._replace(offset=0, source=None))
        if empty:
            self._refuse_empty()

    def _opened(self) -> Iterator[T]:
        """The stream at the current place."""
        if self._stream is None:
            stream, place = iter(self._open()), self.place
            self._source = stream if isinstance(stream, Resumable) else None
            if place.source is None:
                self._skip(stream, place.offset)
            elif self._source is None:
                raise self._changed("a checkpoint holds a state of the stream, which has none")
            else:
                self._source.setstate(copy.deepcopy(place.source))
            self._stream = stream
        return self._stream

    def _skip(self, stream: Iterator[T], count: int) -> None:
        for index in range(count):
            if next(stream, _NOTHING) is _NOTHING:
                raise self._changed(
                    f"a checkpoint lies after item {count} of a stream of {index} items"
                )

    def _refuse_empty(self) -> None:
        raise PipelineError("the stream has no items", hint="Without items, no epoch ends.")

    def _changed(self, message: str) -> StateError:
        """The error for a stream that no longer has the place."""
        return StateError(message)

    def getstate(self) -> dict[str, Any]:
        """The current place, as JSON values if the states of the stream are."""
        place = self.place
        return {
            "version": VERSION,
            "epoch": place.epoch,
            "served": place.served,
            "offset": place.offset,
            "source": copy.deepcopy(place.source),
        }

    def setstate(self, state: dict[str, Any] | None) -> None:
        """Continue from a state; None is the beginning.

        Raises:
            StateError: it is not a state of epochs.
        """
        self.go_to(Place() if state is None else _parsed(state))


def _parsed(state: object) -> Place:
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise StateError("not a state of epochs of this version")
    match tuple(state.get(name) for name in ("epoch", "served", "offset")):
        case (int(epoch), int(served), int(offset)) if min(epoch, served, offset) >= 0:
            return Place(epoch, served, offset, copy.deepcopy(state.get("source")))
    raise StateError("epoch, served and offset are not all integers from 0")
