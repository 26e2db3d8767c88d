"""Views of objects in a bucket against bare reads: ``python -m tests.bench.buckets [--s3fs PY]``.

The same ranges of the same object are read as tiles of a view, and by the library of object stores
alone, in turn in every round; the ratios are of medians, of time and of the CPU time of the client.
The servers run here, and are slower than what they stand for: the CPU time is what carries over.
(moto takes the checksum of the whole object for each request.)
``THALWEG_OBJECTS_PYTHON`` names an interpreter that has them. PY is one that has ``s3fs``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import obstore
from obstore.store import ObjectStore

from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.fetching import AT_ONCE, PART
from app.http.identity import SINGLE_USER
from app.tiles.streaming import read_tiles
from app.tiles.views import OpenView, Views
from app.tokens import KeyRing, new_key
from core.warmup import warm_up
from tests.app.datasets.files.bucket import bucket_roots
from tests.app.state.memory import MemoryStateStore
from tests.bench.__main__ import line
from tests.object_server import SERVERS, ObjectServer, environment_python, running_objects

MIB = 1 << 20
SIG = (256, 256)
FRAME = 2 * SIG[0] * SIG[1]
FRAMES = 1024
"""128 MiB in all."""
VIEWS: dict[str, dict[str, Any]] = {
    "the whole scan": {"target_bytes": 8 * MIB},
    "rows 100 to 116 of each frame": {"target_bytes": MIB, "sig": [[100, 116], [0, 256]]},
    "every 16th frame": {"target_bytes": MIB, "select": {"nav": [[0, FRAMES, 16]]}},
}
PEER = """
import sys, time, s3fs
endpoint, path, part = sys.argv[1], sys.argv[2], int(sys.argv[3])
fs = s3fs.S3FileSystem(key="thalweg-tests", secret="thalweg-tests", endpoint_url=endpoint)
size = fs.info(path)["size"]
starts = list(range(0, size, part))
for _ in range(int(sys.argv[4])):
    began, cpu = time.perf_counter(), time.process_time()
    found = fs.cat_ranges([path] * len(starts), starts, [min(s + part, size) for s in starts])
    assert sum(map(len, found)) == size
    print(time.perf_counter() - began, time.process_time() - cpu, flush=True)
"""


def ranges_of(name: str) -> tuple[list[int], list[int]]:
    """The ranges of a view in a file without a header, in parts of at most ``PART``."""
    if name.startswith("rows"):
        starts = [k * FRAME + 100 * 512 for k in range(FRAMES)]
        return starts, [start + 16 * 512 for start in starts]
    if name.startswith("every"):
        starts = [k * FRAME for k in range(0, FRAMES, 16)]
        return starts, [start + FRAME for start in starts]
    starts = list(range(0, FRAMES * FRAME, PART))
    return starts, [start + PART for start in starts]


def measured(run: Callable[[], int]) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process, of a call that returns how many bytes it read."""
    began, cpu = time.perf_counter(), time.process_time()
    assert run() > 0
    return time.perf_counter() - began, time.process_time() - cpu


def tiles(view: OpenView) -> int:
    return sum(tile.values.nbytes for tile in read_tiles(view, 0, view.plan.tiles))


def bare(store: ObjectStore, name: str) -> int:
    """Read the ranges of each 4 MiB of the object by a request, as many at once as a view does."""
    starts, ends = ranges_of(name)
    groups: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for start, end in zip(starts, ends, strict=True):
        groups[start // PART].append((start, end))

    def read(group: list[tuple[int, int]]) -> int:
        begins, stops = map(list, zip(*group, strict=True))
        found = obstore.get_ranges(store, "a.raw", starts=begins, ends=stops)
        return sum(map(len, found))

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return sum(threads.map(read, groups.values()))


def opened(store: ObjectStore) -> Views:
    state = MemoryStateStore()
    catalogue = Catalogue(state, bucket_roots(store), {}, BufferPool())
    entry = {"id": "a", "files": ["a.raw"], "format": "raw", "dtype": "<u2"}
    shape = {"nav_shape": [FRAMES], "sig_shape": list(SIG)}
    catalogue.register(SINGLE_USER, {**entry, **shape})[0].close()
    return Views(catalogue, state, KeyRing([new_key()]))


def contest(views: Views, store: ObjectStore, name: str, rounds: int) -> None:
    view = views.open(SINGLE_USER, "a", VIEWS[name])
    runs: dict[str, list[tuple[float, float]]] = {"view": [], "bare": []}
    for _ in range(rounds + 1):
        runs["view"].append(measured(lambda: tiles(view)))
        runs["bare"].append(measured(lambda: bare(store, name)))
    ours, theirs = (
        [statistics.median(column) for column in zip(*runs[way][1:], strict=True)]
        for way in ("view", "bare")
    )
    nbytes = view.plan.nbytes
    print(f"  {name}: {nbytes / ours[0] / 1e9:.2f} GB/s, bare {nbytes / theirs[0] / 1e9:.2f}")
    line(f"  {name}: speed over bare reads", theirs[0] / ours[0], 0.7)
    line(f"  {name}: CPU over bare reads", ours[1] / theirs[1], 1.5)
    view.close()


def against_s3fs(server: ObjectServer, views: Views, peer: str, rounds: int) -> None:
    """The whole scan, by ranges of the same size."""
    view = views.open(SINGLE_USER, "a", VIEWS["the whole scan"])
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(measured(lambda: tiles(view)))
        endpoint = server.environment["AWS_ENDPOINT_URL"]
        done = subprocess.run(
            [peer, "-c", PEER, endpoint, "tests/a.raw", str(PART), "2"],
            capture_output=True,
            text=True,
            check=True,
        )
        theirs.append([float(each) for each in done.stdout.split()[2:]])
    for k, what in enumerate(("speed", "CPU")):
        pair = [statistics.median(run[k] for run in runs) for runs in (ours, theirs)]
        ratio = pair[1] / pair[0] if what == "speed" else pair[0] / pair[1]
        line(f"  the whole scan: {what} over s3fs", ratio)
    view.close()


def main() -> None:
    """Run all contests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--s3fs", help="interpreter with s3fs")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    python = environment_python()
    if python is None:
        raise SystemExit("THALWEG_OBJECTS_PYTHON must name an interpreter with object stores")
    warm_up()
    for name in SERVERS:
        print(name)
        run(name, python, args.s3fs, args.rounds)


def run(name: str, python: Path, peer: str | None, rounds: int) -> None:
    """Run the contests on one server."""
    content = np.random.default_rng(0).bytes(FRAMES * FRAME)
    with running_objects(name, python) as server:
        store = server.bucket()
        obstore.put(store, "a.raw", content)
        views = opened(store)
        for each in VIEWS:
            contest(views, store, each, rounds)
        if peer:
            against_s3fs(server, views, peer, rounds)


if __name__ == "__main__":
    main()
