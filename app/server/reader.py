"""The body of a request, read from the socket straight into the application's memory.

asyncio normally hands received bytes to ``data_received`` as new objects, which an ASGI
server then passes on in messages, and the application copies into its buffers. For uploads
of many gigabytes those copies dominate the cost of receiving. asyncio's buffered protocols
avoid them: the transport asks ``get_buffer()`` where to write. A body is such a protocol.
It answers with the memory that the application passed to ``read_into``, and is the protocol
of the transport only while it is read:

    phase                         protocol of the       socket
                                  transport
    head of a request, idle       BodyProtocol          read
    application busy              either                not read: the sender is slowed down
    application in read_into      SocketBody            read once, into its memory
    body read, answer running     BodyProtocol          read, to notice a disconnect
    lingering                     BodyProtocol          read and dropped

The socket is read only while a reader waits. So the application's pace is the sender's
pace, through TCP's window, and no queue grows in between. What remains are bytes nobody
asked for yet: those that came in one read with the head (``early``), and those a transport
delivers just after reading was paused; ``_raw`` holds them, and the next read starts there.

    read_into(view) ──▶ _raw has bytes? ──yes──▶ _take: copy ───────────┐
                              │ no                                      ▼
                              ▼                                     _settle: count (sized)
                        _fill: become the protocol, wait ──filled──▶ or unchunk in place
                              │                                         │
                              ├─ cancelled: bytes go to _raw            ├─ more: return
                              └─ fail(): disconnect, stall, framing     └─ end: body_complete

A reader costs a hundred times more than to receive a byte does, and then there are the threads that
it calls. So fewer than ``_FEW_BYTES`` wait for more: for a moment, as a sender may have sent all it
has; and longer each time that no more come, so that hundreds of clients that send a byte a second
hardly cost anything. The last bytes of a body or a chunk do not wait.

Small views take a detour: below ``_DIRECT_BYTES`` a system call costs more than a copy, so
the socket is read into a spill buffer. So it is for those who ``wait`` for bytes before they take
memory for them. The spill buffer exists only from the moment on at which bytes are there: a
thousand bodies that have stopped coming hold none.

A thread that parses a body may also read it. Bytes that the event loop reads have to be handed to
a thread. That costs about as much as parsing a few hundred kilobytes: two trips through the loop,
two threads to be woken, and a buffer that is in the cache of the wrong core. So once a body comes
fast, the thread reads the socket itself, as long as bytes are there, and the loop only waits for
more:

    event loop   | wait, read |            | wait, read |
    thread                    | parse, read, parse, read, parse ... nothing there |

The loop does not read meanwhile, as nobody waits in ``read_into``, so the bytes are in order; they
are counted and unchunked through the same ``account``. Whatever is not plain bytes (the end of the
body or of the connection, a fault) the thread leaves to the loop, which finds it in the same place
at the next ``read_into``. The reader has a handle of the socket of its own, which must be closed:
the connection lives as long as any of its handles does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from copy import copy
from typing import TYPE_CHECKING

from .body import BodyStalled, ChunkDecoder, FramingError

if TYPE_CHECKING:
    from .protocol import BodyProtocol


SPILL_BYTES = 1 << 16
MESSAGE_BYTES = 1 << 18

_DIRECT_BYTES = 8192
"""Minimum size of a view that the socket is read into directly."""
_LINE_FEED = 10
_FEW_BYTES = 8
"""Bytes that are worth waking a reader; also a pair of a loss stream."""
_FEW_ROOM = 64
"""Bytes of the memory in which few bytes wait for more."""
_SHORTEST, _LONGEST = 0.02, 5.0
"""Seconds that fewer bytes wait for more."""


class SocketBody(asyncio.BufferedProtocol):
    """A request body; the protocol of the transport while it is read.

    Args:
        owner: The connection, which handles everything but the body.
        size: Length of the body in bytes; None if chunked.
        early: Bytes that arrived in one read with the head.

    Attributes:
        taken: Payload bytes that were read so far.
    """

    def __init__(self, owner: BodyProtocol, size: int | None, early: bytes) -> None:
        self._owner = owner
        self._left = size
        self._decoder = ChunkDecoder(owner.limits.header_bytes) if size is None else None
        self._raw = memoryview(early)
        self.taken = 0
        self._target: memoryview | None = None
        self._filled = 0
        self._spills = False
        """Whether what comes is read into memory of the body's own."""
        self._waiter: asyncio.Future[None] | None = None
        self.complete = False
        """Whether the whole body has been read."""
        self.error: Exception | None = None
        """Error that ended the body, if any."""
        self._fault: FramingError | None = None
        self._quiet_since = 0.0
        self._patience = _SHORTEST
        """Seconds that few bytes wait for more."""
        self._few_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._total_timer: asyncio.TimerHandle | None = None
        if size == 0:
            self._finish(early)
        elif owner.limits.body_seconds is not None:
            self._total_timer = owner.loop.call_later(
                owner.limits.body_seconds, self.fail, BodyStalled("the body took too long")
            )

    @property
    def received(self) -> bool:
        """Whether the whole body has arrived, read or not."""
        return self.complete or (self._left is not None and len(self._raw) >= self._left)

    async def read_into(self, view: memoryview) -> int:
        """Read what has arrived into a view, waiting for at least one byte.

        Args:
            view: Writable contiguous bytes, at least one. Must not be used until the call
                returns.

        Returns:
            Number of bytes read; 0 only at the end of the body.

        Raises:
            ClientDisconnected: The connection ended before the body.
            BodyStalled: No byte arrived for too long, or the whole body took too long.
            FramingError: The body is not valid HTTP.
        """
        if not view:
            raise ValueError("the view is empty")
        size = 0
        self._catch_up()
        while not size:
            if self.complete:
                return 0
            if self._raw and not isinstance(self.error, FramingError):
                size = self._take(view)
            elif self.error:
                # A copy: the traceback of what is raised refers to us, and we must not to it.
                raise copy(self.error)
            else:
                size = await self._fill(view)
        return size

    async def wait(self) -> None:
        """Wait until bytes are there to be read, or the body has ended or failed."""
        self._catch_up()
        if not (self.complete or self._raw or self.error):
            await self._fill(None)

    def in_thread(self) -> ThreadReader | None:
        """Return a reader for another thread; None if the connection has none to offer."""
        sock = self._owner.duplicate_socket()
        return None if sock is None else ThreadReader(self, sock)

    async def read_some(self) -> bytes:
        """Read up to ``MESSAGE_BYTES`` bytes; see ``read_into``."""
        size = MESSAGE_BYTES
        if self._left is not None:
            size = min(size, self._left)
        scratch = bytearray(size or 1)
        filled = await self.read_into(memoryview(scratch))
        del scratch[filled:]
        return bytes(scratch)

    def discard_received(self) -> None:
        """Discard the rest of the body if it has arrived, so that a request can follow."""
        if not self.complete and self._left is not None and self.received:
            self._finish(bytes(self._raw[self._left :]))

    def fail(self, error: Exception) -> None:
        """End the body here; the reader gets ``error`` after the bytes received so far."""
        self._stop_timers()
        if not self.complete and self.error is None:
            self.error = error
            self._wake()

    def feed(self, data: bytes) -> None:
        """Hold bytes that arrived while no reader waited."""
        self._raw = memoryview(bytes(self._raw) + data)

    # The transport's side.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory that the transport reads into next."""
        del sizehint
        if self._target is None or self._filled == len(self._target):
            size = SPILL_BYTES
            if self._waiter is not None and self._left is not None:
                size = min(size, self._left)
            self._target, self._filled = memoryview(bytearray(size)), 0
        return self._target[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand ``nbytes`` to the reader, or hold them if it was cancelled."""
        if self._waiter is None:
            if self._target is not None:
                self.feed(bytes(self._target[:nbytes]))
                self._target = None
            return
        self._filled += nbytes
        if self._are_few():
            self._wait_for_more()
            return
        self._patience = max(self._patience / 2, _SHORTEST)
        self._owner.flow.pause_reading()
        self._wake()

    def _are_few(self) -> bool:
        """Whether what was received should wait for more."""
        target = self._target
        if target is None or self._filled >= min(_FEW_BYTES, len(target)):
            return False
        return self._decoder is None or target[self._filled - 1] != _LINE_FEED

    def _wait_for_more(self) -> None:
        self._quiet_since = self._owner.loop.time()
        if self._spills and self._target is not None and len(self._target) > _FEW_ROOM:
            few, self._target = self._target[: self._filled], memoryview(bytearray(_FEW_ROOM))
            self._target[: self._filled] = few
        if self._few_timer is None:
            self._few_timer = self._owner.loop.call_later(self._patience, self._hand_over_few)

    def _hand_over_few(self) -> None:
        self._patience = min(2 * self._patience, _LONGEST)
        self._owner.flow.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Pass the event on, which ends the body early."""
        self._owner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the event on."""
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass the event on."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """Pass the event on."""
        self._owner.resume_writing()

    # What a thread may call while no reader waits.

    @property
    def readable(self) -> bool:
        """Whether the next bytes of the body are those of the socket."""
        return not (self._raw or self._at_end or self.error or self._fault)

    def room(self, view: memoryview) -> memoryview:
        """Return the part of a view to read into."""
        size = self._left if self._decoder is None else self._decoder.stretch()
        return view[:size] if size else view

    def account(self, view: memoryview, size: int) -> int:
        """Account for ``size`` raw bytes in the view; return the number of payload bytes."""
        if self._decoder is None:
            assert self._left is not None  # noqa: S101 - sized or chunked
            self._left -= size
            self.taken += size
            return size
        try:
            payload, used = self._decoder.decode(view, size)
        except FramingError as error:
            self._fault = error
            return 0
        if self._decoder.done:
            self._raw = memoryview(bytes(view[used:size]) + bytes(self._raw))
        self.taken += payload
        return payload

    @property
    def _at_end(self) -> bool:
        return self._left == 0 if self._decoder is None else self._decoder.done

    # The reader's side.

    def _catch_up(self) -> None:
        """Act on the end or the fault that ``account`` has met."""
        if self._fault is not None:
            self.fail(self._fault)
        elif self._at_end and not self.complete:
            self._finish(bytes(self._raw))

    async def _fill(self, view: memoryview | None) -> int:
        """Wait for the socket; return the number of payload bytes in the view, maybe 0.

        Without a view, or with a small one, what comes is held.
        """
        if self._waiter is not None:
            raise RuntimeError("the body already has a reader")
        if view is not None and len(view) < _DIRECT_BYTES:
            view = None
        self._spills = view is None
        target = view if view is None or self._left is None else view[: self._left]
        self._target, self._filled = target, 0
        self._waiter = self._owner.loop.create_future()
        self._watch_idle()
        self._owner.read_body(self)
        is_read = False
        try:
            await self._waiter
            is_read = True
        finally:
            spill = self._target
            self._waiter = self._target = None
            if self._few_timer is not None:
                self._few_timer.cancel()
                self._few_timer = None
            self._owner.flow.pause_reading()
            filled, self._filled = self._filled, 0
            if filled and spill is not None and (not is_read or view is None):
                # Bytes that arrived for a cancelled reader must not be lost.
                self._raw = memoryview(bytes(spill[:filled]))
        if not filled or self._raw or view is None:
            return 0
        return self._settle(view, filled)

    def _take(self, view: memoryview) -> int:
        """Copy held bytes into the view; return the number of payload bytes."""
        size = min(len(view), len(self._raw))
        if self._left is not None:
            size = min(size, self._left)
        view[:size] = self._raw[:size]
        # What all is read of must not be kept by a view of nothing.
        self._raw = self._raw[size:] if size < len(self._raw) else memoryview(b"")
        return self._settle(view, size)

    def _settle(self, view: memoryview, size: int) -> int:
        payload = self.account(view, size)
        self._catch_up()
        return payload

    def _finish(self, remainder: bytes) -> None:
        self.complete = True
        self._raw = memoryview(b"")
        self._stop_timers()
        self._owner.body_complete(remainder)

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _watch_idle(self) -> None:
        self._quiet_since = self._owner.loop.time()
        if self._idle_timer is None:
            seconds = self._owner.limits.body_idle_seconds
            self._idle_timer = self._owner.loop.call_later(seconds, self._check_idle)

    def _check_idle(self) -> None:
        """Check for a stall; rescheduled once per period, as reads are far more frequent."""
        self._idle_timer = None
        if self._waiter is None:
            return
        seconds = self._owner.limits.body_idle_seconds
        left = self._quiet_since + seconds - self._owner.loop.time()
        # Clocks of event loops tick in milliseconds.
        if left <= 1e-3:  # noqa: PLR2004
            self.fail(BodyStalled(f"no byte of the body arrived for {seconds:g} s"))
        else:
            self._idle_timer = self._owner.loop.call_later(left, self._check_idle)

    def _stop_timers(self) -> None:
        for timer in (self._idle_timer, self._total_timer):
            if timer:
                with contextlib.suppress(RuntimeError):
                    timer.cancel()
        self._idle_timer = self._total_timer = None


class ThreadReader:
    """Reads a body in a thread, while no ``read_into`` waits.

    Args:
        body: the body.
        sock: a handle of its socket, closed by ``close``.
    """

    def __init__(self, body: SocketBody, sock: socket.socket) -> None:
        self._body = body
        self._socket = sock
        sock.setblocking(False)

    def read(self, view: memoryview) -> int:
        """Read what has arrived into a view of at least one byte.

        Returns:
            Number of bytes; 0 if there are none now, or the event loop has to go on.
        """
        while self._body.readable:
            try:
                size = self._socket.recv_into(self._body.room(view))
            except OSError:
                # Nothing is there, or the connection is broken, which the transport will notice.
                return 0
            if not size:
                return 0
            payload = self._body.account(view, size)
            if payload:
                return payload
        return 0

    def close(self) -> None:
        """Close the handle; no thread may be reading."""
        self._socket.close()
