"""The body of a request, from the socket straight into the reader's memory."""

from __future__ import annotations

import asyncio
import contextlib

from .body import BodyStalled, ClientDisconnected, FramingError
from .connection import Connection
from .framing import ChunkDecoder

SPILL_BYTES = 65536
MESSAGE_BYTES = 1 << 18

# Below this, a read of the socket for its own sake costs more than a copy.
_DIRECT_BYTES = 8192


class SocketBody(asyncio.BufferedProtocol):
    """A request body; the protocol of the transport while somebody waits for its bytes.

    The socket is read only while a reader waits, so that a slow one slows the sender.

    Args:
        owner: The protocol of the connection, which gets everything but the body.
        size: Bytes of the body; None if chunked.
        early: What came in one read with the headers.
    """

    def __init__(self, owner: Connection, size: int | None, early: bytes) -> None:
        self._owner = owner
        self._left = size
        self._decoder = ChunkDecoder(owner.limits.header_bytes) if size is None else None
        self._raw = memoryview(early)
        self._spill: bytearray | None = None
        self._target: memoryview | None = None
        self._filled = 0
        self._waiter: asyncio.Future[None] | None = None
        self._done = False
        self._error: Exception | None = None
        self._quiet_since = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._total_timer: asyncio.TimerHandle | None = None
        if size == 0:
            self._finish(early)
        elif owner.limits.body_seconds is not None:
            self._total_timer = owner.loop.call_later(
                owner.limits.body_seconds, self.fail, BodyStalled("the body took too long")
            )

    @property
    def complete(self) -> bool:
        """Whether the end of the body was reached by the reader."""
        return self._done

    @property
    def error(self) -> Exception | None:
        """Why no more can be read; None while all is well."""
        return self._error

    @property
    def at_hand(self) -> bool:
        """Whether the rest of the body was received already."""
        return self._done or (self._left is not None and len(self._raw) >= self._left)

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        """Headers behind a chunked body, names in lower case; filled at its end."""
        return self._decoder.trailers if self._decoder else []

    async def read_into(self, view: memoryview) -> int:
        """Fill as much of a view as is there; see ``RequestBody``."""
        if not view:
            raise ValueError("read_into needs room for a byte")
        size = 0
        while not size:
            if self._done:
                return 0
            if self._raw and not isinstance(self._error, FramingError):
                size = self._take(view)
            elif self._error:
                raise self._error
            else:
                size = await self._fill(view)
        return size

    async def read_some(self) -> bytes:
        """As ``read_into``, for those who want bytes."""
        size = MESSAGE_BYTES
        if self._left is not None:
            size = min(size, self._left)
        scratch = bytearray(size or 1)
        filled = await self.read_into(memoryview(scratch))
        del scratch[filled:]
        return bytes(scratch)

    def drop_rest(self) -> None:
        """Pass over the rest of the body if it was received already."""
        if not self._done and self._left is not None and self.at_hand:
            self._finish(bytes(self._raw[self._left :]))

    def fail(self, error: Exception) -> None:
        """End the body here: the reader gets ``error`` behind what was received."""
        self._stop_timers()
        if not self._done and self._error is None:
            self._error = error
            self._wake()

    def feed(self, data: bytes) -> None:
        """Keep bytes that came unasked."""
        self._raw = memoryview(bytes(self._raw) + data)

    # The transport's side.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the transport is to write."""
        del sizehint
        if self._target is None or self._filled == len(self._target):
            self._target, self._filled = memoryview(bytearray(SPILL_BYTES)), 0
        return self._target[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand ``nbytes`` to the reader."""
        if self._waiter is None:
            if self._target is not None:
                self.feed(bytes(self._target[:nbytes]))
                self._target = None
            return
        self._filled += nbytes
        self._owner.flow.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """The client sends no more."""
        self.fail(ClientDisconnected("the client left before the end of the body"))
        self._owner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The answer is not taken as fast as it is written."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """It is again."""
        self._owner.resume_writing()

    # The reader's side.

    async def _fill(self, view: memoryview) -> int:
        """Wait for the socket; returns bytes of payload in the view, perhaps none."""
        if self._waiter is not None:
            raise RuntimeError("a body has one reader")
        target = self._aim(view)
        self._target, self._filled = target, 0
        self._waiter = self._owner.loop.create_future()
        self._watch_idle()
        self._owner.read_body(self)
        taken = False
        try:
            await self._waiter
            taken = True
        finally:
            self._waiter = self._target = None
            self._owner.flow.pause_reading()
            filled, self._filled = self._filled, 0
            if filled and (not taken or target.obj is self._spill):
                # A cancelled reader must not lose what has arrived.
                self._raw = memoryview(bytes(target[:filled]))
        if not filled or self._raw:
            return 0
        return self._settle(view, filled)

    def _aim(self, view: memoryview) -> memoryview:
        if len(view) >= _DIRECT_BYTES:
            target = view
        else:
            if self._spill is None:
                self._spill = bytearray(SPILL_BYTES)
            target = memoryview(self._spill)
        if self._left is not None and self._left < len(target):
            target = target[: self._left]
        return target

    def _take(self, view: memoryview) -> int:
        """Copy what was received early; returns bytes of payload."""
        size = min(len(view), len(self._raw))
        if self._left is not None:
            size = min(size, self._left)
        view[:size] = self._raw[:size]
        self._raw = self._raw[size:]
        return self._settle(view, size)

    def _settle(self, view: memoryview, size: int) -> int:
        """Count, or decode, what was put in the view; returns bytes of payload."""
        if self._decoder:
            try:
                payload, used = self._decoder.decode(view, size)
            except FramingError as error:
                self.fail(error)
                return 0
            if self._decoder.done:
                self._finish(bytes(view[used:size]) + bytes(self._raw))
            return payload
        assert self._left is not None  # noqa: S101 - sized or chunked
        self._left -= size
        if not self._left:
            self._finish(bytes(self._raw))
        return size

    def _finish(self, rest: bytes) -> None:
        self._done = True
        self._raw = memoryview(b"")
        self._spill = None
        self._stop_timers()
        self._owner.body_over(rest)

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _watch_idle(self) -> None:
        self._quiet_since = self._owner.loop.time()
        if self._idle_timer is None:
            seconds = self._owner.limits.body_idle_seconds
            self._idle_timer = self._owner.loop.call_later(seconds, self._check_idle)

    def _check_idle(self) -> None:
        """Renewed once in a period rather than at each read: those are many."""
        self._idle_timer = None
        if self._waiter is None:
            return
        seconds = self._owner.limits.body_idle_seconds
        left = self._quiet_since + seconds - self._owner.loop.time()
        # Clocks of event loops tick in milliseconds.
        if left <= 1e-3:  # noqa: PLR2004
            self.fail(BodyStalled(f"no byte of the body for {seconds:g} s"))
        else:
            self._idle_timer = self._owner.loop.call_later(left, self._check_idle)

    def _stop_timers(self) -> None:
        for timer in (self._idle_timer, self._total_timer):
            if timer:
                with contextlib.suppress(RuntimeError):
                    timer.cancel()
        self._idle_timer = self._total_timer = None
