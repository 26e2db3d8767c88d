"""Answers that are complete before they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.server.responses import Exchange


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """Status, headers and body of an answer."""

    status: int
    headers: Mapping[str, str]
    data: bytes | memoryview | None = None
    """The body; None to send headers alone."""
    length: int | None = None
    """Content-Length of an answer without its body, as to HEAD."""

    async def send(self, exchange: Exchange) -> None:
        """Send the answer."""
        length = self.length if self.data is None else len(self.data)
        await exchange.start(self.status, self.headers, content_length=length)
        if self.data is not None:
            await exchange.end(self.data)
