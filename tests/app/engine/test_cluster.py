"""A cluster of processes: the same bytes as this machine, whichever process dies."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app import tasks
from app.command.main import main
from app.engine.base import Registry
from app.engine.cluster import DaskCluster
from app.engine.scheduler import Scheduler
from app.errors import EngineUnavailableError
from app.http.identity import SINGLE_USER
from app.run_errors import ProcessDiedError
from app.runs.records import RunRecord
from app.runs.results.segments import SegmentSums
from app.runs.sealing.work import SealingWork
from app.tiles import reductions
from core.losses.reports import REPORTS
from core.tiles.reduce import Reducer
from tests.app.runs.uploaded import Uploads, partitions
from tests.dask_cluster import DaskProcesses, Spreading, until
from tests.dask_tasks import FORKING, PROGRAM, REGISTRY, WORKERS, Acts
from tests.runs import RUN_REPORTS, RunCase, random_run
from tests.scale import PURE_PYTHON, SOAK
from tests.trace_sink import Sink

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(PURE_PYTHON, reason="workers have kernels of their own"),
    # What Dask leaves when a process is killed that it talks to.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FRAMES = np.random.default_rng(3).integers(0, 250, (28, 512, 512)).astype(np.uint8)
"""28 MiB as float32: chunks of 8 MiB."""
AT_ONCE = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
"""Variables with which spans are sent at once."""
LITTLE = {"DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "0.25"}
"""With which a worker has little memory: some 800 MiB."""
SPECS: tuple[dict[str, Any], ...] = (
    *({"op": op, "over": "frames"} for op in ("sum", "mean", "std", "min", "max")),
    *({"op": op, "over": "pixels"} for op in ("sum", "mean", "std", "min", "max")),
    {"op": "com"},
    {"op": "virtual", "detectors": [{"disk": {"centre": [200, 250], "radius": 90}}]},
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cluster")
    (directory / "roots").mkdir()
    np.save(directory / "roots" / "scan.npy", FRAMES)
    return directory


@pytest.fixture(scope="module")
def settings(home: Path) -> dict[str, Any]:
    return {"dataset_roots": str(home / "roots"), "reserve_bytes": 0}


@pytest.fixture(scope="module")
def here(home: Path, settings: dict[str, Any]) -> Iterator[Uploads]:
    """A service without a cluster, of another store."""
    yield from _service(home / "here", settings)


@pytest.fixture(scope="module")
def service(
    home: Path, settings: dict[str, Any], dask: DaskProcesses, sink: Sink
) -> Iterator[Uploads]:
    """The service of the store that the workers use."""
    shared = {"shared_roots": settings["dataset_roots"], "engine": dask.engine}
    shared |= {"traces": sink.url, "traces_sample": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "REGISTRY", REGISTRY)
        for name, value in AT_ONCE.items():
            patch.setenv(name, value)
        yield from _service(home / "data", settings | shared)


def _service(data: Path, settings: dict[str, Any]) -> Iterator[Uploads]:
    made = Uploads(data, **settings)
    made.sealer.sealing.segment = 400
    entry = {"id": "scan", "files": ["scan.npy"]}
    made.state.datasets.catalogue.register(SINGLE_USER, entry)[0].close()
    yield made
    made.sealer.close()
    if made.state.cluster is not None:
        made.state.cluster.close()


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    sink = Sink()
    yield sink
    sink.close()


@pytest.fixture(scope="module")
def dask(home: Path, settings: dict[str, Any], sink: Sink) -> Iterator[DaskProcesses]:
    # The store is there before workers look for it.
    made = Uploads(home / "data", **settings)
    made.sealer.close()
    where = settings | {"data_dir": home / "data", "traces": sink.url}
    with DaskProcesses(home, FORKING | AT_ONCE | LITTLE | {WORKERS: "2"}, **where) as dask:
        dask.start_worker(*PROGRAM)
        dask.wait_for_workers(2)
        yield dask


@pytest.fixture
def cluster(dask: DaskProcesses) -> Iterator[DaskCluster]:
    made = clustered(dask)
    yield made
    made.close()


def clustered(
    dask: DaskProcesses, registry: Registry = REGISTRY, store: str = "", wait: float = 30.0
) -> DaskCluster:
    dask.wait_for_workers(2)
    return DaskCluster(Scheduler(dask.address), registry, store, wait)


# -- results -----------------------------------------------------------------------


def sealed(service: Uploads, case: RunCase, reports: Sequence[str]) -> RunRecord:
    inputs = {"occurrence": service.occurrence(case)}
    run = service.run(reports, inputs, no_of_periods=case.periods, quantiles=[0.1, 0.5])
    service.upload(run, *partitions(case, 1, 3))
    return service.seal(run)


def digests(service: Uploads, run: RunRecord) -> dict[str, str]:
    files = service.sealer.sealing.files(run)
    found = {name: files.find(name) for name in files.names()}
    return {name: file.digest for name, file in found.items() if file is not None}


def test_every_report_has_the_same_bytes(
    service: Uploads, here: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_run(np.random.default_rng(4))
    reports = list(REPORTS)
    expected = sealed(here, case, reports)
    assert (expected.state, expected.problem) == ("done", None)
    with monkeypatch.context() as patch:
        _refuse(patch)
        run = sealed(service, case, reports)
    assert (run.state, run.problem) == ("done", None)
    tables = [name for name in digests(service, run) if not name.endswith(".told")]
    assert len(tables) == len(reports)
    assert digests(service, run) == digests(here, expected)


def _refuse(patch: pytest.MonkeyPatch) -> None:
    """Have this process compute nothing."""

    def refuse(*_: object) -> None:
        raise AssertionError("computed here")

    patch.setattr(SegmentSums, "_ledgers", refuse)
    patch.setattr(SealingWork, "_rows", refuse)
    patch.setattr(Reducer, "partial", refuse)


def reduced(
    service: Uploads, spec: dict[str, Any], view: dict[str, Any] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    body = {"view": view or {}, "reduction": spec}
    opened, job = service.state.tiles.reduction(SINGLE_USER, "scan", body)
    try:
        found: dict[str, np.ndarray[Any, Any]] = job.run(lambda _done, _of: None, lambda: False)
        return found
    finally:
        opened.close()


def test_every_reduction_has_the_same_bits(
    service: Uploads, here: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reductions, "SEGMENT_BYTES", 8 << 20)
    for spec in SPECS if SOAK else SPECS[2::3]:
        expected = reduced(here, spec)
        with monkeypatch.context() as patch:
            _refuse(patch)
            found = reduced(service, spec)
        assert found.keys() == expected.keys()
        assert all(found[name].tobytes() == expected[name].tobytes() for name in expected), spec


def test_spans_of_tasks_belong_to_the_job(service: Uploads, sink: Sink) -> None:
    sink.spans.clear()
    sealed(service, random_run(np.random.default_rng(7)), ["aal", "melt"])
    until(lambda: sink.named("seal") and sink.named("task seal") and sink.named("task segment"))
    (job,) = sink.named("seal")
    tasks = sink.named("task segment") + sink.named("task seal")
    assert {(span.trace, span.parent) for span in tasks} == {(job.trace, job.id)}
    for task, part in (("task segment", "segment"), ("task seal", "rows"), ("task seal", "sums")):
        idents = {span.id for span in sink.named(task)}
        # Here, too, there is a look at what is missing.
        parents = {span.parent for span in sink.named(part)}
        assert idents & parents
        assert parents <= idents | {job.id}


def test_a_request_that_is_cancelled_cancels_its_tasks(
    service: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reductions, "SEGMENT_BYTES", 8 << 20)
    outcomes: Counter[str] = Counter()
    monkeypatch.setattr(service.state.cluster, "on_ended", lambda _, how: outcomes.update([how]))
    body = {"view": {"sig": [[0, 511], [0, 512]]}, "reduction": {"op": "max", "over": "frames"}}
    opened, job = service.state.tiles.reduction(SINGLE_USER, "scan", body)
    with closing(opened), pytest.raises(reductions.CancelledError):
        job.run(lambda _done, _of: None, lambda: True)
    assert outcomes["cancelled"] >= 3
    assert service.state.cluster is not None
    assert service.state.cluster.waiting == 0
    client = service.state.cluster._connected()
    # No task is to be done, and no result kept.
    until(lambda: not any(client.processing().values()) and not any(client.has_what().values()))


def test_roots_that_are_not_shared_are_reduced_here(
    home: Path, service: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reductions, "SEGMENT_BYTES", 4 << 20)
    monkeypatch.setattr(service.state.tiles.cluster, "spread", lambda *_: pytest.fail("sent"))
    view, spec = {"sig": [[0, 512], [0, 256]]}, {"op": "sum", "over": "frames"}
    (home / "elsewhere").mkdir()
    expected = FRAMES[:, :, :256].sum(0, dtype=np.float64)
    object.__setattr__(service.state.tiles, "shared", [home / "elsewhere"])
    try:
        assert np.array_equal(reduced(service, spec, view)["sum"], expected)
    finally:
        object.__setattr__(service.state.tiles, "shared", [home / "roots"])


def test_partitions_in_files_are_added_up_by_workers(
    home: Path, dask: DaskProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.command import spread
    from tests.app.runs.uploaded import occurrence_csv

    case = random_run(np.random.default_rng(5))
    names = []
    for number, data in enumerate(partitions(case, 2, 3)):
        names.append(str(home / f"part{number}.bin"))
        Path(names[-1]).write_bytes(data)
    (home / "occurrence.csv").write_bytes(occurrence_csv(case))
    options = [
        *("aggregate", *names, "--reports", ",".join(RUN_REPORTS), "--no-progress"),
        *("--occurrence", str(home / "occurrence.csv"), "--no-of-periods", str(case.periods)),
    ]
    assert main([*options, "--out", str(home / "here-tables")]) == 0
    monkeypatch.setattr(spread, "add_up", lambda _task: pytest.fail("added up here"))
    monkeypatch.setattr(spread, "REGISTRY", REGISTRY)
    where = ["--engine", dask.engine, "--engine-dir", str(home)]
    assert main([*options, *where, "--out", str(home / "cluster-tables")]) == 0
    for report in RUN_REPORTS:
        expected = (home / "here-tables" / f"{report}.csv").read_bytes()
        assert (home / "cluster-tables" / f"{report}.csv").read_bytes() == expected
    assert list(home.glob("*.partial*")) == []


# -- what ends a unit ----------------------------------------------------------------


def acts(directory: Path, **given: str) -> Acts:
    return Acts(directory, given)


def test_a_worker_that_is_killed_has_its_unit_done_by_another(
    cluster: DaskCluster, tmp_path: Path
) -> None:
    work = acts(tmp_path, a="wait", b="")
    spreading = Spreading(cluster, work)
    until(lambda: work.starts("a") and work.starts("a")[0])
    os.kill(work.starts("a")[0], signal.SIGKILL)
    until(lambda: len(work.starts("a")) == 2)
    (tmp_path / "go").touch()
    spreading.end()
    assert (spreading.done, spreading.error) == (["a", "b"], None)
    assert len(set(work.starts("a"))) == 2


def test_what_is_lost_with_the_scheduler_is_submitted_again(
    dask: DaskProcesses, cluster: DaskCluster, tmp_path: Path
) -> None:
    units = {f"u{n}": "" if n < 5 else "wait" for n in range(10)}
    work = acts(tmp_path, **units)
    spreading = Spreading(cluster, work, first=5)
    until(lambda: len(spreading.done) == 5 and work.starts("u5"))
    dask.scheduler.kill()
    dask.scheduler.wait()
    dask.start_scheduler()
    (tmp_path / "go").touch()
    spreading.end()
    assert (spreading.done, spreading.error) == (list(units), None)
    assert [len(work.starts(unit)) for unit in list(units)[:5]] == [1] * 5


def test_a_run_whose_cluster_is_lost_is_tried_again(
    service: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise EngineUnavailableError("the scheduler cannot be reached")

    case = random_run(np.random.default_rng(6))
    run = service.run(["melt"])
    service.upload(run, *partitions(case, 3, 1))
    with monkeypatch.context() as patch:
        patch.setattr(service.state.sealing.cluster, "spread", lost)
        assert service.seal(run).state == "computing"
    assert service.seal(run).state == "done"


@pytest.mark.parametrize("act", ["die", "eat"])
def test_a_unit_that_kills_workers_is_named_and_not_done_here(
    dask: DaskProcesses, cluster: DaskCluster, tmp_path: Path, act: str
) -> None:
    work = acts(tmp_path, a="", poison=act, c="")
    outcomes: list[str] = []
    cluster.on_ended = lambda _kind, outcome: outcomes.append(outcome)
    spreading = Spreading(cluster, work)
    spreading.end()
    assert isinstance(spreading.error, ProcessDiedError)
    assert "computing the unit poison has ended 2 workers" in str(spreading.error)
    assert spreading.error.members["deaths"] == 2
    assert len(set(work.starts("poison"))) == 2
    # The last may be done by then.
    assert outcomes in (["done", "done", "poisoned"], ["done", "poisoned", "cancelled"])
    if act == "eat":
        # As the hint of the error promises.
        until(lambda: "memory budget" in dask.log)
