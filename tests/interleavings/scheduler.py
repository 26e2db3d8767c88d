"""Operations in threads of which exactly one runs, until its next call: a choice at each.

An operation announces each call on what it shares, by ``Scheduler.point``, and makes it once it is
chosen. So the list of choices is all there is to an execution, and replaying it repeats it.

Who stops at a point takes the next choice itself, in its own thread, and goes on if it chose
itself: threads change only where operations do.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from .calls import Access, Call

Operation = Callable[[], Any]
Choose = Callable[[Mapping[int, Call], frozenset[int]], int | None]
"""Takes the next calls of all operations, by their numbers, and which are not blocked; returns the
number of the one that goes on, or None to end the execution there."""


class KilledError(BaseException):
    """The process of the operation is dead: nothing that it does has any effect."""


class DeadlockError(Exception):
    """Every operation waits for a lock of another."""


@dataclass(slots=True)
class Outcome:
    """How an operation ended."""

    value: Any = None
    error: BaseException | None = None
    killed: bool = False
    calls: int = 0
    """Calls that it made."""


@dataclass(slots=True)
class _Task:
    """An operation that runs."""

    number: int
    operation: Operation
    dies_before: int | None
    """Number of the call, from 0, that its process does not live to make; None for a long life."""
    go: threading.Lock = field(default_factory=threading.Lock)
    pending: Call | None = None
    outcome: Outcome = field(default_factory=Outcome)
    locks: list[str] = field(default_factory=list)
    drawn: int = 0


class Scheduler:
    """Runs operations one call at a time; a new one for each exploration, used again and again."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(4, "operation")
        self._here = threading.local()
        self._tasks: list[_Task] = []
        self._owners: dict[str, _Task] = {}
        self._choose: Choose = lambda _calls, _enabled: None
        self._idle = threading.Lock()
        self._starting = True
        self._ended = False
        self._drawn = 0
        self.deadlocked = False

    # -- called by what operations use ---------------------------------------------------

    def point(self, call: Call) -> None:
        """Wait until this call is next; does nothing outside of operations."""
        task: _Task | None = getattr(self._here, "task", None)
        if task is None:
            return
        if task.outcome.killed:
            raise KilledError
        if task.outcome.calls == task.dies_before:
            # Its locks are free with its death, for whoever waits for them.
            freed = tuple(Access("writes", "locks", name) for name in task.locks)
            call = Call("dies", freed)
        self._stop(task, call)
        if task.outcome.calls == task.dies_before:
            self._die(task)
        task.outcome.calls += 1
        if call.lock is not None and call.step == "acquire":
            self._owners[call.lock] = task
            task.locks.append(call.lock)
        elif call.lock is not None and call.step == "release":
            del self._owners[call.lock]
            task.locks.remove(call.lock)

    def _die(self, task: _Task) -> None:
        task.outcome.killed = True
        for name in task.locks:
            del self._owners[name]
        task.locks.clear()
        raise KilledError

    def token(self, nbytes: int = 8) -> str:
        """Draw hexadecimal digits that are the same in a replay; takes the place of ``secrets``."""
        task: _Task | None = getattr(self._here, "task", None)
        if task is None:
            self._drawn += 1
            name = f"outside {self._drawn}"
        else:
            task.drawn += 1
            name = f"{task.number} {task.drawn}"
        return hashlib.blake2b(name.encode(), digest_size=nbytes).hexdigest()

    # -- executions ----------------------------------------------------------------------

    def run(
        self,
        operations: Sequence[Operation],
        choose: Choose,
        deaths: Mapping[int, int] | None = None,
    ) -> list[Outcome]:
        """Run operations to their ends, or until ``choose`` ends the execution.

        Args:
            operations: what to run.
            choose: is asked before each call, except the first parts of operations.
            deaths: numbers of operations, and of the call that each does not live to make.

        Raises:
            DeadlockError: each waits for another.
        """
        deaths = deaths or {}
        self._tasks = [_Task(n, op, deaths.get(n)) for n, op in enumerate(operations)]
        self._owners.clear()
        self._choose, self._starting, self._ended, self.deadlocked = choose, True, False, False
        self._idle.acquire()
        futures: list[Future[None]] = []
        for task in self._tasks:
            task.go.acquire()
            # Up to its first call, which nobody can see.
            futures.append(self._pool.submit(self._perform, task))
            self._idle.acquire()
        self._starting = False
        if self._next(None) is not None:
            self._idle.acquire()
        self._idle.release()
        for future in futures:
            future.result()
        if self.deadlocked:
            raise DeadlockError
        return [task.outcome for task in self._tasks]

    def _perform(self, task: _Task) -> None:
        self._here.task = task
        try:
            task.outcome.value = task.operation()
        except KilledError:
            task.outcome.killed = True
        except BaseException as e:  # noqa: BLE001 - every end of an operation is looked at
            task.outcome.error = e
        finally:
            self._here.task = None
            task.pending = None
        if self._starting or self._next(task) is None:
            self._idle.release()

    def _stop(self, task: _Task, call: Call) -> None:
        """Let the next operation go on; return once that is this one."""
        task.pending = call
        if self._starting:
            self._idle.release()
            task.go.acquire()
        else:
            following = self._next(task)
            if following is not task:
                task.go.acquire()
        task.pending = None
        if self._ended:
            task.outcome.killed = True
            raise KilledError

    def _next(self, running: _Task | None) -> _Task | None:
        """Choose who goes on, and let it; None if nobody is left."""
        waiting = {task.number: task.pending for task in self._tasks if task.pending is not None}
        if not waiting:
            return None
        chosen: int | None = None
        if not self._ended:
            enabled = frozenset(number for number, call in waiting.items() if self._can(call))
            if enabled:
                chosen = self._choose(waiting, enabled)
            self.deadlocked = not enabled
            self._ended = chosen is None
        # After the end, all are killed, one after the other.
        following = self._tasks[min(waiting) if chosen is None else chosen]
        if following is not running:
            following.go.release()
        return following

    def _can(self, call: Call) -> bool:
        return call.step != "acquire" or call.lock not in self._owners

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
