"""Units of work on a cluster: what ends them, what is counted, and which workers may have them.

Its workers are threads of this process; ``test_cluster.py`` has processes, which can die.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from app.engine import cluster as module
from app.engine.base import Kind, Registry, TaskFailedError
from app.engine.cluster import DaskCluster
from app.engine.request_budget import BudgetLimits, RequestBudget
from app.engine.scheduler import Scheduler
from app.errors import EngineUnavailableError
from core.errors import BudgetExceededError, CancelledError
from tests.dask_cluster import Spreading, free_port, threads_of_dask, until
from tests.dask_tasks import REGISTRY, Acts
from tests.scale import PURE_PYTHON

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(PURE_PYTHON, reason="shows the same however kernels run"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NOBODY = threading.Event()
Make = Callable[..., DaskCluster]


@pytest.fixture(scope="module")
def dask() -> Iterator[LocalCluster]:
    with threads_of_dask(REGISTRY) as cluster:
        yield cluster


@pytest.fixture
def make(dask: LocalCluster) -> Iterator[Make]:
    made: list[DaskCluster] = []

    def make(registry: Registry = REGISTRY, store: str = "store-here") -> DaskCluster:
        made.append(DaskCluster(Scheduler(dask.scheduler_address), registry, store, 20))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make: Make) -> DaskCluster:
    return make()


@pytest.fixture
def ended(cluster: DaskCluster) -> Counter[str]:
    """How tasks have ended, as metrics count it."""
    counts: Counter[str] = Counter()
    cluster.on_ended = lambda kind, outcome: counts.update([f"{kind} {outcome}"])
    return counts


def test_units_come_in_order_and_what_is_done_is_not_done_again(
    cluster: DaskCluster, ended: Counter[str], tmp_path: Path
) -> None:
    work = Acts(tmp_path, {f"u{n}": "" for n in range(20)})
    (tmp_path / "u7").touch()
    assert list(cluster.spread(work, work.acts)) == list(work.acts)
    begun = {unit: len(work.starts(unit)) for unit in work.acts}
    assert begun == {unit: int(unit != "u7") for unit in work.acts}
    assert all(map(work.is_done, work.acts))
    assert ended == {"test done": 19}


def test_a_unit_that_fails_is_left_to_this_machine(
    cluster: DaskCluster, ended: Counter[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    work = Acts(tmp_path, {"a": "fail", "b": ""})
    assert list(cluster.spread(work, work.acts)) == ["a", "b"]
    assert (work.is_done("a"), work.is_done("b")) == (False, True)
    assert "the disk of the worker is full" in "".join(capfd.readouterr())
    assert ended == {"test here": 1, "test done": 1}


def test_a_fault_of_ours_ends_the_work_as_it_does_here(
    cluster: DaskCluster, ended: Counter[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    work = Acts(tmp_path, {"a": "", "b": "fault", **{f"u{n}": "wait" for n in range(5)}})
    taken: list[str] = []
    with pytest.raises(TaskFailedError) as caught:
        taken.extend(cluster.spread(work, work.acts))
    assert str(caught.value).startswith("the unit b: TypeError: a fault of ours; the log of tcp://")
    assert taken == ["a"]
    assert ended == {"test done": 1, "test failed": 1, "test cancelled": 5}
    assert 'raise TypeError("a fault of ours")' in "".join(capfd.readouterr())


def test_a_unit_without_a_worker_that_is_large_enough_is_left(
    cluster: DaskCluster, ended: Counter[str], tmp_path: Path
) -> None:
    work = Acts(tmp_path, {"a": ""}, nbytes=1 << 50)
    assert list(cluster.spread(work, work.acts)) == ["a"]
    assert not work.starts("a")
    assert ended == {"test here": 1}


def test_nobody_waits_any_more(cluster: DaskCluster, ended: Counter[str], tmp_path: Path) -> None:
    work = Acts(tmp_path, {f"u{n}": "wait" for n in range(9)})
    spreading = Spreading(cluster, work)
    until(lambda: work.starts("u0") and cluster.waiting == 9)
    spreading.gone.set()
    spreading.end()
    assert isinstance(spreading.error, CancelledError)

    def begun() -> list[str]:
        return [unit for unit in work.acts if work.starts(unit)]

    # Those that run are told, also one that began at that moment; the others never begin.
    until(lambda: all((tmp_path / f"{unit}.cancelled").exists() for unit in begun()))
    assert len(begun()) < len(work.acts)
    assert (cluster.waiting, ended) == (0, {"test cancelled": 9})


def test_parameters_are_charged_and_bounded(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Acts(tmp_path, {f"u{n:02}": "" for n in range(30)})
    size = len(json.dumps({**work.task("u00"), module.TRACE: None}))
    monkeypatch.setattr(module, "_WINDOW_BYTES", 4 * size)
    most = 0
    budget = RequestBudget(BudgetLimits(), NOBODY, NOBODY)
    with budget.in_thread() as thread:
        for _ in cluster.spread(work, work.acts):
            most = max(most, cluster.waiting)
            # Those that are not submitted yet, too.
            assert cluster.waiting * size <= thread.held <= 4 * size
        assert thread.held == 0
    assert 0 < most <= 4
    budget = RequestBudget(BudgetLimits(memory=4 * size), NOBODY, NOBODY)
    monkeypatch.undo()
    with budget.in_thread(), pytest.raises(BudgetExceededError):
        list(cluster.spread(Acts(tmp_path / "other", work.acts), work.acts))
    assert (budget.held, cluster.waiting) == (0, 0)


def test_units_that_are_known_are_submitted_in_bulk(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes one after the other may wait for those before."""
    client, sizes = cluster._connected(), list[int]()
    submit = client.map

    def counting(function: Any, kinds: list[str], *more: Any, **options: Any) -> Any:  # noqa: ANN401
        sizes.append(len(kinds))
        return submit(function, kinds, *more, **options)

    monkeypatch.setattr(client, "map", counting)
    work = Acts(tmp_path, {f"u{n:02}": "" for n in range(60)})
    assert list(cluster.spread(work, work.acts)) == list(work.acts)
    assert sum(sizes) == 60
    assert sizes[0] == 1
    assert len(sizes) <= 20
    sizes.clear()
    list(cluster.spread(Acts(tmp_path, {"a": "", "b": ""}), iter("ab")))
    assert sizes == [1, 1]


