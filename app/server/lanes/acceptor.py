"""The acceptor: takes connections, looks at their first bytes, and hands them to a lane.

It imports nothing of the application, has one thread and never waits for anybody but epoll: a
client that is silent, and a lane that does not read, cost an entry in a table::

                    first bytes                    lane's process
    listening ──▶ newcomer ──path is there──▶ offered ──TAKEN──▶ held by the lane ──GONE──▶ closed
                    │  │                          ▲  │                 │
       silent for   │  │ begun, but not continued │  │ process died    │ MOVE: its next request
       too long     ▼  ▼ in time: 408, by a lane  └──┘                 │ belongs to another lane
                  closed                          ▲────────────────────┘

Bytes are only peeked at. Events of newcomers are edge-triggered: bytes that stay in the socket
would otherwise wake us for ever. Until a process says TAKEN the acceptor keeps its own descriptor,
and offers the connection to another one when the process dies.

Connections are counted here, for the whole service: newcomers, those offered, and those that lanes
hold, which come and go with GONE and MOVE. Those of a process that dies end with it.
"""

from __future__ import annotations

import contextlib
import errno
import select
import signal
import socket
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from app.server.limits import ServerLimits
from app.server.peers import Connections, Peers

from .channel import GIVE, HELD, MOVE, ROUTES, TAKEN, Message, receive, send
from .table import FRONT, PEEK_BYTES, Table

_TURN = 64
"""Connections accepted before others have their turn."""
_PAUSE_SECONDS = 0.1
"""Time without accepting when the process, or the system, has no descriptors left."""
_TICK_SECONDS = 0.5
"""Time between two looks for newcomers that are late."""
_READ = select.EPOLLIN | select.EPOLLRDHUP
_SLOW = "headers-too-slow"


class _Newcomer:
    """A connection that has not said enough yet."""

    __slots__ = ("deadline", "has_begun", "peer", "since", "sock")

    def __init__(self, sock: socket.socket, peer: str | None, now: float, seconds: float) -> None:
        self.sock = sock
        self.peer = peer
        self.since = now
        self.deadline = now + seconds
        self.has_begun = False


class _Offer(NamedTuple):
    """A connection for a lane, until a process of it says that it is taken."""

    message: Message
    peer: str | None


class _Process:
    """A process of a lane.

    Attributes:
        lane: its lane.
        index: number of its seat.
        channel: our end of its channel.
        queue: connections that the channel had no room for.
        offered: those that it has not taken yet.
        peers: addresses of connections that it holds, or was offered.
    """

    def __init__(self, lane: str, index: int, channel: socket.socket) -> None:
        self.lane = lane
        self.index = index
        self.channel = channel
        self.queue: deque[_Offer] = deque()
        self.offered: deque[_Offer] = deque()
        self.peers: Counter[str | None] = Counter()


