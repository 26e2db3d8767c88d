"""The supervisor: a small process that starts the workers, replaces them, and ends them.

It is the process that was started, whatever the number of workers: a crash of the only worker
ends the requests it was answering, not the service. The listening socket is the supervisor's,
so connections wait in its queue while a worker is replaced.

    supervisor ──fork──▶ worker 0      imports the engine, serves, beats once per second
        │      ──fork──▶ worker 1      (on the board, see there)
        │
        ├─ a worker ended        log why, start another: at once, or after a pause that
        │                        doubles up to half a minute if it never served, or if five
        │                        ended within ten seconds
        ├─ it stopped beating    kill it; then as above
        ├─ it never served       give up, if no worker ever did: the reason will not go away
        └─ SIGTERM or SIGINT     pass it on, wait for the drain, kill what is left

With lanes there are two processes more, and workers are forked by one of them: see
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
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

import structlog

from .board import Board, Seat
from .ends import count_memory_kills, describe_end
from .forking import PASSED_ON, adopt_orphans, fork
from .lanes.wiring import Wiring

STARTUP_FAILURE = 3
"""Exit code of a worker that could not start, and of the service then."""
USAGE = 2
"""Exit code of a worker that could not start and has said why."""
SILENT_TICKS = 30
"""Ticks, of about a second each, without a beat after which a worker is replaced."""
END_SECONDS = 10.0
"""Seconds that a worker may take after its drain before it is killed."""
_TICK = 1.0
"""Seconds."""
_FEW_ENDS, _FEW_SECONDS = 5, 10.0
"""Ends within so many seconds after which a worker that served is replaced after a pause."""
_START_SECONDS = 20.0
"""Seconds within which a process that was ordered must tell its pid."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


@dataclass
class _Place:
    """A worker, and the attempts to keep one there."""

    seat: Seat
    pid: int = 0
    """Of its process; 0 while there is none, or it has not told."""
    end: int = -1
    """A descriptor that is readable once the process has ended."""
    ordered: bool = False
    """Whether a process will come that has not told its pid."""
    started: float = 0.0
    due: float = 0.0
    """When to start the next one."""
    failures: int = 0
    """Ends in a row of workers that did not last."""
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=_FEW_ENDS))
    """When the last ones ended."""
    beaten: float = 0.0
    silent: int = 0
    """Ticks since the beat changed, of a worker that beats."""
    hung: bool = False
    """Whether it was killed because it did not beat."""

    def arrive(self, pid: int) -> None:
        """Note the process."""
        self.pid, self.end, self.ordered = pid, os.pidfd_open(pid), False

    def leave(self) -> None:
        """Note that there is none any more."""
        if self.pid:
            os.close(self.end)
        self.pid, self.ordered = 0, False

    def defer(self) -> float:
        """Put the next start off, for longer after each failure; return the seconds."""
        self.failures += 1
        # An exponent without bound would overflow in a long night.
        pause = min(_FIRST_PAUSE * 2.0 ** min(self.failures - 1, 32), _LONGEST_PAUSE)
        self.due = time.monotonic() + pause
        return pause

    def replace(self, *, served: bool) -> float:
        """Have the next one started at once if this one served, unless too many have ended."""
        now = time.monotonic()
        self.ends.append(now)
        if not served or (len(self.ends) == _FEW_ENDS and now - self.ends[0] < _FEW_SECONDS):
            return self.defer()
        self.failures, self.due = 0, now
        return 0.0


