"""Where sums go that do not fit in memory: a Protocol, and an implementation in memory."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ...arrays import Octets


class Spilled(Protocol):
    """Bytes kept elsewhere, appended once and then read."""

    def append(self, data: memoryview) -> None:
        """Store the next bytes.

        Raises:
            CoreError: there is no room for them.
        """

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes from ``offset`` on; any thread may call it."""

    def close(self) -> None:
        """Give the room back."""


class SpillStore(Protocol):
    """Makes places to keep bytes."""

    def create(self) -> Spilled:
        """Make an empty one.

        Raises:
            CoreError: that is impossible.
        """


class HeldInMemory:
    """Bytes kept in memory after all."""

    def __init__(self) -> None:
        self._parts: list[Octets] = []
        self._whole: Octets | None = None

    def append(self, data: memoryview) -> None:
        """Keep a copy."""
        self._parts.append(np.frombuffer(data, np.uint8).copy())

    def read_into(self, offset: int, target: memoryview) -> None:
        """Copy a part."""
        whole = self._whole
        if whole is None or len(self._parts) > 1:
            whole = np.concatenate([np.zeros(0, np.uint8), *self._parts])
            self._parts = [whole]
            self._whole = whole
        target[:] = whole[offset : offset + len(target)].data

    def close(self) -> None:
        """Drop them."""
        self._parts.clear()
        self._whole = None
