"""The supervisor: a small process that starts the workers, replaces them, and ends them.

It is the process that was started, whatever the number of workers: a crash of the only worker
ends the requests it was answering, not the service. The listening socket is the supervisor's,
so connections wait in its queue while a worker is replaced.

    supervisor ──fork──▶ worker 0      imports the engine, serves, beats once per second
        │      ──fork──▶ worker 1      (on the board, see there)
        │
        ├─ a worker ended        log why, start another: at once, or after a pause that
        │                        doubles up to half a minute if it did not last
        ├─ it stopped beating    kill it; then as above
        ├─ it never served       give up, if no worker ever did: the reason will not go away
        └─ SIGTERM or SIGINT     pass it on, wait for the drain, kill what is left

Workers are forked before anything large is imported. That costs a start no time, as nothing
is imported twice, and keeps the supervisor small: it has no threads, no event loop and none of
the engine. The kernel ends the workers with it (PR_SET_PDEATHSIG), so that killing the process
that was started still ends the service.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import select
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from types import FrameType

import structlog

from .board import Board, Seat
from .ends import count_memory_kills, describe_end
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
_LASTING = 10.0
"""A worker that served for so long was no failed start."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_PASSED_ON = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1


@dataclass
class _Place:
    """A worker, and the attempts to keep one there."""

    seat: Seat
    run: Callable[[Seat], int]
    process: ForkProcess | None = None
    end: int = -1
    """A descriptor that is readable once the process can be reaped. The sentinel of
    multiprocessing is ready before that: it is a pipe that the process closes on its way."""
    started: float = 0.0
    due: float = 0.0
    """When to start the next one."""
    failures: int = 0
    """Ends in a row of workers that did not last."""
    beaten: float = 0.0
    silent: int = 0
    """Ticks since the beat changed, of a worker that beats."""
    hung: bool = False
    """Whether it was killed because it did not beat."""

    def defer(self) -> float:
        """Put the next start off, for longer after each failure; return the seconds."""
        self.failures += 1
        # An exponent without bound would overflow in a long night.
        pause = min(_FIRST_PAUSE * 2.0 ** min(self.failures - 1, 32), _LONGEST_PAUSE)
        self.due = time.monotonic() + pause
        return pause


