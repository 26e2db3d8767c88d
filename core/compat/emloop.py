"""emloop's ``StreamWrapper``: epochs and buffering over a stream that begins again."""

from __future__ import annotations

import copy
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from .errors import CheckpointError, DataChangedError, EmptySourceError, WorkerDiedError

VERSION = 1
_NAME = "StreamWrapper"
_FIELDS = {"iterator", "version", "position", "count", "source"}

Stream = Iterable[Any]
TimeProfile = dict[str, list[float]]


class _EpochEnd:
    """What stands in the buffer where an epoch ends; no batch can be mistaken for it."""


_EPOCH_END = _EpochEnd()


class _Failed:
    """What stands in the buffer where the stream failed."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Place:
    """A place between batches: of the stream, and of the epoch."""

    __slots__ = ("count", "position", "source")

    def __init__(self, position: int = 0, count: int = 0, source: Any = None) -> None:  # noqa: ANN401 - opaque
        self.position = position
        """Batches taken since the stream began."""
        self.count = count
        """Batches taken since the epoch began."""
        self.source = source
        """State of the stream, if it has states and has begun."""


class _Producer:
    """The next batch or epoch end, and the place behind it; of one thread at a time."""

    def __init__(self, stream_fn: Callable[[], Stream], epoch_size: int, name: str | None) -> None:
        self._stream_fn = stream_fn
        self._epoch_size = epoch_size
        self._name = name
        self.go_to(_Place())

    def go_to(self, place: _Place) -> None:
        """Go on from a place, which is opened at the next batch."""
        self._position = place.position
        self._count = place.count
        self._stream: Iterator[Any] | None = None
        self._saved = place.source
        self._skip = place.position
        self._last = place

    def at(self, place: _Place) -> _Producer:
        """Another producer of the same stream, going on from a place."""
        other = _Producer(self._stream_fn, self._epoch_size, self._name)
        other.go_to(place)
        return other

    def next(self) -> tuple[Any, _Place]:
        """A batch or ``_EPOCH_END``, and the place behind it.

        After an exception of the stream the next call begins the stream again and goes on
        where it failed: a stream that failed does not look like one that ended.
        """
        if 0 < self._epoch_size <= self._count:
            self._count = 0
            return _EPOCH_END, self._place()
        while True:
            try:
                batch = next(self._open())
            except StopIteration:
                if self._ended():
                    return _EPOCH_END, self._place()
                continue
            except BaseException:
                self.go_to(self._last)
                raise
            self._position += 1
            self._count += 1
            self._last = self._place()
            return batch, self._last

    def _ended(self) -> bool:
        """Note that the stream ended; whether the epoch did."""
        empty = self._position == 0
        self._stream, self._saved, self._position = None, None, 0
        self._last = self._place()
        if self._epoch_size <= 0:
            self._count = 0
            return True
        if empty:
            raise EmptySourceError(
                f"stream `{self._name}` gives no batches, so no epoch of {self._epoch_size} can end"
            )
        return False

    def _place(self) -> _Place:
        state = getattr(self._stream, "getstate", None)
        source = None if state is None or self._stream is None else copy.deepcopy(state())
        return _Place(self._position, self._count, source)

    def _open(self) -> Iterator[Any]:
        """The stream, opened where it is to go on."""
        if self._stream is not None:
            return self._stream
        stream = iter(self._stream_fn())
        skip, self._skip = self._skip, 0
        if self._saved is not None:
            setstate = getattr(stream, "setstate", None)
            if setstate is None:
                raise DataChangedError("a checkpoint has a state of the stream, which has none")
            setstate(self._saved)
        else:
            for index in range(skip):
                try:
                    next(stream)
                except StopIteration:
                    raise DataChangedError(
                        f"a checkpoint stands behind {skip} batches, and there are {index}"
                    ) from None
        self._saved = None
        self._stream = stream
        return stream


class _Allowed:
    """A context in which batches may be made ahead; contexts count."""

    def __init__(self, change: Callable[[int], None]) -> None:
        self._change = change

    def __enter__(self) -> None:
        self._change(1)

    def __exit__(self, *_: object) -> None:
        self._change(-1)


class StreamWrapper:
    """Batches of a stream, in epochs, made ahead by a thread where that is allowed.

    It can be iterated over again and again: each time gives an epoch. Natural epochs end
    where the stream does, which then begins again. Epochs of a fixed size end after so many
    batches and leave the stream where it is; where it ends in one, it begins again.

        >>> stream = StreamWrapper(lambda: [1, 2, 3], epoch_size=2, name="train")
        >>> list(stream), list(stream), list(stream)
        ([1, 2], [3, 1], [2, 3])

    With a buffer it is to be used in ``with``; the buffer is kept from one to the next. At
    first nothing is made ahead, only what is waited for; inside ``allow_buffering`` the
    thread fills the buffer, up to the end of the epoch.

        >>> with StreamWrapper(lambda: [1, 2, 3], buffer_size=2) as stream:
        ...     with stream.allow_buffering:
        ...         list(stream)
        [1, 2, 3]

    ``getstate`` gives a checkpoint: where the consumer is, whatever was made ahead. If the
    stream has ``getstate`` and ``setstate`` its state is in it, otherwise going there reads
    the batches before again, and the stream has to give the same ones every time.

    Args:
        stream_fn: gives the stream, each time it begins.
        buffer_size: most batches made ahead; below 1 there is no buffer.
        epoch_size: batches in an epoch; below 1 epochs are natural.
        name: of the stream.
        profile: gets the seconds each batch was waited for, under ``read_batch_<name>``.
        stop_timeout: seconds the end of a ``with`` waits for a batch that is being made.
            One that takes longer is kept and comes when it is there.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the peer's arguments
        self,
        stream_fn: Callable[[], Stream],
        buffer_size: int = 0,
        epoch_size: int = -1,
        name: str | None = None,
        profile: TimeProfile | None = None,
        stop_timeout: float = 5.0,
    ) -> None:
        self._name = name
        self._buffer_size = buffer_size
        self._profile = profile
        self._stop_timeout = stop_timeout
        self._producer = _Producer(stream_fn, epoch_size, name)
        self._place = _Place()
        self._buffer: deque[tuple[Any, _Place]] = deque()
        self._changed = threading.Condition()
        self._allowed = 0
        self._entered = False
        self._inside = False
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._generation = 0

    @property
    def name(self) -> str | None:
        """Of the stream."""
        return self._name

    @property
    def allow_buffering(self) -> _Allowed:
        """A context in which batches are made ahead; such contexts nest."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._inside = False
        if not self._stop():
            warnings.warn(
                f"a batch of stream `{self._name}` takes longer than {self._stop_timeout} s; "
                "its thread ends when the batch is there",
                RuntimeWarning,
                stacklevel=2,
            )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - batches are anything
        started = time.perf_counter()
        if self._buffer_size < 1:
            batch, self._place = self._producer.next()
        else:
            batch = self._take()
        if batch is _EPOCH_END:
            raise StopIteration
        if self._profile is not None:
            times = self._profile.setdefault(f"read_batch_{self._name}", [])
            times.append(time.perf_counter() - started)
        return batch

    def _take(self) -> Any:  # noqa: ANN401 - batches are anything
        """The first entry of the buffer, waited for if need be."""
        if not self._entered:
            raise ValueError(
                f"StreamWrapper `{self._name}` with buffer of size `{self._buffer_size}` "
                "was used outside with-resource environment."
            )
        with self._changed, self.allow_buffering:
            while not self._buffer:
                if self._inside:
                    self._start()
                elif self._thread is None:
                    batch, self._place = self._producer.next()  # no thread is left behind
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
        """Start the thread unless it runs; the lock is held."""
        if self._buffer_size < 1:
            return
        self._stopping = False
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(self._generation,), name=f"stream {self._name}", daemon=True
            )
            self._thread.start()

    def _stop(self) -> bool:
        """Stop the thread, keeping the buffer; False if it still makes a batch."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._thread is None, self._stop_timeout)

    def _may_produce(self) -> bool:
        return self._allowed > 0 and len(self._buffer) < self._buffer_size

    def _must_end(self, generation: int) -> bool:
        return self._stopping or generation != self._generation

    def _run(self, generation: int) -> None:
        """The thread: fill the buffer up to the end of the epoch."""
        producer = self._producer
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._must_end(generation) or self._may_produce())
                if self._must_end(generation):
                    self._end(generation)
                    return
            try:
                entry, place = producer.next()
            except BaseException as error:  # noqa: BLE001 - the consumer's to handle
                entry, place = _Failed(error), _Place()
            with self._changed:
                if generation != self._generation:
                    return  # the consumer has gone elsewhere meanwhile
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
        """A checkpoint, behind the batches that were taken."""
        with self._changed:
            place = self._place
            return {
                "iterator": _NAME,
                "version": VERSION,
                "position": place.position,
                "count": place.count,
                "source": copy.deepcopy(place.source),
            }

    def setstate(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Go to a checkpoint, or with None to the beginning. What was made ahead is dropped.

        Raises:
            CheckpointError: it is none; everything stays as it is.
        """
        place = _Place() if checkpoint is None else _checked(checkpoint)
        with self._changed:
            # A thread that is still at a batch belongs to the old generation and producer.
            self._generation += 1
            self._thread = None
            self._buffer.clear()
            self._producer = self._producer.at(place)
            self._place = place
            self._changed.notify_all()
            if self._inside:
                self._start()


def _checked(checkpoint: object) -> _Place:
    if not isinstance(checkpoint, Mapping) or set(checkpoint) != _FIELDS:
        raise CheckpointError(f"this is no checkpoint of {_NAME}: {checkpoint!r}")
    if checkpoint["iterator"] != _NAME or checkpoint["version"] != VERSION:
        raise CheckpointError(
            f"a checkpoint of {checkpoint['iterator']!r}, version {checkpoint['version']!r}",
            hint=f"This is {_NAME}, version {VERSION}.",
        )
    for field in ("position", "count"):
        value = checkpoint[field]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise CheckpointError(f"{field} in a checkpoint of {_NAME} is {value!r}")
    source = copy.deepcopy(checkpoint["source"])
    return _Place(checkpoint["position"], checkpoint["count"], source)
