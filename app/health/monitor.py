"""The readiness of one worker, part by part, and since when.

    thread "monitor"   once per second: looks at all parts, publishes them on the board
    thread "prober"    store, disk and spool, when anybody asks for the readiness, at most
                       once per second: they write to a disk, which nobody does for nothing
    task "lag probe"   waits of event loop and threads

A request for the readiness waits for the prober for a second at most, and then answers with
what is known: nothing that it asks blocks. All other workers see on the board that somebody
has asked, and check their own store.

A disk that does not answer holds the thread that asked it for good. There is one such thread,
so that at most one is lost; a check that holds it for too long has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from app.server.board import Board, WorkerSlot

Check = Callable[[], str | None]
"""Returns why a part is not ready; None if it is."""

PATIENCE = 2.0
"""Seconds after which a check that has not ended counts as failed."""

_INTERVAL = 1.0
_FRESH = 1.0
"""Seconds for which results of the prober are used."""
_WAIT = 1.0
"""Seconds that an answer waits for the prober at most."""


class Prober:
    """Runs all checks whenever it is asked to.

    Args:
        checks: by the names of their parts.
    """

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = dict(checks)
        self._problems: dict[str, str | None] = dict.fromkeys(checks, "not checked yet")
        self._running: tuple[str, float] | None = None
        self._round: Future[None] | None = None
        self.finished = float("-inf")
        """``time.monotonic()`` of the end of the last round."""
        self._condition = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the present check, without waiting for one that hangs."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)

    def ask(self, age: float) -> Future[None]:
        """Have the checks run, unless they did within so many seconds.

        Returns:
            Done at the end of the round.
        """
        with self._condition:
            if self._round is None and time.monotonic() - self.finished < age:
                done: Future[None] = Future()
                done.set_result(None)
                return done
            if self._round is None:
                self._round = Future()
                self._condition.notify()
            return self._round

    def problems(self) -> dict[str, str | None]:
        """Return the last result of each check, by name."""
        problems = dict(self._problems)
        running = self._running
        if running is not None:
            name, began = running
            seconds = time.monotonic() - began
            if seconds > PATIENCE:
                problems[name] = f"the {name} has not answered for {seconds:.0f} s"
        return problems

    def _run(self) -> None:
        while True:
            with self._condition:
                while self._round is None and not self._closed:
                    self._condition.wait()
                if self._closed:
                    return
            for name, check in self._checks.items():
                self._running = name, time.monotonic()
                self._problems[name] = self._result_of(name, check)
                self._running = None
            with self._condition:
                done, self._round = self._round, None
                self.finished = time.monotonic()
            if done is not None:
                done.set_result(None)

    @staticmethod
    def _result_of(name: str, check: Check) -> str | None:
        try:
            return check()
        except Exception as e:  # noqa: BLE001 - a check that fails must not end all checks
            structlog.get_logger().error("a readiness check failed", part=name, exc_info=e)
            return f"the {name} cannot be checked: {type(e).__name__}"


@dataclass(frozen=True, slots=True)
class Part:
    """State of one part of a worker.

    Attributes:
        problem: why it is not ready; None if it is.
        since: seconds since 1970 at which it became ready, or ceased to be.
    """

    problem: str | None
    since: float

    def to_json(self) -> dict[str, str]:
        """Describe it for an answer or the board."""
        described = {
            "status": "ok" if self.problem is None else "failing",
            "since": iso(self.since),
        }
        return described if self.problem is None else {**described, "detail": self.problem}


def iso(seconds: float) -> str:
    """Return a time since 1970 in ISO 8601, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Monitor:
    """Watches the parts of this worker.

    Args:
        checks: parts that can be looked at without waiting.
        slow_checks: parts whose checks may wait for a disk.
        board: where workers see each other.
        slot: that of this worker.
        observe: called after each look with its parts, to export metrics.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        slow_checks: Mapping[str, Check],
        board: Board,
        slot: WorkerSlot,
        observe: Callable[[Mapping[str, Part]], None],
    ) -> None:
        self._checks = dict(checks)
        self._prober = Prober(slow_checks)
        self._board = board
        self._slot = slot
        self._observe = observe
        self._parts: dict[str, Part] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    def start(self) -> None:
        """Start the threads."""
        self._prober.start()
        self._thread.start()

    def close(self) -> None:
        """Stop them."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._prober.close()

    async def fresh_parts(self) -> Mapping[str, Part]:
        """Return the parts as they are now; waits for slow checks, but not for long."""
        self._slot.note_asked()
        await asyncio.wait([asyncio.wrap_future(self._prober.ask(_FRESH))], timeout=_WAIT)
        return self._look()

    def _run(self) -> None:
        # What has not been checked yet would make the service not ready.
        with contextlib.suppress(TimeoutError):
            self._prober.ask(_FRESH).result(_WAIT)
        self._look()
        while not self._stopped.wait(_INTERVAL):
            try:
                if self._board.asked > self._prober.finished:
                    self._prober.ask(_FRESH)
                self._look()
            except Exception as e:  # noqa: BLE001 - the next look may succeed
                structlog.get_logger().error("monitoring failed", exc_info=e)

    def _look(self) -> Mapping[str, Part]:
        problems = {name: check() for name, check in self._checks.items()}
        problems |= self._prober.problems()
        with self._lock:
            self._parts = {
                name: _changed(self._parts.get(name), problem) for name, problem in problems.items()
            }
            parts = self._parts
            self._slot.publish({"parts": {name: p.to_json() for name, p in parts.items()}})
            self._observe(parts)
        return parts


