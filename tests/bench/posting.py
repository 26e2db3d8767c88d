"""CPU time of a posted MELT against its parts: ``python -m tests.bench.posting``.

A server has to receive a body and to analyse it. What receiving costs, an endpoint on our
protocol tells that reads bodies into 1 MiB and drops them; what the analysis costs, the engine
in this process on the same bytes, rows included as the answer has them. The rest is what the
service adds: moving bytes between threads, budgets, rows that wait, the answer.

The client is the standard library's, with blocks of 1 MiB. CPU seconds are those that the
scheduler counted for all threads of the server, per GiB of the body. Each contest runs once in
every round, and the least of each counts: other work on the machine only adds to it.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from core.arrays import Rows
from core.losses.analysis import Analysis
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec
from core.losses.tables import CsvEncoder
from tests.bench.__main__ import Setup, line
from tests.bench.ingest import OURS, Server
from tests.bench.service import MIB, cut, running
from tests.server_process import children_of

ROUNDS = 9
TARGET = 1.3


def cpu_seconds(pid: int) -> float:
    """CPU seconds of all threads of a process and its children so far."""
    total = 0
    for process in [pid, *children_of(pid)]:
        for thread in Path(f"/proc/{process}/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def post(address: tuple[str, int], path: str, data: memoryview) -> None:
    connection = http.client.HTTPConnection(*address, timeout=120, blocksize=MIB)
    connection.request("POST", path, cut(data, MIB), {"Content-Length": str(len(data))})
    answer = connection.getresponse()
    while answer.read(MIB):
        pass
    assert answer.status == 200
    connection.close()


def analyse(data: memoryview, form: str) -> None:
    """MELT of a stream as one piece, as rows or as text."""
    encoder = CsvEncoder(REPORTS["melt"], 4)
    text: list[bytes] = []

    def take(_report: str, rows: Rows) -> None:
        text.append(bytes(encoder.encode(rows)) if form == "csv" else rows.tobytes())

    analysis = Analysis(["melt"], take)
    analysis.receive(data)
    analysis.close()


def of_server(pid: int, run: Callable[[], None]) -> Callable[[], float]:
    """A contest that measures the CPU seconds of a server."""

    def measure() -> float:
        before = cpu_seconds(pid)
        run()
        return cpu_seconds(pid) - before

    return measure


def of_process(run: Callable[[], None]) -> Callable[[], float]:
    """A contest that measures the CPU seconds of this thread."""

    def measure() -> float:
        before = time.thread_time()
        run()
        return time.thread_time() - before

    return measure


def run(setup: Setup, rounds: int) -> None:
    """Print the costs of the parts and of the whole, and their ratios."""
    data = memoryview(setup.stream.read_bytes())
    with ExitStack() as stack:
        sink = Server(OURS)
        stack.callback(sink.stop)
        ours = stack.enter_context(running())
        pid = ours.process.pid
        contests = {
            "sink": of_server(
                sink.process.pid, partial(post, ("127.0.0.1", sink.port), "/sink", data)
            )
        }
        for form in ("bin", "csv"):
            path = f"/v1/losses/melt?format={form}"
            contests[f"engine {form}"] = of_process(partial(analyse, data, form))
            contests[f"post {form}"] = of_server(pid, partial(post, ours.address, path, data))
            path += "&duplex=true"
            contests[f"duplex {form}"] = of_server(pid, partial(post, ours.address, path, data))
        seconds: dict[str, list[float]] = {name: [] for name in contests}
        for number in range(rounds + 1):
            for name, measure in contests.items():
                used = measure()
                if number:
                    seconds[name].append(used)
    gib = len(data) / 2**30
    cost = {name: min(values) / gib for name, values in seconds.items()}
    print(f"CPU seconds per GiB, {rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for form in ("bin", "csv"):
        parts = cost["sink"] + cost[f"engine {form}"]
        for way in ("post", "duplex"):
            text = (
                f"{way} MELT {form} {cost[f'{way} {form}']:.3f}; sink {cost['sink']:.3f}"
                f" + engine {cost[f'engine {form}']:.3f}"
            )
            line(text, cost[f"{way} {form}"] / parts, TARGET if way == "post" else None)


def main() -> None:
    """Run it on a stream of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--events", type=int, default=2000)
    args = parser.parse_args()
    setup = Setup(SampleSpec(events=args.events, summaries=75, samples=1000), None)
    try:
        run(setup, args.rounds)
    finally:
        shutil.rmtree(setup.directory)


if __name__ == "__main__":
    main()
