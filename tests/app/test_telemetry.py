"""Metrics of several workers, read as one."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.mmap_dict import MmapedDict

from app import telemetry
from app.telemetry import CountUp, Metrics, ServiceMetrics, forget_process
from tests.scale import SOAK

WORKER = """
import sys
from app.telemetry import Metrics
metrics = Metrics()
ready, wait, quota = map(float, sys.argv[1:])
metrics.ready.labels("store").set(ready)
metrics.loop_wait_seconds.labels("quick").set(wait)
metrics.buffers_used.set(2)
metrics.requests.labels("GET", "/", 200).inc(3)
metrics.on_exceeded("filter", "items")
metrics.on_cancelled("tiles")
metrics.quota_used_ratio.labels("views", "count").set(quota)
print(metrics.text().decode(), flush=True)
sys.stdin.read()
"""


def values(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_a_directory_that_was_removed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "removed"
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(shared))
    metrics = Metrics()
    shared.rmdir()
    assert metrics.text() == b""
    assert shared.stat().st_mode & 0o777 == 0o700


def test_workers_add_up_and_the_worst_of_them_shows(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "removed")}
    workers = []
    texts = []
    for arguments in (("1", "0.5", "0.9"), ("0", "0.1", "0.2")):
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, *arguments],
            env=environment,
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        workers.append(worker)
        lines = []
        assert worker.stdout is not None
        while (line := worker.stdout.readline()) != "\n":
            lines.append(line)
        texts.append("".join(lines))
    try:
        both = values(texts[1])
        assert both['thalweg_ready{part="store"}'] == 0
        assert both['thalweg_loop_wait_seconds{lane="quick"}'] == 0.5
        assert both["thalweg_buffers_used"] == 4
        assert both['thalweg_requests_total{method="GET",route="/",status="200"}'] == 6
        assert both['thalweg_budget_exceeded_total{budget="items",stage="filter"}'] == 2
        assert both['thalweg_cancelled_total{kind="tiles"}'] == 2
        assert both['thalweg_quota_used_ratio{kind="views",unit="count"}'] == 0.2
    finally:
        for worker in workers:
            worker.communicate()


DEATHS = """
import os, resource, signal, sys
from app.telemetry import Metrics, forget_process

def seconds():
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        metrics.text()
        spent.append(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before)
    return min(spent)

def worker():
    pid = os.fork()
    if not pid:
        try:
            for route in map(str, range(20)):
                metrics.requests.labels("GET", route, 200).inc()
                metrics.request_seconds.labels(route).observe(0.1)
            metrics.buffers_used.set(2)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    return pid

metrics = Metrics()
before, pids = None, []
for number in range(int(sys.argv[1])):
    pid = worker()
    if number == 1:
        before = seconds()
    forget_process(pid)
print(before, seconds())
print(metrics.text().decode())
"""


def test_deaths_neither_slow_the_page_nor_lose_what_was_counted(tmp_path: Path) -> None:
    deaths = 1000 if SOAK else 60
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", DEATHS, str(deaths)],
        env=environment,
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    times, _, text = done.stdout.partition("\n")
    before, after = map(float, times.split())
    read = values(text)
    assert read['thalweg_requests_total{method="GET",route="7",status="200"}'] == deaths
    assert read['thalweg_request_seconds_count{route="7"}'] == deaths
    assert read["thalweg_buffers_used"] == 0
    assert len(list(tmp_path.glob("*_*.db"))) < 10
    # The clock may tick once in one of them.
    assert after <= 2 * before + 0.01


def test_a_file_that_is_being_created_has_no_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    counted = MmapedDict(tmp_path / "counter_1.db")  # type: ignore[no-untyped-call]
    counted.write_value('["a", "a", {}, "a"]', 5.0, 0.0)  # type: ignore[no-untyped-call]
    counted.close()  # type: ignore[no-untyped-call]
    (tmp_path / "counter_2.db").touch()
    (metric,) = telemetry._Written(CollectorRegistry()).collect()  # type: ignore[no-untyped-call]
    assert [sample.value for sample in metric.samples] == [5.0]


def test_what_a_reader_keeps_from_being_added_is_added_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    for pid in (1, 2):
        counted = MmapedDict(tmp_path / f"counter_{pid}.db")  # type: ignore[no-untyped-call]
        counted.write_value("key", 5.0, 0.0)  # type: ignore[no-untyped-call]
        counted.close()  # type: ignore[no-untyped-call]
    (tmp_path / "histogram_2.db").write_bytes(b"")
    with telemetry._locked(tmp_path, fcntl.LOCK_SH), monkeypatch.context() as patch:
        patch.setattr(time, "sleep", lambda _: pytest.fail("it waits for the reader"))
        forget_process(1)
    forget_process(2)
    assert {path.name for path in tmp_path.iterdir()} == {"counter_0.db", "lock"}
    read = MmapedDict.read_all_values_from_file(tmp_path / "counter_0.db")  # type: ignore[no-untyped-call]
    assert [(key, value) for key, value, *_ in read] == [("key", 10)]


def test_a_counter_is_brought_up_to_what_something_else_counts() -> None:
    metrics, count = Metrics(), [2]
    count_up = CountUp(metrics.decoder_starts, lambda: count[0])
    count_up()
    count[0] = 5
    count_up()
    count_up()
    assert values(metrics.text().decode())["thalweg_decoder_starts_total"] == 5


@pytest.mark.parametrize("disk", [None, {"free": 1, "size": 4, "reserve": 2}])
def test_what_belongs_to_the_service_is_read_with_the_page(disk: dict[str, int] | None) -> None:
    metrics = Metrics()
    metrics.share(
        ServiceMetrics(
            lambda: {"SIGKILL": 2, "exit 1": 1}, lambda: {("long", "running"): 3}, lambda: disk
        )
    )
    found = values(metrics.text().decode())
    assert found['thalweg_worker_ends_total{reason="SIGKILL"}'] == 2
    assert found['thalweg_workers{lane="long",state="running"}'] == 3
    sizes = {name: found.get(f"thalweg_disk_{name}_bytes") for name in ("free", "size", "reserve")}
    assert sizes == (disk or dict.fromkeys(sizes))
