"""Prefetching in another process; a map in several, which transforms run in at once.

Unlike :class:`core.iterate.prefetch.Prefetch`, which reads in a thread, this also helps if
producing an item holds the interpreter's lock. The process has *credit* for
``buffer_size`` items; taking items grants more. With every item, or a window of them, comes
the state of the source, so the checkpoint is always near the consumer::

    consumer                       process
       | -- credit: 4 --------------> |
       | <-- item, item, item + state |   produces ahead
       | -- credit: 1 --------------> |   after an item was taken
       | <------------- end, or error |
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, ClassVar

from ..checkpoints import Saved
from ._base import CheckpointableIterator, advance, positive
from ._workers import (
    DEADLINE,
    STOP,
    Outbox,
    WithProcesses,
    Worker,
    failure,
    pickled,
    raise_failure,
    start_method_of,
)

logger = logging.getLogger(__name__)

_WINDOW = 32
"""Most items between two states of the source."""
_ITEM, _END, _FAILED = range(3)


def _prefetch(
    connection: Connection, source: CheckpointableIterator, skip: int, window: int, credit: int
) -> None:
    """Main function of the process: produces the items it has credit for.

    The state of the source follows every ``window`` items.
    """
    outbox = Outbox(connection)
    stopped = False
    try:
        stopped = _produce(connection, outbox, source, (skip, window, credit))
    except Exception as error:  # noqa: BLE001 - the owner's to handle
        outbox.put((_FAILED, failure(error), None))
    try:
        # Wait for STOP or the end of the pipe: reading a message may need this process.
        while not stopped and connection.recv_bytes() != STOP:
            pass
    finally:
        source.close()


def _produce(
    connection: Connection,
    outbox: Outbox,
    source: CheckpointableIterator,
    numbers: tuple[int, int, int],
) -> bool:
    """Produce items to the end (False), or until told to stop (True)."""
    skip, window, credit = numbers
    offset = advance(source, skip)
    while True:
        while credit == 0 or connection.poll():
            grant = connection.recv_bytes()
            if grant == STOP:
                return True
            credit += int.from_bytes(grant, "little")
        try:
            item = next(source)
        except StopIteration:
            outbox.put((_END, None, source.getstate()))
            return False
        credit -= 1
        offset += 1
        state = None
        if offset >= window:  # a checkpoint may come from a larger window
            state, offset = (source.getstate(),), 0
        outbox.put((_ITEM, item, state))


class _Direct:
    """Reads messages from the pipe on demand; the buffer is in the process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._ready: deque[bytes] = deque()

    def take(self) -> bytes:
        if not self._ready:
            self._ready.extend(pickle.loads(self._worker.receive()))  # noqa: S301 - our own
        return self._ready.popleft()

    @property
    def empty(self) -> bool:
        return not self._ready

    def join(self) -> None:
        """Do nothing: there is no thread."""


