"""Ways to read a dataset's files: ``python -m tests.bench.reading [directory]``.

The yardstick is numpy copying the same bytes from a memory map into the same buffer. All
of it lies in the page cache, except for ``direct``, which asks the disk each time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.datasets.files.backends import RangeBackend, open_backend
from app.datasets.files.buffers import BufferPool
from app.datasets.files.file_set import FileSet
from app.datasets.files.roots import Roots
from core.arrays import Indices

FRAME = 32 << 10
ROW = 256
TILE = 2 << 20
Batch = tuple[Indices, Indices]
"""Where ranges begin and end in the file."""


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
    yield "contiguous", batches(np.arange(0, size, TILE), TILE)
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


def read_ours(backend: RangeBackend, plan: list[Batch], out: memoryview) -> None:
    """One call for each batch."""
    for starts, stops in plan:
        lengths = stops - starts
        files = np.zeros(len(starts), np.int64)
        backend.read_ranges(files, starts, stops, out, np.cumsum(lengths) - lengths)


def seconds(run: Callable[[], None]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Print GB/s of every way, and its ratio to numpy's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, help="where the file is made")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    args = parser.parse_args()
    size = args.mib << 20
    with ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(dir=args.directory))
        directory = Path(made).resolve()
        path = directory / "frames.raw"
        block = np.random.default_rng(0).integers(0, 256, 16 << 20, np.uint8).tobytes()
        with path.open("wb") as file:
            file.writelines(block for _ in range(size // len(block)))
        files = stack.enter_context(FileSet([path], Roots([directory]).open))
        pool = BufferPool()
        backends = {
            "buffered": open_backend("buffered", files, pool),
            "mmap, leased": open_backend("mmap", files, pool),
            "mmap, immutable": open_backend("mmap", files, pool, immutable=True),
            "direct": open_backend("direct", files, pool),
        }
        octets = np.memmap(path, np.uint8, "r")
        out = memoryview(bytearray(TILE))
        for name, plan in cases(size):
            total = sum(int((stops - starts).sum()) for starts, stops in plan)
            runs = {"numpy": partial(read_mapped, octets, plan, out)}
            runs |= {way: partial(read_ours, b, plan, out) for way, b in backends.items()}
            for run in runs.values():
                run()
            taken: dict[str, list[float]] = {way: [] for way in runs}
            for _ in range(args.rounds):
                for way, run in runs.items():
                    taken[way].append(seconds(run))
            medians = {way: statistics.median(times) for way, times in taken.items()}
            print(f"{name}, {total >> 20} MiB")
            for way, median in medians.items():
                ratio = medians["numpy"] / median
                print(f"  {way:<18}{total / median / 1e9:6.2f} GB/s {ratio:6.2f}x", flush=True)


if __name__ == "__main__":
    main()