def test_workers_are_counted(make: Make) -> None:
    cluster, newer = make(), make({**REGISTRY, "segment": Kind("losses 9", "nowhere:nothing")})
    assert cluster.describe() == (2, [])
    assert cluster.workers == {}
    for watched in (cluster, newer):
        watched.watch()
    until(lambda: cluster.workers and newer.workers)
    assert cluster.workers == {"used": 2, "refused": 0}
    assert newer.workers == {"used": 0, "refused": 2}
    away = DaskCluster(Scheduler(f"tcp://127.0.0.1:{free_port()}"), REGISTRY, "", 0.3)
    away.watch()
    until(lambda: away.workers == {"used": 0, "refused": 0})
    away.close()


def test_workers_of_another_version_are_refused_by_name(make: Make, tmp_path: Path) -> None:
    newer = make({**REGISTRY, "segment": Kind("losses 9", "nowhere:nothing")})
    with pytest.raises(EngineUnavailableError) as caught:
        list(newer.spread(Acts(tmp_path, {"a": ""}), ["a"]))
    version = REGISTRY["segment"].version
    assert f"has the task segment in version {version}, not losses 9" in str(caught.value)
    assert str(caught.value).count("tcp://127.0.0.1:") == 3


def test_workers_of_another_store_are_refused_by_name(make: Make, tmp_path: Path) -> None:
    work = Acts(tmp_path, {"a": ""}, kind="segment")
    with pytest.raises(EngineUnavailableError) as caught:
        list(make(store="store-other").spread(work, ["a"]))
    assert "uses another store than this service, THALWEG_STATE=sqlite:" in str(caught.value)


def test_a_scheduler_that_is_not_there_is_waited_for_and_named(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    cluster = DaskCluster(Scheduler(address), REGISTRY, "", 0.3)
    with pytest.raises(EngineUnavailableError, match=rf"the scheduler {address} cannot be reached"):
        list(cluster.spread(Acts(tmp_path, {"a": ""}), ["a"]))
    begun = time.monotonic()
    cluster.close()
    assert time.monotonic() - begun < 10
