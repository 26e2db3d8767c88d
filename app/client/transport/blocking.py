"""The blocking channel: everything in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from ..errors import ConnectionFailed
from .channel import Channel, Connector
from .http import Address, Connection
from .requests import Head, Request
from .retry import Outage

T = TypeVar("T")

_IDLE_CONNECTIONS = 4
_PATIENCE = 0.05
"""Seconds between two attempts to interrupt a thread: it may be between connections."""


def pause(seconds: float, stopped: threading.Event) -> None:
    """Wait, or until another thread stops the channel."""
    stopped.wait(seconds)


class SocketChannel(Channel):
    """Exchanges requests and answers on one connection at a time.

    All methods but ``stop`` raise CancelledError once another thread has stopped it.

    Args:
        connector: of the client.
        workers: threads for operations that run beside this one.
        release: called when the channel is closed.
    """

    def __init__(
        self,
        connector: SocketConnector,
        *,
        workers: int = 1,
        release: Callable[[], None] | None = None,
    ) -> None:
        self.retries, self.outage = connector.retries, connector.outage
        self._connector = connector
        self._release = release
        self._stopped = threading.Event()
        self._connection: Connection | None = None
        self._interrupt: Callable[[], None] | None = None
        self._workers = workers
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._beside: dict[Future[Any], SocketChannel] = {}
        self._closed = False

    def __del__(self) -> None:
        self._close(wait_for_workers=False)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise CancelledError

    def _in_use(self) -> Connection:
        assert self._connection is not None  # noqa: S101 - for the type checker
        return self._connection

    def send(self, request: Request) -> Head:
        """Send a request and read the head of its answer."""
        self._check()
        self.drop()
        self._connection = self._connector.take()
        try:
            head = self._connection.send(request)
        except ConnectionFailed:  # which is none where another thread has hung up
            self._check()
            raise
        self.outage.heard(head.status)
        return head

    def receive(self, view: memoryview) -> int:
        """Fill a view with the next bytes of the answer; their number, 0 at the end."""
        self._check()
        try:  # as in send
            return self._in_use().receive(view)
        except ConnectionFailed:
            self._check()
            raise

    def finish(self) -> None:
        """Keep the connection for another request."""
        self._check()
        connection, self._connection = self._in_use(), None
        if connection.finish():
            self._connector.give(connection)

    def drop(self) -> None:
        """Close the connection in use, if any."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def sleep(self, seconds: float) -> None:
        """Wait, or until another thread stops the channel."""
        self._check()
        pause(seconds, self._stopped)

    def work(self, function: Callable[[], T], interrupt: Callable[[], None] | None = None) -> T:
        """Run a function; its result."""
        self._check()
        self._interrupt = interrupt
        try:
            return function()
        finally:
            self._interrupt = None

    # -- operations beside this one ------------------------------------------------------

    def beside(self, operation: Callable[[Channel], T]) -> Future[T]:
        """Run an operation in another thread, with a channel of its own."""
        self._check()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._workers, "thalweg-worker")
        channel = SocketChannel(self._connector)
        with self._lock:
            job = self._executor.submit(_run_and_close, operation, channel)
            self._beside[job] = channel
        job.add_done_callback(self._forget)
        return job

    def join(self, job: Future[T]) -> T:
        """Wait for an operation beside this one; what it returned, or raised."""
        self._check()
        return job.result()

    def _forget(self, job: Future[Any]) -> None:
        with self._lock:
            self._beside.pop(job, None)
        if self._stopped.is_set() and not self._running():
            self._close(wait_for_workers=False)

    def stop(self) -> None:
        """Make the thread that uses the channel give up."""
        self._stopped.set()
        connection, interrupt = self._connection, self._interrupt
        if connection is not None:
            connection.hang_up()
        if interrupt is not None:
            interrupt()

    def abandon(self) -> None:
        """Make what runs beside the caller give up, and the last of it close the channel."""
        running = self._running()
        for channel in (self, *running.values()):
            channel.stop()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
        if not running:
            self._close(wait_for_workers=False)

    def _stop_workers(self, *, wait_for_them: bool) -> None:
        executor, self._executor = self._executor, None
        if executor is None:
            return
        executor.shutdown(wait=False, cancel_futures=True)
        while running := self._running():
            for channel in (self, *running.values()):  # they may use its connection too
                channel.stop()
            if not wait_for_them:
                return
            wait(running, _PATIENCE)
        if wait_for_them:  # the last reference may be that of a worker itself
            executor.shutdown()

    def _running(self) -> dict[Future[Any], SocketChannel]:
        with self._lock:
            return {job: channel for job, channel in self._beside.items() if not job.done()}

    def close(self) -> None:
        """Close the connection in use and stop what runs beside it; once."""
        self._close(wait_for_workers=True)

    def _close(self, *, wait_for_workers: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_workers(wait_for_them=wait_for_workers)
        self.drop()
        if self._release is not None:
            self._release()


def _run_and_close(operation: Callable[[Channel], T], channel: SocketChannel) -> T:
    with channel:
        return operation(channel)


class SocketConnector(Connector):
    """Opens the channels of one client, and keeps its idle connections, shared by threads.

    Args:
        address: of the service.
        retries: failures in a row to tolerate.
    """

    def __init__(self, address: Address, retries: int) -> None:
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        value: Any = retries
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"retries is {value!r}: give a whole number, 0 or more")
        self.url = address.url
        self.retries = retries
        self.outage = Outage()
        self._address = address

    def __reduce__(self) -> tuple[Any, ...]:
        return SocketConnector, (self._address, self.retries)

    def __del__(self) -> None:
        # Copies in other processes belong to no client that is closed.
        self.close()

    def blocking(self) -> SocketConnector:
        """Itself."""
        return self

    def channel(
        self, *, workers: int = 1, release: Callable[[], None] | None = None
    ) -> SocketChannel:
        """A channel for one operation."""
        return SocketChannel(self, workers=workers, release=release)

    def take(self) -> Connection:
        """An idle connection, or a new one that opens on first use."""
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if connection.is_usable():
                    return connection
                connection.close()
        return Connection(self._address)

    def give(self, connection: Connection) -> None:
        """Put back a connection whose answer was finished."""
        with self._lock:
            if len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
