"""Metrics of several workers, read as one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.telemetry import CountUp, Metrics, ServiceMetrics

WORKER = """
import sys
from app.telemetry import Metrics
metrics = Metrics()
ready, wait, quota = map(float, sys.argv[1:])
metrics.ready.labels("store").set(ready)
metrics.loop_wait.set(wait)
metrics.buffers.set(2)
metrics.requests.labels("GET", "/", 200).inc(3)
metrics.on_exceeded("filter", "items")
metrics.on_cancelled("tiles")
metrics.quota_ratio.labels("views", "count").set(quota)
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
        assert both["thalweg_loop_wait_seconds"] == 0.5
        assert both["thalweg_buffers_used"] == 4
        assert both['thalweg_requests_total{method="GET",route="/",status="200"}'] == 6
        assert both['thalweg_budget_exceeded_total{budget="items",stage="filter"}'] == 2
        assert both['thalweg_cancelled_total{kind="tiles"}'] == 2
        assert both['thalweg_quota_used_ratio{kind="views",unit="count"}'] == 0.2
    finally:
        for worker in workers:
            worker.communicate()


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
        ServiceMetrics(lambda: {"SIGKILL": 2, "exit 1": 1}, lambda: {"running": 3}, lambda: disk)
    )
    found = values(metrics.text().decode())
    assert found['thalweg_worker_ends_total{reason="SIGKILL"}'] == 2
    assert found['thalweg_workers{state="running"}'] == 3
    sizes = {name: found.get(f"thalweg_disk_{name}_bytes") for name in ("free", "size", "reserve")}
    assert sizes == (disk or dict.fromkeys(sizes))