class _Buffered:
    """Reads messages in a thread as they arrive; the buffer is in this process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._ready: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                data = self._worker.connection.recv_bytes()
                messages = pickle.loads(data)  # noqa: S301 - our own
                with self._changed:
                    self._ready.extend(messages)
                    self._changed.notify()
        except (EOFError, OSError):
            with self._changed:
                self._ended = True
                self._changed.notify()

    def take(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended)
            if self._ready:
                return self._ready.popleft()
        return self._worker.receive()  # raises, with the exit code

    @property
    def empty(self) -> bool:
        return not self._ready

    def join(self) -> None:
        """Wait for the thread, which ends with the pipe."""
        self._thread.join(DEADLINE)


class PrefetchIterator(WithProcesses):
    """The items of the source, produced ahead of their use by another process.

    The process starts with the first item; ``close`` ends it, after which there are no items. A
    copy of the iterator in a fork starts a process of its own, and goes on at the same item. An
    exception of the source is raised in place of its item, with the traceback in the process as
    its cause; the next call tries that item again.
    This process does not iterate over the source itself.

    A checkpoint is after the items taken here, however many are in the buffer. It holds the
    state of the source at most 31 items earlier; those are read again.

    Args:
        source_iterator: the items; picklable unless processes are forked.
        buffer_size: most items in the buffer.
        buffer_in_main_process: whether items wait in this process, fetched by a thread, or
            in the other.
        log_empty_buffer_warning: whether to log a wait for an item; requires
            ``buffer_in_main_process``.
        start_method: of processes; None means fork if available, whatever Python's default.
    """

    _fields: ClassVar[tuple[str, ...]] = ("source", "item_offset")

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        buffer_size: int,
        buffer_in_main_process: bool = False,
        log_empty_buffer_warning: bool = False,
        start_method: str | None = None,
    ) -> None:
        super().__init__(source_iterator)
        self._size = positive(buffer_size, "buffer_size")
        self._window = min(self._size, _WINDOW)
        self._method = start_method_of(start_method)
        self._in_main = buffer_in_main_process
        self._warn = log_empty_buffer_warning and buffer_in_main_process
        self.setstate(None)

    def _load(self, saved: Saved) -> None:
        self._check_open()
        self._stop()
        super()._load(saved)
        self._ended = False

    def _start(self) -> None:
        # Restart from the last known state, since an earlier process may have failed after it.
        self._source.setstate(self._before)
        args = (self._source, self._served, self._window, self._size)
        worker = Worker(_prefetch, args, self._method, "prefetch process")
        self._workers = (worker,)
        self._messages = _Buffered(worker) if self._in_main else _Direct(worker)
        self._credit = 0

    def _stop(self, deadline: float = DEADLINE) -> None:
        is_running = bool(self._workers)
        super()._stop(deadline)
        if is_running:
            self._messages.join()

    def _grant(self) -> None:
        """Grant credit for items taken, several at a time."""
        self._credit += 1
        if self._workers and self._credit * 4 >= self._size:
            # If the process has ended, its last message says why.
            self._workers[0].offer(self._credit.to_bytes(8, "little"))
            self._credit = 0

    def __next__(self) -> Any:  # noqa: ANN401 - items are anything
        self._check_open()
        if self._ended:
            raise StopIteration
        if not self._workers:
            self._start()
        elif self._warn and self._messages.empty:
            logger.warning("the prefetch buffer is empty")
        try:
            kind, value, state = pickle.loads(self._messages.take())  # noqa: S301 - our own
        except BaseException:
            self._stop()
            raise
        if kind == _ITEM:
            self._served += 1
            if state is not None:
                (self._before,), self._served = state, 0
            self._grant()
            return value
        self._stop()
        if kind == _FAILED:
            raise_failure(value)
        self._before, self._served, self._ended = state, 0, True
        raise StopIteration


def _map(connection: Connection, transform: Callable[[Any], Any]) -> None:
    """Main function of a process: receives items, returns as many results."""
    while True:
        request = connection.recv_bytes()
        if request == STOP:
            return
        results = [_apply(transform, item) for item in pickle.loads(request)]  # noqa: S301 - our own
        connection.send_bytes(pickle.dumps(results))


def _apply(transform: Callable[[Any], Any], item: object) -> bytes:
    try:
        return pickled((_ITEM, transform(item)))
    except Exception as error:  # noqa: BLE001 - the owner's to handle
        return pickled((_FAILED, failure(error)))


class ParallelMapIterator(WithProcesses):
    """``transform(item)`` for every item, in order, computed by several processes.

    Items go to the processes in windows of ``num_processes * num_items_per_process``. The
    processes start with the first item; ``close`` ends them, after which there are no items. An
    exception of the transform is raised in place of its item, with the traceback
    in the process as its cause; the next call returns the next item. If a process dies, the
    iterator raises an error instead of waiting for ever.

    A checkpoint holds the source's state before the window, and the place in it. Going
    there reads the earlier items of the window again, without transforming them.

    Args:
        source_iterator: the items, which must be picklable.
        transform: a function, picklable unless processes are forked, with picklable
            results.
        num_processes: at least 1.
        num_items_per_process: items sent to a process at once, at least 1.
        start_method: of processes; None means fork if available, whatever Python's default.
    """

    _fields: ClassVar[tuple[str, ...]] = ("source", "items_yielded")

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        transform: Callable[[Any], Any],
        num_processes: int,
        num_items_per_process: int,
        start_method: str | None = None,
    ) -> None:
        super().__init__(source_iterator)
        self._transform = transform
        self._processes = positive(num_processes, "num_processes")
        self._items = positive(num_items_per_process, "num_items_per_process")
        self._method = start_method_of(start_method)
        self.setstate(None)

    def _load(self, saved: Saved) -> None:
        self._check_open()
        super()._load(saved)
        self._results: deque[bytes] = deque()

    def _read(self) -> None:
        """Read a window and transform it."""
        if not self._skip:
            self._before, self._served = self._source.getstate(), 0
        skipped = advance(self._source, self._skip)
        window = max(0, self._processes * self._items - skipped)
        items = list(islice(self._source, window))
        self._skip = 0
        if not items and not skipped:
            raise StopIteration
        if not self._workers:
            self._workers = tuple(
                Worker(_map, (self._transform,), self._method, f"map process {number}")
                for number in range(self._processes)
            )
        try:
            self._exchange(items)
        except BaseException:
            self._stop()
            self.setstate(self.getstate())  # nothing of the window was served: read it again
            raise

    def _exchange(self, items: list[Any]) -> None:
        parts = [items[k : k + self._items] for k in range(0, len(items), self._items)]
        requests = [pickled(part) for part in parts]
        busy = self._workers[: len(parts)]
        for worker, request in zip(busy, requests, strict=True):
            worker.send(request)
        for worker in busy:
            self._results.extend(pickle.loads(worker.receive()))  # noqa: S301 - our own

    def __next__(self) -> Any:  # noqa: ANN401 - results are anything
        self._check_open()
        while not self._results:
            self._read()
        self._served += 1
        kind, value = pickle.loads(self._results.popleft())  # noqa: S301 - our own
        if kind == _FAILED:
            raise_failure(value)
        return value
