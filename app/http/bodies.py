"""Read request bodies in bounded memory, and turn the server's errors into problems."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, Self, TypeVar

from app.errors import FramingError, StalledError
from app.server import body as server_body
from app.server.body import RequestBody

from .decompression import Decoder
from .pieces import Pieces

P = ParamSpec("P")
T = TypeVar("T")

_PIECE = 1 << 16
"""Bytes read at a time into memory of the request's own."""
_STEP = 1 << 20
"""Maximum bytes that are entered in the ledger ahead of a body."""
_DISCARD_BYTES = 64 << 20
_DISCARD_SECONDS = 5.0


class Hold(Protocol):
    """Memory that a request holds, as the ledger of the process has it; released by a block."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *failure: object) -> None: ...

    def grow(self, nbytes: int) -> None:
        """Hold more.

        Raises:
            TooLargeError, ShareExceededError, BusyError: it may not.
        """

    def shrink(self, nbytes: int) -> None:
        """Hold less."""


class Ledger(Protocol):
    """The memory that all requests of the process hold."""

    def hold(self, owner: str, nbytes: int, purpose: str) -> Hold:
        """Enter bytes that are about to be allocated for an owner; see ``Hold.grow``."""


class Threads(Protocol):
    """Threads that compute."""

    def start(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Start a call in a thread; await the future for its result."""


@dataclass(frozen=True, slots=True)
class MinimumRate:
    """How fast a body has to arrive, on average.

    Attributes:
        bytes_per_second: the rate; 0 for none.
        grace: seconds before it counts.
    """

    bytes_per_second: int
    grace: float = 30.0

    def check(self, nbytes: int, seconds: float) -> None:
        """Check what has arrived after some seconds.

        Raises:
            StalledError: it is too little.
        """
        if seconds > self.grace and nbytes < self.bytes_per_second * seconds:
            raise StalledError(
                f"the body arrives at less than {self.bytes_per_second} bytes per second",
                hint="Send it over a faster connection, or in smaller requests",
                limit="rate of the body",
                setting="THALWEG_MIN_RATE",
                allowed=self.bytes_per_second,
            )


async def read_whole(
    body: RequestBody, hold: Hold, decode: Decoder, rate: MinimumRate, threads: Threads
) -> bytearray:
    """Read a whole body into memory that is held before it is taken.

    A client that pauses costs what it has sent so far and a few kilobytes.

    Args:
        body: the body.
        hold: grows by at least the size of the result.
        decode: undoes the compression, and limits the size.
        rate: how fast it has to arrive.
        threads: put together what is long.

    Raises:
        TooLargeError: the body is larger than the decoder or the ledger allows.
        BusyError, ShareExceededError: the memory is not available now.
        StalledError, FramingError, CodingError: the body did not arrive whole.
    """
    pieces = Pieces()
    try:
        await _read_pieces(body, hold, decode, rate, pieces)
        return pieces.take() if pieces.is_short else await threads.start(pieces.take)
    except BaseException:
        if not pieces.is_short:
            # To unmap a hundred megabytes takes ten milliseconds.
            asyncio.get_running_loop().run_in_executor(None, pieces.clear)
        raise


async def _read_pieces(
    body: RequestBody, hold: Hold, decode: Decoder, rate: MinimumRate, pieces: Pieces
) -> None:
    held = _PIECE
    hold.grow(held)
    view = memoryview(bytearray(_PIECE))
    received, begin = 0, time.monotonic()
    while count := await read(body, view):
        received += count
        rate.check(received, time.monotonic() - begin)
        for piece in decode.decode(view[:count]):
            if len(pieces) + len(piece) > held - _PIECE:
                # The whole is a growing bytearray, moved now and then, with both copies meanwhile.
                step = max(len(piece), min(held, _STEP))
                hold.grow(2 * step)
                held += step
            pieces.add(piece)
    decode.end()


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


async def discard(body: RequestBody) -> None:
    """Read and drop the rest of a body, within limits.

    Many clients read no answer before they have sent their whole body.
    """
    left = _DISCARD_BYTES
    view = memoryview(bytearray(_PIECE))
    with contextlib.suppress(TimeoutError, StalledError, FramingError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            while left > 0 and (count := await read(body, view)):
                left -= count
