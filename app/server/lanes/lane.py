"""What a process of a lane and the acceptor tell each other; see :mod:`.channel`.

A connection is not touched before TAKEN is on its way: until then the acceptor may offer it to
another process. When the acceptor is replaced, the process gets a new channel: it tells the new one
which connections it holds, and gives it those that the old one was not sent any more.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from app.server.limits import take_one

from .channel import GIVE, GONE, HELD, MOVE, ROUTES, TAKEN, Message, receive, send
from .table import Table

_RETRY_SECONDS = 0.05
"""Time until what found no memory, or no descriptor, is sent again."""


@dataclass(slots=True, eq=False)
class Lane:
    """A process's side of its channel, for the thread of the event loop alone.

    Args:
        name: the lane of this process.
        table: of all routes.
        loop: the running event loop.
        adopt: called with each connection that the process gets.
    """

    name: str
    _table: Table
    _loop: asyncio.AbstractEventLoop
    _adopt: Callable[[Message], None]
    _channel: socket.socket | None = field(default=None, init=False)
    _is_over: bool = field(default=False, init=False)
    _queue: deque[Message] = field(default_factory=deque, init=False)
    _writes: bool = field(default=False, init=False)
    """Whether we wait for room in the channel."""
    _offered: deque[Message] = field(default_factory=deque, init=False)
    """Connections for each TAKEN in the queue."""
    _peers: Counter[str] = field(default_factory=Counter, init=False)
    """Addresses of the connections that this process holds."""

    @property
    def is_connected(self) -> bool:
        """Whether there is an acceptor."""
        return self._channel is not None

    def connect(self, channel: socket.socket) -> None:
        """Use a channel to an acceptor from now on."""
        # Its last offers, if it has ended; those of one that has not are offered again.
        self._receive()
        self._close()
        held = [Message(HELD, peer=peer) for peer in self._peers.elements()]
        moved = [message for message in self._queue if message.kind == MOVE]
        held += [Message(HELD, peer=message.peer) for message in moved]
        self._queue = deque([Message(ROUTES, octets=self._table.to_bytes()), *held, *moved])
        self._channel = channel
        self._loop.add_reader(channel, self._receive)
        self._flush()

    def elsewhere(self, method: str, path: str) -> str | None:
        """Return the lane of a request if it is another one."""
        lane = self._table.lane(method, path)
        return None if lane == self.name else lane

    def move(self, sock: socket.socket, octets: bytes, lane: str, peer: str | None) -> None:
        """Hand a connection over, of which the caller closes his handle.

        Args:
            sock: the connection.
            octets: bytes of it that were read already.
            lane: where its next request belongs.
            peer: address of its client.

        Raises:
            OSError: the process has too many open files; the connection has not moved.
        """
        message = Message(MOVE, lane, peer or "", octets=octets, sock=sock)
        if self._queue or not self._is_sent(message):
            message.sock = socket.socket(fileno=os.dup(sock.fileno()))
            self._send(message)
        take_one(self._peers, peer or "")

    def note_gone(self, peer: str | None) -> None:
        """Tell that a connection is closed."""
        take_one(self._peers, peer or "")
        self._send(Message(GONE, peer=peer or ""))

    def end(self) -> None:
        """Close what would move: no acceptor will come any more."""
        self._is_over = True
        self._close()
        while self._queue:
            _discard(self._queue.popleft())

    def _receive(self) -> None:
        while self._channel is not None:
            try:
                message = receive(self._channel)
            except BlockingIOError:
                return
            if message is None:
                # Note that the acceptor has ended; what it offered is ours, as nobody else has it.
                self._close(keep_offered=True)
                while self._offered:
                    self._take(self._offered.popleft())
            elif message.kind == GIVE:
                self._offered.append(message)
                self._send(Message(TAKEN))

    def _take(self, message: Message) -> None:
        self._peers[message.peer] += 1
        if message.sock is None:
            # The system has closed it, as this process has too many open files.
            self.note_gone(message.peer)
        else:
            self._adopt(message)

    def _close(self, *, keep_offered: bool = False) -> None:
        if self._channel is not None:
            self._loop.remove_reader(self._channel)
            self._wait_for_room(False)
            self._channel.close()
            self._channel = None
        while self._offered and not keep_offered:
            _discard(self._offered.popleft())

    def _send(self, message: Message) -> None:
        if self._is_over:
            _discard(message)
            return
        self._queue.append(message)
        if len(self._queue) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._queue and self._is_sent(self._queue[0]):
            sent = self._queue.popleft()
            _discard(sent)
            if sent.kind == TAKEN:
                self._take(self._offered.popleft())

    def _is_sent(self, message: Message) -> bool:
        """Send a message; if there is no room, try again when there is."""
        if self._channel is None:
            return False
        full = False
        try:
            send(self._channel, message)
        except BlockingIOError:
            full = True
        except ConnectionError:
            # The acceptor is gone; once its offers are read, so is the channel.
            return False
        except OSError:
            self._loop.call_later(_RETRY_SECONDS, self._flush)
            return False
        self._wait_for_room(full)
        return not full

    def _wait_for_room(self, wait: bool) -> None:
        if wait != self._writes and self._channel is not None:
            self._writes = wait
            if wait:
                self._loop.add_writer(self._channel, self._flush)
            else:
                self._loop.remove_writer(self._channel)


def _discard(message: Message) -> None:
    """Close our handle of the connection of a message."""
    if message.sock is not None:
        message.sock.close()