class Supervisor:
    """Keeps workers running until a signal.

    Args:
        board: has a seat for each worker.
        run: serves in a worker, given its seat; returns its exit code.
        sockets: closed here when draining begins.
        stop_seconds: time after which a worker that was told to end is killed.
        on_end: called with the pid of a worker that died.
        wiring: connects workers with an acceptor; None if workers accept themselves.
    """

    def __init__(
        self,
        board: Board,
        run: Callable[[Seat], int],
        sockets: list[socket.socket],
        stop_seconds: float,
        on_end: Callable[[int], None] | None = None,
        wiring: Wiring | None = None,
    ) -> None:
        self._board = board
        self._wiring = wiring
        self._sockets = sockets
        self._stop_seconds = stop_seconds
        self._on_end = on_end
        self._places = [_Place(seat, run) for seat in board.workers]
        if wiring is not None:
            self._places.insert(0, _Place(board.acceptor, wiring.accept))
        self._served = False
        self._signals = 0
        self._code = 0
        self._ends: Counter[str] = Counter()
        self._memory_kills = count_memory_kills()
        self._ticked = 0.0

    def run(self) -> int:
        """Start the workers and keep them running; return the exit code of the service."""
        with self._woken_by_signals() as wake:
            for place in self._places:
                self._start(place)
            while not self._signals and not self._code:
                self._wait(wake, _TICK)
                self._look_after()
            self._end(wake)
        return self._code

    # -- keeping workers running -------------------------------------------------------

    def _look_after(self) -> None:
        self._served = self._served or any(seat.beaten for seat in self._board.workers)
        if time.monotonic() - self._ticked >= _TICK:
            self._ticked = time.monotonic()
            self._check_beats()
        for place in self._places:
            if place.process is None:
                if time.monotonic() >= place.due:
                    self._start(place)
            elif place.process.exitcode is not None:
                self._note_end(place, place.process.exitcode)
            if self._code:
                return

    def _check_beats(self) -> None:
        """Kill workers that hang; counted in our own ticks, so that we may sleep ourselves."""
        for place in self._places:
            beaten = place.seat.beaten
            place.silent = 0 if beaten != place.beaten else place.silent + bool(beaten)
            place.beaten = beaten
            if place.process is not None and place.silent > SILENT_TICKS and not place.hung:
                # Its end is noted when it comes: what waits for a dead disk ends late.
                place.hung = True
                place.process.kill()

    def _note_end(self, place: _Place, exit_code: int) -> None:
        assert place.process is not None  # noqa: S101 - for the type checker
        pid, lived = place.process.pid or 0, time.monotonic() - place.started
        place.process.close()
        os.close(place.end)
        place.process = None
        kills = count_memory_kills()
        end = describe_end(exit_code, out_of_memory=kills > self._memory_kills)
        self._memory_kills = kills
        hang = f"its event loop stood still for {SILENT_TICKS} seconds" if place.hung else None
        reason = "hung" if hang else end.reason
        place.seat.clear()
        if self._wiring is not None:
            self._wiring.forget(place.seat)
        if self._on_end is not None:
            self._on_end(pid)
        log = structlog.get_logger().bind(worker=place.seat.index, pid=pid, reason=reason)
        if not self._served:
            if exit_code != USAGE:
                log.error("the service cannot start", hint=end.hint)
            self._code = exit_code if exit_code > 0 else STARTUP_FAILURE
            return
        if lived >= _LASTING:
            place.failures = 0
            place.due, pause = time.monotonic(), 0.0
        else:
            pause = place.defer()
        self._ends[reason] += 1
        self._board.supervisor.publish({"pid": os.getpid(), "ends": self._ends})
        log.error("worker died", hint=hang or end.hint, lived=round(lived, 1), pause=pause)

    def _wait(self, wake: socket.socket, seconds: float) -> None:
        """Wait until a worker ends, a signal comes or a worker is due."""
        now = time.monotonic()
        dues = [place.due - now for place in self._places if place.process is None]
        ends = [place.end for place in self._places if place.process is not None]
        _wait([wake, *ends], max(min([seconds, *dues]), 0.0))

    # -- starting ----------------------------------------------------------------------

    def _start(self, place: _Place) -> None:
        place.started, place.silent, place.hung = time.monotonic(), 0, False
        # Collections in the worker would write to, and so copy, every page that we share.
        gc.freeze()
        context = multiprocessing.get_context("fork")
        name = f"worker {place.seat.index}"
        process = context.Process(target=self._work, args=(place, os.getpid()), name=name)
        if self._wiring is not None:
            self._wiring.prepare(place.seat)
        # A worker must not run our handlers for signals that come before it has its own.
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        try:
            process.start()
            assert process.pid is not None  # noqa: S101 - for the type checker
            place.process, place.end = process, os.pidfd_open(process.pid)
            if self._wiring is not None:
                self._wiring.connect(place.seat)
        except OSError as e:
            if process.pid is not None:
                process.kill()
            if self._wiring is not None:
                self._wiring.forget(place.seat)
            pause = place.defer()
            structlog.get_logger().error("no worker could be started", reason=str(e), pause=pause)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)

    def _work(self, place: _Place, parent: int) -> None:
        """Run in the new worker; its exit code is that of the process."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            raise SystemExit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # A terminal sends these to all processes; the supervisor tells us.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        raise SystemExit(place.run(place.seat))

    # -- ending ------------------------------------------------------------------------

    def _end(self, wake: socket.socket) -> None:
        """Tell all workers to drain, and see that they end."""
        # A socket left open here would accept connections that no worker answers.
        for sock in self._sockets:
            sock.close()
        told = 0
        deadline = time.monotonic() + self._stop_seconds
        while running := [p for p in self._places if p.process and p.process.exitcode is None]:
            if told < max(self._signals, 1):
                # A second signal is passed on too: it cuts running requests.
                told = max(self._signals, 1)
                self._tell(running, signal.SIGTERM)
            if time.monotonic() >= deadline:
                pids = [place.process.pid for place in running if place.process]
                structlog.get_logger().error("workers did not end and were killed", pids=pids)
                self._tell(running, signal.SIGKILL)
                deadline += self._stop_seconds
            _wait([wake, *(place.end for place in running)], _TICK)

    @staticmethod
    def _tell(running: list[_Place], number: signal.Signals) -> None:
        for place in running:
            if place.process is not None and place.process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(place.process.pid, number)

    @contextlib.contextmanager
    def _woken_by_signals(self) -> Iterator[socket.socket]:
        """Count signals; a byte arrives at the socket for each."""

        def note(number: int, frame: FrameType | None) -> None:
            del number, frame
            self._signals += 1

        handled = dict.fromkeys(_PASSED_ON, note)
        with contextlib.ExitStack() as undo:
            receiver, sender = socket.socketpair()
            undo.enter_context(receiver)
            undo.enter_context(sender)
            receiver.setblocking(False)
            sender.setblocking(False)
            undo.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(sender.fileno()))
            for number, handler in handled.items():
                undo.callback(signal.signal, number, signal.signal(number, handler))
            if len(self._places) > 1:
                # A restart is a new deployment.
                undo.callback(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, _ignore))
            yield receiver


def _wait(sources: Sequence[socket.socket | int], seconds: float) -> None:
    """Wait until one of these is readable; empty the socket."""
    for ready in select.select(sources, [], [], seconds)[0]:
        if isinstance(ready, socket.socket):
            ready.recv(4096)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing; unlike SIG_IGN, not inherited by programs that workers start."""
