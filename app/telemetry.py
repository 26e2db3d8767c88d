"""Metrics of a process; reading them adds up all workers.

Counters and histograms add up over workers, and over those that have died. Each worker has files
for what it counts; the supervisor adds those of a dead one to one file of all the dead, so that
the page takes no longer to read after any number of deaths. A gauge says in
its mode what several workers make together: the sum (of what each has), the largest (of
waits) or the smallest (of what is ready). What belongs to the service rather than a worker,
such as its disk or the ends of its workers, is read when the page is.

No label has values that clients choose: routes are patterns, codes those of the problems,
and owners are not named.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from app.errors import ServiceError
from app.settings import METRICS_DIRECTORY
from core.errors import CoreError

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0)
_STORE_SECONDS = (0.0005, 0.002, 0.01, 0.05, 0.2, 1.0, 5.0)

Mode = Literal["livesum", "livemax", "livemin", "livemostrecent"]


_ADDED_UP = ("counter", "histogram")
_DEAD = 0
"""Stands for the processes that have died."""
_PATIENCE, _PAUSE = 1.0, 0.002
"""Seconds that a reader waits for the supervisor, and between two attempts."""
_unadded: set[int] = set()


def forget_process(pid: int) -> None:
    """Drop the gauges of a process that has died, and add what it counted to that of all dead."""
    mark_process_dead(pid)  # type: ignore[no-untyped-call]
    _unadded.add(pid)
    _make_directory()
    directory = Path(os.environ[METRICS_DIRECTORY])
    # Who waited here for a reader that hangs would replace no process meanwhile.
    with contextlib.suppress(TimeoutError), _locked(directory, fcntl.LOCK_EX, 0.0):
        # Else they are added with the next.
        while _unadded:
            _add_to_the_dead(directory, _unadded.pop())


def _add_to_the_dead(directory: Path, pid: int) -> None:
    for kind in _ADDED_UP:
        path = directory / f"{kind}_{pid}.db"
        with contextlib.suppress(FileNotFoundError, struct.error):
            # Without content, it was being created.
            counted = list(MmapedDict.read_all_values_from_file(path))  # type: ignore[no-untyped-call]
            dead = MmapedDict(directory / f"{kind}_{_DEAD}.db")  # type: ignore[no-untyped-call]
            for key, value, stamp, _ in counted:
                dead.write_value(key, dead.read_value(key)[0] + value, stamp)  # type: ignore[no-untyped-call]
            dead.close()  # type: ignore[no-untyped-call]
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(directory: Path, how: int, patience: float = _PATIENCE) -> Iterator[None]:
    """Lock the files: readers together, whoever moves numbers alone.

    Raises:
        TimeoutError: others held the lock for too long.
    """
    file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    latest = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= latest:
                    raise TimeoutError("the metrics were locked for too long") from None
                time.sleep(_PAUSE)
        yield
    finally:
        os.close(file)


def _make_directory() -> bool:
    """Return whether workers share a directory; make it again if a cleaner of /tmp removed it.

    Several may do so at once: the system makes it for one of them, and the others find it.
    """
    directory = os.environ.get(METRICS_DIRECTORY)
    if directory:
        Path(directory).mkdir(mode=0o700, exist_ok=True)
    return bool(directory)


class Metrics:
    """The metrics of a worker.

    Attributes name what they count; ``*_on`` methods are callbacks for parts that know
    nothing of metrics.
    """

    def __init__(self) -> None:
        _make_directory()
        self._registry = CollectorRegistry()
        self._shared: list[Collector] = []
        self._requests()
        self._streams()
        self._runs()
        self._work()
        self._storage()
        self._limits()

    def _requests(self) -> None:
        self.requests = self._counter("requests", "Requests answered", "method", "route", "status")
        self.seconds = self._histogram(
            "request_seconds",
            "Time from the headers of a request to the end of its answer",
            _SECONDS,
            "route",
        )
        self.running = self._gauge("requests_running", "Requests being answered", "livesum")
        self.problems = self._counter(
            "problems", "Problem documents answered, also within streams, by code", "code"
        )
        self.ready = self._gauge(
            "ready", "Whether a part of the service is ready (1) or not (0)", "livemin", "part"
        )

    def _streams(self) -> None:
        self.body_bytes = self._counter("body_bytes", "Bytes of posted loss streams read, as sent")
        self.answer_bytes = self._counter("answer_bytes", "Bytes of answers sent")
        self.events = self._counter("events", "Complete events answered")
        self.batches = self._counter("batches", "Batches of pipelines sent")
        self.buffers = self._gauge("buffers_used", "Read buffers in use", "livesum")
        self.buffers_limit = self._gauge("buffers_limit", "Read buffers there may be", "livemax")

    def _runs(self) -> None:
        self.runs = self._counter(
            "runs", "Runs that were created, came into another state, or were deleted", "state"
        )
        self.upload_bytes = self._counter("upload_bytes", "Bytes of uploads read, as sent")
        self.upload_parts = self._counter(
            "upload_parts",
            "Requests with bytes of an upload that were accepted, refused with a problem, or cut",
            "outcome",
        )
        self.uploads_running = self._gauge(
            "uploads_running", "Requests that send bytes of an upload", "livesum"
        )
        self.seal_seconds = self._histogram(
            "seal_seconds",
            "Time in which the reports of a run were computed, or found to be impossible",
            _SECONDS,
            "outcome",
        )

    def _work(self) -> None:
        self.loop_wait = self._gauge(
            "loop_wait_seconds",
            "Longest recent wait of a callback in an event loop",
            "livemax",
            "lane",
        )
        self.thread_wait = self._gauge(
            "thread_wait_seconds", "Longest recent wait of a call for a thread", "livemax", "lane"
        )
        self.threads = self._gauge("threads", "Threads that compute", "livesum")
        self.decoders = self._gauge("decoders", "Decoder processes", "livesum", "state")
        self.decoder_starts = self._counter("decoder_starts", "Decoder processes started")
        self.decoder_failures = self._counter(
            "decoder_failures", "Decoder processes that died, or were stopped for a fault"
        )
        self.decoder_calls_waiting = self._gauge(
            "decoder_calls_waiting", "Calls that wait for a decoder process", "livesum"
        )
        self.decoder_refused = self._counter(
            "decoder_refused", "Calls that got no decoder process in time", "limit"
        )

        self.jobs = self._gauge(
            "jobs",
            "Jobs of sealing that wait or are computed, and those whose process died: suspects,"
            " which are computed alone, and poisoned ones, which were given up",
            "livemax",
            "state",
        )
        self.tasks = self._counter(
            "engine_tasks",
            "Tasks of a cluster that were done, or how else they ended",
            *("name", "engine", "outcome"),
        )
        self.tasks_waiting = self._gauge(
            "engine_tasks_waiting", "Tasks of a cluster that have not ended", "livesum", "engine"
        )
        self.task_workers = self._gauge(
            "engine_workers",
            "Workers of the cluster that do tasks of this service (used), or do not (refused)",
            "livemax",
            "state",
        )

    def _storage(self) -> None:
        self.store_seconds = self._histogram(
            "store_seconds", "Time of an operation on the state", _STORE_SECONDS, "operation"
        )
        self.store_errors = self._counter(
            "store_errors", "Operations on the state that failed", "operation"
        )
        self.object_seconds = self._histogram(
            "object_seconds", "Time of a request to the object store", _STORE_SECONDS, "operation"
        )
        self.object_errors = self._counter(
            "object_errors", "Requests to the object store that failed", "operation"
        )
        self.connections = self._gauge(
            "database_connections", "Connections to the database of the state", "livesum", "state"
        )
        self.connections_limit = self._gauge(
            "database_connections_limit", "Connections that there may be", "livesum"
        )
        self.turn_seconds = self._histogram(
            "turn_seconds", "Wait for the turn to change who owns a blob", _STORE_SECONDS
        )
        self.check_failures = self._counter(
            "check_failures", "Looks at a part of the service, once a second, that failed", "part"
        )
        self.sweeps = self._counter("sweeps", "Passes of the sweeper")
        self.sweep_failures = self._counter(
            "sweep_failures", "Chores of the sweeper that failed", "chore"
        )
        self.sweep_at = self._gauge(
            "sweep_timestamp_seconds", "Time of the last pass of the sweeper", "livemax"
        )
        self.quota_ratio = self._gauge(
            "quota_used_ratio",
            "Largest share of a quota that one owner has used",
            "livemostrecent",
            "kind",
            "unit",
        )
        self.spool_bytes = self._gauge(
            "spool_bytes", "Bytes of rows on disk that wait for clients", "livesum"
        )

    def _limits(self) -> None:
        self.budget_exceeded = self._counter(
            "budget_exceeded", "Requests ended by a budget", "stage", "budget"
        )
        self.cancelled = self._counter("cancelled", "Work cancelled before its end", "kind")
        self.memory_held = self._gauge(
            "memory_held_bytes", "Bytes that admitted work holds", "livesum", "purpose"
        )
        self.memory_limit = self._gauge(
            "memory_limit_bytes", "Bytes that admitted work may hold", "livemax"
        )
        self.memory_refused = self._counter(
            "memory_refused", "Work refused for lack of memory, or of the owner's share", "purpose"
        )
        self.throttled = self._counter(
            "throttled", "Requests refused for their number in progress or their rate", "limit"
        )
        self.calls = self._gauge("calls", "Calls in threads", "livesum", "state")

    def on_run(self, state: str) -> None:
        """Count a run that came into a state."""
        self.runs.labels(state).inc()

    def on_sealed(self, ended: str, seconds: float) -> None:
        """Count a run whose reports were computed, or cannot be."""
        self.seal_seconds.labels(ended).observe(seconds)

    def on_upload_bytes(self, count: int) -> None:
        """Count bytes of an upload, which is a posted stream, too."""
        self.body_bytes.inc(count)
        self.upload_bytes.inc(count)

    @contextlib.contextmanager
    def uploading(self) -> Iterator[None]:
        """Count a request with bytes of an upload, and how it ends."""
        outcome = "cut"
        self.uploads_running.inc()
        try:
            yield
            outcome = "accepted"
        except (CoreError, ServiceError):
            outcome = "refused"
            raise
        finally:
            self.uploads_running.dec()
            self.upload_parts.labels(outcome).inc()

    def on_task(self, name: str, outcome: str) -> None:
        """Count a task of a cluster that has ended."""
        self.tasks.labels(name, "dask", outcome).inc()

    def on_exceeded(self, stage: str, budget: str) -> None:
        """Count a request that a budget ended."""
        self.budget_exceeded.labels(stage, budget).inc()

    def on_cancelled(self, kind: str) -> None:
        """Count work that was cancelled."""
        self.cancelled.labels(kind).inc()

    def share(self, collector: Collector) -> None:
        """Add metrics of the whole service, which are read when the page is."""
        self._shared.append(collector)

    def text(self) -> bytes:
        """Return the metrics of all workers in the Prometheus text format."""
        shared = CollectorRegistry()
        for collector in self._shared:
            shared.register(collector)
        if not _make_directory():
            return generate_latest(self._registry) + generate_latest(shared)
        workers = CollectorRegistry()
        _Written(workers)  # type: ignore[no-untyped-call]
        with _locked(Path(os.environ[METRICS_DIRECTORY]), fcntl.LOCK_SH):
            return generate_latest(workers) + generate_latest(shared)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"thalweg_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, mode: Mode, *labels: str) -> Gauge:
        return Gauge(
            f"thalweg_{name}", text, labels, registry=self._registry, multiprocess_mode=mode
        )

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"thalweg_{name}", text, labels, buckets=buckets, registry=self._registry)


class _Written(MultiProcessCollector):
    """Metrics in the files of all processes, but for those that are being created."""

    def collect(self) -> Iterable[Metric]:
        """Read them."""
        files = []
        for path in Path(os.environ[METRICS_DIRECTORY]).glob("*.db"):
            # The gauges of a process that has died may be gone by now.
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size:
                    files.append(str(path))
        found: Iterable[Metric] = self.merge(files, accumulate=True)  # type: ignore[no-untyped-call]
        return found


class CountUp:
    """Brings a counter up to a number that something else counts.

    Args:
        counter: the counter.
        count: reads the number, which never falls.
    """

    def __init__(self, counter: Counter, count: Callable[[], float]) -> None:
        self._counter = counter
        self._count = count
        self._counted = 0.0

    def __call__(self) -> None:
        """Add what has been counted since the last call."""
        count = self._count()
        self._counter.inc(count - self._counted)
        self._counted = count


class CountUpEach:
    """Brings the counters of a family up to numbers that something else counts.

    Args:
        family: has one label.
        counts: the numbers by the value of the label; none ever falls.
    """

    def __init__(self, family: Counter, counts: Mapping[str, int]) -> None:
        self._family = family
        self._counts = counts
        self._each: dict[str, CountUp] = {}

    def __call__(self) -> None:
        """Add what has been counted since the last call."""
        for name in tuple(self._counts):
            if name not in self._each:
                count = partial(self._counts.__getitem__, name)
                self._each[name] = CountUp(self._family.labels(name), count)
            self._each[name]()


Sample = tuple[str, str, dict[str, float]]
"""A metric of the service: its name, its text, and its values by the value of its label."""


@dataclass(eq=False)
class ServiceMetrics(Collector):
    """Metrics of the whole service, the same in whichever worker they are read.

    Args:
        ends: ends of workers by reason.
        workers: number of workers by lane and state.
        disk: free bytes, reserved bytes and size of the data directory's disk; None without.
    """

    ends: Callable[[], dict[str, int]]
    workers: Callable[[], dict[tuple[str, str], int]]
    disk: Callable[[], dict[str, int] | None]

    def collect(self) -> Iterable[Metric]:
        """Read them; see the library."""
        ends = CounterMetricFamily(
            "thalweg_worker_ends", "Workers that died and were replaced", labels=["reason"]
        )
        for reason, count in self.ends().items():
            ends.add_metric([reason], count)
        yield ends
        workers = GaugeMetricFamily(
            "thalweg_workers", "Workers by lane and state", labels=["lane", "state"]
        )
        for names, count in self.workers().items():
            workers.add_metric(names, count)
        yield workers
        for name, value in (self.disk() or {}).items():
            yield GaugeMetricFamily(
                f"thalweg_disk_{name}_bytes", f"Disk of the data directory: {name}", value
            )
