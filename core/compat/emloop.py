"""emloop's ``StreamWrapper``: epochs and buffering over a stream that can start over.

The epochs are those of :mod:`core.iterate.epochs`. The buffer cannot be
:class:`core.iterate.prefetch.Prefetch`, because emloop's differs in every visible respect: its
thread produces only while a consumer allows it, stops at the end of an epoch, and leaves the
buffer full at the end of a ``with`` block, for the next one to use.
"""

from __future__ import annotations

import copy
import operator
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from ..iterate.epochs import Epochs, Place
from .checkpoints import MAX_COUNT, VERSION, Saved
from .errors import ArgumentError, DataChangedError, EmptySourceError, WorkerDiedError

_NAME = "StreamWrapper"

Stream = Iterable[Any]
TimeProfile = dict[str, list[float]]


class _EpochEnd:
    """Marks the end of an epoch in the buffer; no batch can be mistaken for it."""


_EPOCH_END = _EpochEnd()


class _Failed:
    """Takes the place of a batch in the buffer if the stream failed there."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Batches(Epochs[Any]):
    """Batches in epochs; used by one thread at a time."""

    def __init__(self, stream_fn: Callable[[], Stream], epoch_size: int, name: str | None) -> None:
        super().__init__(stream_fn, size=epoch_size or None)
        self._name = name

    def at(self, place: Place) -> _Batches:
        """A copy that continues the same stream from a place."""
        other = _Batches(self._open, self._size or 0, self._name)
        other.go_to(place)
        return other

    def take(self) -> tuple[Any, Place]:
        """A batch or ``_EPOCH_END``, and the place after it."""
        try:
            batch = next(self)
        except StopIteration:
            batch = _EPOCH_END
        return batch, self.place

    def _refuse_empty(self) -> None:
        if self._size is not None:
            raise EmptySourceError(
                f"stream `{self._name}` has no batches, so an epoch of {self._size} cannot end"
            )

    def _changed(self, message: str) -> DataChangedError:
        return DataChangedError(message)


class _Allowed:
    """A context in which batches may be produced ahead of use; contexts nest."""

    def __init__(self, change: Callable[[int], None]) -> None:
        self._change = change

    def __enter__(self) -> None:
        self._change(1)

    def __exit__(self, *_: object) -> None:
        self._change(-1)


class StreamWrapper:
    """Batches of a stream in epochs, produced ahead by a thread inside ``allow_buffering``.

    Each iteration over it is one epoch. A natural epoch ends with the stream, which then
    starts over. An epoch of a fixed size ends after that many batches and leaves the stream
    where it is; a stream that runs out within an epoch starts over.

        >>> stream = StreamWrapper(lambda: [1, 2, 3], "train", epoch_size=2)
        >>> list(stream), list(stream), list(stream)
        ([1, 2], [3, 1], [2, 3])

    Use a buffered stream in a ``with`` block; batches left in the buffer wait for the next
    block. The thread produces only the batch that a consumer waits for, but inside
    ``allow_buffering`` it fills the buffer up to the end of the epoch.

        >>> with StreamWrapper(lambda: [1, 2, 3], "train", buffer=2) as stream:
        ...     with stream.allow_buffering:
        ...         list(stream)
        [1, 2, 3]

    ``getstate`` returns a checkpoint of the consumer's place, however many batches are in
    the buffer. If the stream has ``getstate`` and ``setstate``, the checkpoint holds its
    state; otherwise going there reads the batches before it again, and the stream must
    return the same ones every time.

    Both call forms of the peer work: that of its documentation, ``StreamWrapper(stream_fn,
    name, buffer=..., epoch_size=...)``, and that of its code, the arguments below in order.

    Args:
        stream_fn: returns the stream, each time it starts.
        buffer_size: most batches in the buffer, below 1 for no buffer; or the name, as a
            string.
        epoch_size: batches in an epoch, below 1 for natural epochs.
        name: of the stream.
        profile: receives the seconds of waiting for each batch, under ``read_batch_<name>``.
        stop_timeout: seconds that leaving a ``with`` block waits for a batch in production.
            A batch that takes longer is kept and delivered once it exists.
        buffer: another word for ``buffer_size``.

    Raises:
        ArgumentError: a size is no integer.
        TypeError: two names or two buffer sizes.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the peer's arguments
        self,
        stream_fn: Callable[[], Stream],
        buffer_size: int | str | None = None,
        epoch_size: int = -1,
        name: str | None = None,
        profile: TimeProfile | None = None,
        stop_timeout: float = 5.0,
        *,
        buffer: int | None = None,
    ) -> None:
        if isinstance(buffer_size, str):
            if name is not None:
                raise TypeError(f"two names for a stream: {buffer_size!r} and {name!r}")
            name, buffer_size = buffer_size, None
        if buffer is not None and buffer_size is not None:
            raise TypeError(f"two buffer sizes for a stream: {buffer_size!r} and {buffer!r}")
        self.name = name
        """Name of the stream."""
        self._buffer_size = _whole("buffer_size", buffer_size or buffer or 0)
        self._epoch_size = max(_whole("epoch_size", epoch_size), 0)
        self._profile = profile
        self._stop_timeout = stop_timeout
        self._batches = _Batches(stream_fn, self._epoch_size, name)
        self._place = Place()
        self._buffer: deque[tuple[Any, Place]] = deque()
        self._changed = threading.Condition()
        self._allowed = 0
        self._entered = False
        self._inside = False
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._generation = 0

    @property
    def allow_buffering(self) -> _Allowed:
        """A context in which the buffer fills; such contexts nest."""
        return _Allowed(self._allow)

    def _allow(self, change: int) -> None:
        with self._changed:
            self._allowed += change
            self._changed.notify_all()

    def empty(self) -> bool:
        """Whether there is no buffer, or nothing in it."""
        return not self._buffer

    def __enter__(self) -> Self:
        with self._changed:
            self._entered = self._inside = True
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside = False
        if not self._stop():
            warnings.warn(
                f"a batch of stream `{self.name}` takes longer than {self._stop_timeout} s; "
                "its thread ends once the batch exists",
                RuntimeWarning,
                stacklevel=2,
            )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - batches are anything
        started = time.perf_counter()
        if self._buffer_size < 1:
            batch, self._place = self._batches.take()
        else:
            batch = self._take()
        if batch is _EPOCH_END:
            raise StopIteration
        if self._profile is not None:
            times = self._profile.setdefault(f"read_batch_{self.name}", [])
            times.append(time.perf_counter() - started)
        return batch

    def _take(self) -> Any:  # noqa: ANN401 - batches are anything
        """Wait for the first entry of the buffer and remove it."""
        if not self._entered:
            raise ValueError(
                f"StreamWrapper `{self.name}` with buffer of size `{self._buffer_size}` "
                "was used outside with-resource environment."
            )
        with self._changed, self.allow_buffering:
            while not self._buffer:
                if self._inside:
                    self._start()
                elif self._thread is None:
                    # After the last `with` there is no thread, so the consumer produces.
                    batch, self._place = self._batches.take()
                    return batch
                self._changed.wait_for(lambda: self._buffer or self._thread is None)
            entry, place = self._buffer.popleft()
            self._changed.notify_all()
            if not isinstance(entry, _Failed):
                self._place = place
                return entry
        error = entry.error
        if isinstance(error, EmptySourceError | DataChangedError):
            raise error
        raise WorkerDiedError("Enqueueing thread ended unexpectedly.") from error

    def _start(self) -> None:
        """Start the thread unless it runs; the caller holds the lock."""
        if self._buffer_size < 1:
            return
        self._stopping = False
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(self._generation,), name=f"stream {self.name}", daemon=True
            )
            self._thread.start()

    def _stop(self) -> bool:
        """Stop the thread and keep the buffer; False if a batch is still in production."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._thread is None, self._stop_timeout)

    def _may_produce(self) -> bool:
        return self._allowed > 0 and len(self._buffer) < self._buffer_size

    def _must_end(self, generation: int) -> bool:
        return self._stopping or generation != self._generation

    def _run(self, generation: int) -> None:
        """Fill the buffer up to the end of the epoch, in the thread."""
        batches = self._batches
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._must_end(generation) or self._may_produce())
                if self._must_end(generation):
                    self._end(generation)
                    return
            try:
                entry, place = batches.take()
            except BaseException as error:  # noqa: BLE001 - raised again for the consumer
                entry, place = _Failed(error), Place()
            with self._changed:
                if generation != self._generation:
                    return  # meanwhile the consumer went to a checkpoint
                self._buffer.append((entry, place))
                self._changed.notify_all()
                if entry is _EPOCH_END or isinstance(entry, _Failed):
                    self._end(generation)
                    return

    def _end(self, generation: int) -> None:
        if generation == self._generation:
            self._thread = None
        self._changed.notify_all()

    def getstate(self) -> dict[str, Any]:
        """A checkpoint after the last batch that was taken, as JSON values."""
        with self._changed:
            place = self._place
            return {
                "iterator": _NAME,
                "version": VERSION,
                "epoch_size": self._epoch_size,
                "position": place.offset,
                "count": place.served,
                "source": copy.deepcopy(place.source),
            }

    def setstate(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Go to a checkpoint and drop the buffer; None is the beginning.

        Raises:
            CheckpointError: it is not a checkpoint of this class, or one of another
                ``epoch_size``; nothing changes.
        """
        place = Place() if checkpoint is None else _parsed(checkpoint, self._epoch_size)
        with self._changed:
            # A thread that is still producing belongs to the old generation and its batches.
            self._generation += 1
            self._thread = None
            self._buffer.clear()
            self._batches = self._batches.at(place)
            self._place = place
            self._changed.notify_all()
            if self._inside:
                self._start()


def _whole(name: str, size: Any) -> int:  # noqa: ANN401 - of any type of integer
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise ArgumentError(f"{name} has to be an integer, not {size!r}")
    return operator.index(size)


def _parsed(checkpoint: object, epoch_size: int) -> Place:
    arguments = {"epoch_size": epoch_size}
    saved = Saved(_NAME, ("position", "count", "source"), checkpoint, arguments)
    source = copy.deepcopy(saved["source"])
    served = saved.count("count", epoch_size or MAX_COUNT)
    return Place(offset=saved.count("position"), served=served, source=source)
