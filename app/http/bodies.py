"""Reading request bodies: the server's errors become problems, buffers come from a pool."""

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
    """A bounded pool of buffers that bodies are read into."""

    def take(self, count: int) -> list[mmap.mmap]:
        """Take this many buffers, all or none.

        Raises:
            BusyError: fewer are left.
        """

    def give_back(self, buffers: list[mmap.mmap]) -> None:
        """Return buffers; nothing may write to them any more."""


@contextlib.contextmanager
def borrowed(buffers: Buffers) -> Iterator[mmap.mmap]:
    """Lend one buffer of the pool.

    Raises:
        BusyError: none is left.
    """
    taken = buffers.take(1)
    try:
        yield taken[0]
    finally:
        buffers.give_back(taken)


async def read(body: RequestBody, view: memoryview) -> int:
    """Read as ``read_into`` does, with errors that become problems.

    Raises:
        StalledError: no byte came for too long.
        FramingError: the chunks are broken.
        ClientDisconnected: nobody is left to be told.
    """
    try:
        return await body.read_into(view)
    except server_body.BodyStalled as e:
        raise StalledError(
            f"the body stopped: {e}", hint="Go on from the last token with after"
        ) from e
    except server_body.FramingError as e:
        raise FramingError(f"the body is not framed as HTTP: {e}") from e


async def discard(body: RequestBody, buffer: mmap.mmap) -> None:
    """Read the rest of a body, within limits, so that its client gets to read the answer.

    Many clients read nothing before they have sent everything.
    """
    left = _DISCARD_BYTES
    view = memoryview(buffer)
    with contextlib.suppress(TimeoutError, StalledError, FramingError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            while left > 0 and (count := await read(body, view)):
                left -= count
