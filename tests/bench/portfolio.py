"""Questions about a loss set, beside a bare scan of its file.

    python -m tests.bench.portfolio [--events 48000]

A run is generated, sealed and made a loss set. Each question about all curves of 20 groups has a
filter of its own, so that neither an answer nor prepared losses are there. The scan adds up all
samples and losses where the file has them, in as many threads. Then the attachment of a layer
moves, as under a slider, on losses that are prepared.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import pyarrow as pa

from app.client import Client
from app.cores import count_cores
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.server_process import ServerProcess

SUMMARIES, REGIONS, SAMPLES = 40, 20, 100
ASKED, MOVED = 12, 60
RETURN_PERIODS = [1000, 500, 250, 200, 100, 50, 25, 10, 5, 2]
LARGE = {"portfolio_bytes": "4GiB", "memory_limit": "12GiB", "request_memory": "8GiB"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=48_000, help="a thousand losses each")
    events = parser.parse_args().events
    spec = SampleSpec(events=events, summaries=SUMMARIES, samples=SAMPLES)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        server = ServerProcess(home / "server", max_run_bytes="8GiB", **LARGE)
        try:
            with Client(server.url) as client:
                make(client, spec, home)
                measure(client, spec, scan(server.url, home / "book.arrow"))
        finally:
            server.kill()


def make(client: Client, spec: SampleSpec, home: Path) -> None:
    """A loss set, by way of a run."""
    info, occurrence, stream = (home / name for name in ("info.csv", "occurrence.bin", "stream"))
    lines = [f"{n},R{n % REGIONS},L{n % 3}\n" for n in range(1, SUMMARIES + 1)]
    info.write_text("".join(["summary_id,Region,LOB\n", *lines]))
    occurrence.write_bytes(generate_inputs(spec)["occurrence.bin"])
    with stream.open("wb") as out:
        out.writelines(generate_stream(spec))
    run = client.runs.create("gul", ["aal"], inputs={"occurrence": occurrence})
    client.runs.upload(run.id, stream, partition=1)
    client.runs.seal(run.id)
    begun = time.monotonic()
    rows = client.portfolios.create(run.id, name="book", summary_info=info).document["rows"]
    print(f"{rows:,} losses, a loss set in {time.monotonic() - begun:.1f} s")


def measure(client: Client, spec: SampleSpec, scanned: float) -> None:
    asked = [timed(partial(ask, client, spec.periods, n)) for n in range(ASKED)][1:]
    report("all curves of 20 groups", asked)
    print(f"the scan takes {scanned:.3f} s: {scanned / median(asked):.2f} of that")
    report("a layer that moves", [timed(partial(move, client, n)) for n in range(MOVED)][1:])


def timed(act: Callable[[], object]) -> float:
    begun = time.monotonic()
    act()
    return time.monotonic() - begun


def report(what: str, seconds: list[float]) -> None:
    p95 = quantiles(seconds, n=20)[-1]
    print(f"{what}: p50 {median(seconds):.3f} s, p95 {p95:.3f} s of {len(seconds)}")


def ask(client: Client, periods: int, number: int) -> None:
    client.portfolios.query(
        "book",
        "curves",
        group_by=["Region"],
        return_periods=RETURN_PERIODS,
        filter={"periods": [number + 1, periods]},
    )


def move(client: Client, number: int) -> None:
    layer = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 1e6 + number, "OccLimit": 1e7}
    chosen = {"dimensions": {"Region": ["R1", "R2"]}}
    client.portfolios.query("book", "layers", filter=chosen, programme={"layers": [layer]})


def scan(url: str, path: Path) -> float:
    """Seconds to add up all samples and losses of the stored file."""
    address = f"{url}/v1/portfolios/loss-sets/book/losses?form=blocks&format=arrow"
    with httpx.stream("GET", address) as answer, path.open("wb") as out:
        out.writelines(answer.iter_bytes())

    def add(batch: pa.RecordBatch) -> float:
        lists: list[Any] = [batch.column(name) for name in ("SampleId", "Loss")]
        return float(sum(each.values.to_numpy().sum() for each in lists))

    with (
        pa.memory_map(str(path)) as source,
        pa.ipc.open_stream(source) as stream,
        ThreadPoolExecutor(count_cores()) as threads,
    ):
        batches = list(stream)
        return min(timed(lambda: sum(threads.map(add, batches))) for _ in range(4))


if __name__ == "__main__":
    main()
