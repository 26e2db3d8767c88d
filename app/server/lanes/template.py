"""The template: a process that has loaded the application, from which lanes are forked.

Loading takes seconds and hundreds of megabytes. The template does it once, in one thread, and opens
nothing that a fork could not share; a process forked from it has all of it at once, in pages that
they share. There is a spare, forked from it, because loading takes longer than others may wait::

    import the application ──LOADED front──▶ supervisor ──FORK──▶ the front, which answers already
    compile kernels, in another process
    load kernels ────────────LOADED all────▶ supervisor ──FORK──▶ the other lanes, and its spare

Processes are adopted by the supervisor (:mod:`app.server.forking`): they outlive the template.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from app.server.board import Board, WorkerSlot
from app.server.forking import fork, fork_for

from .channel import HELLO, LOADED, Message, receive, send
from .table import FRONT

ALL = "all"
"""What LOADED says once every lane can be forked."""
COMPILING = "kernels are being compiled, once on this machine"
"""What the board says of a template for as long."""


@dataclass(frozen=True, slots=True)
class Loading:
    """What a template does before it forks.

    Attributes:
        imports: imports the application.
        compiling: returns what compiles the kernels, in a process of its own; None if they are
            compiled.
        warms: loads the kernels.
        serves: serves in a lane, given its slot and its control channel; returns an exit code.
    """

    imports: Callable[[], object]
    compiling: Callable[[], Callable[[], object] | None]
    warms: Callable[[], object]
    serves: Callable[[WorkerSlot, socket.socket], int]


def run_template(loading: Loading, board: Board, slot: WorkerSlot, control: socket.socket) -> int:
    """Load, and fork processes as told; until the supervisor is gone.

    Args:
        loading: what to load, and to run.
        board: the slots of all processes.
        slot: this process's.
        control: our end of a channel to the supervisor.
    """
    template = _Template(loading, board, slot, control)
    loading.imports()
    template.announce(FRONT)
    compiling = loading.compiling()
    if compiling is not None and not template.fork_during(compiling):
        return 0
    loading.warms()
    return template.run()


@dataclass(slots=True, eq=False)
class _Template:
    _loading: Loading
    _board: Board
    _slot: WorkerSlot
    _control: socket.socket
    _supervisor: int = field(default_factory=os.getppid, init=False)

    def __post_init__(self) -> None:
        self._control.setblocking(True)

    def announce(self, lane: str) -> None:
        """Tell that processes of a lane can be forked."""
        # Collections in a lane would write to, and so copy, every page that it shares.
        gc.collect()
        gc.freeze()
        self._slot.rest()
        send(self._control, Message(LOADED, lane))

    def run(self) -> int:
        """Fork as told, once everything is loaded."""
        self.announce(ALL)
        while self.fork_one():
            pass
        return 0

    def fork_during(self, compiling: Callable[[], object]) -> bool:
        """Fork as told while another process works; return False if the supervisor is gone."""

        def run() -> int:
            compiling()
            return 0

        self._slot.publish(COMPILING)
        pid = fork(run, self._control.close)
        end = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(self._control, select.POLLIN)
            poll.register(end, select.POLLIN)
            while end not in dict(poll.poll()):
                if not self.fork_one():
                    return False
        finally:
            os.close(end)
            self._slot.publish(None)
        os.waitpid(pid, 0)
        return True

    def fork_one(self) -> bool:
        """Wait for an order, and fork; return False if the supervisor is gone."""
        order = receive(self._control)
        if order is None or order.sock is None:
            return False
        index, control = int(order.text), order.sock

        def run() -> int:
            self._control.close()
            try:
                send(control, Message(HELLO, str(os.getpid())))
            except (BrokenPipeError, ConnectionResetError):
                # The supervisor has ended, or given it up.
                return 0
            for spare in self._board.templates:
                if spare.index == index:
                    return _Template(self._loading, self._board, spare, control).run()
            # Draw other random numbers than the other lanes; Python sees to its own generator.
            if numpy_random := sys.modules.get("numpy.random"):
                numpy_random.seed()
            return self._loading.serves(self._board.workers[index], control)

        # Once its control channel is closed, the supervisor knows that it will not come.
        with control, contextlib.suppress(OSError):
            fork_for(self._supervisor, run)
        return True
