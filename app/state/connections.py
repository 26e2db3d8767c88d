"""Connections of a process to one Postgres database.

Whoever needs one takes the connection that was used last, or opens another; one that is not needed
for a while is closed. After a restart of the database the first call connects again: no timer has
to run out first, as it would in pools that connect in the background. One that the server closed
while nobody used it is seen to be closed before the next call, and replaced.

A network that loses everything tells nobody, and TCP goes on sending for a quarter of an hour. The
database ends a statement after some seconds: who has no answer a moment later is told that the
connection is lost.

From then on until it answers, one call at a time tries to connect, the first for two seconds and
later ones for longer, as a database far away may need; all others fail after a moment, in which one
that is back has answered. Without it those in line would wait one after the other, each as long as
the first.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from .base import StoreBusyError, StoreError

Connection = psycopg.Connection[tuple[Any, ...]]

_MOST = 8
"""Connections of a process, at most, besides the one by which it listens."""
_IDLE_SECONDS = 60.0
"""Time after which an unused one is closed."""
_PATIENCE, _PAUSE = 2.0, 0.1
"""Seconds in which a database that is just starting may begin to answer."""
_LEAST_SECONDS = 2
"""As libpq has it."""
_LOOK = 1.0
"""Seconds between two looks at calls that have no answer."""
_SETTINGS = "SET lock_timeout = '{0}s'; SET statement_timeout = '{0}s'"
_PARAMETERS: dict[str, Any] = {
    "application_name": "thalweg",
    # A database that is gone without a word is noticed.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}


class Connections:
    """Connections to one database.

    Args:
        url: its address.
        wait: maximum seconds to wait for a connection, or for others in the database.
    """

    limit = _MOST
    """Connections, at most."""

    def __init__(self, url: str, wait: float) -> None:
        self._url = url
        self._wait = wait
        self._seconds = max(round(wait), 1)
        self._idle: deque[tuple[float, Connection]] = deque()
        self._used: dict[Connection, float] = {}
        self._places = threading.BoundedSemaphore(_MOST)
        self._closed = threading.Event()
        self._watching: threading.Thread | None = None
        self._silent = 0
        """Attempts in a row, and the call before them, without an answer."""
        self._trying = threading.Lock()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def use(self) -> Iterator[Connection]:
        """Provide a connection, in autocommit mode.

        Raises:
            StoreBusyError: others used all of them for too long.
            psycopg.Error: the database cannot be reached.
        """
        if not self._places.acquire(timeout=self._wait):
            raise StoreBusyError("too many calls wait for the database", retry_after=1)
        try:
            connection = self._take()
            try:
                with self._watched(connection):
                    yield connection
            finally:
                self._give_back(connection)
        finally:
            self._places.release()

    @contextlib.contextmanager
    def _watched(self, connection: Connection) -> Iterator[None]:
        self._used[connection] = time.monotonic()
        with self._lock:
            if self._watching is None:
                watching = threading.Thread(target=self._end_silent, name="database", daemon=True)
                self._watching = watching
                watching.start()
        try:
            yield
        finally:
            del self._used[connection]

    def _end_silent(self) -> None:
        """End calls without an answer long after the database would have ended them."""
        since: dict[tuple[Connection, float], float] = {}
        while not self._closed.wait(_LOOK):
            now = time.monotonic()
            # Whoever has a turn keeps a connection for as long as it likes, and asks nothing.
            since = {
                use: since.get(use, now)
                for use in list(self._used.items())
                if use[0].info.transaction_status is TransactionStatus.ACTIVE
            }
            for (connection, _), begun in since.items():
                if now - begun > self._seconds + _LOOK:
                    self._silent = self._silent or 1
                    _end(connection)

    def counts(self) -> dict[str, int]:
        """Return how many connections there are, by state."""
        return {"used": len(self._used), "idle": len(self._idle)}

    def _take(self) -> Connection:
        while True:
            if self._closed.is_set():
                raise StoreError("the store is closed")
            if self._silent:
                self._close_idle()
                return self._open_silent()
            try:
                _, connection = self._idle.pop()
            except IndexError:
                return self._open_patiently()
            # Of an idle connection that it has closed the server tells before it is asked.
            if not (connection.closed or select.select([connection.fileno()], [], [], 0)[0]):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        now = time.monotonic()
        idle = connection.info.transaction_status is TransactionStatus.IDLE
        if idle and not self._closed.is_set():
            self._idle.append((now, connection))
        else:
            connection.close()
        with contextlib.suppress(IndexError):
            while self._idle[0][0] < now - _IDLE_SECONDS:
                self._idle.popleft()[1].close()

    def _open_patiently(self) -> Connection:
        end = time.monotonic() + min(_PATIENCE, self._wait)
        while True:
            try:
                return self.open()
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
            time.sleep(_PAUSE)

    def _open_silent(self) -> Connection:
        """Try to connect to a database that was silent, unless another call does."""
        if not self._trying.acquire(timeout=_PAUSE):
            raise psycopg.OperationalError("the database does not answer")
        try:
            return self.open(min(2**self._silent, self._seconds))
        except psycopg.errors.ConnectionTimeout:
            self._silent += 1
            raise
        finally:
            self._trying.release()

    def open(self, seconds: int | None = None) -> Connection:
        """Open a connection that the caller closes.

        Args:
            seconds: in which the database has to answer, two at least; None for the usual time.

        Raises:
            psycopg.Error: the database cannot be reached.
        """
        seconds = max(seconds or self._seconds, _LEAST_SECONDS)
        try:
            connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=seconds, **_PARAMETERS
            )
        except psycopg.errors.ConnectionTimeout:
            self._silent = self._silent or 1
            raise
        try:
            with self._watched(connection):
                connection.execute(_SETTINGS.format(self._seconds))
        except BaseException:
            connection.close()
            raise
        self._silent = 0
        return connection

    def close(self) -> None:
        """Close all; may be called twice."""
        self._closed.set()
        self._close_idle()

    def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop()[1].close()


def _end(connection: Connection) -> None:
    """Have whoever waits for an answer be told that the connection is lost."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as twin,
    ):
        twin.shutdown(socket.SHUT_RDWR)
