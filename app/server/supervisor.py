"""The supervisor: a small process that starts the workers, replaces them, and ends them.

It is the process that was started, whatever the number of workers: a crash of the only worker
ends the requests it was answering, not the service. The listening socket is the supervisor's,
so connections wait in its queue while a worker is replaced.

    supervisor ──fork──▶ worker 0      imports the engine, serves, beats ten times per second
        │      ──fork──▶ worker 1      (on the board, see there)
        │
        ├─ a worker ended        log why, start another: at once if it was ready, or after a
        │                        pause that doubles up to half a minute if it never was, or if
        │                        five ended within ten seconds and answered nothing
        ├─ it stopped beating    kill it; then as above
        ├─ it takes too much     kill it; then as above (in lanes, see :mod:`.place`)
        ├─ none was ever ready   give up: the reason will not go away (of lanes, only if it
        │                        exited by itself: another process may have killed it)
        └─ SIGTERM or SIGINT     pass it on, wait for the drain, kill what is left

With lanes there are three processes more, and workers are forked by one of them: see
:mod:`.lanes.wiring`. The supervisor imports nothing large, has no threads and no event loop.
The kernel ends its workers with it (:mod:`.forking`), so that killing the process that was
started still ends the service; and it reaps whatever else is left to it, as a container's first
process must.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

import structlog

from .board import Board, WorkerSlot
from .forking import CUT, PASSED_ON, adopt_orphans, fork
from .lanes.wiring import Wiring
from .place import LOOK_SECONDS, End, Place, count_memory_kills, describe_end

STARTUP_FAILURE = 3
"""Exit code of a worker that could not start, and of the service then."""
USAGE = 2
"""Exit code of a worker that could not start, and whose report says why it ``refused``."""
END_SECONDS = 10.0
"""Seconds that a worker may take after its drain before it is killed."""
_TICK = 1.0
"""Seconds."""


@dataclass(slots=True, eq=False)
class Supervisor:
    """Keeps workers running until a signal.

    Args:
        board: has a slot for each worker.
        run: serves in a worker, given its slot; returns its exit code. Unused with lanes.
        sockets: closed here when draining begins.
        stop_seconds: time after which a worker that was told to end is killed.

    Attributes:
        on_end: called with the pid of a worker that died.
        wiring: starts the processes of lanes; None without lanes.
        memory: bytes that a process of a lane may take besides what it has when it is forked;
            None for any number.
    """

    _board: Board
    _run: Callable[[WorkerSlot], int]
    _sockets: list[socket.socket]
    _stop_seconds: float
    on_end: Callable[[int], None] | None = field(default=None, init=False)
    wiring: Wiring | None = field(default=None, init=False)
    memory: int | None = field(default=None, init=False)
    _places: list[Place] = field(default_factory=list, init=False)
    _statuses: dict[int, int] = field(default_factory=dict, init=False)
    """Exit codes of children that have ended, by pid."""
    _ready: set[str] = field(default_factory=set, init=False)
    """Which kinds of processes were ever ready."""
    _signals: int = field(default=0, init=False)
    _wakers: tuple[socket.socket, ...] = field(default=(), init=False)
    _code: int = field(default=0, init=False)
    _ends: Counter[str] = field(default_factory=Counter, init=False)
    _memory_kills: int = field(default_factory=count_memory_kills, init=False)
    _ticked: float = field(default=0.0, init=False)

    def run(self) -> int:
        """Start the workers and keep them running; return the exit code of the service."""
        slots = self._board.workers if self.wiring is None else self.wiring.slots
        self._places = [Place(slot) for slot in slots]
        adopt_orphans()
        with self._woken_by_signals() as wake:
            while not self._signals and not self._code:
                self._look_after()
                self._wait(wake)
            self._end(wake)
        return self._code

    # -- keeping workers running -------------------------------------------------------

    def _look_after(self) -> None:
        if time.monotonic() - self._ticked >= _TICK:
            self._ticked = time.monotonic()
            for place in self._places:
                if place.tick():
                    self._replace_silent(place)
        self._reap()
        self._hear()
        self._ready.update(_kind(place.slot) for place in self._places if place.slot.has_begun)
        ended = [place for place in self._places if place.pid in self._statuses]
        pids = [place.pid for place in ended]
        for place in ended:
            self._note_end(place, self._statuses[place.pid])
        self._statuses.clear()
        if self._code:
            return
        for place in self._places:
            if place.is_empty and time.monotonic() >= place.due:
                self._start(place)
        if self.on_end is not None:
            # After the start of others: this may take a moment.
            for pid in pids:
                # What it removes may be gone: no reason for the service to end.
                with contextlib.suppress(OSError):
                    self.on_end(pid)

    def _replace_silent(self, place: Place) -> None:
        """Kill a process that hangs: that of a place, or the template that should fork it."""
        if place.ordered and self.wiring is not None:
            forker = self.wiring.forker(place.slot)
            self._give_up_on(place, "it did not tell its pid")
            place = next((other for other in self._places if other.slot is forker), place)
        place.kill("hung")

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])

    def _hear(self) -> None:
        """Note processes of lanes that have told their pid, or ended before they could."""
        if self.wiring is None:
            return
        places = {place.slot: place for place in self._places}
        for slot, pid in self.wiring.hear():
            place = places[slot]
            if pid in self._statuses:
                place.pid, place.ordered = pid, False
            elif pid:
                place.arrive(pid, self.memory)
            elif place.ordered:
                # It was ended before, or its template was, or that had no room for it.
                place.leave()
                place.defer()

    def _note_end(self, place: Place, exit_code: int) -> None:
        pid, lived = place.pid, time.monotonic() - place.started
        place.leave()
        kills = count_memory_kills()
        end = describe_end(exit_code, out_of_memory=kills > self._memory_kills)
        self._memory_kills = kills
        if place.fault == "hung":
            end = End("hung", place.silence())
        elif place.fault == "memory":
            end = End("memory", "it took more than requests account for: please report it")
        if self.wiring is not None:
            self.wiring.forget(place.slot)
        if self._code:
            # What keeps others from starting too has been said.
            return
        log = structlog.get_logger().bind(worker=place.slot.index, pid=pid, reason=end.reason)
        # With lanes, the kind of process that was killed can start although it never was ready.
        is_final = exit_code >= 0 or self.wiring is None
        if _kind(place.slot) not in self._ready and is_final:
            refused = (place.slot.report() or {}).get("refused")
            if exit_code == USAGE and refused:
                sys.stderr.write(f"thalweg-server: {refused}\n")
            else:
                log.error("the service cannot start", hint=end.hint)
            self._code = exit_code if exit_code > 0 else STARTUP_FAILURE
            return
        pause = place.replace(self._answered())
        place.slot.clear()
        self._ends[end.reason] += 1
        self._board.supervisor.publish({"pid": os.getpid(), "ends": self._ends})
        log.error("worker died", hint=end.hint, lived=round(lived, 1), pause=pause)

    def _answered(self) -> int:
        return sum(slot.answered for slot in self._board.workers)

    def _wait(self, wake: socket.socket) -> None:
        """Wait until a worker ends or tells something, a signal comes or a worker is due."""
        now = time.monotonic()
        dues = [p.due for p in self._places if p.is_empty and self._can_start(p)]
        until = min([now + _TICK, *dues])
        sources: list[socket.socket | int] = [p.end for p in self._places if p.end >= 0]
        if self.wiring is not None:
            sources += self.wiring.sources
        watched = [place for place in self._places if place.watched is not None]
        while True:
            left = max(until - time.monotonic(), 0.0)
            if _wait(wake, sources, min(left, LOOK_SECONDS) if watched else left):
                return
            for place in watched:
                if place.watched is not None and place.watched.is_over():
                    place.kill("memory")
            if time.monotonic() >= until:
                return

    # -- starting ----------------------------------------------------------------------

    def _can_start(self, place: Place) -> bool:
        return self.wiring is None or self.wiring.can_start(place.slot)

    def _start(self, place: Place) -> None:
        if not self._can_start(place):
            return
        place.begin(self._answered())
        # Collections in the worker would write to, and so copy, every page that we share.
        gc.freeze()
        try:
            if self.wiring is None:
                pid: int | None = fork(lambda: self._run(place.slot), self._close)
            else:
                pid = self.wiring.start(place.slot, self._close)
            if pid is None:
                place.ordered = True
            else:
                place.arrive(pid, self.memory)
        except OSError as e:
            self._give_up_on(place, str(e))

    def _close(self) -> None:
        """Close, in a process that was forked, what is the supervisor's."""
        for waker in self._wakers:
            waker.close()
        for place in self._places:
            place.close()

    def _give_up_on(self, place: Place, reason: str) -> None:
        """Try again later to start a process that did not come."""
        if self.wiring is not None:
            self.wiring.forget(place.slot)
        place.leave()
        pause = place.defer()
        structlog.get_logger().error("no worker could be started", reason=reason, pause=pause)

    # -- ending ------------------------------------------------------------------------

    def _end(self, wake: socket.socket) -> None:
        """Tell all workers to drain, and see that they end."""
        # A socket left open here would accept connections that no worker answers.
        for sock in self._sockets:
            sock.close()
        deadline = time.monotonic() + self._stop_seconds
        while running := self._running():
            for place in running:
                # A second signal cuts running requests.
                for number in (signal.SIGTERM, CUT)[place.signalled : max(self._signals, 1)]:
                    place.signalled += 1
                    place.tell(number)
            if time.monotonic() >= deadline:
                pids = [place.pid for place in running]
                structlog.get_logger().error("workers did not end and were killed", pids=pids)
                for place in running:
                    place.tell(signal.SIGKILL)
                deadline += self._stop_seconds
            sources = [] if self.wiring is None else self.wiring.sources
            _wait(wake, [*sources, *(place.end for place in running)], _TICK)

    def _running(self) -> list[Place]:
        self._reap()
        self._hear()
        for place in self._places:
            if place.pid in self._statuses:
                place.leave()
        self._statuses.clear()
        return [place for place in self._places if place.pid]

    @contextlib.contextmanager
    def _woken_by_signals(self) -> Iterator[socket.socket]:
        """Count signals; a byte arrives at the socket for each."""

        def note(_number: int, _frame: FrameType | None) -> None:
            self._signals += 1

        handled = dict.fromkeys(PASSED_ON, note)
        with contextlib.ExitStack() as undo:
            receiver, sender = self._wakers = socket.socketpair()
            undo.enter_context(receiver)
            undo.enter_context(sender)
            receiver.setblocking(False)
            sender.setblocking(False)
            undo.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(sender.fileno()))
            for number, handler in handled.items():
                undo.callback(signal.signal, number, signal.signal(number, handler))
            if len(self._board.workers) > 1:
                # A restart is a new deployment.
                undo.callback(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, _ignore))
            yield receiver


def _kind(slot: WorkerSlot) -> str:
    """Which processes can replace that of a slot."""
    # A template and its spare are of one kind.
    return slot.lane if slot.index >= 0 else str(max(slot.index, -3))


def _wait(wake: socket.socket, sources: Sequence[socket.socket | int], seconds: float) -> bool:
    """Wait until one of these is readable; empty the first one. Return False if none is."""
    poll = select.poll()
    for source in (wake, *sources):
        poll.register(source, select.POLLIN)
    readable = [descriptor for descriptor, _ in poll.poll(1000 * seconds)]
    if wake.fileno() in readable:
        wake.recv(4096)
    return bool(readable)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing; unlike SIG_IGN, not inherited by programs that workers start."""
