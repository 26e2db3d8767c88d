"""Datasets: registered, described, sent; entries and files that cost more than they seem to."""

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
from tests.memory.desk import Desk, Prepare, Request, Table

TABLE = Table("datasets")
POST = "POST /v1/datasets"
MIB = 1 << 20


def frames(desk: Desk, name: str = "scan.npy", shape: tuple[int, ...] = (8, 8, 64, 64)) -> str:
    """Register an array of frames; return its path."""
    np.save(desk.roots / name, np.arange(int(np.prod(shape)), dtype="<u2").reshape(shape))
    return desk.dataset(name)


def sparse(desk: Desk, nbytes: int, name: str = "sparse.raw") -> str:
    """A file that takes no room on the disk."""
    with (desk.roots / name).open("wb") as file:
        os.truncate(file.fileno(), nbytes)
    return name


def entry(name: str, **values: object) -> Request:
    return Request.of("POST", "/v1/datasets", {"id": "measured", "files": [name], **values})


@TABLE.case(POST)
def registering_npy(desk: Desk) -> Request:
    frames(desk)
    np.save(desk.roots / "other.npy", np.zeros((64, 64, 32, 32), "<u2"))
    return entry("other.npy")


@TABLE.case(POST)
def registering_hdf5(desk: Desk) -> Request:
    for name in ("one.h5", "two.h5"):
        with h5py.File(desk.roots / name, "w") as file:
            data = np.zeros((64, 64, 64), "<u2")
            file.create_dataset("data", data=data, chunks=(8, 64, 64), compression="gzip")
    desk.dataset("one.h5")
    return entry("two.h5")


@TABLE.case(POST)
def registering_zarr(desk: Desk) -> Request:
    for name in ("one.zarr", "two.zarr"):
        store = zarr.create_array(
            str(desk.roots / name), shape=(64, 64, 64), chunks=(8, 64, 64), dtype="<u2"
        )
        store[...] = 1
    desk.dataset("one.zarr")
    return entry("two.zarr")


@TABLE.case(POST)
def registering_losses(desk: Desk) -> Request:
    for name, size in (("one.bin", 1), ("two.bin", 64)):
        (desk.roots / name).write_bytes(large_stream(size))
    desk.dataset("one.bin", format="loss")
    return entry("two.bin", format="loss")


@TABLE.case(POST)
def registering_parquet(desk: Desk) -> Request:
    for name, rows in (("one.parquet", 10), ("two.parquet", 400_000)):
        pq.write_table(
            pa.table({"x": np.arange(rows), "y": np.arange(rows) / 2}), desk.roots / name
        )
    desk.dataset("one.parquet", format="parquet")
    return entry("two.parquet", format="parquet")


@TABLE.case(POST)
def registering_lines(desk: Desk) -> Request:
    for name, count in (("one.txt", 10), ("two.txt", 400_000)):
        (desk.roots / name).write_bytes(b"a line of text\n" * count)
    desk.dataset("one.txt", format="lines")
    return entry("two.txt", format="lines")


@TABLE.case(POST)
def registering_gzipped_lines(desk: Desk) -> Request:
    for name, count in (("one.txt.gz", 10), ("two.txt.gz", 400_000)):
        (desk.roots / name).write_bytes(gzip.compress(b"a line of text\n" * count))
    desk.dataset("one.txt.gz", format="lines")
    return entry("two.txt.gz", format="lines")


@TABLE.case(POST, hostile=True)
def a_gzip_bomb_of_short_lines(desk: Desk) -> Request:
    (desk.roots / "one.txt.gz").write_bytes(gzip.compress(b"a\n" * 10))
    desk.dataset("one.txt.gz", format="lines")
    (desk.roots / "bomb.txt.gz").write_bytes(gzip.compress(b"\n" * (64 * MIB), 6))
    return entry("bomb.txt.gz", format="lines")


