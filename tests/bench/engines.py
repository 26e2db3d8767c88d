"""Tasks on a cluster against threads of this machine, with as many cores.

    python -m tests.bench.engines

Tasks wait for 1 s or 0.1 s rather than compute, so that the figures are those of the engines, not
of the machine: the time beyond that of the same tasks in threads, in alternating rounds. Then a
worker is killed in the middle: how often tasks were begun.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from app.cores import count_cores
from app.engine.cluster import DaskCluster
from app.engine.scheduler import Scheduler
from app.engine.workers import Workers
from app.losses.analyses import OrderedCalls
from tests.dask_cluster import DaskProcesses, until
from tests.dask_tasks import PROGRAM, REGISTRY, Acts, act

ROUNDS = 3


@dataclass(frozen=True)
class Waits(Acts):
    """Units that take as long as their act says."""

    def task(self, unit: str) -> dict[str, Any]:
        seconds = self.acts[unit]
        return {"path": str(self.directory / unit), "act": "seconds", "seconds": seconds}


def waits(seconds: float, count: int) -> Waits:
    units = {f"u{n:04}": str(seconds) for n in range(count)}
    return Waits(Path(tempfile.mkdtemp(dir=os.environ.get("BENCH_HOME"))), units)


def timed(run: Callable[[Waits], object], seconds: float, count: int) -> float:
    work, begun = waits(seconds, count), time.monotonic()
    run(work)
    taken = time.monotonic() - begun
    assert all(map(work.is_done, work.acts))
    return taken


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["BENCH_HOME"] = home
        cores = count_cores()
        with DaskProcesses(Path(home)) as dask:
            dask.start_worker(*PROGRAM)
            dask.wait_for_workers(1)
            cluster = DaskCluster(Scheduler(dask.address), REGISTRY, "", 60)
            threads = Workers(cores)
            calls: OrderedCalls[str, None] = OrderedCalls(threads)

            def here(work: Waits) -> None:
                list(calls(lambda unit: act(work.task(unit)), work.acts))

            def there(work: Waits) -> None:
                list(cluster.spread(work, work.acts))

            there(waits(0, 4))
            print(f"{cores} cores, {ROUNDS} rounds")
            for seconds, count in ((1.0, 5 * cores), (0.1, 50 * cores), (0.0, 250)):
                pairs = [
                    (timed(here, seconds, count), timed(there, seconds, count))
                    for _ in range(ROUNDS)
                ]
                ours, theirs = (median(times) for times in zip(*pairs, strict=True))
                each = (theirs - ours) / count * 1000
                more = f"{theirs / ours - 1:6.1%} more, {each:.2f} ms a task"
                print(f"{count:4} tasks of {seconds} s: {more}")
            starts(dask, cluster)
            cluster.close()
            threads.close()


def starts(dask: DaskProcesses, cluster: DaskCluster) -> None:
    """Kill a worker in the middle of the tasks of two."""
    dask.start_worker(*PROGRAM)
    dask.wait_for_workers(2)
    work = waits(0.5, 40)
    thread = threading.Thread(target=lambda: list(cluster.spread(work, work.acts)))
    thread.start()
    until(lambda: sum(map(work.is_done, work.acts)) >= 20)
    running = [unit for unit in work.acts if work.starts(unit) and not work.is_done(unit)]
    os.kill(work.starts(running[0])[0], signal.SIGKILL)
    thread.join()
    begun = sum(len(work.starts(unit)) for unit in work.acts)
    print(f"a worker of two killed: {begun} starts of {len(work.acts)} tasks, all done")


if __name__ == "__main__":
    main()
