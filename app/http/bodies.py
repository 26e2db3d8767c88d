"""Read request bodies in bounded memory, and turn the server's errors into problems."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from app.errors import FramingError, ServiceError, StalledError
from app.server import body as server_body
from app.server.reader import SocketBody, ThreadReader
from core.budget import current

from .decompression import Decoder

P = ParamSpec("P")
T = TypeVar("T")

_PIECE = 1 << 16
"""Bytes read at a time into memory of the request's own."""
_NOTHING = memoryview(b"")
_STEP = 1 << 20
"""Maximum bytes that are entered in the ledger ahead of a body, and that one read may become on
the event loop."""
_TURN_SECONDS = 0.005
"""Time for which a thread goes on reading: long against a hand-over, short for those who wait."""
_DISCARD_BYTES = 64 << 20
_DISCARD_SECONDS = 5.0
PIECE_BYTES = 1 << 20


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
    body: SocketBody, hold: Hold, decode: Decoder, rate: MinimumRate, threads: Threads
) -> bytearray:
    """Read a whole body into memory that is held before it is taken.

    A client that pauses costs what it has sent so far and a few kilobytes. Of a long body that
    comes fast, threads read and decode all but the beginning.

    Args:
        body: the body.
        hold: grows by at least the size of the result.
        decode: undoes the compression, and limits the size.
        rate: how fast it has to arrive.
        threads: work on what is long.

    Raises:
        TooLargeError: the body is larger than the decoder or the ledger allows.
        BusyError, ShareExceededError: the memory is not available now.
        StalledError, FramingError, CodingError: the body did not arrive whole.
    """
    whole = _Whole(hold, decode, rate)
    pieces = whole.pieces
    try:
        await _read_pieces(body, whole, threads)
        decode.end()
        return pieces.take() if pieces.is_short else await threads.start(pieces.take)
    except BaseException:
        if not pieces.is_short:
            # To unmap a hundred megabytes takes ten milliseconds.
            asyncio.get_running_loop().run_in_executor(None, pieces.clear)
        raise


async def _read_pieces(body: SocketBody, whole: _Whole, threads: Threads) -> None:
    reader: ThreadReader | None = None
    try:
        while count := await whole.fill(body):
            is_fast = count == len(whole.view)
            is_taken = whole.take(count)
            if not is_taken or (is_fast and not whole.pieces.is_short):
                if reader is None:
                    reader = body.in_thread()
                while await _finished(threads.start(whole.take_turn, reader)):
                    pass
            whole.view = _NOTHING
    finally:
        if reader is not None:
            reader.close()


async def _finished(call: asyncio.Future[T]) -> T:
    """Return the result of a call; a cancelled task goes on once the thread has finished, too."""
    try:
        return await asyncio.shield(call)
    finally:
        await asyncio.wait({call})
        # If the task was cancelled, an error of the call no longer matters.
        call.cancelled() or call.exception()
        # The traceback of its error refers to this frame.
        del call


class _Whole:
    """A body on its way into memory; one thread at a time works on it.

    Attributes:
        view: bytes of the body are read into it; nothing while they are waited for.
        pieces: the decoded bytes so far.
    """

    def __init__(self, hold: Hold, decode: Decoder, rate: MinimumRate) -> None:
        self.view = _NOTHING
        self.pieces = Pieces()
        self._hold = hold
        self._decode = decode
        self._rate = rate
        self._decoded: Iterator[Any] = iter(())
        self._held = _PIECE
        self._received, self._begin = 0, time.monotonic()
        hold.grow(self._held)

    async def fill(self, body: SocketBody) -> int:
        """Read what comes next into a view; see ``read``."""
        await wait(body)
        self.view = memoryview(bytearray(_PIECE))
        return await read(body, self.view)

    def take(self, count: int) -> bool:
        """Take bytes of the view; return False if they become much, which is left to a thread."""
        before = len(self.pieces)
        self._receive(count)
        for piece in self._decoded:
            self._keep(piece)
            if len(self.pieces) - before >= _STEP:
                return False
        return True

    def take_turn(self, reader: ThreadReader | None) -> bool:
        """Take the rest of what was read, and what else has arrived; in a thread.

        Returns:
            Whether it only ended because others wait for threads, too.
        """
        end = time.monotonic() + _TURN_SECONDS
        while True:
            for piece in self._decoded:
                current().check("body")
                self._keep(piece)
            if time.monotonic() >= end:
                return reader is not None
            count = 0 if reader is None else reader.read(self.view)
            if not count:
                return False
            self._receive(count)

    def _receive(self, count: int) -> None:
        self._received += count
        self._rate.check(self._received, time.monotonic() - self._begin)
        self._decoded = iter(self._decode.decode(self.view[:count]))

    def _keep(self, piece: bytes | memoryview) -> None:
        if len(self.pieces) + len(piece) > self._held - _PIECE:
            # The whole is a growing bytearray, moved now and then, with both copies meanwhile.
            step = max(len(piece), min(self._held, _STEP))
            self._hold.grow(2 * step)
            self._held += step
        self.pieces.add(piece)


