"""Prefetching in a thread that never runs ahead of the checkpoint.

A thread reads items into a small buffer while the consumer works. Asked for its state, the
source would answer for the item it read last, and a restart from there would lose whatever
waits in the buffer. So every item travels with the state after it, and the state of the iterator
is that of the last item the consumer *took*::

    source               buffer              consumer
    reading (g, 7)  -->  (e, 5) (f, 6)  -->  took (d, 4)    getstate() == 4

After a restart, e and f are read again. An exception of the source waits in the buffer in the
place of its item, so the consumer first gets all items before it.

The compatible packages do not use this class. emloop's buffer fills only while a consumer
allows it, and outlives its ``with`` block; infinibatch prefetches in another process, for
transforms that hold the interpreter's lock.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from ..errors import OptionError, StateError, shown

T = TypeVar("T")
SavedState = dict[str, Any]
"""A state as JSON values."""

CLOSE_SECONDS = 5.0
"""Default seconds that closing waits for a read in progress."""
_POLL_SECONDS = 0.5
"""Seconds between checks that the thread is alive; it does not survive a fork."""


@runtime_checkable
class Resumable(Protocol):
    """An iterator whose state can be saved and restored."""

    def getstate(self) -> SavedState:
        """The current state, as JSON values."""

    def setstate(self, state: SavedState | None) -> None:
        """Continue from a state; None is the beginning."""


@dataclass(slots=True)
class _End:
    """Marks the end of the items, or the exception that ended them."""

    error: BaseException | None


@dataclass(slots=True)
class _Buffer(Generic[T]):
    """The buffer between the reading thread and the consumer."""

    depth: int
    items: deque[tuple[T, SavedState | None] | _End] = field(default_factory=deque)
    changed: threading.Condition = field(default_factory=threading.Condition)
    stopped: bool = False

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def put(self, item: tuple[T, SavedState | None] | _End) -> bool:
        """Wait for room and add an item; False if the consumer has stopped."""
        with self.changed:
            while not self.stopped and len(self.items) >= self.depth:
                self.changed.wait()
            if self.stopped:
                return False
            self.items.append(item)
            self.changed.notify_all()
            return True


def _read(source: Iterator[T], buffer: _Buffer[T]) -> None:
    state_of = source.getstate if isinstance(source, Resumable) else None
    while not buffer.stopped:
        try:
            item = next(source)
            state = None if state_of is None else state_of()
        except StopIteration:
            buffer.put(_End(None))
            return
        except BaseException as error:  # noqa: BLE001 - raised again for the consumer
            buffer.put(_End(error))
            return
        if not buffer.put((item, state)):
            return


class Prefetch(Iterator[T], Generic[T]):
    """The items of an iterator, read up to ``depth`` ahead by a thread.

    From the first item on, the source belongs to the thread. Only one thread may consume.

    Args:
        source: an iterator; with ``getstate`` and ``setstate``, it can be resumed.
        depth: most items read ahead, at least 1.

    Raises:
        OptionError: the depth is below 1, or no whole number.
    """

    def __init__(self, source: Iterator[T], *, depth: int = 2) -> None:
        value: object = depth
        if not isinstance(value, int) or value < 1:
            hint = "Read at least 1 item ahead: a whole number."
            raise OptionError(f"depth is {shown(value)}", hint=hint)
        self._source = source
        self._depth = depth
        self._state: SavedState | None = None
        self._thread: threading.Thread | None = None
        self._buffer: _Buffer[T] = _Buffer(depth)
        self._ended: _End | None = None
        self._closed = False
        self._finalizer: weakref.finalize[..., Any] | None = None

    def __next__(self) -> T:
        if self._closed:
            raise OptionError("the prefetching iterator was closed")
        if self._ended is None:
            item = self._wait()
            if not isinstance(item, _End):
                self._state = item[1]
                return item[0]
            self._ended = item
        if self._ended.error is not None:
            raise self._ended.error
        raise StopIteration

    def _wait(self) -> tuple[T, SavedState | None] | _End:
        thread, buffer = self._started(), self._buffer
        with buffer.changed:
            while not buffer.items:
                if buffer.stopped:
                    raise OptionError("the prefetching iterator was closed")
                if not thread.is_alive():
                    return _End(RuntimeError("the prefetching thread is gone, as after a fork"))
                buffer.changed.wait(_POLL_SECONDS)
            item = buffer.items.popleft()
            buffer.changed.notify_all()
        return item

    def _started(self) -> threading.Thread:
        if self._thread is None:
            if isinstance(self._source, Resumable) and self._state is None:
                self._state = self._source.getstate()
            self._thread = threading.Thread(
                # The consumer's settings, such as numpy's treatment of overflow, apply there too.
                target=contextvars.copy_context().run,
                args=(_read, self._source, self._buffer),
                name="prefetch",
                daemon=True,
            )
            self._finalizer = weakref.finalize(self, self._buffer.stop)
            self._thread.start()
        return self._thread

    def getstate(self) -> SavedState:
        """The state of the source after the last item the consumer took.

        Raises:
            StateError: the source has no states.
        """
        if not isinstance(self._source, Resumable):
            raise StateError("the source has no states")
        if self._thread is None and self._state is None:
            return self._source.getstate()
        if self._state is None:
            raise StateError("the source returned no state")
        return self._state

    def setstate(self, state: SavedState | None) -> None:
        """Continue from a state of the source; None is the beginning.

        Raises:
            StateError: the source has no states or refuses this one, or a read in progress
                did not end within ``CLOSE_SECONDS``.
            OptionError: the iterator was closed.
        """
        if self._closed:
            raise OptionError("the prefetching iterator was closed")
        if not isinstance(self._source, Resumable):
            raise StateError("the source has no states")
        if not self._stop(CLOSE_SECONDS):
            raise StateError("a read in progress did not end, so the state cannot be set")
        self._source.setstate(state)
        self._state = None
        self._ended = None
        self._thread = None
        self._buffer = _Buffer(self._depth)

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Stop reading, and close the source if it has a ``close``.

        Args:
            seconds: time to wait for a read in progress.

        Returns:
            Whether the thread ended. If not, it finishes its read in the background and
            drops the item, and the source stays open.
        """
        self._closed = True
        if not self._stop(seconds):
            return False
        close = getattr(self._source, "close", None)
        if close is not None:
            close()
        return True

    def _stop(self, seconds: float) -> bool:
        self._buffer.stop()
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def __enter__(self) -> Prefetch[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
