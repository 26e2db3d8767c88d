"""The files of an abuse run: those of the well-behaved owner, and those made to hurt."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from zarr import codecs

from tests.e2e.samples import large_stream

MIB = 1 << 20
FRAMES, SIG = 512, (128, 128)
"""The owner's detector data: frames of 64 KiB."""
SPARSE_FRAMES = 20_000
"""Frames of a megabyte in a file of 20 GB that takes no room on disk."""
TREE = 20_000
"""Entries of a directory tree for globs."""


def owner_frames() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The owner's frames, as stored."""
    rng = np.random.default_rng(1)
    return rng.random((FRAMES, *SIG), np.float32)


def write_owner_files(root: Path) -> None:
    """Write ``good.raw``, a stack of frames."""
    (root / "good.raw").write_bytes(owner_frames().astype("<f4").tobytes())


def write_hostile_files(root: Path) -> None:
    """Write files that are well-formed, and cost far more than they seem to."""
    (root / "events.bin").write_bytes(large_stream(1))
    (root / "one.txt").write_text("x" * 2_000_000 + "\n")
    wide = pa.table({"x": pa.array([b"\0" * (1 << 28)] * 4)})
    pq.write_table(wide, root / "rows.parquet", compression="zstd", row_group_size=4)
    with h5py.File(root / "bomb.h5", "w") as file:
        shape, chunks = (2, 32768, 32768), (1, 32768, 32768)
        data = file.create_dataset("data", shape, "u1", chunks=chunks, compression="gzip")
        data[0, 0, 0] = 1
    store = zarr.create_array(
        str(root / "bomb.zarr"),
        shape=(2, 1024, 1024),
        chunks=(1, 1024, 1024),
        dtype="u1",
        compressors=[codecs.GzipCodec()],
    )
    store[...] = 1
    (root / "bomb.zarr/c/0/0/0").write_bytes(gzip.compress(bytes(1 << 28) * 4, 9))
    with gzip.open(root / "bomb.txt.gz", "wb", 9) as out:
        for _ in range(192):
            out.write(b"a\n" * (1 << 23))
    with (root / "sparse.raw").open("wb") as sparse:
        os.truncate(sparse.fileno(), SPARSE_FRAMES * MIB)
    _write_tree(root / "tree")


def _write_tree(directory: Path) -> None:
    per_directory = 200
    for number in range(TREE // per_directory):
        branch = directory / f"{number:03}"
        branch.mkdir(parents=True)
        for leaf in range(per_directory):
            (branch / f"{leaf:03}.tmp").touch()
