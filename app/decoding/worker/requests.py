"""Requests to a worker, their files, which arrive in batches, and reports without a result."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import wire


@dataclass(frozen=True, slots=True)
class Pending:
    """A result whose size is known only now: it needs shared memory before it can be given."""

    nbytes: int
    write: Callable[[memoryview], dict[str, Any]]
    """Writes the result to memory of that size; returns the JSON that goes with it."""


class Files:
    """Descriptors in the order of the request; the next batch is asked for when one is used up.

    Args:
        channel: the connection to the service.
        descriptors: the first batch, which ``close`` closes.
    """

    def __init__(self, channel: socket.socket | None, descriptors: list[int]) -> None:
        self._channel = channel
        self._waiting = descriptors[::-1]
        self._used: list[int] = []

    def next(self) -> int:
        """Return the next descriptor, valid until the one after the next batch.

        Raises:
            EOFError: there are no more.
        """
        if not self._waiting and self._channel is not None:
            self.close()
            wire.send(self._channel, {"more": True})
            _, descriptors = wire.receive(self._channel, wire.MAX_DESCRIPTORS)
            self._waiting = descriptors[::-1]
        if not self._waiting:
            raise EOFError("the request has no more files")
        self._used.append(self._waiting.pop())
        return self._used[-1]

    def take(self, count: int) -> list[int]:
        """Return the next ones of this batch, to be closed by the caller."""
        return [self._waiting.pop() for _ in range(count)]

    def close(self) -> None:
        """Close all descriptors of the batch."""
        wire.close_all([*self._used, *self._waiting])
        self._used, self._waiting = [], []


@dataclass(frozen=True, slots=True)
class Request:
    """What a subject is to do."""

    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    files: Files = field(default_factory=lambda: Files(None, []))
    """Files of this request only."""
    out: memoryview | None = None
    """Shared memory for the result, if its size was known beforehand."""
