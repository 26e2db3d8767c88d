"""Bytes of files in a bucket, which a worker cannot open, and asks the service for."""

from __future__ import annotations

import os
import socket
from typing import Any

from app.errors import ServiceError

from . import wire
from .base import Request
from .watch import TimeUpError, Watch

_FETCHED_TIMES = 4
"""Times the size of a file that is fetched for a request at most, besides a few megabytes."""


class NotFetchedError(Exception):
    """The bytes that a worker asked for could not be had."""

    def __init__(self, failure: ServiceError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Fetched:
    """Bytes of a file that the worker cannot open, and asks for.

    Args:
        request: what it is doing.
        channel: the connection.

    Attributes:
        failure: why bytes could not be had; the worker is only told that they could not.
    """

    def __init__(self, request: Request, channel: socket.socket) -> None:
        self.failure: ServiceError | None = None
        self._fetch = request.fetch
        self._key = request.subject.key
        self._channel = channel
        self._left = (
            _FETCHED_TIMES * int(request.subject.arguments.get("size", 0)) + wire.KEEP_BYTES
        )

    def send(self, wanted: Any, watch: Watch) -> None:  # noqa: ANN401 - anything
        """Send bytes in memory of their own; none if they cannot be had.

        Raises:
            TimeUpError: the worker goes round in circles.
            TypeError, ValueError: what it wants is nothing that it may want.
        """
        key, start, size = wanted
        if self._fetch is None or key != self._key:
            raise ValueError(key)
        start, size = count(start, 1 << 63), count(size, wire.KEEP_BYTES)
        self._left -= size
        if self._left < 0:
            raise TimeUpError("asked for the same bytes again and again")
        try:
            with watch.resting():
                octets = self._fetch(start, start + size)
        except ServiceError as e:
            self.failure = e
            octets = b""
        descriptor = os.memfd_create("thalweg-fetched", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, octets)
            wire.send(self._channel, {"size": len(octets)}, [descriptor], watch)
        finally:
            os.close(descriptor)

    def check(self) -> None:
        """Check that the worker had all bytes that it asked for.

        Raises:
            NotFetchedError: it had not.
        """
        if self.failure is not None:
            raise NotFetchedError(self.failure)


def count(value: Any, limit: int) -> int:  # noqa: ANN401 - anything
    """Return a number of a worker.

    Raises:
        MemoryError: it is above the limit.
        TypeError: it is no number.
    """
    if type(value) is not int or value < 0:
        raise TypeError("not a number")
    if value > limit:
        raise MemoryError
    return value
