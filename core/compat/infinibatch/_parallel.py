"""A map in several processes, for transforms that hold the interpreter's lock."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, ClassVar

from ._base import CheckpointableIterator, Saved, advance, checkpointable, positive
from ._workers import (
    STOP,
    WithProcesses,
    Worker,
    failure,
    pickled,
    raise_failure,
    start_method_of,
)

_DONE, _FAILED = range(2)


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
        return pickled((_DONE, transform(item)))
    except Exception as error:  # noqa: BLE001 - the owner's to handle
        return pickled((_FAILED, failure(error)))


class ParallelMapIterator(WithProcesses):
    """``transform(item)`` for every item, in order, computed by several processes.

    Items go to the processes in windows of ``num_processes * num_items_per_process``. The
    processes start with the first item; ``close`` ends them, after which items and states are
    refused. An exception of the transform is raised in place of its item, with the traceback
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
        self._source = checkpointable(source_iterator)
        self._transform = transform
        self._processes = positive(num_processes, "num_processes")
        self._items = positive(num_items_per_process, "num_items_per_process")
        self._method = start_method_of(start_method)
        self.setstate(None)

    def _save(self) -> dict[str, Any]:
        return {"source": self._before, "items_yielded": self._yielded}

    def _load(self, saved: Saved | None) -> None:
        self._check_open()
        self._yielded = self._skip = 0 if saved is None else saved.count("items_yielded")
        self._source.setstate(None if saved is None else saved["source"])
        self._before = self._source.getstate()
        self._results: deque[bytes] = deque()

    def _read(self) -> None:
        """Read a window and transform it."""
        if not self._skip:
            self._before, self._yielded = self._source.getstate(), 0
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
        self._yielded += 1
        kind, value = pickle.loads(self._results.popleft())  # noqa: S301 - our own
        if kind == _FAILED:
            raise_failure(value)
        return value
