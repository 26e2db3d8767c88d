"""Epochs over a stream that can be opened again.

A natural epoch is one pass. A fixed epoch is so many items: it stops without touching the
stream, which goes on in the next epoch and is opened anew when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from ..errors import OptionError, PipelineError, StateError

T = TypeVar("T")

VERSION = 1


class Epochs(Iterator[T], Generic[T]):
    """Items of one epoch after the other.

    Iteration stops at the end of each epoch; to iterate again is the next one.

    Args:
        open_stream: gives the stream from its beginning; it must give the same each time
            for states to mean the same.
        size: items of an epoch; None for natural epochs.

    Raises:
        OptionError: a size below 1.
        PipelineError: (while iterating) a stream without an item.
    """

    def __init__(self, open_stream: Callable[[], Iterable[T]], *, size: int | None = None) -> None:
        if size is not None and size < 1:
            raise OptionError(f"an epoch of {size} items", hint="Give 1 or more, or None.")
        self._open = open_stream
        self._size = size
        self._stream: Iterator[T] | None = None
        self._offset = 0
        self._epoch = 0
        self._served = 0

    @property
    def epoch(self) -> int:
        """Number of the epoch that is going on, or comes next, from 0."""
        return self._epoch

    def __next__(self) -> T:
        if self._size is not None and self._served == self._size:
            self._end()
            raise StopIteration
        try:
            item = self._read()
        except StopIteration:
            self._stream = None
            if self._offset == 0:
                raise PipelineError(
                    "the stream of an epoch gave nothing", hint="Without items no epoch ends."
                ) from None
            self._offset = 0
            if self._size is None:
                self._end()
                raise
            return self.__next__()
        self._offset += 1
        self._served += 1
        return item

    def _end(self) -> None:
        self._epoch += 1
        self._served = 0

    def _read(self) -> T:
        if self._stream is None:
            self._stream = iter(self._open())
            for _ in range(self._offset):
                if next(self._stream, _NOTHING) is _NOTHING:
                    raise StateError("the stream is shorter than where the state was taken")
        return next(self._stream)

    def getstate(self) -> dict[str, Any]:
        """Where it is, as JSON values."""
        return {
            "version": VERSION,
            "epoch": self._epoch,
            "served": self._served,
            "offset": self._offset,
        }

    def setstate(self, state: dict[str, Any] | None) -> None:
        """Go on from a state, None for the beginning; the stream is read up to it again.

        Raises:
            StateError: it is no such state.
        """
        self._epoch, self._served, self._offset = (0, 0, 0) if state is None else _place(state)
        self._stream = None


_NOTHING: Any = object()


def _place(state: object) -> tuple[int, int, int]:
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise StateError("not a state of epochs of this version")
    match tuple(state.get(name) for name in ("epoch", "served", "offset")):
        case (int(epoch), int(served), int(offset)) if min(epoch, served, offset) >= 0:
            return epoch, served, offset
    raise StateError("a state of epochs whose numbers are none")