class Acceptor:
    """Hands connections to processes; see the module.

    Args:
        listeners: listening sockets, which do not block.
        limits: of newcomers, and of all connections.
        load: requests in progress in the process with an index.
    """

    def __init__(
        self, listeners: Iterable[socket.socket], limits: ServerLimits, load: Callable[[int], int]
    ) -> None:
        self.table = Table(())
        self.connected = Connections(
            limits.connections, limits.address_connections, Peers(limits.proxies)
        )
        self._limits = limits
        self._load = load
        self._listeners = list(listeners)
        self._paused_until = 0.0
        self._newcomers: OrderedDict[int, _Newcomer] = OrderedDict()
        self._processes: dict[int, _Process] = {}
        self._homeless: dict[str, deque[_Offer]] = {}
        """Connections whose lane has no process now."""
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._ticked = 0.0
        for sock in self._listeners:
            self._watch(sock, _READ, self._accept_from(sock))

    # The loop.

    def watch(self, sock: socket.socket, call: Callable[[], None]) -> None:
        """Call back whenever a socket is readable."""
        self._watch(sock, _READ, lambda _events: call())

    def turn(self) -> None:
        """Wait for events, and handle them."""
        for descriptor, events in self._epoll.poll(_TICK_SECONDS):
            if handler := self._handlers.get(descriptor):
                handler(events)
        now = time.monotonic()
        if now - self._ticked >= _TICK_SECONDS:
            self._ticked = now
            self._expire(now)

    def stop_accepting(self) -> None:
        """Close the listening sockets, and the connections that have said nothing."""
        for sock in self._listeners:
            self._forget(sock)
            sock.close()
        self._listeners.clear()
        for newcomer in list(self._newcomers.values()):
            self._look_at(newcomer, now=time.monotonic())
            if newcomer.sock.fileno() in self._newcomers:
                self._close(newcomer)

    @property
    def has_handed_over(self) -> bool:
        """Whether all connections have been taken by a process."""
        waiting = any(process.queue or process.offered for process in self._processes.values())
        return not waiting and not any(self._homeless.values())

    # Newcomers.

    def _accept_from(self, listener: socket.socket) -> Callable[[int], None]:
        def accept(_events: int) -> None:
            for _ in range(_TURN):
                try:
                    sock, address = listener.accept()
                except BlockingIOError:
                    return
                except OSError as error:
                    if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                        self._pause()
                    return
                self._welcome(sock, address[0] if isinstance(address, tuple) else None)

        return accept

    def _pause(self) -> None:
        self._paused_until = time.monotonic() + _PAUSE_SECONDS
        for sock in self._listeners:
            self._epoll.modify(sock, 0)

    def _welcome(self, sock: socket.socket, peer: str | None) -> None:
        sock.setblocking(False)
        now = time.monotonic()
        newcomer = _Newcomer(sock, peer, now, self._limits.header_seconds)
        refusal = self.connected.add(newcomer.peer)
        if refusal is None:
            self._newcomers[sock.fileno()] = newcomer
            if self._look_at(newcomer, now):
                return
            self._watch(sock, _READ | select.EPOLLET, partial(self._on_bytes, newcomer))
        elif self.connected.may_linger:
            self._give(FRONT, _Offer(Message(GIVE, refusal, peer or "", sock=sock), newcomer.peer))
        else:
            self._drop(sock, newcomer.peer)

    def _on_bytes(self, newcomer: _Newcomer, events: int) -> None:
        if not self._look_at(newcomer, time.monotonic()) and events & select.EPOLLRDHUP:
            # The rest of its request line will never come.
            self._close(newcomer)

    def _look_at(self, newcomer: _Newcomer, now: float) -> bool:
        """Hand a newcomer over if its path is there; return whether it is one no more."""
        try:
            octets = newcomer.sock.recv(PEEK_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            octets = b""
        lane = self.table.lane_of_bytes(octets)
        if lane is not None:
            self._hand_over(newcomer, lane, "", now)
        elif not octets:
            self._close(newcomer)
        else:
            if not newcomer.has_begun:
                newcomer.has_begun = True
                newcomer.since, newcomer.deadline = now, now + self._limits.header_seconds
                if newcomer.sock.fileno() in self._newcomers:
                    self._newcomers.move_to_end(newcomer.sock.fileno())
            return False
        return True

    def _hand_over(self, newcomer: _Newcomer, lane: str, refusal: str, now: float) -> None:
        self._newcomers.pop(newcomer.sock.fileno(), None)
        self._forget(newcomer.sock)
        seconds = now - newcomer.since if newcomer.has_begun else 0.0
        message = Message(GIVE, refusal, newcomer.peer or "", seconds, sock=newcomer.sock)
        self._give(lane, _Offer(message, newcomer.peer))

    def _close(self, newcomer: _Newcomer) -> None:
        self._newcomers.pop(newcomer.sock.fileno(), None)
        self._forget(newcomer.sock)
        self._drop(newcomer.sock, newcomer.peer)

    def _drop(self, sock: socket.socket, peer: str | None) -> None:
        self.connected.remove(peer)
        sock.close()

    def _expire(self, now: float) -> None:
        """Close newcomers that are silent, have those refused that are slow, accept again."""
        if self._paused_until and now >= self._paused_until:
            self._paused_until = 0.0
            for sock in self._listeners:
                self._epoll.modify(sock, _READ)
        while self._newcomers:
            newcomer = next(iter(self._newcomers.values()))
            if now < newcomer.deadline:
                return
            if newcomer.has_begun:
                self._hand_over(newcomer, FRONT, _SLOW, now)
            else:
                self._close(newcomer)

    # Processes.

    def add_process(self, lane: str, index: int, channel: socket.socket) -> None:
        """Hand connections of a lane to a process from now on.

        Args:
            lane: the lane.
            index: number of the process; it replaces the one with this number.
            channel: our end of a channel to it.
        """
        if index in self._processes:
            self._end(self._processes[index])
        process = self._processes[index] = _Process(lane, index, channel)
        self._watch(channel, _READ, lambda _events: self._on_message(process))
        for offer in self._homeless.pop(lane, ()):
            self._give(lane, offer)

    def _give(self, lane: str, offer: _Offer) -> None:
        """Offer a connection to the least loaded process of a lane."""
        chosen = [process for process in self._processes.values() if process.lane == lane]
        if chosen:
            process = min(chosen, key=self._burden)
            process.peers[offer.peer] += 1
            process.queue.append(offer)
            self._flush(process)
        else:
            self._homeless.setdefault(lane, deque()).append(offer)

    def _burden(self, process: _Process) -> int:
        return self._load(process.index) + len(process.offered) + len(process.queue)

    def _flush(self, process: _Process) -> None:
        """Send what the channel has room for."""
        while process.queue:
            try:
                send(process.channel, process.queue[0].message)
            except OSError:
                # It is full, or at its end: then its last messages are still to be read.
                break
            process.offered.append(process.queue.popleft())
        events = _READ | select.EPOLLOUT if process.queue else _READ
        self._epoll.modify(process.channel, events)

    def _on_message(self, process: _Process) -> None:
        while True:
            try:
                message = receive(process.channel)
            except BlockingIOError:
                break
            if message is None:
                self._end(process)
                return
            self._handle(process, message)
        self._flush(process)

    def _handle(self, process: _Process, message: Message) -> None:
        if message.kind == TAKEN:
            taken = process.offered.popleft().message
            if taken.sock is not None:
                taken.sock.close()
            return
        if message.kind == ROUTES:
            self.table = Table.from_bytes(message.octets)
            return
        peer = message.peer or None
        if message.kind == HELD:
            process.peers[peer] += 1
            self.connected.add(peer)
            return
        process.peers[peer] -= 1
        if message.kind == MOVE and message.sock is not None:
            moved = Message(GIVE, "", message.peer, octets=message.octets, sock=message.sock)
            self._give(message.text, _Offer(moved, peer))
        else:
            self.connected.remove(peer)

    def _end(self, process: _Process) -> None:
        """Give what a process has not taken to others; what it held has ended with it."""
        if self._processes.get(process.index) is process:
            del self._processes[process.index]
        self._forget(process.channel)
        process.channel.close()
        for offer in (*process.offered, *process.queue):
            process.peers[offer.peer] -= 1
            self._give(process.lane, offer)
        for peer, count in process.peers.items():
            for _ in range(count):
                self.connected.remove(peer)

    # epoll.

    def _watch(self, sock: socket.socket, events: int, handler: Callable[[int], None]) -> None:
        self._epoll.register(sock, events)
        self._handlers[sock.fileno()] = handler

    def _forget(self, sock: socket.socket) -> None:
        if self._handlers.pop(sock.fileno(), None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(sock)


def run_acceptor(
    acceptor: Acceptor, control: socket.socket, beat: Callable[[], None], drain_delay: float
) -> None:
    """Accept until SIGTERM, and hand over what was accepted; must be called in the main thread.

    Args:
        acceptor: the acceptor.
        control: our end of a channel to the supervisor, which sends an end of a channel to each
            new process.
        beat: called at every turn.
        drain_delay: seconds between the signal and the closing of the listening sockets.
    """
    signals: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: signals.append(time.monotonic()))

    def on_control() -> None:
        with contextlib.suppress(BlockingIOError):
            while message := receive(control):
                lane, index = message.text.split()
                if message.sock is not None:
                    acceptor.add_process(lane, int(index), message.sock)

    acceptor.watch(control, on_control)
    while not signals or time.monotonic() < signals[0] + drain_delay:
        beat()
        acceptor.turn()
    acceptor.stop_accepting()
    # A second signal means that nobody waits for anybody any more.
    while not acceptor.has_handed_over and len(signals) < 2:  # noqa: PLR2004
        acceptor.turn()