async def read(body: SocketBody, view: memoryview) -> int:
    """Read the next bytes of a body into ``view``; return their number, 0 at the end.

    Raises:
        StalledError: no byte arrived for too long.
        FramingError: the chunked coding is malformed.
        ClientDisconnected: the client left.
    """
    try:
        return await body.read_into(view)
    except (server_body.BodyStalled, server_body.FramingError) as e:
        raise service_error(e) from e


async def wait(body: SocketBody) -> None:
    """Wait until bytes of a body, or its end, are there to be read.

    Raises:
        StalledError, FramingError, ClientDisconnected: see ``read``.
    """
    try:
        await body.wait()
    except (server_body.BodyStalled, server_body.FramingError) as e:
        raise service_error(e) from e


def service_error(e: Exception) -> StalledError | FramingError:
    """Return the error of the service for one of a body."""
    if isinstance(e, server_body.BodyStalled):
        return StalledError(
            f"the body stalled: {e}",
            hint="Send it anew; losses go on from their last token, with the option after",
        )
    return FramingError(f"the chunked coding of the body is malformed: {e}")


async def discard(body: SocketBody) -> None:
    """Read and drop the rest of a body, within limits.

    Many clients read no answer before they have sent their whole body.
    """
    left = _DISCARD_BYTES
    view = memoryview(bytearray(_PIECE))
    with contextlib.suppress(TimeoutError, ServiceError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            while left > 0 and (count := await read(body, view)):
                left -= count


class Pieces:
    """The bytes of a body so far.

    A ``bytearray`` that grows is moved now and then: tens of megabytes are copied in one go, and
    the event loop stands still for 20 to 70 ms. So what is more than a little is kept in pieces
    that never move, and becomes one in a thread::

        add ──▶ first, at most 1 MiB
           └──▶ piece │ piece │ piece │ pie…        mappings of 1 MiB each
                      take, in a thread: first += piece, which is then unmapped

    A piece is a mapping of its own, so that a page costs memory once it is written, and is given
    back to the system when its piece ends, however the heap looks.
    """

    __slots__ = ("_first", "_free", "_pieces")

    def __init__(self) -> None:
        self._first = bytearray()
        self._pieces: deque[mmap.mmap] = deque()
        self._free = 0
        """Bytes of the last piece that are not written yet."""

    def __len__(self) -> int:
        return len(self._first) + len(self._pieces) * PIECE_BYTES - self._free

    @property
    def is_short(self) -> bool:
        """Whether ``take`` has next to nothing to do."""
        return not self._pieces

    def add(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        if not self._pieces and len(self._first) + len(data) <= PIECE_BYTES:
            self._first += data
            return
        at = 0
        while at < len(data):
            if not self._free:
                self._pieces.append(mmap.mmap(-1, PIECE_BYTES))
                self._free = PIECE_BYTES
            count = min(self._free, len(data) - at)
            begin = PIECE_BYTES - self._free
            self._pieces[-1][begin : begin + count] = data[at : at + count]
            self._free -= count
            at += count

    def take(self) -> bytearray:
        """Return all bytes, which are no longer kept here.

        Raises:
            WorkStoppedError: nobody waits for them any more.
        """
        whole, last = self._first, PIECE_BYTES - self._free
        self._first, self._free = bytearray(), 0
        budget = current()
        while self._pieces:
            budget.check("body")
            piece = self._pieces.popleft()
            with piece:
                whole += piece if self._pieces else piece[:last]
        return whole

    def clear(self) -> None:
        """Give the memory back."""
        self._first, self._free = bytearray(), 0
        while self._pieces:
            self._pieces.popleft().close()
