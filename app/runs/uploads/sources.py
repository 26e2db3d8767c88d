"""Where the bytes of an append come from: a body that arrives, or bytes verified before."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from app.losses.service import LossService
from app.server.drain import Drain
from app.server.reader import SocketBody

from .appending import Appending

_PIECE = 1 << 20


class Source(Protocol):
    """Where the bytes of an append come from."""

    async def move(self, appending: Appending) -> bool:
        """Feed all bytes, then finish; return False if the server stopped before.

        Raises:
            CoreError, ServiceError, ClientDisconnected: see ``Uploads.append``.
        """


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request, as it arrives."""

    body: SocketBody
    payer: str
    losses: LossService
    drain: Drain

    async def move(self, appending: Appending) -> bool:
        """See Source."""
        losses = self.losses
        progress = losses.metrics.on_upload_bytes
        return await losses.pump(self.body, appending, self.payer, self.drain, progress).run()


@dataclass(frozen=True, slots=True)
class Staged:
    """Bytes that were received and verified before."""

    data: memoryview
    start: Callable[..., asyncio.Future[Any]]
    """Starts a call in a thread."""

    async def move(self, appending: Appending) -> bool:
        """See Source."""

        def feed() -> bool:
            for at in range(0, len(self.data), _PIECE):
                appending.feed(self.data[at : at + _PIECE])
            return appending.finish()

        feeding = self.start(feed)
        # A thread cannot be stopped, and uses the append until it ends.
        while not feeding.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({feeding})
        whole: bool = feeding.result()
        return whole
