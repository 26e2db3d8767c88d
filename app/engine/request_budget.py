"""The budget of one request: memory, CPU time and items, bounded while its threads work.

A request ends in three ways before its time, all seen by the next check of any of its threads:
its client left (the event that the connection sets is polled, which costs no task to wait for
it), its handler has ended without its threads, or the server stops. What it is charged for in the
ledger returns when its last thread has noticed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from app.tracebacks import forget_locals
from app.tracing import NO_TRACE, Trace
from core.budget import current, install, installed, uninstall
from core.errors import BudgetExceededError, CancelledError

from .base import Gone
from .ledger import Hold, Ledger

P = ParamSpec("P")
T = TypeVar("T")

CHARGE_BYTES = 4 << 20
"""Bytes by which the charge in the ledger grows; a request below holds none."""
_GRANT_BYTES = 1 << 20
"""Bytes that a thread takes at once, so that few of its calls take the lock."""
_CHECK_SECONDS = 0.001
"""Wall time between two looks at the CPU clock, which costs a system call."""
_CHECK_ITEMS = 1 << 16
"""Items between two counts for all threads."""


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """What a request may use. CPU time and items count from the last delivered item on."""

    memory: int = 1 << 30
    """Bytes of the items that it holds at once."""
    cpu_seconds: float = 60.0
    items: int = 1 << 28
    """Items that the stages of a pipeline look at, each stage for itself."""


@dataclass(slots=True, eq=False)
class RequestBudget:
    """The budget of one request, for all of its threads.

    Args:
        limits: the bounds.
        gone: set when the client left.
        stopping: set when the server stops.
        owner: pays in the ledger.
        ledger: charged for the bytes held; None for no charge.

    Attributes:
        trace: the span of the request.
        at_end: called with it once no thread works for it any more.
    """

    limits: BudgetLimits
    _gone: Gone
    _stopping: Gone
    owner: str = ""
    _ledger: Ledger | None = None
    held: int = field(default=0, init=False)
    """Bytes that all threads hold."""
    peak: int = field(default=0, init=False)
    """Most bytes they held at once."""
    renewals: int = field(default=0, init=False)
    """Stretches begun after the first."""
    on_exceeded: Callable[[str, str], None] | None = field(default=None, init=False)
    on_cancelled: Callable[[str], None] | None = field(default=None, init=False)
    trace: Trace = field(default=NO_TRACE, init=False)
    at_end: set[Callable[[RequestBudget], object]] = field(default_factory=set, init=False)
    _charge: Hold | None = field(default=None, init=False)
    _charged: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _cpu: float = field(default=0.0, init=False)
    _items: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)
    _threads: int = field(default=0, init=False)
    """Threads that work for the request."""

    @property
    def cancelled(self) -> str | None:
        """Why nobody waits for results any more: ``client``, ``stop`` or ``end``; or None."""
        if self._gone.is_set():
            return "client"
        if self._stopping.is_set():
            return "stop"
        return "end" if self._closed else None

    def check(self) -> None:
        """Raise if the request was cancelled.

        Raises:
            CancelledError: nobody waits for results any more.
        """
        if not (self._closed or self._gone.is_set() or self._stopping.is_set()):
            return
        kind = self.cancelled
        if kind is not None:
            if self.on_cancelled is not None:
                self.on_cancelled(kind)
            raise CancelledError(_REASONS[kind])

    def use(self, stage: str, cpu: float, items: int) -> None:
        """Count CPU seconds and items.

        Raises:
            BudgetExceededError: one of them is used up.
        """
        with self._lock:
            self._cpu += cpu
            self._items += items
            cpu, items = self._cpu, self._items
        if cpu > self.limits.cpu_seconds:
            self._exceed(stage, "cpu", self.limits.cpu_seconds)
        if items > self.limits.items:
            self._exceed(stage, "items", self.limits.items)

    def count(self, cpu: float, items: int) -> None:
        """Count CPU seconds and items of which the next check is to know."""
        with self._lock:
            self._cpu += cpu
            self._items += items

    def hold(self, stage: str, nbytes: int, wanted: int = 0) -> int:
        """Count bytes, and charge the ledger for them.

        Args:
            stage: what is working.
            nbytes: bytes that are needed.
            wanted: bytes to count instead, if so many fit.

        Returns:
            The bytes counted.

        Raises:
            BudgetExceededError: they do not fit; nothing was counted.
            ServiceError: the ledger refuses them; nothing was counted.
        """
        with self._lock:
            count = wanted if self.held + wanted <= self.limits.memory else nbytes
            held = self.held + max(count, nbytes)
            fits = held <= self.limits.memory
            if fits:
                if held > self._charged and self._ledger is not None:
                    self._grow(held, self._ledger)
                self.held, before = held, self.held
                self.peak = max(self.peak, held)
        if not fits:
            self._exceed(stage, "memory", self.limits.memory)
        return held - before

    def _grow(self, held: int, ledger: Ledger) -> None:
        if held < CHARGE_BYTES:
            return
        more = -(-held // CHARGE_BYTES) * CHARGE_BYTES - self._charged
        if self._charge is None:
            self._charge = ledger.hold(self.owner, more, "requests")
        else:
            self._charge.grow(more)
        self._charged += more

    def release(self, nbytes: int) -> None:
        """Count bytes that were freed; they stay charged until the request ends."""
        with self._lock:
            self.held -= nbytes

    def renew(self) -> None:
        """Begin a new stretch."""
        with self._lock:
            self._cpu, self._items = 0.0, 0
            self.renewals += 1

    def close(self) -> None:
        """Cancel what still runs; the charge returns with the last thread.

        A thread notices at its next check, and until then its memory is taken: others must not be
        promised it.
        """
        self._closed = True
        self._return_charge()

    def _return_charge(self) -> None:
        """Return the charge if the request has ended, and no thread works for it any more."""
        with self._lock:
            if self._threads or not self._closed:
                return
            charge, self._charge = self._charge, None
            self._ledger, self._charged = None, 0
            ends, self.at_end = self.at_end, set()
        if charge is not None:
            charge.release()
        for end in ends:
            end(self)

    def _enter(self) -> ThreadBudget:
        """Count this thread as one that works for the request.

        Raises:
            CancelledError: nobody waits for results any more.
        """
        with self._lock:
            self._threads += 1
        budget = ThreadBudget(self)
        try:
            self.check()
        except CancelledError:
            self._leave(budget)
            raise
        return budget

    def _leave(self, budget: ThreadBudget) -> None:
        budget.leave()
        with self._lock:
            self._threads -= 1
        if self._closed:
            self._return_charge()

    def _exceed(self, stage: str, budget: str, limit: float) -> None:
        if self.on_exceeded is not None:
            self.on_exceeded(stage, budget)
        setting, unit, hint = _BUDGETS[budget]
        raise BudgetExceededError(
            f"the stage {stage!r} needs more than the {limit} {unit} of a request",
            stage_name=stage,
            budget=budget,
            limit=limit,
            setting=setting,
            hint=hint,
        )

    def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in this thread under the budget; see ``in_thread``."""
        budget = self._enter()
        token = install(budget)
        try:
            return function(*args, **kwargs)
        except BaseException as e:
            # What its frames refer to is no longer counted.
            forget_locals(e)
            raise
        finally:
            uninstall(token)
            self._leave(budget)

    @contextmanager
    def in_thread(self) -> Iterator[ThreadBudget]:
        """Work under the budget in this thread until the block ends.

        Raises:
            CancelledError: on entering, if nobody waits for results any more.
        """
        budget = self._enter()
        try:
            with installed(budget):
                yield budget
        finally:
            self._leave(budget)