@TABLE.case(POST, hostile=True)
def short_lines(desk: Desk) -> Request:
    (desk.roots / "one.txt").write_bytes(b"a\n" * 10)
    desk.dataset("one.txt", format="lines")
    (desk.roots / "many.txt").write_bytes(b"\n" * (64 * MIB))
    return entry("many.txt", format="lines")


@TABLE.case(POST, hostile=True)
def the_longest_line(desk: Desk) -> Request:
    (desk.roots / "one.txt").write_bytes(b"a\n" * 10)
    desk.dataset("one.txt", format="lines")
    (desk.roots / "long.txt").write_bytes(b"x" * (63 * MIB) + b"\n")
    return entry("long.txt", format="lines")


@TABLE.case(POST, hostile=True)
def a_stream_of_the_shortest_events(desk: Desk) -> Request:
    from tests.memory.losses import stream_of

    (desk.roots / "one.bin").write_bytes(stream_of(3))
    desk.dataset("one.bin", format="loss")
    (desk.roots / "many.bin").write_bytes(stream_of(1_000_000, samples=1, blocks=1))
    return entry("many.bin", format="loss")


@TABLE.case(POST, hostile=True)
def many_row_groups(desk: Desk) -> Request:
    for name, rows, size in (("one.parquet", 10, 10), ("two.parquet", 40_000, 2)):
        table = pa.table({"x": np.arange(rows)})
        pq.write_table(table, desk.roots / name, row_group_size=size)
    desk.dataset("one.parquet", format="parquet")
    return entry("two.parquet", format="parquet")


@TABLE.case(POST, hostile=True)
def a_parquet_bomb(desk: Desk) -> Request:
    pq.write_table(pa.table({"x": [b"a"]}), desk.roots / "one.parquet")
    desk.dataset("one.parquet", format="parquet")
    wide = pa.table({"x": pa.array([b"\0" * (1 << 26)] * 4)})
    pq.write_table(wide, desk.roots / "two.parquet", compression="zstd", row_group_size=4)
    return entry("two.parquet", format="parquet")


@TABLE.case(POST, hostile=True)
def the_largest_numbers(desk: Desk) -> Request:
    frames(desk)
    name = sparse(desk, 1 << 40)
    huge = {"format": "raw", "dtype": "u1", "sig_shape": [1, 1], "nav_shape": [1 << 40]}
    return entry(name, **huge, sync_offset=2**62, frame_footer=0)


@TABLE.case(POST, hostile=True)
def as_many_frames_as_bytes(desk: Desk) -> Request:
    frames(desk)
    return entry(sparse(desk, 1 << 40), format="raw", dtype="u1", sig_shape=[1, 1])


@TABLE.case(POST, hostile=True)
def one_huge_frame(desk: Desk) -> Request:
    frames(desk)
    return entry(sparse(desk, 1 << 40), format="raw", dtype="u1", sig_shape=[1 << 20, 1 << 20])