class Supervisor:
    """Keeps workers running until a signal.

    Args:
        board: has a seat for each worker.
        run: serves in a worker, given its seat; returns its exit code. Unused with lanes.
        sockets: closed here when draining begins.
        stop_seconds: time after which a worker that was told to end is killed.

    Attributes:
        on_end: called with the pid of a worker that died.
        wiring: starts the processes of lanes; None without lanes.
    """

    on_end: Callable[[int], None] | None = None
    wiring: Wiring | None = None

    def __init__(
        self,
        board: Board,
        run: Callable[[Seat], int],
        sockets: list[socket.socket],
        stop_seconds: float,
    ) -> None:
        self._board = board
        self._run = run
        self._sockets = sockets
        self._stop_seconds = stop_seconds
        self._places: list[_Place] = []
        self._statuses: dict[int, int] = {}
        """Exit codes of children that have ended, by pid."""
        self._served = False
        self._signals = 0
        self._code = 0
        self._ends: Counter[str] = Counter()
        self._memory_kills = count_memory_kills()
        self._ticked = 0.0

    def run(self) -> int:
        """Start the workers and keep them running; return the exit code of the service."""
        seats = self._board.workers if self.wiring is None else self.wiring.seats
        self._places = [_Place(seat) for seat in seats]
        adopt_orphans()
        with self._woken_by_signals() as wake:
            while not self._signals and not self._code:
                self._look_after()
                self._wait(wake, _TICK)
            self._end(wake)
        return self._code

    # -- keeping workers running -------------------------------------------------------

    def _look_after(self) -> None:
        self._served = self._served or any(seat.beaten for seat in self._board.workers)
        if time.monotonic() - self._ticked >= _TICK:
            self._ticked = time.monotonic()
            self._check_beats()
        self._hear()
        self._reap()
        for place in self._places:
            if place.pid in self._statuses:
                self._note_end(place, self._statuses.pop(place.pid))
            if self._code:
                return
            if not (place.pid or place.ordered) and time.monotonic() >= place.due:
                self._start(place)
        self._statuses.clear()

    def _check_beats(self) -> None:
        """Kill workers that hang; counted in our own ticks, so that we may sleep ourselves."""
        for place in self._places:
            beaten = place.seat.beaten
            place.silent = 0 if beaten != place.beaten else place.silent + bool(beaten)
            place.beaten = beaten
            if place.pid and place.silent > SILENT_TICKS and not place.hung:
                # Its end is noted when it comes: what waits for a dead disk ends late.
                place.hung = True
                self._tell([place], signal.SIGKILL)

    def _hear(self) -> None:
        """Note processes of lanes that have told their pid, or ended before they could."""
        if self.wiring is None:
            return
        places = {place.seat: place for place in self._places}
        for seat, pid in self.wiring.hear():
            place = places[seat]
            if pid:
                # If it has ended meanwhile, it waits to be reaped.
                place.arrive(pid)
            elif place.ordered:
                place.leave()
                place.defer()
        for place in self._places:
            if place.ordered and time.monotonic() > place.started + _START_SECONDS:
                self._give_up_on(place, "it did not tell its pid")

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])

    def _note_end(self, place: _Place, exit_code: int) -> None:
        pid, lived, served = place.pid, time.monotonic() - place.started, bool(place.seat.beaten)
        place.leave()
        kills = count_memory_kills()
        end = describe_end(exit_code, out_of_memory=kills > self._memory_kills)
        self._memory_kills = kills
        hang = f"its event loop stood still for {SILENT_TICKS} seconds" if place.hung else None
        reason = "hung" if hang else end.reason
        place.seat.clear()
        if self.wiring is not None:
            self.wiring.forget(place.seat)
        if self.on_end is not None:
            self.on_end(pid)
        log = structlog.get_logger().bind(worker=place.seat.index, pid=pid, reason=reason)
        if not self._served:
            if exit_code != USAGE:
                log.error("the service cannot start", hint=end.hint)
            self._code = exit_code if exit_code > 0 else STARTUP_FAILURE
            return
        pause = place.replace(served=served or place.seat is self._board.template)
        self._ends[reason] += 1
        self._board.supervisor.publish({"pid": os.getpid(), "ends": self._ends})
        log.error("worker died", hint=hang or end.hint, lived=round(lived, 1), pause=pause)

    def _wait(self, wake: socket.socket, seconds: float) -> None:
        """Wait until a worker ends or tells something, a signal comes or a worker is due."""
        now = time.monotonic()
        absent = [place for place in self._places if not (place.pid or place.ordered)]
        dues = [place.due - now for place in absent if self._can_start(place)]
        ends = [place.end for place in self._places if place.pid]
        told = [] if self.wiring is None else self.wiring.sources
        _wait(wake, [*told, *ends], max(min([seconds, *dues]), 0.0))

    # -- starting ----------------------------------------------------------------------

    def _can_start(self, place: _Place) -> bool:
        return self.wiring is None or self.wiring.can_start(place.seat)

    def _start(self, place: _Place) -> None:
        if not self._can_start(place):
            return
        place.started, place.silent, place.hung = time.monotonic(), 0, False
        # Collections in the worker would write to, and so copy, every page that we share.
        gc.freeze()
        try:
            if self.wiring is None:
                pid: int | None = fork(lambda: self._run(place.seat))
            else:
                pid = self.wiring.start(place.seat)
            if pid is None:
                place.ordered = True
            else:
                place.arrive(pid)
        except OSError as e:
            self._give_up_on(place, str(e))

    def _give_up_on(self, place: _Place, reason: str) -> None:
        """Try again later to start a process that did not come."""
        if self.wiring is not None:
            self.wiring.forget(place.seat)
        place.leave()
        pause = place.defer()
        structlog.get_logger().error("no worker could be started", reason=reason, pause=pause)

    # -- ending ------------------------------------------------------------------------

    def _end(self, wake: socket.socket) -> None:
        """Tell all workers to drain, and see that they end."""
        # A socket left open here would accept connections that no worker answers.
        for sock in self._sockets:
            sock.close()
        told = 0
        deadline = time.monotonic() + self._stop_seconds
        while running := self._running():
            if told < max(self._signals, 1):
                # A second signal is passed on too: it cuts running requests.
                told = max(self._signals, 1)
                self._tell(running, signal.SIGTERM)
            if time.monotonic() >= deadline:
                pids = [place.pid for place in running]
                structlog.get_logger().error("workers did not end and were killed", pids=pids)
                self._tell(running, signal.SIGKILL)
                deadline += self._stop_seconds
            _wait(wake, [place.end for place in running], _TICK)

    def _running(self) -> list[_Place]:
        self._hear()
        self._reap()
        for place in self._places:
            if place.pid in self._statuses:
                place.leave()
        return [place for place in self._places if place.pid]

    @staticmethod
    def _tell(running: list[_Place], number: signal.Signals) -> None:
        for place in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(place.pid, number)

    @contextlib.contextmanager
    def _woken_by_signals(self) -> Iterator[socket.socket]:
        """Count signals; a byte arrives at the socket for each."""

        def note(number: int, frame: FrameType | None) -> None:
            del number, frame
            self._signals += 1

        handled = dict.fromkeys(PASSED_ON, note)
        with contextlib.ExitStack() as undo:
            receiver, sender = socket.socketpair()
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


def _wait(wake: socket.socket, sources: Sequence[socket.socket | int], seconds: float) -> None:
    """Wait until one of these is readable; empty the first one."""
    if wake in select.select([wake, *sources], [], [], seconds)[0]:
        wake.recv(4096)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing; unlike SIG_IGN, not inherited by programs that workers start."""
