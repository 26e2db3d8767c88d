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
        await self.future()
        return True

    def future(self) -> asyncio.Future[None]:
        """Return a future of its own for one who waits for more; cancel it to wait no longer."""
        future = asyncio.get_running_loop().create_future()
        if self._value:
            future.set_result(None)
        else:
            self._waiters = self._waiters or set()
            self._waiters.add(future)
            future.add_done_callback(self._forget)
        return future

    def _forget(self, future: asyncio.Future[None]) -> None:
        if self._waiters is not None:
            self._waiters.discard(future)
