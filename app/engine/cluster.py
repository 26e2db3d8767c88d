"""Workers of a Dask cluster as an engine of named tasks.

Dask carries the name of a task and its parameters as JSON, and back how it ended: no code, no
arrays. What a task computes goes to the store, create-only, where this machine finds it::

    spread(work, units) ──name, JSON──▶ scheduler ──▶ a worker: registry[name](service, JSON)
        │                                                │
        │◀── {"seconds": …} or {"failed": …} ────────────┤
        ▼                                                ▼
    whoever asked: is it there? else do it here      create-only results in the store

1. Which worker may have a task is a matter of Dask's resources: *memory*, in bytes, and two that
   name what has to be equal, the *registry* with the versions of all algorithms, and the *store*.
   The scheduler compares them for each task, so that no worker that joins later slips through. A
   cluster whose workers all differ is refused, naming one and what differs.
2. A task that fails by its input, its disk or its memory is left to this machine, which fails in
   the same way, and says so in the words of the local engine; or it succeeds, if only the worker
   was at fault. One that fails by a fault of our own ends the work, as it does on this machine.
3. A task that has killed as many workers as the scheduler allows (``allowed-failures``) is never
   done here: it would end this process next.
4. A scheduler that is lost has forgotten everything. What is not in the store by then is submitted
   again to the next one that answers at its address, for which ``wait_seconds`` are waited.
5. When nobody waits for the results any more, the tasks are cancelled. Those that run are told.
6. Workers read from the store, and none is nearer to it than others. So a task runs wherever there
   is room: Dask would have one that prefers a worker wait for it, while others are idle.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Generic

import structlog

from app.errors import EngineUnavailableError
from app.run_errors import ProcessDiedError
from core.budget import current

from .base import Registry, TaskFailedError, U, Work, resource_of
from .request_budget import current_trace
from .scheduler import Scheduler

if TYPE_CHECKING:
    from distributed import Client, Worker

PLUGIN = "thalweg"
"""Name of what our workers have, and others have not."""
MEMORY = "memory"
"""Resource of workers: bytes."""
TRACE = "traceparent"
"""Parameter of each task: what its span belongs to."""
_WINDOW, _BULK = 256, 4
"""Units of one caller under way; and the part, one in so many, that goes in one message."""
_WINDOW_BYTES = 16 << 20
"""Bytes of their parameters."""
_POLL, _LOOK = 0.05, 2.0
"""Seconds between two looks whether results are still wanted; and whether workers are there."""
_LOSSES = 10
"""Times that a unit is submitted again because its scheduler was lost."""
_CONNECT_SECONDS = 5.0
_WATCH_SECONDS, _CLOSE_SECONDS = 5.0, 1.0
_NAMED = 3
"""Workers that a message names at the most."""


def run_task(kind: str, text: str) -> str:
    """Do a task in a thread of a worker; return how it ended, as JSON."""
    from distributed import get_worker  # noqa: PLC0415 - an extra

    worker = get_worker()
    plugin: Any = worker.plugins[PLUGIN]
    ended: str = plugin.run(worker.get_current_task(), kind, text)
    return ended


def describe(dask_worker: Worker) -> dict[str, Any]:
    """Return what a worker says of itself."""
    plugin: Any = dask_worker.plugins.get(PLUGIN)
    return {} if plugin is None else plugin.about


@dataclass(slots=True)
class _Sent(Generic[U]):
    """A unit, and what will tell how it ended; None if it is done, or left to the caller."""

    unit: U
    future: Any = None
    text: str = ""
    lost: int = 0


class DaskCluster:
    """The workers of a scheduler; a Cluster.

    Args:
        scheduler: which.
        registry: what they have to do.
        store: resource of workers that use the store of this service; empty if there is none.
        wait_seconds: how long to wait for the scheduler, or its first worker.

    Attributes:
        on_ended: told of each task that has ended, its name and how: *done*; *here*, where this
            machine is to do it; *lost* with its scheduler, and submitted again; *cancelled*;
            *failed* by a fault of ours; *poisoned*, as it has ended workers.
        workers: number of those that are *used*, and that are *refused*; empty if nobody watches.
    """

    def __init__(
        self, scheduler: Scheduler, registry: Registry, store: str, wait_seconds: float
    ) -> None:
        self._scheduler = scheduler
        self._registry = registry
        self._store = store
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._strangers: set[str] = set()
        self._closed = threading.Event()
        self._spreads: set[_Spread[Any]] = set()
        self.on_ended: Callable[[str, str], None] = lambda _kind, _outcome: None
        self.workers: dict[str, int] = {}

    def spread(
        self, work: Work[U], units: Iterable[U], check: Callable[[], None] | None = None
    ) -> Iterator[U]:
        """See Cluster."""
        spread = _Spread(self, work, check or partial(current().check, work.kind))
        self._spreads.add(spread)
        try:
            yield from spread.run(units)
        finally:
            self._spreads.discard(spread)

    @property
    def waiting(self) -> int:
        """Number of tasks that are submitted, and have not ended as far as is known."""
        return sum(spread.sent for spread in tuple(self._spreads))

    def watch(self) -> None:
        """Keep ``workers`` up to date, in a thread, until it is closed."""
        threading.Thread(target=self._watch, name="cluster", daemon=True).start()

    def _watch(self) -> None:
        while not self._closed.is_set():
            try:
                fit, others = self._look(self._connected(), {self._store})
            except Exception:  # noqa: BLE001 - whatever Dask raises, nobody does tasks
                fit, others = {}, set()
            self.workers = {"used": len(fit), "refused": len(others)}
            self._closed.wait(_WATCH_SECONDS)

    def describe(self) -> tuple[int, list[str]]:
        """Return the number of workers that are used, and what is wrong with others.

        Raises:
            OSError: the scheduler cannot be reached.
        """
        client = self._connected()
        fit, others = self._look(client, {self._store})
        return len(fit), self._differences(client, others)

    def close(self) -> None:
        """Leave the cluster."""
        self._closed.set()
        # Who is just connecting leaves with the process.
        if self._lock.acquire(timeout=_CLOSE_SECONDS):
            self._drop()
            self._lock.release()

    def needs(self, work: Work[U]) -> dict[str, float]:
        """Return the resources that a worker has to have."""
        needs: dict[str, float] = {resource_of(self._registry): 1, MEMORY: work.nbytes}
        if self._registry[work.kind].service:
            needs[self._store] = 1
        return needs

    def _look(self, client: Client, marks: set[str]) -> tuple[dict[str, Any], set[str]]:
        """Return the resources of workers that do our tasks by address, and the other workers."""
        marks = {*filter(None, marks), resource_of(self._registry)}
        workers = client.scheduler_info()["workers"]
        fit = {a: w["resources"] for a, w in workers.items() if marks <= w["resources"].keys()}
        return fit, workers.keys() - fit.keys()

    def ready(self, work: Work[U], check: Callable[[], None]) -> Client | None:
        """Return a client once there is a worker for some work; None if it is too large for all.

        Raises:
            EngineUnavailableError: there is none in time, or all are of other versions or stores.
        """
        deadline = time.monotonic() + self._wait_seconds
        while True:
            try:
                client = self._connected()
                fit, others = self._look(client, self.needs(work).keys() - {MEMORY})
                if fit or others:
                    return client if self._can_do(work, client, fit, others) else None
                reason = "has no worker"
            except OSError as e:
                reason = f"cannot be reached ({e})"
            if time.monotonic() > deadline:
                raise self.unavailable(reason)
            check()
            time.sleep(_POLL)

    def _can_do(
        self, work: Work[U], client: Client, fit: Mapping[str, Any], others: set[str]
    ) -> bool:
        """Whether a worker has the memory; warn of workers that are not as they should be."""
        log = structlog.get_logger().bind(kind=work.kind)
        if not fit:
            reasons = "; ".join(self._differences(client, others))
            raise self.unavailable(f"has no worker that fits: {reasons}")
        if others - self._strangers:
            log.warning("workers are not used", reasons=self._differences(client, others))
            self._strangers |= others
        most = max(has[MEMORY] for has in fit.values())
        if most < work.nbytes:
            log.warning("a task is too large for all workers", needs=work.nbytes, most=most)
        return bool(most >= work.nbytes)

    def _differences(self, client: Client, addresses: Iterable[str]) -> list[str]:
        """Say what is wrong with some workers."""
        some = sorted(addresses)[:_NAMED]
        found = client.run(describe, workers=some, on_error="return")
        own = {name: kind.version for name, kind in self._registry.items()}
        return [f"{address} {_difference(found.get(address), own)}" for address in some]

    def _connected(self) -> Client:
        """Return the client of this process, which is connected."""
        from distributed import Client  # noqa: PLC0415 - an extra

        with self._lock:
            if self._client is not None and self._client.status != "running":
                self._drop()
            if self._client is None:
                try:
                    self._client = Client(
                        self._scheduler.address,
                        timeout=min(_CONNECT_SECONDS, self._wait_seconds),
                        security=self._scheduler.security(),
                        set_as_default=False,
                        name=PLUGIN,
                    )
                except AssertionError as e:
                    # What the scheduler tells all clients may come with its first answer.
                    raise ConnectionError("it said something else first") from e
            return self._client

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(OSError):
                client.close(timeout=1)

    def unavailable(self, reason: str) -> EngineUnavailableError:
        """Build the error for a cluster that does nothing."""
        return EngineUnavailableError(
            f"the scheduler {self._scheduler.address} {reason}",
            hint="Try again later, or have the operator look after the cluster of THALWEG_ENGINE",
            retry_after=30,
        )


class _Spread(Generic[U]):
    """Units of one caller on the cluster."""

    def __init__(self, cluster: DaskCluster, work: Work[U], check: Callable[[], None]) -> None:
        self._cluster = cluster
        self._work = work
        self._check = check
        self._waiting: deque[_Sent[U]] = deque()
        self._ready: list[_Sent[U]] = []
        self._client: Client | None = None
        self._looked = -math.inf
        self._needs = cluster.needs(work)
        self.sent = self._nbytes = 0
        """Tasks that have not ended, and bytes of their parameters."""

    def run(self, units: Iterable[U]) -> Iterator[U]:
        """See Cluster."""
        waiting = self._waiting
        # Whoever makes units one by one may wait for those before.
        bulk = _BULK if isinstance(units, Collection) else _WINDOW
        try:
            for unit in units:
                waiting.append(_Sent(unit))
                self._prepare(waiting[-1])
                if len(self._ready) * bulk >= len(waiting):
                    self._send()
                while len(waiting) >= _WINDOW or self._nbytes >= _WINDOW_BYTES:
                    yield self._first()
            self._send()
            while waiting:
                yield self._first()
        finally:
            self._cancel()

    def _first(self) -> U:
        """Wait for the first unit; return it."""
        if self._ready and self._ready[0] is self._waiting[0]:
            self._send()
        self._await(self._waiting[0])
        return self._waiting.popleft().unit

    def _cancel(self) -> None:
        """Cancel what waits, all at once: else each that ends would let another one begin."""
        current().release(sum(len(sent.text) for sent in self._ready))
        left = [sent for sent in self._waiting if sent.future is not None]
        if self._client is not None and self._client.status == "running" and left:
            with contextlib.suppress(OSError):
                self._client.cancel([sent.future for sent in left])
        for sent in left:
            self._end(sent, "cancelled")

    def _look(self) -> None:
        """Look whether there are workers, unless that was a moment ago."""
        if time.monotonic() - self._looked > _LOOK:
            self._client = self._cluster.ready(self._work, self._check)
            self._looked = time.monotonic()

    def _prepare(self, sent: _Sent[U]) -> None:
        """Have a unit submitted, unless it is done."""
        if self._work.is_done(sent.unit):
            return
        task = {**self._work.task(sent.unit), TRACE: current_trace().header}
        sent.text = json.dumps(task)
        current().hold(self._work.kind, len(sent.text))
        self._nbytes += len(sent.text)
        self._ready.append(sent)

    def _send(self) -> None:
        """Submit what is prepared in one message, unless it is too large for every worker."""
        ready, self._ready, kind = self._ready, [], self._work.kind
        if not ready:
            return
        self._look()
        self.sent += len(ready)
        if self._client is None:
            for sent in ready:
                self._end(sent, "here")
            return
        keys, texts = [f"{kind}-{token_hex(8)}" for _ in ready], [sent.text for sent in ready]
        futures = self._client.map(
            run_task, [kind] * len(ready), texts, key=keys, pure=False, resources=self._needs
        )
        for sent, future in zip(ready, futures, strict=True):
            sent.future = future

    def _end(self, sent: _Sent[U], outcome: str) -> None:
        """Note how a task has ended; the scheduler may forget it."""
        if sent.future is not None:
            sent.future.release()
        self.sent -= 1
        self._nbytes -= len(sent.text)
        current().release(len(sent.text))
        sent.future, sent.text = None, ""
        self._cluster.on_ended(self._work.kind, outcome)

    def _await(self, sent: _Sent[U]) -> None:
        """Wait until a unit is done, or left to the caller."""
        from distributed.scheduler import KilledWorker, NoValidWorkerError  # noqa: PLC0415 - an extra

        while sent.future is not None:
            try:
                sent.future.exception(timeout=_POLL)
                self._take(sent)
            except (TimeoutError, UnboundLocalError):
                # The latter is Dask's, for a wait that is over just as its result comes.
                self._check()
                self._look()
            except CancelledError:
                self._send_again()
            except KilledWorker as e:
                self._end(sent, "poisoned")
                raise _poisoned(self._work.label(sent.unit), e) from None
            except (OSError, NoValidWorkerError) as e:
                self._leave(sent, f"{type(e).__name__}: {e}")

    def _take(self, first: _Sent[U]) -> None:
        """Take what workers say of all units that have ended, by asking once."""
        done = [sent for sent in self._waiting if sent.future and sent.future.status == "finished"]
        done = done or [first]
        texts = first.future.client.gather([sent.future for sent in done])
        for sent, text in zip(done, texts, strict=True):
            self._judge(sent, json.loads(text))

    def _judge(self, sent: _Sent[U], ended: Mapping[str, Any]) -> None:
        """Take what a worker says of a unit.

        Raises:
            TaskFailedError: a fault of our own.
        """
        reason = ended.get("failed")
        if reason is None:
            self._end(sent, "done")
        elif not ended["fault"]:
            self._leave(sent, reason)
        else:
            self._end(sent, "failed")
            label = self._work.label(sent.unit)
            raise TaskFailedError(f"{label}: {reason}; the log of {ended['worker']} says where")

    def _send_again(self) -> None:
        """Submit what was lost with its scheduler, unless it is done."""
        self._looked = -math.inf
        for sent in self._waiting:
            if sent.future is not None and sent.future.cancelled():
                self._end(sent, "lost")
                sent.lost += 1
                if sent.lost > _LOSSES:
                    raise self._cluster.unavailable(f"has forgotten a task {sent.lost} times")
                self._prepare(sent)
        self._send()

    def _leave(self, sent: _Sent[U], reason: str) -> None:
        """Leave a unit to this machine, since a worker cannot do it."""
        self._end(sent, "here")
        log = structlog.get_logger().bind(unit=self._work.label(sent.unit), reason=reason)
        log.warning("a worker of the cluster failed, so this machine does its task")


def _difference(description: Any, own: Mapping[str, str]) -> str:  # noqa: ANN401 - as a worker says
    """Say what is wrong with a worker."""
    if not isinstance(description, dict) or "tasks" not in description:
        return "is no worker of Thalweg: start workers by thalweg-server worker"
    tasks = description["tasks"]
    for name in sorted(own.keys() | tasks.keys()):
        if own.get(name) != tasks.get(name):
            return f"has the task {name} in version {tasks.get(name)}, not {own.get(name)}"
    return f"uses another store than this service, {description['state']}"


def _poisoned(label: str, error: Any) -> ProcessDiedError:  # noqa: ANN401 - KilledWorker, an extra
    return ProcessDiedError(
        f"computing {label} has ended {error.allowed_failures + 1} workers of the cluster, the last"
        f" at {error.last_worker.address}",
        hint="Check the input, and have the operator read the logs of the workers, which say when"
        " one took more memory than it may",
        deaths=error.allowed_failures + 1,
    )