@TABLE.case(POST, hostile=True)
def many_excluded_pixels(desk: Desk) -> Request:
    frames(desk)
    np.save(desk.roots / "other.npy", np.zeros((2, 2, 512, 512), "<u2"))
    pixels = [[n // 512, n % 512] for n in range(100_000)]
    return entry("other.npy", corrections={"excluded": pixels})


@TABLE.case(POST, hostile=True)
def large_corrections(desk: Desk) -> Request:
    frames(desk)
    np.save(desk.roots / "other.npy", np.zeros((2, 2048, 2048), "<u2"))
    np.save(desk.roots / "dark.npy", np.zeros((2048, 2048)))
    np.save(desk.roots / "gain.npy", np.ones((2048, 2048)))
    return entry("other.npy", corrections={"dark": "dark.npy", "gain": "gain.npy"})


@TABLE.case(POST, hostile=True)
def many_paths(desk: Desk) -> Request:
    frames(desk)
    files = [f"f{n}" for n in range(100_000)]
    return Request.of("POST", "/v1/datasets", {"id": "measured", "files": files, "format": "raw"})


@TABLE.case(POST, hostile=True)
def many_files(desk: Desk) -> Request:
    frames(desk)
    for number in range(4000):
        (desk.roots / f"f{number:04}.raw").write_bytes(bytes(8))
    raw = {"format": "raw", "dtype": "u1", "sig_shape": [2, 2]}
    return Request.of("POST", "/v1/datasets", {"id": "measured", "glob": "f*.raw", **raw})


@TABLE.case(POST, hostile=True)
def a_glob_over_many_directories(desk: Desk) -> Request:
    frames(desk)
    for number in range(200):
        Path(desk.roots / f"d{number}/e").mkdir(parents=True)
    values = {"id": "measured", "glob": "**/**/**/*.none", "format": "raw", "dtype": "u1"}
    return Request.of("POST", "/v1/datasets", {**values, "sig_shape": [2, 2]})


@TABLE.case(POST, hostile=True)
def metadata_of_zarr(desk: Desk) -> Request:
    store = zarr.create_array(
        str(desk.roots / "one.zarr"), shape=(8, 8, 8), chunks=(8, 8, 8), dtype="<u2"
    )
    store[...] = 1
    desk.dataset("one.zarr")
    store = zarr.create_array(
        str(desk.roots / "two.zarr"), shape=(8, 8, 8), chunks=(8, 8, 8), dtype="<u2"
    )
    store.attrs["x"] = ["a"] * 2_000_000
    return entry("two.zarr")


@TABLE.case("GET /v1/datasets")
def listing(desk: Desk) -> Request:
    frames(desk)
    desk.ask("GET", "/v1/datasets")
    return Request("GET", "/v1/datasets?limit=1000")


@TABLE.case("GET /v1/datasets/{ident}")
def describing(desk: Desk) -> Request:
    path = frames(desk)
    desk.ask("GET", path)
    return Request("GET", path)


@TABLE.case("DELETE /v1/datasets/{ident}")
def deleting(desk: Desk) -> Request:
    desk.ask("DELETE", frames(desk))
    return Request("DELETE", frames(desk, "other.npy"))


@TABLE.case("GET /v1/datasets/{ident}/files/{number}")
def a_file(desk: Desk) -> Request:
    path = frames(desk, shape=(64, 64, 64, 64))
    desk.send(Request("GET", f"{path}/files/0", headers={"Range": "bytes=0-99"}))
    return Request("GET", f"{path}/files/0")


def bombs(kind: str) -> Prepare:
    """A pixel of a chunk that decodes to half a gigabyte."""

    def prepare(desk: Desk) -> Request:
        if kind == "hdf5":
            for name, size in (("one.h5", 64), ("bomb.h5", 16384)):
                with h5py.File(desk.roots / name, "w") as file:
                    shape = (2, size, size)
                    data = file.create_dataset(
                        "data", shape, "u1", chunks=(1, size, size), compression="gzip"
                    )
                    data[0, 0, 0] = 1
            names = ("one.h5", "bomb.h5")
        else:
            for name in ("one.zarr", "bomb.zarr"):
                store = zarr.create_array(
                    str(desk.roots / name), shape=(2, 1024, 1024), chunks=(1, 1024, 1024),
                    dtype="u1", compressors=[codecs.GzipCodec()],
                )  # fmt: skip
                store[...] = 1
            bomb = gzip.compress(bytes(1 << 28), 6)
            (desk.roots / "bomb.zarr/c/0/0/0").write_bytes(bomb)
            names = ("one.zarr", "bomb.zarr")
        small, large = (desk.dataset(name) for name in names)
        pixel = {"select": {"frames": [0]}, "sig": [[0, 1], [0, 1]]}
        desk.send(Request.of("POST", f"{small}/tiles", pixel))
        return Request.of("POST", f"{large}/tiles", pixel)

    return prepare


TABLE.add("POST /v1/datasets/{ident}/tiles", "a pixel of an hdf5 bomb", bombs("hdf5"), hostile=True)
TABLE.add("POST /v1/datasets/{ident}/tiles", "a pixel of a zarr bomb", bombs("zarr"), hostile=True)
