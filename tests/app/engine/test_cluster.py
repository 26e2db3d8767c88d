"""A cluster of processes: the same bytes as this machine, whichever process dies."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app import tasks
from app.command.main import main
from app.engine.cluster import DaskCluster, Kind, Registry, Scheduler
from app.errors import EngineUnavailableError
from app.http.identity import SINGLE_USER
from app.run_errors import ProcessDiedError
from app.runs.records import RunRecord
from app.runs.results.segments import SegmentSums
from app.runs.sealing.work import SealingWork
from app.tiles import reductions
from core.errors import CancelledError
from core.losses.reports import REPORTS
from core.tiles.reduce import Reducer
from tests.app.runs.uploaded import Uploads, partitions
from tests.dask_cluster import DaskProcesses, free_port, until
from tests.dask_tasks import PROGRAM, REGISTRY, Acts
from tests.runs import RUN_REPORTS, RunCase, random_run
from tests.scale import PURE_PYTHON

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(PURE_PYTHON, reason="workers have kernels of their own"),
    # What Dask leaves when a process is killed that it talks to.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FRAMES = np.random.default_rng(3).integers(0, 250, (28, 512, 512)).astype(np.uint8)
"""28 MiB as float32: chunks of 8 MiB."""
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
def service(home: Path, settings: dict[str, Any], dask: DaskProcesses) -> Iterator[Uploads]:
    """The service of the store that the workers use."""
    shared = {"shared_roots": settings["dataset_roots"], "engine": dask.engine}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "REGISTRY", REGISTRY)
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
def dask(home: Path, settings: dict[str, Any]) -> Iterator[DaskProcesses]:
    # The store is there before workers look for it.
    made = Uploads(home / "data", **settings)
    made.sealer.close()
    with DaskProcesses(home, data_dir=home / "data", **settings) as dask:
        for _ in range(2):
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
    assert len(digests(service, run)) == len(reports)
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
    for spec in SPECS:
        expected = reduced(here, spec)
        with monkeypatch.context() as patch:
            _refuse(patch)
            found = reduced(service, spec)
        assert found.keys() == expected.keys()
        assert all(found[name].tobytes() == expected[name].tobytes() for name in expected), spec


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


def test_units_come_in_order_and_what_is_done_is_not_done_again(
    cluster: DaskCluster, tmp_path: Path
) -> None:
    work = acts(tmp_path, **{f"u{n}": "" for n in range(20)})
    (tmp_path / "u7").touch()
    assert list(cluster.spread(work, work.acts)) == list(work.acts)
    begun = {unit: len(work.starts(unit)) for unit in work.acts}
    assert begun == {unit: int(unit != "u7") for unit in work.acts}
    assert all(map(work.is_done, work.acts))


def test_a_unit_that_fails_is_left_to_this_machine(
    cluster: DaskCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    work = acts(tmp_path, a="fail", b="")
    assert list(cluster.spread(work, work.acts)) == ["a", "b"]
    assert (work.is_done("a"), work.is_done("b")) == (False, True)
    assert "the disk of the worker is full" in "".join(capfd.readouterr())


def test_a_unit_without_a_worker_that_is_large_enough_is_left(
    cluster: DaskCluster, tmp_path: Path
) -> None:
    work = Acts(tmp_path, {"a": ""}, nbytes=1 << 50)
    assert list(cluster.spread(work, work.acts)) == ["a"]
    assert not work.starts("a")


class Spreading:
    """Units that are spread in a thread."""

    def __init__(self, cluster: DaskCluster, work: Acts) -> None:
        self.done: list[str] = []
        self.error: Exception | None = None
        self.gone = threading.Event()
        self._cluster, self._work = cluster, work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        def check() -> None:
            if self.gone.is_set():
                raise CancelledError("nobody waits")

        try:
            for unit in self._cluster.spread(self._work, self._work.acts, check):
                self.done.append(unit)
        except Exception as e:  # noqa: BLE001 - which the test looks at
            self.error = e

    def end(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()


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


def test_nobody_waits_any_more(cluster: DaskCluster, tmp_path: Path) -> None:
    work = acts(tmp_path, **{f"u{n}": "wait" for n in range(9)})
    spreading = Spreading(cluster, work)
    until(lambda: work.starts("u0"))
    spreading.gone.set()
    spreading.end()
    assert isinstance(spreading.error, CancelledError)
    begun = [unit for unit in work.acts if work.starts(unit)]
    assert len(begun) < len(work.acts)
    # Those that run are told; the others never begin.
    until(lambda: all((tmp_path / f"{unit}.cancelled").exists() for unit in begun))
    assert [unit for unit in work.acts if work.starts(unit)] == begun


def test_what_is_lost_with_the_scheduler_is_submitted_again(
    dask: DaskProcesses, cluster: DaskCluster, tmp_path: Path
) -> None:
    units = {f"u{n}": "" if n < 5 else "wait" for n in range(10)}
    work = acts(tmp_path, **units)
    spreading = Spreading(cluster, work)
    until(lambda: len(spreading.done) == 5 and work.starts("u5"))
    dask.scheduler.kill()
    dask.scheduler.wait()
    dask.start_scheduler()
    (tmp_path / "go").touch()
    spreading.end()
    assert (spreading.done, spreading.error) == (list(units), None)
    assert [len(work.starts(unit)) for unit in list(units)[:5]] == [1] * 5


# -- clusters that do nothing --------------------------------------------------------


def test_workers_of_another_version_are_refused_by_name(
    dask: DaskProcesses, tmp_path: Path
) -> None:
    newer = {**REGISTRY, "segment": Kind("losses 9", "nowhere:nothing")}
    cluster = clustered(dask, newer)
    with pytest.raises(EngineUnavailableError) as caught:
        list(cluster.spread(acts(tmp_path, a=""), ["a"]))
    cluster.close()
    assert "has the task segment in version losses 1, segment 1, not losses 9" in str(caught.value)
    assert str(caught.value).count("tcp://127.0.0.1:") == 3


def test_workers_of_another_store_are_refused_by_name(
    dask: DaskProcesses, home: Path, tmp_path: Path
) -> None:
    registry = {**REGISTRY}
    cluster = clustered(dask, registry, "store-other")
    work = Acts(tmp_path, {"a": ""}, kind="segment")
    with pytest.raises(EngineUnavailableError) as caught:
        list(cluster.spread(work, ["a"]))
    cluster.close()
    assert "uses another store than this service, THALWEG_STATE=sqlite:" in str(caught.value)
    assert str(home / "data") in str(caught.value)


def test_a_scheduler_that_is_not_there_is_waited_for_and_named(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    cluster = DaskCluster(Scheduler(address), REGISTRY, "", 0.3)
    with pytest.raises(EngineUnavailableError, match=rf"the scheduler {address} cannot be reached"):
        list(cluster.spread(acts(tmp_path, a=""), ["a"]))
    cluster.close()


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


# -- last, as no worker is left for a while ------------------------------------------


def test_a_unit_that_kills_workers_is_named_and_not_done_here(
    cluster: DaskCluster, tmp_path: Path
) -> None:
    work = acts(tmp_path, a="", poison="die", c="")
    spreading = Spreading(cluster, work)
    spreading.end()
    assert isinstance(spreading.error, ProcessDiedError)
    assert "computing the unit poison has ended 2 workers" in str(spreading.error)
    assert spreading.error.members["deaths"] == 2
    assert len(work.starts("poison")) == 2