def _changed(before: Part | None, problem: str | None) -> Part:
    """Return the state of a part; the time is kept unless it became ready or ceased to be."""
    if before is not None and (before.problem is None) == (problem is None):
        return Part(problem, before.since)
    return Part(problem, time.time())


class StallCheck:
    """A check that fails when something has taken too long.

    Args:
        seconds: how long it has taken by now.
        limit: how long it may take.
        problem: what it means.
    """

    def __init__(self, seconds: Callable[[], float], limit: float, problem: str) -> None:
        self._seconds = seconds
        self._limit = limit
        self._problem = problem

    def __call__(self) -> str | None:
        """Return the problem; None if there is none."""
        seconds = self._seconds()
        return f"{self._problem} {seconds:.1f} s" if seconds > self._limit else None


def problems_of(parts: Mapping[str, Any]) -> dict[str, str]:
    """Return the failing parts of a published report, and why."""
    return {name: part["detail"] for name, part in parts.items() if part["status"] != "ok"}


_PROBE_INTERVAL = 0.1
"""Seconds between two pieces of work."""
_KEPT = 1.0
"""Seconds for which a wait that has ended is still shown."""

Start = Callable[[Callable[[], object]], "asyncio.Future[Any]"]
"""Starts a call in the pool of threads."""


class _Wait:
    """The longest recent wait of one piece of work after another."""

    def __init__(self) -> None:
        self._sent: float | None = None
        self._last = (0.0, 0.0)

    def begin(self) -> None:
        self._sent = time.monotonic()

    def end(self) -> None:
        now = time.monotonic()
        if self._sent is None:
            return
        waited, (seconds, at) = now - self._sent, self._last
        if waited >= seconds or now - at >= _KEPT:
            self._last = waited, now
        self._sent = None

    @property
    def is_waiting(self) -> bool:
        return self._sent is not None

    def recent(self) -> float:
        """Seconds of the present wait, or of a recent one if that was longer."""
        now, sent = time.monotonic(), self._sent
        seconds, at = self._last
        return max(0.0 if sent is None else now - sent, seconds if now - at < _KEPT else 0.0)


class LoopLagProbe:
    """Measures how long the event loop and the pool of threads keep a small piece of work waiting.

    Counting what waits says little: a queue of a thousand short calls is no problem, one call
    behind two long ones is. So a piece of work that does nothing is sent through both, again and
    again, and what it has to wait is what a request would have to wait.

    Args:
        start: starts a call in the pool of threads.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._loop = _Wait()
        self._threads = _Wait()
        self._task: asyncio.Task[None] | None = None

    @property
    def loop_seconds(self) -> float:
        """How long the event loop kept a callback waiting; may be read in any thread."""
        return max(self._loop.recent() - _PROBE_INTERVAL, 0.0)

    @property
    def thread_seconds(self) -> float:
        """How long the pool kept a call waiting; likewise."""
        return self._threads.recent()

    def start(self) -> None:
        """Start in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="lag probe")

    async def stop(self) -> None:
        """Stop measuring."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            if not self._threads.is_waiting:
                self._threads.begin()
                self._start(time.monotonic).add_done_callback(lambda _: self._threads.end())
            self._loop.begin()
            await asyncio.sleep(_PROBE_INTERVAL)
            self._loop.end()
