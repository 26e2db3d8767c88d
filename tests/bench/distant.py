"""Stores that are far away: durable uploads beside the delay of each commit and object, and trips.

    python -m tests.bench.distant [MIB]

``THALWEG_OBJECTS_PYTHON`` names an interpreter with moto. A service on Postgres and moto, where
each statement that changes a head, and each object that is created or read, takes 0, 5 or 60 ms
more: seconds of an upload, the best of some rounds that alternate, and as a multiple of the
undelayed. Then the statements and requests that a request of each kind makes of its stores, and the
commits of a second that Postgres makes for threads of one process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import obstore
import psycopg

from app.command.main import main as serve
from app.state.objects import ObjectBlobStore
from app.state.postgres import PostgresStateStore
from tests.app.harness import Post, Service, ask, wait_until
from tests.app.runs.requests import BYTES, TUS, Uploader
from tests.bench.uploads import MIB, send, summaries
from tests.object_server import environment_python, running_objects
from tests.postgres_server import PostgresServer, running_server

DELAYS = (0.0, 0.005, 0.06)
ROUNDS = 3
_VARIABLE, _COUNTS = "BENCH_STORE_SECONDS", "BENCH_STORE_COUNTS"
_SECONDS = 3.0


def serve_from_afar(arguments: Sequence[str]) -> int:
    """The service, with stores that take longer, and that count what they are asked."""
    delay, counts = float(os.environ[_VARIABLE]), Path(os.environ[_COUNTS])

    def delayed(
        function: Callable[..., object], name: str, seconds: float
    ) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            with (counts / name).open("ab") as file:
                file.write(b".")
            time.sleep(seconds)
            return function(*args, **options)

        return call

    for owner, name, seconds in (
        (PostgresStateStore, "_change", delay),
        (ObjectBlobStore, "create_object", delay),
        (ObjectBlobStore, "_read_object", delay),
        (psycopg.Connection, "execute", 0.0),
        (obstore, "put", 0.0),
        (obstore, "get_range", 0.0),
        (obstore, "list", 0.0),
    ):
        setattr(owner, name, delayed(getattr(owner, name), name, seconds))
    return serve(arguments)


class DistantService(Service):
    """A server whose stores are far away."""

    command = staticmethod(serve_from_afar)

    def __init__(self, directory: Path, seconds: float, state: str) -> None:
        self.counts = directory / "counts"
        self.counts.mkdir(parents=True)
        os.environ.update({_VARIABLE: str(seconds), _COUNTS: str(self.counts)})
        blobs = f"s3://tests/{directory.name}"
        super().__init__(directory, state=state, blobs=blobs, reserve_bytes=0)

    def count(self) -> dict[str, int]:
        """What the stores were asked so far, by name."""
        return {path.name: path.stat().st_size for path in self.counts.iterdir()}

    def trips(self, act: Callable[[], object]) -> dict[str, int]:
        """What they are asked for an act, without what they are asked by themselves meanwhile."""
        time.sleep(1.2)
        before = self.count()
        act()
        return {name: n for name, c in self.count().items() if (n := c - before.get(name, 0))}


def commits_of_a_second(url: str, threads: int) -> float:
    """Compare-and-swaps of as many records by as many threads."""
    store = PostgresStateStore(url, "file:")
    end, done = time.monotonic() + _SECONDS, [0] * threads

    def swap(number: int) -> None:
        head = store.create("bench", f"h{threads}.{number}", b"0" * 200)
        while time.monotonic() < end:
            head = store.compare_and_swap(head, b"1" * 200)
            done[number] += 1

    working = [threading.Thread(target=swap, args=(number,)) for number in range(threads)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    store.close()
    return sum(done) / _SECONDS


def show_trips(service: DistantService, data: bytes) -> None:
    """Print what requests of each kind ask of the stores."""
    up = Uploader(service, reports=["melt"])
    address = up.create(len(data))
    fields = [*BYTES.items(), ("Upload-Offset", "0")]
    acts: dict[str, Callable[[], object]] = {
        "stateless post": lambda: ask(service, Post("/v1/losses/melt", [data[:MIB]])),
        "creation of a run": lambda: Uploader(service),
        "creation of a stream": lambda: up.create(len(data)),
        f"upload of {len(data) >> 20} MiB": lambda: send(service, "PATCH", address, fields, data),
        "offset of a stream": lambda: up.offset(address),
        "description of a run": up.describe,
    }
    for name, act in acts.items():
        print(f"{name}: {json.dumps(service.trips(act))}", flush=True)
    sealing = Uploader(service, reports=["melt"])
    sealing.upload(data)

    def seal() -> None:
        sealing.ask("POST", f"{sealing.path}/seal")
        wait_until(lambda: sealing.describe()["state"] == "done", 60)

    print(f"seal, and looking until it is done: {json.dumps(service.trips(seal))}", flush=True)


def show_uploads(database: PostgresServer, place: Path, data: bytes) -> None:
    """Print a line for each delay."""
    seconds: dict[float, list[float]] = {delay: [] for delay in DELAYS}
    with ExitStack() as stack:
        ups = {}
        for delay in DELAYS:
            state = database.new_database()
            service = DistantService(place / f"d{delay * 1000:.0f}", delay, state)
            stack.callback(service.kill)
            ups[delay] = Uploader(service)
        for _ in range(ROUNDS):
            for delay, up in ups.items():
                begun = time.monotonic()
                address = up.create(len(data))
                fields = [*BYTES.items(), ("Upload-Offset", "0")]
                send(up.service, "PATCH", address, fields, data)
                seconds[delay].append(time.monotonic() - begun)
                up.ask("DELETE", address, **TUS)
        best = {delay: min(found) for delay, found in seconds.items()}
        for delay, found in best.items():
            print(
                f"{delay * 1000:3.0f} ms: {found:.2f} s, {len(data) / MIB / found:.0f} MiB/s,"
                f" {found / best[0.0]:.2f} times the undelayed",
                flush=True,
            )
        show_trips(ups[0.0].service, data)  # type: ignore[arg-type]


def main() -> None:
    """Measure, and print."""
    data = summaries(int(sys.argv[1] if len(sys.argv) > 1 else 64) * MIB)
    python = environment_python()
    assert python is not None, "THALWEG_OBJECTS_PYTHON names no interpreter"
    with (
        tempfile.TemporaryDirectory() as place,
        running_server() as database,
        running_objects("moto", python) as objects,
    ):
        os.environ.update(objects.environment)
        show_uploads(database, Path(place), data)
        for threads in (1, 4, 8):
            rate = commits_of_a_second(database.new_database(), threads)
            print(f"{threads} threads: {rate:.0f} commits a second", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
