"""The processes of a service with lanes, and their channels, as the supervisor makes them.

The supervisor has a control channel to every process. It forks the acceptor and the template, and
orders the processes of lanes from the template. When one of them or the acceptor has started, it
makes a channel between the two, and sends each its end::

    template ◀──FORK── supervisor ──PROCESS──▶ acceptor ◀═══ channel ═══╗
        │                  ▲ │                                          ║
        └──── fork ────────┼─┼────────────────────────────▶ lane ═══════╝
                           │ └──PROCESS───────────────────▶  │
                           └──HELLO, its pid─────────────────┘

So whoever is replaced is connected anew, and the others go on.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from app.server.board import Board, WorkerSlot
from app.server.forking import fork
from app.server.limits import ServerLimits

from .acceptor import Acceptor, run_acceptor
from .channel import FORK, HELLO, LOADED, PROCESS, Message, make_pair, receive, send
from .table import FRONT
from .template import ALL, Loading, run_template


@dataclass(slots=True, eq=False)
class Wiring:
    """Starts and connects the processes of a service, for its supervisor.

    Args:
        board: the slots of all processes.
        loading: what the template loads.
        listeners: the listening sockets.
        limits: of connections.
        drain_delay: seconds for which the acceptor goes on after SIGTERM.
    """

    _board: Board
    _loading: Loading
    _listeners: Sequence[socket.socket]
    _limits: ServerLimits
    _drain_delay: float
    _controls: dict[WorkerSlot, socket.socket] = field(default_factory=dict, init=False)
    _loaded: dict[WorkerSlot, str] = field(default_factory=dict, init=False)
    """Which lanes a template can fork: the front, or all."""
    _forkers: dict[WorkerSlot, WorkerSlot] = field(default_factory=dict, init=False)
    """The template that each process was ordered from."""

    @property
    def slots(self) -> list[WorkerSlot]:
        """Slots of the processes to keep running."""
        template, spare = self._board.templates
        return [self._board.acceptor, template, *self._board.workers, spare]

    @property
    def sources(self) -> list[socket.socket]:
        """Sockets that are readable when ``hear`` would have something to tell."""
        return list(self._controls.values())

    def forker(self, slot: WorkerSlot) -> WorkerSlot | None:
        """Return the template that a process was ordered from, if it lives and has loaded all."""
        forker = self._forkers.get(slot)
        return forker if forker and self._loaded.get(forker) == ALL else None

    def can_start(self, slot: WorkerSlot) -> bool:
        """Whether a process can be started now."""
        if slot in self._board.templates:
            # Either from the other one, or loading anew.
            return self._source(slot) is not None or not any(
                other in self._controls for other in self._board.templates
            )
        return slot is self._board.acceptor or self._source(slot) is not None

    def _source(self, slot: WorkerSlot) -> WorkerSlot | None:
        """The template from which a process can be forked."""
        wanted = {ALL, FRONT} if slot.lane == FRONT else {ALL}
        found = [template for template, loaded in self._loaded.items() if loaded in wanted]
        return max(found, key=lambda template: self._loaded[template] == ALL, default=None)

    def start(self, slot: WorkerSlot, close: Callable[[], None]) -> int | None:
        """Start a process; return its pid, or None if ``hear`` will tell it.

        Args:
            slot: the process's.
            close: called in a process that is forked here, to close what is the supervisor's.

        Raises:
            OSError: the system has no room for it.
        """
        source = None if slot is self._board.acceptor else self._source(slot)
        own, other = make_pair()
        self._controls[slot] = own
        with other:
            if source is not None:
                self._forkers[slot] = source
                try:
                    send(self._controls[source], Message(FORK, str(slot.index), sock=other))
                except (BrokenPipeError, ConnectionResetError):
                    # It has ended a moment ago.
                    self.forget(source)
                    if not self.can_start(slot):
                        raise
                    self.forget(slot)
                    return self.start(slot, close)
                return None
            pid = fork(lambda: self._run(slot, other), close)
        if slot is self._board.acceptor:
            for worker in self._board.workers:
                self._connect(worker)
        return pid

    def hear(self) -> Iterator[tuple[WorkerSlot, int]]:
        """Read what processes tell; yield those that have started, and their pids.

        The pid is 0 if the process has ended, perhaps before it could tell.
        """
        for slot, control in list(self._controls.items()):
            with contextlib.suppress(BlockingIOError):
                while message := receive(control):
                    if message.kind == LOADED:
                        self._loaded[slot] = message.text
                    elif message.kind == HELLO:
                        self._connect(slot)
                        yield slot, int(message.text)
                self.forget(slot)
                yield slot, 0

    def forget(self, slot: WorkerSlot) -> None:
        """Close the control channel of a process that has ended, or did not start."""
        if control := self._controls.pop(slot, None):
            control.close()
        self._loaded.pop(slot, None)

    def _connect(self, slot: WorkerSlot) -> None:
        """Make the channel between the acceptor and a process of a lane."""
        acceptor, other = self._controls.get(self._board.acceptor), self._controls.get(slot)
        if acceptor is None or other is None or not slot.lane:
            return
        for control, end in zip((acceptor, other), make_pair(), strict=True):
            with end, contextlib.suppress(OSError):
                # Whose process has died meanwhile is connected with its next one.
                send(control, Message(PROCESS, f"{slot.lane} {slot.index}", sock=end))

    # In a process that was forked.

    def _run(self, slot: WorkerSlot, control: socket.socket) -> int:
        for other in self._controls.values():
            other.close()
        self._controls.clear()
        if slot is self._board.acceptor:
            load = self._board.workers
            acceptor = Acceptor(self._listeners, self._limits, lambda index: load[index].running)
            acceptor.processes.starting = lambda: self._board.compiling is not None
            run_acceptor(acceptor, control, slot.beat, self._drain_delay)
            return 0
        for sock in self._listeners:
            sock.close()
        return run_template(self._loading, self._board, slot, control)
