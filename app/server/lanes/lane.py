"""What a process of a lane and the acceptor tell each other; see :mod:`.channel`.

When the acceptor is replaced, the process gets a new channel: it tells the new one which
connections it holds, and gives it those that the old one did not take any more.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from collections.abc import Callable

from .channel import GIVE, GONE, HELD, MOVE, ROUTES, TAKEN, Message, receive, send
from .table import Table


class Lane:
    """A process's side of its channel, for the thread of the event loop alone.

    Args:
        name: the lane of this process.
        table: of all routes.
        loop: the running event loop.
        adopt: called with each connection that the process gets.
    """

    def __init__(
        self,
        name: str,
        table: Table,
        loop: asyncio.AbstractEventLoop,
        adopt: Callable[[Message], None],
    ) -> None:
        self.name = name
        self._table = table
        self._loop = loop
        self._adopt = adopt
        self._channel: socket.socket | None = None
        self._queue: deque[Message] = deque()
        self._peers: Counter[str] = Counter()
        """Addresses of the connections that this process holds."""

    @property
    def is_connected(self) -> bool:
        """Whether there is an acceptor."""
        return self._channel is not None

    def connect(self, channel: socket.socket) -> None:
        """Use a channel to an acceptor from now on."""
        self.close()
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
        """Hand a connection over.

        Args:
            sock: a handle of it, which is closed once it is on its way.
            octets: bytes of it that were read already.
            lane: where its next request belongs.
            peer: address of its client.
        """
        self._peers[peer or ""] -= 1
        self._send(Message(MOVE, lane, peer or "", octets=octets, sock=sock))

    def note_gone(self, peer: str | None) -> None:
        """Tell that a connection is closed."""
        self._peers[peer or ""] -= 1
        self._send(Message(GONE, peer=peer or ""))

    def close(self) -> None:
        """Use the channel no more; connections that are held stay."""
        if self._channel is not None:
            self._loop.remove_reader(self._channel)
            self._loop.remove_writer(self._channel)
            self._channel.close()
            self._channel = None

    def _receive(self) -> None:
        while self._channel is not None:
            try:
                message = receive(self._channel)
            except BlockingIOError:
                return
            if message is None:
                self.close()
                return
            if message.kind == GIVE:
                self._send(Message(TAKEN))
                if message.sock is not None:
                    self._peers[message.peer] += 1
                    self._adopt(message)

    def _send(self, message: Message) -> None:
        self._queue.append(message)
        self._flush()

    def _flush(self) -> None:
        if self._channel is None:
            return
        while self._queue:
            try:
                send(self._channel, self._queue[0])
            except BlockingIOError:
                self._loop.add_writer(self._channel, self._flush)
                return
            except OSError:
                # The acceptor is gone; another one will get what is left.
                self.close()
                return
            sent = self._queue.popleft()
            if sent.sock is not None:
                sent.sock.close()
        self._loop.remove_writer(self._channel)
