"""Processes that work for an iterator, and end with it.

A worker talks over one pipe of its own: bytes both ways. It is told to stop by ``STOP``,
and stops by itself when the other end is gone, so that none outlives its owner. Items are
pickled where they are made, so that what is wrong with one is said of that one.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

from ..errors import ArgumentError, RemoteTracebackError, WorkerDiedError, WorkerError

STOP = b""
DEADLINE = 5.0
"""Seconds a worker gets to end by itself."""
_TERMINATED = 1.0
_SENT_AT_ONCE = 256
_LARGE = 1 << 16
_GONE = (EOFError, OSError)


def start_method_of(method: str | None) -> str:
    """How processes are started: as wanted, else by fork where there is one.

    Fork takes any source and function over; the other ways must pickle them.

    Raises:
        ArgumentError: there is no such way here.
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
    """What runs in the process."""
    if other_end is not None:
        other_end.close()  # of a fork: with it open, the owner's end would be no end
    # Ctrl-C reaches the whole group; the owner decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(*_GONE):
        target(connection, *args)


class Worker:
    """A process, and our end of the pipe to it."""

    def __init__(
        self, target: Callable[..., None], args: tuple[Any, ...], start_method: str, name: str
    ) -> None:
        """Start it.

        Args:
            target: called there with the other end and ``args``.
            args: pickled unless the process is forked.
            start_method: see ``start_method_of``.
            name: of the process, for messages.
        """
        context: Any = multiprocessing.get_context(start_method)
        self.connection, theirs = context.Pipe()
        other_end = self.connection if start_method == "fork" else None
        self._process = context.Process(
            target=_main, args=(target, theirs, other_end, args), name=name
        )
        self._owner = os.getpid()
        self._closed = False
        try:
            self._process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()
        # At exit Python waits for all processes, so they must have been told before.
        atexit.register(self.close)

    @property
    def pid(self) -> int | None:
        """Of the process."""
        pid: int | None = self._process.pid
        return pid

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
        """Send bytes; if the process has ended, ``receive`` will tell."""
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
        """Tell it to stop; end it if it has not within ``deadline`` seconds."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        atexit.unregister(self.close)
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
    """Bytes of a value, as pipes between processes carry them."""
    return bytes(ForkingPickler.dumps(value))


def failure(error: Exception) -> tuple[bytes | None, str, str]:
    """An exception as it is sent: itself if it can be, its line and its traceback."""
    data = None
    # Whether an exception can be made again is only known by trying.
    with contextlib.suppress(Exception):
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - our own
    line = "".join(traceback.format_exception_only(error)).strip()
    return data, line, "".join(traceback.format_exception(error))


def raise_failure(sent: tuple[bytes | None, str, str]) -> NoReturn:
    """Raise an exception that came from a worker, its traceback there as the cause."""
    data, line, text = sent
    error: Exception = WorkerError(f"a worker process failed: {line}")
    if data is not None:
        with contextlib.suppress(Exception):
            error = pickle.loads(data)  # noqa: S301 - from our own process
    raise error from RemoteTracebackError(f"\n{text}")


class Outbox:
    """What a worker has to say, sent by a thread of its own, in order.

    So the worker goes on while the pipe is full.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, message: object) -> None:
        """Send a message after those before it."""
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
        """What is sent next: many small messages at once, or a large one."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            batch: list[bytes] = []
            size = 0
            while self._waiting and len(batch) < _SENT_AT_ONCE and size < _LARGE:
                batch.append(self._waiting.popleft())
                size += len(batch[-1])
        return batch
