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
would otherwise wake us for ever. What happens to them afterwards is told in :mod:`.processes`.

Connections are counted here, for the whole service: newcomers, those offered, and those that lanes
hold, which come and go with GONE and MOVE. Those of a process that dies end with it.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial

from app.server.forking import CUT
from app.server.limits import Connections, Peers, ServerLimits

from .channel import GIVE, Message, receive
from .processes import EDGE, HUNG_UP, READ, Offer, Poll, Processes
from .table import FRONT, PEEK_BYTES

_TURN = 64
"""Connections accepted before others have their turn."""
_PAUSE_SECONDS = 0.1
"""Time without accepting when the process, or the system, has no descriptors left."""
_TICK_SECONDS = 0.5
"""Time between two looks for newcomers that are late."""
_HANDOVER_SECONDS = 5.0
"""Time for lanes to take what was accepted, at the end."""
_LOOK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)
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
        self.connected = Connections(
            limits.connections, limits.address_connections, Peers(limits.proxies)
        )
        self._poll = Poll()
        self.processes = Processes(self._poll, self.connected, load)
        self._limits = limits
        self._listeners = list(listeners)
        self._paused_until = 0.0
        self._newcomers: OrderedDict[int, _Newcomer] = OrderedDict()
        """By descriptor; whose time is over next comes first."""
        self._ticked = 0.0
        for sock in self._listeners:
            self._poll.watch(sock, READ, partial(self._accept, sock))

    # The loop.

    def watch(self, sock: socket.socket, call: Callable[[], None]) -> None:
        """Call back whenever a socket is readable."""
        self._poll.watch(sock, READ, lambda _events: call())

    def turn(self, seconds: float = _TICK_SECONDS) -> int:
        """Wait for events, handle them, and return how many there were."""
        count = self._poll.wait(seconds)
        now = time.monotonic()
        if now - self._ticked >= _TICK_SECONDS:
            self._ticked = now
            self._expire(now)
            self.processes.retry()
        return count

    def stop_accepting(self) -> None:
        """Close the listening sockets, and the connections that have said nothing."""
        for sock in self._listeners:
            self._poll.forget(sock)
            sock.close()
        self._listeners.clear()
        for newcomer in list(self._newcomers.values()):
            if not self._look_at(newcomer, time.monotonic()):
                self._close(newcomer)
        self.processes.end_waiting()

    def close(self) -> None:
        """Leave the lanes, and watch nothing any more."""
        self.processes.close()
        self._poll.close()

    # Newcomers.

    def _accept(self, listener: socket.socket, _events: int) -> None:
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

    def _pause(self) -> None:
        self._paused_until = time.monotonic() + _PAUSE_SECONDS
        for sock in self._listeners:
            self._poll.change(sock, 0)

    def _welcome(self, sock: socket.socket, peer: str | None) -> None:
        now = time.monotonic()
        refusal = self.connected.add(peer)
        if refusal is None:
            newcomer = _Newcomer(sock, peer, now, self._limits.header_seconds)
            if not self._look_at(newcomer, now):
                self._newcomers[sock.fileno()] = newcomer
                self._poll.watch(sock, READ | EDGE, partial(self._on_bytes, newcomer))
        elif self.connected.may_linger:
            message = Message(GIVE, refusal, peer or "", sock=sock)
            self.processes.give(FRONT, Offer(message, peer))
        else:
            self.processes.drop(sock, peer)

    def _on_bytes(self, newcomer: _Newcomer, events: int) -> None:
        if not self._look_at(newcomer, time.monotonic()) and events & HUNG_UP:
            # The rest of its request line will never come.
            self._close(newcomer)

    def _look_at(self, newcomer: _Newcomer, now: float) -> bool:
        """Hand a newcomer over if its path is there; return whether it is one no more."""
        try:
            octets = newcomer.sock.recv(PEEK_BYTES, _LOOK)
        except BlockingIOError:
            return False
        except OSError:
            octets = b""
        lane = self.processes.table.lane_of_bytes(octets)
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
        self._poll.forget(newcomer.sock)
        seconds = now - newcomer.since if newcomer.has_begun else 0.0
        message = Message(GIVE, refusal, newcomer.peer or "", seconds, sock=newcomer.sock)
        self.processes.give(lane, Offer(message, newcomer.peer))

    def _close(self, newcomer: _Newcomer) -> None:
        self._newcomers.pop(newcomer.sock.fileno(), None)
        self._poll.forget(newcomer.sock)
        self.processes.drop(newcomer.sock, newcomer.peer)

    def _expire(self, now: float) -> None:
        """Close newcomers that are silent, have those refused that are slow, accept again."""
        if self._paused_until and now >= self._paused_until:
            self._paused_until = 0.0
            for sock in self._listeners:
                self._poll.change(sock, READ)
        while self._newcomers:
            newcomer = next(iter(self._newcomers.values()))
            if now < newcomer.deadline:
                return
            if newcomer.has_begun:
                self._hand_over(newcomer, FRONT, _SLOW, now)
            else:
                self._close(newcomer)


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
    signals: dict[int, float] = {}
    for number in (signal.SIGTERM, CUT):
        signal.signal(number, lambda number, _: signals.setdefault(number, time.monotonic()))

    def on_control() -> None:
        with contextlib.suppress(BlockingIOError):
            while message := receive(control):
                lane, index = message.text.split()
                if message.sock is not None:
                    acceptor.processes.add(lane, int(index), message.sock)

    acceptor.watch(control, on_control)
    while CUT not in signals and (
        not signals or time.monotonic() < min(signals.values()) + drain_delay
    ):
        beat()
        acceptor.turn()
    acceptor.stop_accepting()
    latest = time.monotonic() + _HANDOVER_SECONDS
    while not acceptor.processes.have_taken_all and time.monotonic() < latest:
        acceptor.turn()
        # Nobody waits for anybody any more.
        if CUT in signals:
            break
