"""Read request bodies into pooled buffers, and turn the server's errors into problems."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
from collections.abc import Iterator
from typing import Protocol

from app.errors import FramingError, StalledError
from app.server import body as server_body
from app.server.body import RequestBody

_DISCARD_BYTES = 64 << 20
_DISCARD_SECONDS = 5.0


class Buffers(Protocol):
    """A bounded pool of read buffers."""

    def take(self, count: int) -> list[mmap.mmap]:
        """Take ``count`` buffers, or none.

        Raises:
            BusyError: fewer are free.
        """

    def give_back(self, buffers: list[mmap.mmap]) -> None:
        """Return buffers to the pool; the caller must not use them any more."""


@contextlib.contextmanager
def borrowed(buffers: Buffers) -> Iterator[mmap.mmap]:
    """Lend one buffer from the pool.

    Raises:
        BusyError: none is free.
    """
    taken = buffers.take(1)
    try:
        yield taken[0]
    finally:
        buffers.give_back(taken)


async def read(body: RequestBody, view: memoryview) -> int:
    """Read the next bytes of a body into ``view``; return their number, 0 at the end.

    Raises:
        StalledError: no byte arrived for too long.
        FramingError: the chunked coding is malformed.
        ClientDisconnected: the client left.
    """
    try:
        return await body.read_into(view)
    except server_body.BodyStalled as e:
        raise StalledError(
            f"the body stalled: {e}", hint="Resume from the last token with the option after"
        ) from e
    except server_body.FramingError as e:
        raise FramingError(f"the chunked coding of the body is malformed: {e}") from e


async def discard(body: RequestBody, buffer: mmap.mmap) -> None:
    """Read and drop the rest of a body, within limits.

    Many clients read no answer before they have sent their whole body.
    """
    left = _DISCARD_BYTES
    view = memoryview(buffer)
    with contextlib.suppress(TimeoutError, StalledError, FramingError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            while left > 0 and (count := await read(body, view)):
                left -= count
