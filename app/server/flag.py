"""An event that takes memory for those who wait only while there are some."""

from __future__ import annotations

import asyncio
from typing import Literal


class Flag(asyncio.Event):
    """An ``asyncio.Event``; that of the library takes 750 bytes for a queue of nobody.

    Thousands of connections wait for their clients, each with several.
    """

    def __init__(self) -> None:  # the base class would make its queue
        self._value = False
        self._waiters: set[asyncio.Future[None]] | None = None  # type: ignore[assignment]

    def is_set(self) -> bool:
        """See Event."""
        return self._value

    def set(self) -> None:
        """See Event."""
        self._value = True
        waiters, self._waiters = self._waiters or (), None
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """See Event."""
        self._value = False

    async def wait(self) -> Literal[True]:
        """See Event."""
        if not self._value:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters = self._waiters or set()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                if self._waiters is not None:
                    self._waiters.discard(waiter)
        return True
