"""The channels of a service with lanes, as its supervisor makes them.

The supervisor has a control channel to every process that it starts. When a process of a lane or
the acceptor has started, it makes a channel between the two, and sends each its end::

    supervisor ──control──▶ acceptor ◀═══channel═══▶ process of a lane ◀──control── supervisor

So whoever is replaced is connected anew, and the others go on.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence

from app.server.board import Board, Seat
from app.server.limits import ServerLimits

from .acceptor import Acceptor, run_acceptor
from .channel import PROCESS, Message, make_pair, send


class Wiring:
    """Connects the processes of a service; for the supervisor, and inherited by what it forks.

    Args:
        board: the seats of all processes.
        listeners: the listening sockets.
        limits: of connections.
        drain_delay: seconds for which the acceptor goes on after SIGTERM.
    """

    def __init__(
        self,
        board: Board,
        listeners: Sequence[socket.socket],
        limits: ServerLimits,
        drain_delay: float,
    ) -> None:
        self._board = board
        self._listeners = listeners
        self._limits = limits
        self._drain_delay = drain_delay
        self._ours: dict[int, socket.socket] = {}
        self._theirs: dict[int, socket.socket] = {}

    # In the supervisor.

    def prepare(self, seat: Seat) -> None:
        """Make the control channel of a process that is about to be forked."""
        self._ours[seat.index], self._theirs[seat.index] = make_pair()

    def connect(self, seat: Seat) -> None:
        """Connect a process that was forked."""
        self._theirs.pop(seat.index).close()
        acceptor = self._board.acceptor.index
        if seat.index == acceptor:
            others = [other for other in self._board.workers if other.index in self._ours]
        else:
            others = [seat] if acceptor in self._ours else []
        for other in others:
            ends = make_pair()
            text = f"{other.lane} {other.index}"
            for index, end in zip((acceptor, other.index), ends, strict=True):
                with contextlib.suppress(OSError):
                    # Whose process has died meanwhile is connected with its next one.
                    send(self._ours[index], Message(PROCESS, text, sock=end))
                end.close()

    def forget(self, seat: Seat) -> None:
        """Close the control channel of a process that has died."""
        for ends in (self._ours, self._theirs):
            if end := ends.pop(seat.index, None):
                end.close()

    # In a process that was forked.

    def take_control(self, seat: Seat) -> socket.socket:
        """Return this process's end of its control channel, and close all that is not its own."""
        control = self._theirs.pop(seat.index)
        for end in (*self._ours.values(), *self._theirs.values()):
            end.close()
        if seat is not self._board.acceptor:
            for sock in self._listeners:
                sock.close()
        return control

    def accept(self, seat: Seat) -> int:
        """Be the acceptor, until SIGTERM; return its exit code."""
        workers = self._board.workers
        control = self.take_control(seat)
        acceptor = Acceptor(self._listeners, self._limits, lambda index: workers[index].running)
        run_acceptor(acceptor, control, seat.beat, self._drain_delay)
        return 0
