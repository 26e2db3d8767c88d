"""An acceptor in this thread, and lanes that do what they are told."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator

from app.server.lanes.acceptor import Acceptor
from app.server.lanes.channel import (
    GONE,
    HELD,
    MOVE,
    ROUTES,
    TAKEN,
    Message,
    make_pair,
    receive,
    send,
)
from app.server.lanes.table import FRONT, LONG, QUICK, Rule, Table
from app.server.limits import ServerLimits
from tests.descriptors import nothing_left_open

TABLE = Table([Rule("^/quick$", {"GET": QUICK}), Rule("^/long$", {"POST": LONG})])
LINES = {
    FRONT: b"GET / HTTP/1.1\r\n\r\n",
    QUICK: b"GET /quick HTTP/1.1\r\n\r\n",
    LONG: b"POST /long HTTP/1.1\r\n\r\n",
}


class FakeLane:
    """A process of a lane, as far as the acceptor knows it.

    Attributes:
        taken: connections that it has taken.
        offered: those that it has read, and not taken.
    """

    def __init__(self, place: Place, lane: str, index: int, *, ready: bool) -> None:
        self.place = place
        self.taken: list[Message] = []
        self.offered: list[Message] = []
        theirs, self.channel = make_pair()
        if ready:
            self.begin()
        place.acceptor.processes.add(lane, index, theirs)

    def begin(self) -> None:
        """Say that it is ready."""
        self._said(Message(ROUTES, octets=TABLE.to_bytes()))

    def _said(self, message: Message) -> None:
        while True:
            try:
                return send(self.channel, message)
            except BlockingIOError:
                self.place.turns(1)

    def offers(self) -> list[Message]:
        """What it has been offered in the acceptor's next turns."""
        self.place.turns()
        return self._read()

    def _read(self) -> list[Message]:
        found = []
        with contextlib.suppress(BlockingIOError):
            while message := receive(self.channel):
                found.append(message)
        self.offered += found
        return found

    def take(self, count: int = 1) -> list[Message]:
        """Take what it is offered, which must be so many."""
        self.place.until(lambda: len(self.offered) >= count, self._read)
        found, self.offered = self.offered, []
        self.taken += found
        for _ in found:
            self._said(Message(TAKEN))
        self.place.turns(1)
        assert len(found) == count
        return found

    def move(self, message: Message, lane: str, octets: bytes) -> None:
        self._said(Message(MOVE, lane, message.peer, octets=octets, sock=message.sock))
        self.forget(message)

    def close(self, message: Message) -> None:
        self._said(Message(GONE, peer=message.peer))
        self.forget(message)

    def hold(self, peer: str) -> None:
        self._said(Message(HELD, peer=peer))

    def forget(self, message: Message) -> None:
        self.taken = [other for other in self.taken if other is not message]
        if message.sock is not None:
            message.sock.close()

    def die(self) -> None:
        """End as the kernel ends a process."""
        self.channel.close()
        for message in (*self.taken, *self.offered):
            self.forget(message)
        self.place.turns()


class Place:
    """An acceptor, its lanes and clients."""

    def __init__(self, limits: ServerLimits) -> None:
        self.loads: dict[int, int] = {}
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.acceptor = Acceptor([self.listener], limits, lambda index: self.loads.get(index, 0))
        self.lanes: list[FakeLane] = []
        self.clients: list[socket.socket] = []

    @property
    def connected(self) -> int:
        self.turns()
        return self.acceptor.connected.count

    def turns(self, count: int = 2) -> None:
        """Turns of the acceptor until nothing has happened for so many milliseconds."""
        for _ in range(10_000):
            if not self.acceptor.turn(0.001):
                count -= 1
            if not count:
                return

    def until(
        self,
        done: Callable[[], bool],
        step: Callable[[], object] = lambda: None,
        seconds: float = 5,
    ) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, "it did not happen in time"
            self.turns(1)
            step()

    def lane(self, name: str, index: int, *, ready: bool = True) -> FakeLane:
        self.lanes.append(FakeLane(self, name, index, ready=ready))
        self.turns()
        return self.lanes[-1]

    def client(self, *said: bytes) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        self.clients.append(client)
        for octets in said:
            client.sendall(octets)
        return client

    def is_closed(self, client: socket.socket) -> bool:
        """Whether the service has closed a connection without a word."""
        self.turns()
        client.setblocking(False)
        try:
            return client.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True


@contextlib.contextmanager
def accepting(**limits: float | str) -> Iterator[Place]:
    """An acceptor; at the end, when lanes and clients have left, nothing of it may be left."""
    with nothing_left_open():
        place = Place(ServerLimits(**limits))  # type: ignore[arg-type]  # times and numbers
        try:
            yield place
            for client in place.clients:
                client.close()
            for lane in place.lanes:
                for message in list(lane.taken):
                    lane.close(message)
            place.turns()
            for lane in place.lanes:
                lane.die()
            place.acceptor.stop_accepting()
            assert place.acceptor.connected.count == 0
            assert place.acceptor.processes.have_taken_all
        finally:
            for client in place.clients:
                client.close()
            place.listener.close()
            place.acceptor.close()


@contextlib.contextmanager
def few_descriptors(room: int) -> Iterator[None]:
    """Leave room for so many more open files."""
    # What is garbage would make room later.
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gaps = [os.dup(0) for _ in range(room + 1)]
    for number in gaps:
        os.close(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (gaps[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
