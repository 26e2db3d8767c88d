"""Ways to get at a dataset's files: ``python -m tests.bench.reading [directory]``.

Each case is read into a buffer, against numpy copying from a bare memory map, and visited by a
kernel that converts the bytes, against the same kernel over that map. All of it lies in the page
cache, except for ``direct``, which asks the disk each time. ``unleased`` is the default where
somebody has the file open for writing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.datasets.files.backends import BACKENDS, open_backend
from app.datasets.files.buffered import BufferedBackend
from app.datasets.files.buffers import BufferPool
from app.datasets.files.file_set import FileSet
from app.datasets.files.roots import Roots
from core.arrays import Indices
from core.tiles._kernels.correct import copy

FRAME = 32 << 10
ROW = 256
TILE = 2 << 20
Batch = tuple[Indices, Indices]
"""Where ranges begin and end in the file."""
Values = npt.NDArray[np.float32]


def batches(starts: Indices, length: int) -> list[Batch]:
    """Ranges of one length, about a tile at a time."""
    step = max(TILE // length, 1)
    return [
        (starts[at : at + step], starts[at : at + step] + length)
        for at in range(0, len(starts), step)
    ]


def cases(size: int) -> Iterator[tuple[str, list[Batch]]]:
    """What is read of a file."""
    frames = np.arange(0, size, FRAME)
    yield "contiguous", batches(frames, FRAME)
    rng = np.random.default_rng(1)
    some = np.sort(rng.choice(frames, len(frames) // 20, replace=False))
    yield "5 % of the frames", batches(some, FRAME)
    yield "16 full rows of each frame", batches(frames + 56 * ROW, 16 * ROW)
    narrow = frames[: len(frames) // 4, None] + np.arange(48, 80) * ROW + 96
    yield "32 x 32 pixels of each frame", batches(narrow.ravel(), 64)


def read_mapped(octets: npt.NDArray[np.uint8], plan: list[Batch], out: memoryview) -> None:
    """Numpy, range by range."""
    target = np.frombuffer(out, np.uint8)
    for starts, stops in plan:
        at = 0
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            target[at : at + stop - start] = octets[start:stop]
            at += stop - start


def read_ours(backend: BufferedBackend, plan: list[Batch], out: memoryview) -> None:
    """One call for each batch."""
    for starts, stops in plan:
        lengths = stops - starts
        files = np.zeros(len(starts), np.int64)
        backend.read_ranges(files, starts, stops, out, np.cumsum(lengths) - lengths)


def visit_mapped(octets: npt.NDArray[np.uint8], plan: list[Batch], out: Values) -> None:
    """The kernel over the map."""
    for starts, stops in plan:
        shape = (len(starts), 1, int(stops[0] - starts[0]))
        copy(octets, starts, shape[2], out[: shape[0] * shape[2]].reshape(shape))


def visit_ours(backend: BufferedBackend, plan: list[Batch], out: Values) -> None:
    """One call for each batch."""
    one = np.zeros(1, np.int64)
    for starts, stops in plan:
        size = int(stops[0] - starts[0])

        def use(
            first: int, octets: npt.NDArray[np.uint8], positions: Indices, size: int = size
        ) -> None:
            target = out[first * size : (first + len(positions)) * size]
            values = octets.view()
            values.flags.writeable = False
            copy(values, positions, size, target.reshape(len(positions), 1, size))

        backend.visit(one, starts, size, use)


def seconds(run: Callable[[], None]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(what: str, total: int, runs: Mapping[str, Callable[[], None]], rounds: int) -> None:
    """Print GB/s of every way, and its ratio to the first; medians."""
    for run in runs.values():
        run()
    taken: dict[str, list[float]] = {way: [] for way in runs}
    for _ in range(rounds):
        for way, run in runs.items():
            taken[way].append(seconds(run))
    medians = {way: statistics.median(times) for way, times in taken.items()}
    yardstick = medians[next(iter(runs))]
    print(f"{what}, {total >> 20} MiB")
    for way, median in medians.items():
        ratio = yardstick / median
        print(f"  {way:<18}{total / median / 1e9:6.2f} GB/s {ratio:6.2f}x", flush=True)


def make_file(path: Path, size: int) -> npt.NDArray[np.uint8]:
    """Fill a file with noise; return a map of it."""
    block = np.random.default_rng(0).integers(0, 256, 16 << 20, np.uint8).tobytes()
    with path.open("wb") as file:
        file.writelines(block for _ in range(size // len(block)))
    return np.memmap(path, np.uint8, "r").view(np.ndarray)


def main() -> None:
    """Compare the ways in all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, help="where the files are made")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    args = parser.parse_args()
    size = args.mib << 20
    with ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(dir=args.directory))
        directory = Path(made).resolve()
        octets = make_file(directory / "frames.raw", size)
        make_file(directory / "held.raw", size)
        stack.enter_context((directory / "held.raw").open("r+b"))
        roots, pool = Roots([directory]), BufferPool()
        files, held = (
            stack.enter_context(FileSet([directory / name], roots.open))
            for name in ("frames.raw", "held.raw")
        )
        backends = {way: open_backend(way, files, pool) for way in BACKENDS}
        backends["unleased"] = open_backend("leased", held, pool)
        out = memoryview(bytearray(TILE))
        values = np.empty(TILE, np.float32)
        for name, plan in cases(size):
            total = sum(int((stops - starts).sum()) for starts, stops in plan)
            runs = {"numpy": partial(read_mapped, octets, plan, out)}
            runs |= {
                way: partial(read_ours, backends[way], plan, out) for way in ("buffered", "direct")
            }
            compare(f"{name}, read", total, runs, args.rounds)
            runs = {"kernel": partial(visit_mapped, octets, plan, values)}
            runs |= {way: partial(visit_ours, b, plan, values) for way, b in backends.items()}
            compare(f"{name}, visited", total, runs, args.rounds)


if __name__ == "__main__":
    main()
