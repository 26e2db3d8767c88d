"""An event that takes memory for those who wait only while there are some."""

from __future__ import annotations

import asyncio


class Flag:
    """An event of asyncio's kind; that of the library takes 750 bytes for a queue of nobody.

    Thousands of connections wait for their clients, each with several.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: set[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake whoever waits."""
        self._is_set = True
        waiters, self._waiters = self._waiters or (), None
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Let whoever comes wait again."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until it is set."""
        await self.future()

    def future(self) -> asyncio.Future[None]:
        """Return a future of its own for one who waits for more; cancel it to wait no longer."""
        future = asyncio.get_running_loop().create_future()
        if self._is_set:
            future.set_result(None)
        else:
            self._waiters = self._waiters or set()
            self._waiters.add(future)
            future.add_done_callback(self._forget)
        return future

    def _forget(self, future: asyncio.Future[None]) -> None:
        if self._waiters is not None:
            self._waiters.discard(future)
