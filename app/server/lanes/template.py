"""The template: a process that has loaded the application, from which lanes are forked.

Loading takes seconds and hundreds of megabytes. The template does it once, in one thread, and opens
nothing that a fork could not share; a process forked from it has all of it at once, in pages that
they share::

    import the application ──LOADED front──▶ supervisor ──FORK──▶ the front, which answers already
    load or compile kernels ──LOADED all───▶ supervisor ──FORK──▶ the other lanes

Processes are adopted by the supervisor (:mod:`app.server.forking`): they outlive the template.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from app.server.board import Board, Seat
from app.server.forking import fork_for

from .channel import HELLO, LOADED, Message, receive, send
from .table import FRONT

ALL = "all"
"""What LOADED says once every lane can be forked."""


@dataclass(frozen=True, slots=True)
class Loading:
    """What a template does before it forks.

    Attributes:
        imports: imports the application.
        warms: loads or compiles the kernels.
        serves: serves in a lane, given its seat and its control channel; returns an exit code.
    """

    imports: Callable[[], object]
    warms: Callable[[], object]
    serves: Callable[[Seat, socket.socket], int]


def run_template(loading: Loading, board: Board, control: socket.socket) -> int:
    """Load, and fork processes as told; until the supervisor is gone.

    Args:
        loading: what to load, and to run.
        board: the seats of all processes.
        control: our end of a channel to the supervisor.
    """
    supervisor = os.getppid()
    control.setblocking(True)
    for lane, load in ((FRONT, loading.imports), (ALL, loading.warms)):
        load()
        # Collections in a lane would write to, and so copy, every page that it shares.
        gc.collect()
        gc.freeze()
        send(control, Message(LOADED, lane))
        if lane == FRONT:
            _fork_one(loading, board, control, supervisor)
    while _fork_one(loading, board, control, supervisor):
        pass
    return 0


def _fork_one(loading: Loading, board: Board, control: socket.socket, supervisor: int) -> bool:
    """Wait for an order, and fork; return False if the supervisor is gone."""
    order = receive(control)
    if order is None or order.sock is None:
        return False
    seat, lane_control = board.workers[int(order.text)], order.sock

    def serve() -> int:
        control.close()
        send(lane_control, Message(HELLO, str(os.getpid())))
        return loading.serves(seat, lane_control)

    fork_for(supervisor, serve)
    lane_control.close()
    return True
