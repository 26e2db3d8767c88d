"""The processes of lanes, as the acceptor sees them: what they are offered, and what they hold.

A connection is *offered* to the least loaded process of its lane. Until that says TAKEN our own
descriptor stays open, and if it dies before, another process gets the offer. What it has taken
ends with it. While no process of a lane is ready, connections wait for the next one; so many at
most that the other lanes do not run out of connections, then they are refused. While kernels are
compiled, they are refused at once: the first process of their lane may be minutes away.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from app.server.limits import Connections, take_one

from .channel import GIVE, GONE, HELD, MOVE, ROUTES, TAKEN, Message, receive, send
from .table import FRONT, Table

READ = select.EPOLLIN | select.EPOLLRDHUP
WRITE = select.EPOLLOUT
EDGE = select.EPOLLET
HUNG_UP = select.EPOLLRDHUP
"""Kinds of events: something to read, room to write, only what is new, the other side's end."""

Handler = Callable[[int], None]


class Poll:
    """Calls whoever handles the events of a socket."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[Handler, int]] = {}

    def watch(self, sock: socket.socket, events: int, handler: Handler) -> None:
        """Call a handler with the events of a socket from now on."""
        self._epoll.register(sock, events)
        self._watched[sock.fileno()] = handler, events

    def change(self, sock: socket.socket, events: int) -> None:
        """Wait for other events of a socket."""
        handler, before = self._watched[sock.fileno()]
        if events != before:
            self._watched[sock.fileno()] = handler, events
            self._epoll.modify(sock, events)

    def forget(self, sock: socket.socket) -> None:
        """Watch a socket no more; must come before it is closed."""
        if self._watched.pop(sock.fileno(), None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(sock)

    def close(self) -> None:
        """Watch nothing any more."""
        self._epoll.close()

    def wait(self, seconds: float) -> int:
        """Wait for events, handle them, and return how many there were."""
        ready = self._epoll.poll(seconds)
        watched = [self._watched.get(number) for number, _ in ready]
        for (number, events), before in zip(ready, watched, strict=True):
            now = self._watched.get(number)
            # Another handler may have closed the socket, and a new one have its number now.
            if before is not None and now is not None and now[0] is before[0]:
                now[0](events)
        return len(ready)


_FEWEST = 128
"""Connections that may always wait for a lane: no fewer than are refused at once."""
_BUSY, _STARTING = "busy", "starting"


class Offer(NamedTuple):
    """A connection for a lane, until a process of it says that it is taken.

    Attributes:
        message: what the process is told.
        peer: address of the client.
    """

    message: Message
    peer: str | None


class _Process:
    """A process of a lane.

    Attributes:
        lane: its lane.
        index: number of its slot.
        channel: our end of its channel.
        queue: offers that the channel had no room for.
        offered: those that it has not taken yet.
        peers: addresses of connections that it holds, or was offered.
        is_ready: whether it reads its channel: until it has told its routes, it is being started,
            and another one may serve sooner.
        is_retired: whether it gets no more offers: it has another channel now, or has ended.
    """

    def __init__(self, lane: str, index: int, channel: socket.socket) -> None:
        self.lane = lane
        self.index = index
        self.channel = channel
        self.queue: deque[Offer] = deque()
        self.offered: deque[Offer] = deque()
        self.peers: Counter[str | None] = Counter()
        self.is_ready = self.is_retired = False

    @property
    def waiting(self) -> int:
        """Number of connections that it has not taken yet."""
        return len(self.queue) + len(self.offered)


class Processes:
    """Offers connections to the processes of all lanes; see the module.

    Args:
        poll: where to watch their channels.
        connected: counts all connections of the service.
        load: requests in progress in the process with an index.

    Attributes:
        table: the lanes of all routes; empty until a process has told.
        starting: whether the first processes of the lanes, but for the front, are not soon to come.
        ending: whether no process will come any more, so that nothing waits for one.
    """

    def __init__(self, poll: Poll, connected: Connections, load: Callable[[int], int]) -> None:
        self.table = Table(())
        self.starting: Callable[[], bool] = lambda: False
        self.ending = False
        self._poll = poll
        self._connected = connected
        self._load = load
        self._most = max(connected.limit // 4, _FEWEST)
        """Connections that wait for a process, or for one of a lane that has none."""
        self._processes: list[_Process] = []
        self._homeless: dict[str, deque[Offer]] = {}
        """Connections whose lane has no process that is ready."""

    @property
    def have_taken_all(self) -> bool:
        """Whether no connection waits for a process."""
        waiting = any(process.waiting for process in self._processes)
        return not waiting and not any(self._homeless.values())

    def add(self, lane: str, index: int, channel: socket.socket) -> None:
        """Offer connections of a lane to a process once it is ready.

        Args:
            lane: the lane.
            index: number of the process; it replaces the one that had it before.
            channel: our end of a channel to it.
        """
        process = _Process(lane, index, channel)
        retired = [other for other in self._processes if other.index == index]
        self._processes.append(process)
        self._poll.watch(channel, READ, lambda _events: self._on_events(process))
        for other in retired:
            # What it was sent it may have taken: that is known once its channel is at its end.
            other.is_retired = True
            other.peers.subtract(offer.peer for offer in other.queue)
            unsent, other.queue = other.queue, deque()
            for offer in unsent:
                self.give(lane, offer)

    def give(self, lane: str, offer: Offer) -> None:
        """Offer a connection to the least loaded process of a lane, or have it wait for one."""
        chosen = [p for p in self._processes if p.lane == lane and p.is_ready and not p.is_retired]
        if chosen:
            process = min(chosen, key=self._burden)
            if process.waiting < self._most:
                process.peers[offer.peer] += 1
                process.queue.append(offer)
                self._flush(process)
                return
        elif not self._refusal(lane):
            homeless = self._homeless.setdefault(lane, deque())
            if len(homeless) < self._most:
                homeless.append(offer)
                return
        self._refuse(lane, offer)

    def end_waiting(self) -> None:
        """Refuse connections whose lane has no process; no more will come."""
        self.ending = True
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        for lane in filter(self._refusal, list(self._homeless)):
            for offer in self._homeless.pop(lane):
                self._refuse(lane, offer)

    def _refusal(self, lane: str) -> str:
        """The problem of whoever would wait for a process of a lane; empty if one may come soon."""
        if self.ending:
            return _BUSY
        return _STARTING if lane != FRONT and self.starting() else ""

    def retry(self) -> None:
        """Send what could not be sent for want of memory or descriptors; refuse as above."""
        self._refuse_waiting()
        for process in self._processes:
            if process.queue:
                self._flush(process)

    def close(self) -> None:
        """Close the channels: the processes serve what they have, and wait for another acceptor."""
        for process in self._processes:
            process.channel.close()
        self._processes.clear()

    def _refuse(self, lane: str, offer: Offer) -> None:
        """Have the front refuse a connection; close it if that has no room either."""
        if lane == FRONT:
            self.drop(offer.message.sock, offer.peer)
        else:
            code = self._refusal(lane) or _BUSY
            message = Message(GIVE, code, offer.message.peer, sock=offer.message.sock)
            self.give(FRONT, Offer(message, offer.peer))

    def drop(self, sock: socket.socket | None, peer: str | None) -> None:
        """Close a connection that no process has."""
        self._connected.remove(peer)
        if sock is not None:
            sock.close()

    def _burden(self, process: _Process) -> int:
        return self._load(process.index) + process.waiting

    def _flush(self, process: _Process) -> None:
        """Send what the channel has room for."""
        events = READ
        while process.queue:
            try:
                send(process.channel, process.queue[0].message)
            except BlockingIOError:
                events |= WRITE
                break
            except OSError:
                # It is at its end: then its last messages are still to be read. Or we have too
                # many open files, or no memory, and try again at the next tick.
                break
            process.offered.append(process.queue.popleft())
        self._poll.change(process.channel, events)

    def _on_events(self, process: _Process) -> None:
        """Handle a message of a process: one, as the others have their turn too."""
        try:
            message = receive(process.channel)
        except BlockingIOError:
            pass
        else:
            if message is None:
                self._end(process)
                return
            self._handle(process, message)
        if process.queue:
            self._flush(process)

    def _handle(self, process: _Process, message: Message) -> None:
        peer = message.peer or None
        if message.kind == TAKEN:
            original = process.offered.popleft().message
            if original.sock is not None:
                original.sock.close()
        elif message.kind == MOVE and message.sock is not None:
            take_one(process.peers, peer)
            moved = Message(GIVE, peer=message.peer, octets=message.octets, sock=message.sock)
            self.give(message.text, Offer(moved, peer))
        elif message.kind in {GONE, MOVE}:
            # The system has closed what has moved, if we have too many open files.
            take_one(process.peers, peer)
            self._connected.remove(peer)
        elif message.kind == HELD:
            process.peers[peer] += 1
            self._connected.add(peer)
        elif message.kind == ROUTES and message.octets:
            self.table = Table.from_bytes(message.octets)
            process.is_ready = True
            for offer in self._homeless.pop(process.lane, ()):
                self.give(process.lane, offer)

    def _end(self, process: _Process) -> None:
        """Offer what a process has not taken to others; what it held has ended with it."""
        self._processes.remove(process)
        self._poll.forget(process.channel)
        process.channel.close()
        for offer in (*process.offered, *process.queue):
            take_one(process.peers, offer.peer)
            self.give(process.lane, offer)
        for peer in process.peers.elements():
            self._connected.remove(peer)
