"""What is watched of a worker, and how it becomes readiness and metrics."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from app.decoding.pool import DecoderPool
from app.engine.buffers import Buffers
from app.engine.cluster import DaskCluster
from app.engine.ledger import Ledger
from app.engine.request_budget import current_trace
from app.engine.warmup import WarmUp
from app.engine.workers import Workers
from app.health.monitor import Check, LoopLagProbe, Monitor, Part, StallCheck
from app.http.throttle import Throttle
from app.losses.service import LossService
from app.runs.sealing.sealer import Sealer
from app.server.board import Board, WorkerSlot
from app.server.lanes.table import FRONT, LONG
from app.state.base import StoreError
from app.state.quotas import Quotas
from app.state.reservations import Reservations
from app.state.storage import Storage
from app.state.turns import Turn
from app.telemetry import CountUp, CountUpEach, Metrics, ServiceMetrics

LOOP_SECONDS = 2.0
"""Longest wait in the event loop of a worker that is ready."""
THREAD_SECONDS = 5.0
"""Longest wait for a thread."""


class Watched(Protocol):
    """The parts of a worker that are watched."""

    storage: Storage
    warm_up: WarmUp
    lag_probe: LoopLagProbe
    buffers: Buffers
    decoders: DecoderPool
    losses: LossService
    reservations: Reservations
    ledger: Ledger
    throttle: Throttle
    sealer: Sealer
    threads: Workers
    width: int
    cluster: DaskCluster | None


def has_long_work(slot: WorkerSlot) -> bool:
    """Whether a process seals and sweeps: one that serves everything, or the long lane."""
    return slot.lane in {"", LONG}


def monitor(watched: Watched, board: Board, slot: WorkerSlot, metrics: Metrics) -> Monitor:
    """Return what watches a worker, and exports what it sees."""
    lag_probe = watched.lag_probe
    checks: dict[str, Check] = {
        "kernels": watched.warm_up.problem,
        "loop": StallCheck(
            lambda: lag_probe.loop_seconds, LOOP_SECONDS, "the event loop stood still for"
        ),
        "threads": StallCheck(
            lambda: lag_probe.thread_seconds, THREAD_SECONDS, "calls wait for a thread for"
        ),
        "decoders": watched.decoders.problem,
    }
    disk = _Disk(watched.storage)
    slow: dict[str, Check] = {}
    # Who is asked for the readiness writes to the disk for all.
    if slot.lane in {"", FRONT}:
        slow["store"] = lambda: _store_problem(watched, slot)
        slow["spool"] = watched.losses.spools.problem
        slow["disk"] = disk.problem
    metrics.share(
        ServiceMetrics(
            ends=lambda: (board.supervisor.report() or {}).get("ends", {}),
            workers=lambda: _count_workers(board),
            disk=lambda: disk.sizes,
        )
    )
    return Monitor(checks, slow, board, slot, _observer(watched, slot, metrics))


def _store_problem(watched: Watched, slot: WorkerSlot) -> str | None:
    try:
        watched.storage.check()
        if not has_long_work(slot):
            # No sealer counts jobs here, but whoever is asked tells of all.
            watched.sealer.jobs.claimable()
    except StoreError as e:
        return str(e)
    return None


class _Disk:
    """The disk of the data directory, as it was when it was last looked at."""

    def __init__(self, storage: Storage) -> None:
        self._space = storage.space
        self.sizes: dict[str, int] | None = None

    def problem(self) -> str | None:
        """Return whether less than the reserve is free; measures the disk."""
        try:
            room = self._space.room()
        except OSError as e:
            return f"the disk of the data directory cannot be measured: {e.strerror}"
        self.sizes = {"size": room.size, "free": room.free, "reserve": room.reserve}
        if room.free >= room.reserve and room.free:
            return None
        return (
            f"the disk of the data directory has {room.free >> 20} MiB left, less than the"
            f" reserve of {room.reserve >> 20} MiB"
        )


def _count_workers(board: Board) -> dict[tuple[str, str], int]:
    counts = {(slot.lane, state): 0 for slot in board.workers for state in ("running", "down")}
    for slot in board.workers:
        counts[slot.lane, "running" if slot.beaten else "down"] += 1
    return counts


def _observer(
    watched: Watched, slot: WorkerSlot, metrics: Metrics
) -> Callable[[Mapping[str, Part]], None]:
    """Return what exports the state of a worker, once per second."""
    decoders = watched.decoders
    counts: list[Callable[[], None]] = [
        CountUp(metrics.decoder_starts, lambda: decoders.starts),
        CountUp(metrics.decoder_failures, lambda: decoders.replaced),
        CountUpEach(metrics.decoder_refused, decoders.refused),
        CountUpEach(metrics.memory_refused, watched.ledger.refused),
        CountUpEach(metrics.throttled, watched.throttle.refused),
        CountUpEach(metrics.problems, slot.refusals),
    ]
    loop_wait = metrics.loop_wait_seconds.labels(slot.lane)
    thread_wait = metrics.thread_wait_seconds.labels(slot.lane)
    database = watched.storage.database
    if database is not None:
        metrics.database_connections_limit.set(database.connections.limit)
    metrics.memory_limit_bytes.set(watched.ledger.limit)
    metrics.buffers_limit.set(watched.buffers.limit)
    metrics.threads.set(watched.width)

    def observe(parts: Mapping[str, Part]) -> None:
        for name, part in parts.items():
            metrics.ready.labels(name).set(part.problem is None)
            metrics.check_failures.labels(name).inc(part.problem is not None)
        loop_wait.set(watched.lag_probe.loop_seconds)
        thread_wait.set(watched.lag_probe.thread_seconds)
        if database is not None:
            for state, count in database.connections.counts().items():
                metrics.database_connections.labels(state).set(count)
        busy, idle = decoders.counts
        metrics.decoders.labels("busy").set(busy)
        metrics.decoders.labels("idle").set(idle)
        metrics.decoder_calls_waiting.set(decoders.waiting)
        metrics.spool_bytes.set(watched.reservations.reserved)
        metrics.jobs.labels("waiting").set(watched.sealer.jobs.waiting)
        metrics.jobs.labels("computing").set(watched.sealer.jobs.computing)
        metrics.jobs.labels("suspect").set(watched.sealer.jobs.suspects)
        metrics.jobs.labels("poisoned").set(watched.sealer.jobs.poisoned)
        watched.ledger.relieve()
        for purpose, held in watched.ledger.purposes().items():
            metrics.memory_held_bytes.labels(purpose).set(held)
        metrics.calls.labels("running").set(watched.threads.running)
        metrics.calls.labels("waiting").set(watched.threads.waiting)
        if watched.cluster is not None:
            metrics.engine_tasks_waiting.labels("dask").set(watched.cluster.waiting)
            for state, count in watched.cluster.workers.items():
                metrics.engine_workers.labels(state).set(count)
        for count_up in counts:
            count_up()

    return observe


def measured_quotas(storage: Storage, quotas: Quotas, metrics: Metrics) -> Callable[[], object]:
    """Return a chore of the sweeper: export how much of their quotas owners have used."""

    def measure() -> None:
        for kind, limit in quotas.limits.items():
            used = storage.records.largest_usage(kind)
            share = metrics.quota_used_ratio.labels(limit.name, "count")
            share.set(used.count / max(limit.count, 1))
            share = metrics.quota_used_ratio.labels(limit.name, "bytes")
            share.set(used.nbytes / max(limit.nbytes, 1))

    return measure


def noted_sweeps(metrics: Metrics) -> Callable[[str | None], None]:
    """Return what counts passes of the sweeper, and the chores that failed."""

    def note(failed: str | None) -> None:
        if failed is None:
            metrics.sweeps.inc()
            metrics.sweep_timestamp_seconds.set(time.time())
        else:
            metrics.sweep_failures.labels(failed).inc()

    return note


def noted_objects(metrics: Metrics) -> Callable[[str, float, bool], None]:
    """Return what times requests to the object store."""

    def note(operation: str, seconds: float, failed: bool) -> None:
        metrics.object_seconds.labels(operation).observe(seconds)
        metrics.object_errors.labels(operation).inc(failed)
        current_trace().past(f"object {operation}", seconds)

    return note


def timed_turns(turn: Turn, metrics: Metrics) -> Turn:
    """Return turns whose waits are timed."""

    @contextlib.contextmanager
    def timed() -> Iterator[None]:
        begun = time.perf_counter()
        with turn():
            metrics.turn_seconds.observe(time.perf_counter() - begun)
            yield

    return timed


def noted_operations(metrics: Metrics) -> Callable[[str, float, bool], None]:
    """Return what times operations on the state."""
    timers = {
        name: metrics.store_seconds.labels(name)
        for name in ("create", "get", "swap", "touch", "list", "delete")
    }

    def note(operation: str, seconds: float, failed: bool) -> None:
        timers[operation].observe(seconds)
        current_trace().past(f"state {operation}", seconds)
        if failed:
            metrics.store_errors.labels(operation).inc()

    return note