_REASONS = {
    "client": "the client left",
    "stop": "the server is stopping",
    "end": "the request has ended",
}
_BUDGETS = {
    "memory": (
        "THALWEG_REQUEST_MEMORY",
        "bytes of memory",
        "Use smaller batches, padding or windows; fewer fields, reports, periods or samples.",
    ),
    "cpu": (
        "THALWEG_REQUEST_CPU_SECONDS",
        "seconds of CPU time",
        "Let more items pass the filters, or do less work per item.",
    ),
    "items": (
        "THALWEG_REQUEST_ITEMS",
        "items",
        "Let more items pass the filters, or make batches and windows smaller.",
    ),
}
"""Variable, unit and hint of each budget."""


def keep_for_request(stage: str, nbytes: int) -> None:
    """Count bytes in the budget of the request this thread works for, until the request ends.

    Outside of requests nothing is counted.

    Args:
        stage: what is working.
        nbytes: bytes about to be allocated, which outlive the call of this thread.

    Raises:
        BudgetExceededError: they do not fit.
        ServiceError: the process or the owner has no more.
    """
    budget = current()
    if isinstance(budget, ThreadBudget):
        budget.request.hold(stage, nbytes)


class ThreadBudget:
    """The budget of a request as one thread sees it; see :class:`core.budget.Budget`.

    It is asked for every block of every stage, so most of its calls touch nothing but its own
    numbers: bytes are taken from the request in grants, and the CPU clock is looked at once in a
    millisecond.
    """

    __slots__ = ("_cpu", "_granted", "_in_loop", "_items", "_seen", "held", "request")

    def __init__(self, request: RequestBudget, *, in_loop: bool = False) -> None:
        self.request = request
        self.held = 0
        self._granted = 0
        self._items = 0
        self._seen = time.monotonic()
        # The tasks of the event loop have no CPU time of their own.
        self._in_loop = in_loop
        self._cpu = 0.0 if in_loop else time.thread_time()

    def check(self, stage: str) -> None:
        """See Budget."""
        self.spend(stage, 0)

    def spend(self, stage: str, items: int, seconds: float = 0.0) -> None:
        """See Budget."""
        self.request.check()
        self._items += items
        now = time.monotonic()
        if now - self._seen < _CHECK_SECONDS and self._items < _CHECK_ITEMS and not seconds:
            return
        self._seen = now
        cpu = self._cpu if self._in_loop else time.thread_time()
        used, self._cpu = cpu - self._cpu, cpu
        counted, self._items = self._items, 0
        self.request.use(stage, used + seconds, counted)

    def hold(self, stage: str, nbytes: int) -> None:
        """See Budget."""
        missing = self.held + nbytes - self._granted
        if missing > 0:
            self._granted += self.request.hold(stage, missing, max(missing, _GRANT_BYTES))
        self.held += nbytes

    def release(self, nbytes: int) -> None:
        """See Budget."""
        self.held -= nbytes
        spare = self._granted - self.held
        if spare > 2 * _GRANT_BYTES:
            self._granted -= spare
            self.request.release(spare)

    def renew(self) -> None:
        """See Budget."""
        # A stretch may begin a millisecond early: small items are renewed more often than that.
        now, self._items = time.monotonic(), 0
        if now - self._seen >= _CHECK_SECONDS:
            self._seen = now
            if not self._in_loop:
                self._cpu = time.thread_time()
        self.request.renew()

    def cancel(self) -> None:
        """Stop the threads of the request at their next check."""
        self.request.close()

    def leave(self) -> None:
        """Release what is held, and count the rest; the thread does something else now.

        A request may consist of many calls of less than a millisecond.
        """
        self.request.count(time.thread_time() - self._cpu, self._items)
        if self._granted:
            self.request.release(self._granted)
        self.held = self._granted = 0


def current_request() -> RequestBudget | None:
    """Return the budget of the request of this task or thread; None outside of requests."""
    budget = current()
    return budget.request if isinstance(budget, ThreadBudget) else None


def peak_bytes() -> int:
    """Return the most bytes that the request of this task or thread has held at once."""
    request = current_request()
    return 0 if request is None else request.peak


def current_owner() -> str:
    """Return who the request of this task or thread belongs to; empty outside of requests."""
    request = current_request()
    return "" if request is None else request.owner


def current_trace() -> Trace:
    """Return the span of the request of this task or thread; none outside of requests."""
    request = current_request()
    return NO_TRACE if request is None else request.trace


def inherited(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that runs in another thread under the budget of the caller."""
    request = current_request()
    if request is None:
        return function

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return request.run(function, *args, **kwargs)

    return run
