"""The pool of workers: started when needed, replaced when they die, stopped when idle.

A thread that asks holds one worker until it has its answer. It prefers an idle worker that has
the file open, then any idle one, then a new one. While all are busy, owners take turns, and while
there are several, none holds all workers (``turns``). A fault, be it a crash or a time-out, ends
that worker alone.

The number of workers is that of the service: each process counts those that it has or is starting
(:mod:`app.tally`). Who may start none, because other processes have idle ones, leaves a note, and
one of them stops one.

Workers are started by one thread that lives as long as the pool, the keeper. The kernel ends a
worker with the *thread* that started it (PR_SET_PDEATHSIG), and the threads that ask come and go.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import NoReturn

import structlog

from app.errors import BusyError, ShareExceededError
from app.tally import DECODERS, Column, Table, Tally
from app.tracing import NO_TRACE, Trace
from core.budget import current

from .base import DecoderLimits, Parse, Request, T
from .process import DecoderProcess, StartError
from .turns import DecoderTurns

_RETRY_SECONDS = 10.0
"""Seconds after which a start that failed is tried again by itself."""
_POLL_SECONDS = 0.2
"""Maximum seconds between two checks that somebody waits for a worker."""
_SHARED_POLL_SECONDS = 0.05
"""The same where another process may stop one; and between two looks whether it is to."""
_WANTED, _WANTING = 5, 6
"""Notes of the table: when a process last wanted a worker and could start none; and which one."""
_WANTED_SECONDS = 1.0

_RETRY_AFTER = 5
"""Seconds after which a request that got no worker may be tried again."""
_SETTING = "THALWEG_DECODERS"


class DecoderPool:
    """Decoders in worker processes; see ``base.Decoders``.

    Args:
        limits: number and limits of the workers.
        owner: returns who the current thread works for.
        column: where the service counts the workers of this process; default: it is alone.
        resting: entered by a thread while it waits for a worker.
        trace: returns what the current thread works for, as traces have it.

    Attributes:
        starts: number of workers started so far.
        replaced: number of workers that died, or were stopped for a fault.
        refused: number of requests that got no worker in time, by the limit that stopped them:
            ``decoders``, or ``owner-share``.
    """

    def __init__(
        self,
        limits: DecoderLimits | None = None,
        owner: Callable[[], str] = str,
        column: Column | None = None,
        resting: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
        trace: Callable[[], Trace] = lambda: NO_TRACE,
    ) -> None:
        column = column or Column(Table())
        self._limits = limits or DecoderLimits()
        self._resting = resting
        self._trace = trace
        self._owner = owner
        self._changed = threading.Condition()
        self._idle: list[DecoderProcess] = []
        self._busy: set[DecoderProcess] = set()
        self._starting = 0
        self._turns = DecoderTurns(self._limits.workers, column=column)
        self._number = Tally(column, DECODERS, self._limits.workers, self._limits.workers)
        """Workers of the service; at least those of this process."""
        self._notes, self._shared_lock = column.table.notes, column.table.lock
        self._process = column.process
        self._is_alone = column.table.processes == 1
        self._closed = False
        self._logged = False
        self._failure: str | None = None
        self._tried = 0.0
        self.starts = 0
        self.replaced = 0
        self.refused: Counter[str] = Counter()
        self._keeper: threading.Thread | None = None
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Arrays are collected in any thread, in the middle of anything: no locks there.
        self._forgotten: deque[str] = deque(maxlen=10_000)

    @property
    def max_bytes(self) -> int:
        """Maximum size of a result in bytes."""
        return self._limits.memory

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        with self._changed:
            return [process.pid for process in (*self._idle, *self._busy)]

    @property
    def counts(self) -> tuple[int, int]:
        """Number of workers that are busy or starting, and of those that are idle."""
        with self._changed:
            return len(self._busy) + self._starting, len(self._idle)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a worker."""
        with self._changed:
            return self._turns.waiting

    def problem(self) -> str | None:
        """Return why no worker can be started; None if the last start succeeded, or none failed.

        Tries again now and then, so that a service that recovers notices without a request.
        """
        with self._changed:
            failure = self._failure
            due = failure is not None and time.monotonic() - self._tried >= _RETRY_SECONDS
            if due and not (self._starting or self._closed) and self._may_start():
                self._tried = time.monotonic()
                self._tasks.put(self._try_again)
        return None if failure is None else f"no decoder could be started: {failure}"

    def _try_again(self) -> None:
        with contextlib.suppress(OSError, StartError):
            self._put(self._start(partial(DecoderProcess, self._limits)))

    def _note_start(self, failure: str | None) -> None:
        with self._changed:
            self._tried = time.monotonic()
            self._failure = failure
            self.starts += failure is None

    def ask(self, request: Request, parse: Parse[T]) -> T:
        """See Decoders."""
        known = {"form": request.subject.form, "action": request.action}
        with self._resting(), self._trace().child("decode", **known) as trace:
            return self._ask(request, parse, self._owner(), trace)

    def _ask(self, request: Request, parse: Parse[T], owner: str, trace: Trace) -> T:
        process = self._take(request.subject.key, owner)
        try:
            return process.ask(request, parse, trace)
        except BaseException as e:
            if not process.alive:
                with self._changed:
                    self.replaced += 1
                structlog.get_logger().warning("a decoder was replaced", reason=str(e))
            raise
        finally:
            self._put(process, owner)

    def forget(self, key: str) -> None:
        """See Decoders."""
        self._forgotten.append(key)

    def close(self) -> None:
        """Stop all workers; requests in progress fail."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            for process in self._busy:
                process.interrupt()
            keeper = self._keeper
            self._changed.notify_all()
            while self._busy or self._starting:
                self._changed.wait()
            self._tell()
        for process in idle:
            process.kill()
        if keeper is not None:
            self._tasks.put(None)
            keeper.join()

    # -- workers ----------------------------------------------------------------------

    def _take(self, key: str, owner: str) -> DecoderProcess:
        """Return a worker that no other thread uses; it counts as one of the owner's."""
        with self._changed:
            turn = self._turns.join(owner)
            try:
                process = self._wait_for(turn, key, owner)
                self._turns.take(owner)
            finally:
                self._turns.leave(owner, turn)
                self._tell()
        if process is not None:
            return process
        try:
            process = self._start(self._spawned)
        except (OSError, StartError) as e:
            self._return_share(owner)
            structlog.get_logger().error("no decoder could be started", reason=str(e))
            raise BusyError(
                f"no decoder could be started: {e}",
                hint="The operator finds the reason in the server's log",
                retry_after=30,
            ) from e
        except BaseException:
            self._return_share(owner)
            raise
        self._log(process)
        return process

    def _wait_for(self, turn: object, key: str, owner: str) -> DecoderProcess | None:
        """Return a busy worker, or None if one is to be started, which counts as starting."""
        deadline = time.monotonic() + self._limits.wait_seconds
        while True:
            self._check_unlocked()
            if self._closed:
                raise BusyError("the decoders are being stopped", retry_after=5)
            if self._turns.is_next(turn):
                if process := self._choose(key):
                    self._busy.add(process)
                    return process
                if self._may_start():
                    return None
            left = deadline - time.monotonic()
            if left <= 0:
                self._refuse(owner)
            self._changed.wait(min(left, self._poll_seconds))

    @property
    def _poll_seconds(self) -> float:
        return _POLL_SECONDS if self._is_alone else _SHARED_POLL_SECONDS

    def _may_start(self) -> bool:
        """Count a worker as starting, if the service has fewer than it may."""
        if self._number.add("", 1) < 0:
            self._starting += 1
            return True
        with self._shared_lock:
            self._notes[_WANTED], self._notes[_WANTING] = time.monotonic(), self._process
        return False

    def _tell(self) -> None:
        """Tell who waits that workers have changed, here and in the number of the service."""
        gone = self._number.here - len(self._idle) - len(self._busy) - self._starting
        if gone > 0:
            self._number.remove("", gone)
        self._changed.notify_all()

    def _refuse(self, owner: str) -> NoReturn:
        """Refuse a request that has waited for too long.

        Raises:
            ShareExceededError: a worker is free, but not for this owner.
            BusyError: all workers are in use.
        """
        if self._turns.held < self._limits.workers and self._turns.has_share(owner):
            self.refused["owner-share"] += 1
            raise ShareExceededError(
                "your requests in progress hold your share of the decoders",
                hint="Wait until some of them have ended",
                retry_after=_RETRY_AFTER,
                limit="decoders",
                setting=_SETTING,
                allowed=max(self._limits.workers - 1, 1),
            )
        self.refused["decoders"] += 1
        raise BusyError(
            "all decoders are in use",
            hint="Retry after the seconds in Retry-After",
            retry_after=_RETRY_AFTER,
            limit="decoders",
            setting=_SETTING,
            allowed=self._limits.workers,
        )

    def _check_unlocked(self) -> None:
        """Check the budget without the lock, as a check may take a moment."""
        self._changed.release()
        try:
            current().check("decode")
        finally:
            self._changed.acquire()

    def _return_share(self, owner: str) -> None:
        with self._changed:
            self._turns.give_back(owner)
            self._changed.notify_all()

    def _choose(self, key: str) -> DecoderProcess | None:
        self._hand_over_forgotten()
        while self._idle:
            knowing = [process for process in self._idle if key in process.known]
            process = (knowing or self._idle)[-1]
            self._idle.remove(process)
            if process.alive:
                return process
            process.kill()
            self._tell()
        return None

    def _hand_over_forgotten(self) -> None:
        while self._forgotten:
            key = self._forgotten.popleft()
            for process in (*self._idle, *self._busy):
                process.forget(key)

    def _put(self, process: DecoderProcess, owner: str | None = None) -> None:
        """Make a worker idle again, unless it is dead; an owner gives it back."""
        with self._changed:
            if owner is not None:
                self._turns.give_back(owner)
            self._busy.discard(process)
            # Whoever takes it next asks the system whether it lives.
            if not (process.ended or self._closed):
                self._idle.append(process)
                if not self._is_alone:
                    # The keeper looks more often now whether another process wants it.
                    self._tasks.put(self._stop_idle)
            else:
                process.kill()
            self._tell()

    def _start(self, spawn: Callable[[], DecoderProcess]) -> DecoderProcess:
        """Start a worker, which counts as ``_starting`` so far, and as busy afterwards.

        Raises:
            OSError, StartError: it cannot be started.
        """
        process = None
        try:
            process = spawn()
            process.wait_until_ready()
        except (OSError, StartError) as e:
            self._note_start(str(e))
            raise
        else:
            self._note_start(None)
            return process
        finally:
            with self._changed:
                self._starting -= 1
                if process is not None and process.alive:
                    self._busy.add(process)
                    if self._closed:
                        process.interrupt()
                self._tell()

    def _spawned(self) -> DecoderProcess:
        """Have the keeper start a worker."""
        with self._changed:
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="decoders", daemon=True)
                self._keeper.start()
        future: Future[DecoderProcess] = Future()

        def start() -> None:
            try:
                future.set_result(DecoderProcess(self._limits))
            except BaseException as e:  # noqa: BLE001 - for the thread that waits
                future.set_exception(e)

        self._tasks.put(start)
        return future.result()

    def _keep(self) -> None:
        """Start workers, and stop those that were idle for long."""
        while True:
            seconds = self._limits.idle_seconds / 2
            if self._idle and not self._is_alone:
                seconds = min(seconds, self._poll_seconds)
            try:
                task = self._tasks.get(timeout=seconds)
            except queue.Empty:
                self._stop_idle()
                continue
            if task is None:
                return
            task()
            del task  # it refers to the worker

    def _stop_idle(self) -> None:
        oldest = time.monotonic() - self._limits.idle_seconds
        with self._changed:
            stopped = [process for process in self._idle if process.idle_since <= oldest]
            if self._idle and not stopped and self._is_wanted():
                stopped = [min(self._idle, key=lambda process: process.idle_since)]
            self._idle = [process for process in self._idle if process not in stopped]
        for process in stopped:
            process.kill()
        with self._changed:
            self._tell()

    def _is_wanted(self) -> bool:
        """Whether another process wants a worker; one process is told so."""
        with self._shared_lock:
            if self._notes[_WANTING] == self._process:
                return False
            wanted, self._notes[_WANTED] = self._notes[_WANTED], 0.0
        return wanted > time.monotonic() - _WANTED_SECONDS

    def _log(self, process: DecoderProcess) -> None:
        with self._changed:
            logged, self._logged = self._logged, True
        if logged:
            return
        protections = process.protections
        log = structlog.get_logger()
        if protections.get("landlock") and protections.get("seccomp"):
            log.info("decoders run in a sandbox", **protections)
        else:
            log.warning("decoders run without the whole sandbox", **protections)
