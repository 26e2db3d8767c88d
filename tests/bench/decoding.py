"""What isolation costs: ``python -m tests.bench.decoding [--rounds N]``.

Reads of several sizes from an HDF5 file, by a decoder and by h5py in this process, in turn. The
latter opens the file for every read, as one must whose files may be replaced; ``open`` is h5py
with the file left open. Processor time counts both processes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from app.datasets.files.file_set import FileSet
from app.datasets.files.hdf5 import open_hdf5
from app.datasets.files.roots import Roots
from app.decoding.pool import DecoderPool
from core.tiles.plan import Box

SIG = (128, 256)
FRAME = 2 * SIG[0] * SIG[1]
"""64 KiB, and a chunk of the file."""
FRAMES = 1024
SIZES = {"64 KiB": (1, 400), "256 KiB": (4, 200), "2 MiB": (32, 40), "16 MiB": (256, 6)}
"""Frames of a read, and reads of a round."""

Read = Callable[[Box], npt.NDArray[Any]]


def make_file(path: Path) -> None:
    """Noise like that of a detector, in chunks of a frame, with and without compression."""
    frames = np.random.default_rng(1).poisson(20, (FRAMES, *SIG)).astype("<u2")
    with h5py.File(path, "w") as file:
        file.create_dataset("plain", data=frames, chunks=(1, *SIG))
        file.create_dataset("gzip", data=frames, chunks=(1, *SIG), compression="gzip")


def anew(files: FileSet, name: str) -> Read:
    """Read by h5py, opening the file each time between two looks at it."""

    def read(box: Box) -> npt.NDArray[Any]:
        with files.use(0) as descriptor:
            path = f"/proc/self/fd/{descriptor}"
            with h5py.File(path, "r", locking=False) as file:
                values: npt.NDArray[Any] = file[name][tuple(slice(a, b) for a, b in box)]
        files.check((0,))
        return values

    return read


def left_open(path: Path, name: str) -> Read:
    """Read by h5py, which has the file open."""
    dataset = h5py.File(path, "r", locking=False)[name]

    def read(box: Box) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = dataset[tuple(slice(a, b) for a, b in box)]
        return values

    return read


def processor_seconds(pool: DecoderPool) -> float:
    """Processor time of this process and of the decoders so far."""
    theirs = sum(time.clock_gettime((~pid << 3) | 2) for pid in pool.pids)
    return time.process_time() + theirs


class Contest:
    """Ways of reading the same array, in turn.

    Args:
        ways: by name.
        pool: the decoders of one of them.
    """

    def __init__(self, ways: dict[str, Read], pool: DecoderPool) -> None:
        self._ways = ways
        self._pool = pool

    def run(self, name: str, frames: int, count: int, rounds: int) -> None:
        """Print the median time of a read, and the least processor time of a round of them."""
        starts = np.random.default_rng(2).integers(0, FRAMES - frames + 1, count).tolist()
        rest: Box = tuple((0, n) for n in SIG)
        waits: dict[str, list[float]] = {way: [] for way in self._ways}
        work: dict[str, list[float]] = {way: [] for way in self._ways}
        for turn in range(rounds + 1):
            for way, read in self._ways.items():
                taken = []
                before = processor_seconds(self._pool)
                for start in starts:
                    begin = time.perf_counter()
                    read(((start, start + frames), *rest))
                    taken.append(time.perf_counter() - begin)
                if turn:
                    work[way].append((processor_seconds(self._pool) - before) / count)
                    waits[way].append(statistics.median(taken))
        for way in self._ways:
            wait, cost = statistics.median(waits[way]), min(work[way])
            text = f"{name}, {way:<8} {1e3 * wait:8.3f} ms, {1e3 * cost:8.3f} ms of processor"
            usual, least = statistics.median(waits["anew"]), min(work["anew"])
            more = f"{1e3 * (wait - usual):+.3f}, {1e3 * (cost - least):+.3f}"
            print(f"{text} ({more} ms; {wait / usual:.2f}, {cost / least:.2f})", flush=True)


def main() -> None:
    """Compare the ways at all sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=SIZES)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name).resolve() / "frames.h5"
        make_file(path)
        # The library opens a file faster if it has the same one open already.
        copy = Path(shutil.copy(path, path.with_name("open.h5")))
        pool = DecoderPool()
        files = FileSet([path], Roots([path.parent]).open)
        print(f"load {os.getloadavg()[0]:.1f}")
        for array in ("plain", "gzip"):
            decoded = open_hdf5(files, 0, array, pool)
            ways: dict[str, Read] = {
                "anew": anew(files, array),
                "open": left_open(copy, array),
                "decoder": lambda box, decoded=decoded: decoded.read([box])[0],  # type: ignore[misc]
            }
            contest = Contest(ways, pool)
            for size, (frames, count) in SIZES.items():
                if args.only in {None, size}:
                    contest.run(f"{array}, {size}", frames, count, args.rounds)
        files.close()
        pool.close()


if __name__ == "__main__":
    main()
