"""Worker processes that end with the iterator that owns them.

A worker and its owner exchange bytes over a pipe. The worker stops when it receives
``STOP``, or when the other end of the pipe is gone, so none outlives its owner. Every item is
pickled on its own by its producer, so that an item that cannot be pickled fails alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from multiprocessing.util import Finalize
from typing import Any, NoReturn

from ..errors import ArgumentError, ClosedError, RemoteTracebackError, WorkerDiedError, WorkerError
from ._base import Again

STOP = b""
DEADLINE = 5.0
"""Seconds in which a worker must end by itself."""
_GC_DEADLINE = 1.0
"""Seconds that the garbage collector waits for the processes of an unclosed iterator."""
_TERMINATED = 1.0
_SENT_AT_ONCE = 256
_LARGE = 1 << 16
_GONE = (EOFError, OSError)


def start_method_of(method: str | None) -> str:
    """Check a start method of processes; None means fork if available.

    Fork passes any source and function on; the other methods must pickle them.

    Raises:
        ArgumentError: the platform has no such method.
    """
    methods = multiprocessing.get_all_start_methods()
    if method is None:
        return "fork" if "fork" in methods else methods[0]
    if method not in methods:
        raise ArgumentError(f"start_method is {method!r}", hint=f"Here it is one of {methods}.")
    return method


def _main(
    target: Callable[..., None],
    connection: Connection,
    other_end: Connection | None,
    args: tuple[Any, ...],
) -> None:
    """Main function of every worker process."""
    if other_end is not None:
        other_end.close()  # a fork holds both ends; with ours open, the pipe would never end
    # Ctrl-C reaches the whole process group, but the owner ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(*_GONE):
        target(connection, *args)


class Worker:
    """A worker process, and the owner's end of the pipe to it."""

    def __init__(
        self, target: Callable[..., None], args: tuple[Any, ...], start_method: str, name: str
    ) -> None:
        """Start the process.

        Args:
            target: function to run there, with the other end of the pipe and ``args``.
            args: pickled unless the process is forked.
            start_method: see ``start_method_of``.
            name: of the process, for messages.
        """
        context: Any = multiprocessing.get_context(start_method)
        self.connection, remote = context.Pipe()
        other_end = self.connection if start_method == "fork" else None
        self._process = context.Process(
            target=_main, args=(target, remote, other_end, args), name=name
        )
        self._owner = os.getpid()
        self._closed = False
        try:
            self._process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            remote.close()
        # At exit Python waits for all processes, so they must be told to stop before that; also
        # at that of a process that multiprocessing started, which atexit does not know.
        self._at_exit = Finalize(None, self.close, exitpriority=0)

    @property
    def pid(self) -> int | None:
        """Id of the process."""
        pid: int | None = self._process.pid
        return pid

    @property
    def is_foreign(self) -> bool:
        """Whether a fork copied it here from its owner."""
        return os.getpid() != self._owner

    def send(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            WorkerDiedError: the process has ended.
        """
        try:
            self.connection.send_bytes(data)
        except _GONE:
            self._died()

    def offer(self, data: bytes) -> None:
        """Send bytes; if the process has ended, ``receive`` raises the error."""
        with contextlib.suppress(*_GONE):
            self.connection.send_bytes(data)

    def receive(self) -> bytes:
        """Wait for bytes.

        Raises:
            WorkerDiedError: the process has ended.
        """
        try:
            data: bytes = self.connection.recv_bytes()
        except _GONE:
            self._died()
        return data

    def _died(self) -> NoReturn:
        self._process.join(DEADLINE)
        name, code = self._process.name, self._process.exitcode
        self.close()
        raise WorkerDiedError(f"{name} ended unexpectedly, with exit code {code}")

    def close(self, deadline: float = DEADLINE) -> None:
        """Tell the process to stop, and terminate it after ``deadline`` seconds."""
        if self.is_foreign:
            # With this end open, the process would not notice that its owner is gone.
            self.connection.close()
            return
        if self._closed:
            return
        self._closed = True
        self._at_exit.cancel()
        with contextlib.suppress(*_GONE):
            self.connection.send_bytes(STOP)
        self._process.join(deadline)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(_TERMINATED)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self.connection.close()


def pickled(value: object) -> bytes:
    """Pickle a value for a pipe between processes."""
    return bytes(ForkingPickler.dumps(value))


def failure(error: Exception) -> tuple[bytes | None, str, str]:
    """An exception to send: pickled if possible, its last line and its traceback."""
    data = None
    # Only trying shows whether an exception survives pickling.
    with contextlib.suppress(Exception):
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - our own
    line = "".join(traceback.format_exception_only(error)).strip()
    return data, line, "".join(traceback.format_exception(error))


def raise_failure(sent: tuple[bytes | None, str, str]) -> NoReturn:
    """Raise an exception of a worker, with its traceback there as the cause."""
    data, line, text = sent
    error: Exception = WorkerError(f"a worker process failed: {line}")
    if data is not None:
        with contextlib.suppress(Exception):
            error = pickle.loads(data)  # noqa: S301 - from our own process
    raise error from RemoteTracebackError(f"\n{text}")


class Outbox:
    """Sends the messages of a worker in a thread, so that a full pipe does not stop it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, message: object) -> None:
        """Queue a message."""
        data = pickled(message)
        with self._changed:
            self._waiting.append(data)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(*_GONE):
            while True:
                self._connection.send_bytes(pickle.dumps(self._next()))

    def _next(self) -> list[bytes]:
        """The messages to send next: many small ones at once, or one large one."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            batch: list[bytes] = []
            size = 0
            while self._waiting and len(batch) < _SENT_AT_ONCE and size < _LARGE:
                batch.append(self._waiting.popleft())
                size += len(batch[-1])
        return batch


class WithProcesses(Again):
    """Base of the iterators with processes: ``close`` ends them, and nothing is served after."""

    _closed = False
    _workers: tuple[Worker, ...] = ()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the {type(self).__name__} has been closed")
        if any(worker.is_foreign for worker in self._workers):
            self._stop()

    def _stop(self, deadline: float = DEADLINE) -> None:
        workers, self._workers = self._workers, ()
        for worker in workers:
            worker.close(deadline)

    def close(self) -> None:
        """End the processes of the chain; there are no items afterwards."""
        self._closed = True
        self._stop()
        super().close()

    def __del__(self) -> None:
        if self._workers:
            name = type(self).__name__
            warnings.warn(f"a {name} was not closed", ResourceWarning, stacklevel=1)
            self._stop(_GC_DEADLINE)
