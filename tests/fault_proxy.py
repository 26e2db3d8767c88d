"""What stands between a client and a server, and is not to be relied upon."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from tests.server_process import HOST

Way = Literal["up", "down"]
"""From the client to the server, or back."""
How = Literal["reset", "close", "half", "call"]


@dataclass(frozen=True)
class Cut:
    """The end of a connection.

    Attributes:
        way: whose bytes are counted.
        after: so many of them are let through.
        how: ``reset`` of both sides, orderly ``close`` of both, ``half``: the receiver of
            this way is told that no more comes, and the other way goes on; or ``call``.
        pause: seconds before it, in which the other way goes on.
        call: what is to happen instead; in a thread.
    """

    way: Way
    after: int
    how: How = "reset"
    pause: float = 0.0
    call: Callable[[], None] | None = None


@dataclass(frozen=True)
class Faults:
    """What becomes of one connection; by default nothing bad.

    Attributes:
        latency: seconds that every piece waits.
        slice_bytes: pieces have a random size of 1 to this; 0: as they come.
        bytes_per_second: of each way; 0: any.
        cut: how it ends before its time.
        blackhole: it is accepted, and that is all.
    """

    latency: float = 0.0
    slice_bytes: int = 0
    bytes_per_second: float = 0.0
    cut: Cut | None = None
    blackhole: bool = False


@dataclass
class Seen:
    """What went through one connection, in bytes."""

    up: int = 0
    down: int = 0
    cut: bool = False


GOOD = Faults()
_PIECE = 1 << 16
_LINGER_NOT = struct.pack("ii", 1, 0)


class FaultProxy:
    """Passes connections on, each with faults of its own.

    Runs in a thread; every choice it makes itself comes from the seed.

    Args:
        targets: ports; connections go to each in turn.
        plan: the faults of the connection with this number, from 0.
        seed: of the sizes of slices.
    """

    def __init__(
        self, targets: Sequence[int], plan: Callable[[int], Faults] = lambda _: GOOD, seed: int = 0
    ) -> None:
        self.targets = list(targets)
        self.plan = plan
        self.seen: list[Seen] = []
        self._rng = np.random.default_rng(seed)
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._running: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def cuts(self) -> int:
        """Connections that were cut."""
        return sum(seen.cut for seen in self.seen)

    @property
    def up(self) -> int:
        """Bytes that clients sent, heads and framing with them."""
        return sum(seen.up for seen in self.seen)

    @property
    def down(self) -> int:
        """Bytes that servers sent."""
        return sum(seen.down for seen in self.seen)

    def _run(self) -> None:
        with contextlib.closing(self._loop), self._listener:
            self._loop.add_reader(self._listener, self._accept)
            self._loop.run_forever()
            self._loop.remove_reader(self._listener)
            tasks = set(self._running)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())

    def _accept(self) -> None:
        # Not in a task: what one has accepted while it is cancelled would stay open.
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        client.setblocking(False)
        task = self._loop.create_task(self._connection(client))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        # Also of one that is cancelled before it begins.
        task.add_done_callback(lambda _: client.close())

    async def _connection(self, client: socket.socket) -> None:
        number, seen = len(self.seen), Seen()
        self.seen.append(seen)
        faults = self.plan(number)
        server = socket.socket()
        server.setblocking(False)
        sockets = (client, server)
        for sock in sockets:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if faults.blackhole:
                await asyncio.Event().wait()
            await self._loop.sock_connect(server, (HOST, self.targets[number % len(self.targets)]))
            await self._both(client, server, faults, seen)
        except OSError:
            # One side broke off: so does the other.
            _make_reset(sockets)
        except _Over:
            pass
        finally:
            for sock in sockets:
                sock.close()

    async def _both(
        self, client: socket.socket, server: socket.socket, faults: Faults, seen: Seen
    ) -> None:
        ways = (
            self._way("up", client, server, faults, seen),
            self._way("down", server, client, faults, seen),
        )
        tasks = [self._loop.create_task(way) for way in ways]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _way(
        self, way: Way, source: socket.socket, sink: socket.socket, faults: Faults, seen: Seen
    ) -> None:
        cut = faults.cut if faults.cut is not None and faults.cut.way == way else None
        passed = 0
        while True:
            most = self._piece(faults)
            if cut is not None:
                most = min(most, cut.after - passed)
                if not most:
                    seen.cut = True
                    if await self._end(cut, source, sink):
                        return
                    cut = None
                    continue
            data = await self._loop.sock_recv(source, most)
            if not data:
                with contextlib.suppress(OSError):
                    sink.shutdown(socket.SHUT_WR)
                return
            await self._hold_up(len(data), faults)
            setattr(seen, way, getattr(seen, way) + len(data))
            await self._loop.sock_sendall(sink, data)
            passed += len(data)

    def _piece(self, faults: Faults) -> int:
        if not faults.slice_bytes:
            return _PIECE
        return int(self._rng.integers(1, faults.slice_bytes, endpoint=True))

    async def _hold_up(self, size: int, faults: Faults) -> None:
        seconds = faults.latency
        if faults.bytes_per_second:
            seconds += size / faults.bytes_per_second
        if seconds:
            await asyncio.sleep(seconds)

    async def _end(self, cut: Cut, source: socket.socket, sink: socket.socket) -> bool:
        """Cut; False if this way goes on."""
        if cut.pause:
            await asyncio.sleep(cut.pause)
        if cut.how == "call":
            assert cut.call is not None
            await asyncio.to_thread(cut.call)
            return False
        if cut.how == "half":
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
            await self._swallow(source)
            return True
        if cut.how == "reset":
            _make_reset((source, sink))
        raise _Over

    async def _swallow(self, source: socket.socket) -> None:
        while await self._loop.sock_recv(source, _PIECE):
            pass


class _Over(Exception):  # noqa: N818 - says what happened
    """Both sides are to be closed."""


def _make_reset(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
