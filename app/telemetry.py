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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

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
def _locked(directory: Path, keywords: int, patience: float = _PATIENCE) -> Iterator[None]:
    """Lock the files: readers together, whoever moves numbers alone.

    Raises:
        TimeoutError: others held the lock for too long.
    """
    file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    latest = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(file, keywords | fcntl.LOCK_NB)
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


@dataclass(frozen=True, slots=True)
class _Declared:
    """A metric as each worker has it, by the name of its attribute."""

    kind: type[Counter | Gauge | Histogram]
    text: str
    labels: Sequence[str]
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def create(self, attribute: str, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
        """Make it."""
        name = f"thalweg_{attribute}"
        return self.kind(name, self.text, self.labels, registry=registry, **self.keywords)


def _counter(text: str, *labels: str) -> Counter:
    return cast("Counter", _Declared(Counter, text, labels))


def _gauge(text: str, mode: Mode, *labels: str) -> Gauge:
    return cast("Gauge", _Declared(Gauge, text, labels, {"multiprocess_mode": mode}))


def _histogram(text: str, buckets: Sequence[float], *labels: str) -> Histogram:
    return cast("Histogram", _Declared(Histogram, text, labels, {"buckets": buckets}))


class Metrics:
    """The metrics of a worker.

    Attributes name what they count; ``*_on`` methods are callbacks for parts that know
    nothing of metrics.
    """

    requests = _counter("Requests answered", "method", "route", "status")
    request_seconds = _histogram(
        "Time from the headers of a request to the end of its answer", _SECONDS, "route"
    )
    requests_running = _gauge("Requests being answered", "livesum")
    problems = _counter("Problem documents answered, also within streams, by code", "code")
    ready = _gauge("Whether a part of the service is ready (1) or not (0)", "livemin", "part")

    body_bytes = _counter("Bytes of posted loss streams read, as sent")
    answer_bytes = _counter("Bytes of answers sent")
    events = _counter("Complete events answered")
    batches = _counter("Batches of pipelines sent")
    buffers_used = _gauge("Read buffers in use", "livesum")
    buffers_limit = _gauge("Read buffers there may be", "livemax")

    runs = _counter("Runs that were created, came into another state, or were deleted", "state")
    upload_bytes = _counter("Bytes of uploads read, as sent")
    upload_parts = _counter(
        "Requests with bytes of an upload that were accepted, refused with a problem, or cut",
        "outcome",
    )
    uploads_running = _gauge("Requests that send bytes of an upload", "livesum")
    seal_seconds = _histogram(
        "Time in which the reports of a run were computed, or found to be impossible",
        _SECONDS,
        "outcome",
    )

    loop_wait_seconds = _gauge(
        "Longest recent wait of a callback in an event loop", "livemax", "lane"
    )
    thread_wait_seconds = _gauge("Longest recent wait of a call for a thread", "livemax", "lane")
    threads = _gauge("Threads that compute", "livesum")
    decoders = _gauge("Decoder processes", "livesum", "state")
    decoder_starts = _counter("Decoder processes started")
    decoder_failures = _counter("Decoder processes that died, or were stopped for a fault")
    decoder_calls_waiting = _gauge("Calls that wait for a decoder process", "livesum")
    decoder_refused = _counter("Calls that got no decoder process in time", "limit")
    jobs = _gauge(
        "Jobs of sealing that wait or are computed, and those whose process died: suspects,"
        " which are computed alone, and poisoned ones, which were given up",
        "livemax",
        "state",
    )
    engine_tasks = _counter(
        "Tasks of a cluster that were done, or how else they ended", "name", "engine", "outcome"
    )
    engine_tasks_waiting = _gauge("Tasks of a cluster that have not ended", "livesum", "engine")
    engine_workers = _gauge(
        "Workers of the cluster that do tasks of this service (used), or do not (refused)",
        "livemax",
        "state",
    )

    store_seconds = _histogram("Time of an operation on the state", _STORE_SECONDS, "operation")
    store_errors = _counter("Operations on the state that failed", "operation")
    object_seconds = _histogram(
        "Time of a request to the object store", _STORE_SECONDS, "operation"
    )
    object_errors = _counter("Requests to the object store that failed", "operation")
    database_connections = _gauge("Connections to the database of the state", "livesum", "state")
    database_connections_limit = _gauge("Connections that there may be", "livesum")
    turn_seconds = _histogram("Wait for the turn to change who owns a blob", _STORE_SECONDS)
    check_failures = _counter("Looks at a part of the service, once a second, that failed", "part")
    sweeps = _counter("Passes of the sweeper")
    sweep_failures = _counter("Chores of the sweeper that failed", "chore")
    sweep_timestamp_seconds = _gauge("Time of the last pass of the sweeper", "livemax")
    quota_used_ratio = _gauge(
        "Largest share of a quota that one owner has used", "livemostrecent", "kind", "unit"
    )
    spool_bytes = _gauge("Bytes of rows on disk that wait for clients", "livesum")

    budget_exceeded = _counter("Requests ended by a budget", "stage", "budget")
    cancelled = _counter("Work cancelled before its end", "kind")
    memory_held_bytes = _gauge("Bytes that admitted work holds", "livesum", "purpose")
    memory_limit_bytes = _gauge("Bytes that admitted work may hold", "livemax")
    memory_refused = _counter("Work refused for lack of memory, or of the owner's share", "purpose")
    throttled = _counter("Requests refused for their number in progress or their rate", "limit")
    calls = _gauge("Calls in threads", "livesum", "state")

    def __init__(self) -> None:
        _make_directory()
        self._registry = CollectorRegistry()
        self._shared: list[Collector] = []
        for attribute, declared in vars(Metrics).items():
            if isinstance(declared, _Declared):
                setattr(self, attribute, declared.create(attribute, self._registry))

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
        self.engine_tasks.labels(name, "dask", outcome).inc()

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
