"""Datasets, views of them and reductions."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr

from tests.cancellation.leaving import Work
from tests.cancellation.losses import summary_stream
from tests.cancellation.place import JSON, Place, Prepare, Table
from tests.core.tiles import writers

TABLE = Table()
OF = "/v1/datasets/{ident}"
FRAME = (256, 256)
Opened = Callable[[Place, float], str]


def sparse(frames: int, *sig: int, dtype: str = "<u2") -> Opened:
    """So many empty frames, which take no room on the disk."""

    def opened(place: Place, part: float) -> str:
        count = max(int(frames * part), 1)

        def write(path: Path) -> None:
            with path.open("wb") as file:
                file.truncate(count * int(np.prod(sig)) * np.dtype(dtype).itemsize)

        name = f"frames-{count}-{'-'.join(map(str, sig))}-{np.dtype(dtype).name}.raw"
        return place.dataset(name, write, format="raw", dtype=dtype, sig_shape=sig)

    return opened


FRAMES = sparse(1 << 16, *FRAME)
BITS = sparse(1 << 26, 1, 1, dtype="u1")
HUGE = sparse(2, 4096, 4096, dtype="u1")
SMALL = sparse(1 << 23, 1, 1, dtype="u1")


def _values(part: float, most: int) -> Any:  # noqa: ANN401 - an array
    shape = (max(int(most * part), 1), *FRAME)
    return np.random.default_rng(3).poisson(5, shape).astype("<u2")


def hdf5(place: Place, part: float) -> str:
    """Compressed chunks, decoded by processes of their own."""

    def write(path: Path) -> None:
        values = _values(part, 2048)
        with h5py.File(path, "w") as file:
            chunks = (min(len(values), 64), *FRAME)
            file.create_dataset("data", data=values, chunks=chunks, compression="gzip")

    return place.dataset(f"stored-{part}.h5".replace(".", "_", 1), write, format="hdf5")


def zarr_store(place: Place, part: float) -> str:
    """The same as files of a store."""

    def write(path: Path) -> None:
        values = _values(part, 1024)
        chunks = (min(len(values), 64), *FRAME)
        zarr.create_array(str(path), data=values, chunks=chunks)

    return place.dataset("stored.zarr", write, format="zarr")


def seq(place: Place, part: float) -> str:
    """Frames one after the other, each with a footer."""

    def write(path: Path) -> None:
        path.write_bytes(writers.seq(_values(part, 2048)))

    return place.dataset("recorded.seq", write)


def k2is(place: Place, part: float) -> str:
    """Twelve bits a pixel, in the files of eight sectors."""
    names = [f"k2_{sector + 1}.bin" for sector in range(8)]
    if not (place.root / names[0]).exists():
        shape = (max(int(40 * part), 1), 1860, 256)
        frames = np.random.default_rng(0).integers(0, 4096, shape, np.uint16)
        sector = writers.k2is_sector(frames)
        for name in names:
            (place.root / name).write_bytes(sector)
        (place.root / "k2_.gtg").write_bytes(b"not read")
        place.send("/v1/datasets", {"id": "k2", "files": [*names, "k2_.gtg"]})
    return "/v1/datasets/k2"


def corrected(place: Place, part: float) -> str:
    """Frames with a dark and a gain reference, and a hundred excluded pixels."""
    for name, value in (("dark.npy", 1.0), ("gain.npy", 2.0)):
        if not (place.root / name).exists():
            np.save(place.root / name, np.full(FRAME, value))
    pixels = [[n, 2 * n % 256] for n in range(100)]

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(max(int((1 << 15) * part), 1) * FRAME[0] * FRAME[1] * 2)

    corrections = {"dark": "dark.npy", "gain": "gain.npy", "excluded": pixels}
    entry = {"format": "raw", "dtype": "<u2", "sig_shape": FRAME, "corrections": corrections}
    return place.dataset("corrected.raw", write, **entry)


def stored(where: str, opened: Opened = FRAMES, **view: Any) -> Prepare:  # noqa: ANN401 - JSON
    """What a stored view has at a path."""

    def prepare(place: Place, part: float) -> Work:
        return Work("GET", place.view(opened(place, part), **view) + where)

    return prepare


def posted(where: str, opened: Opened = FRAMES, **values: Any) -> Prepare:  # noqa: ANN401 - JSON
    """What is made of an object, such as a view."""

    def prepare(place: Place, part: float) -> Work:
        return Work("POST", opened(place, part) + where, json.dumps(values).encode(), JSON)

    return prepare


def reduction(opened: Opened = FRAMES, **spec: Any) -> Prepare:  # noqa: ANN401 - JSON
    """A reduction of a whole recording."""
    return posted("/reduce", opened, reduction=spec)


def got(where: str, opened: Opened) -> Prepare:
    """What a dataset has at a path."""
    return lambda place, part: Work("GET", opened(place, part) + where)


def masked(place: Place, part: float) -> Work | Callable[[], Work]:
    """A view by a mask of every other frame."""
    count = max(int((1 << 22) * part), 8)
    mask = base64.b64encode(b"\xaa" * (count // 8)).decode()
    return posted("/views", sparse(count, 1, 1, dtype="u1"), select={"mask": mask})(place, 1.0)


def chunk(place: Place, part: float) -> Work:
    """A chunk of the zarr store of a view, as large as may be."""
    view = place.view(HUGE(place, part), target_bytes=64 << 20, dtype="<f8")
    return Work("GET", f"/zarr/{view.rpartition('/')[2]}/data/c/0/0/0")


def registering(name: str, write: Callable[[Path, float], None], **entry: object) -> Prepare:
    """A file that is read to its end before it is registered."""

    def prepare(place: Place, part: float) -> Callable[[], Work]:
        write(place.root / name, part)
        place.keep(place.root / name)
        made = iter(range(1 << 20))

        def make() -> Work:
            values = {"id": f"new-{next(made)}-{name}", "files": [name], **entry}
            return Work("POST", "/v1/datasets", json.dumps(values).encode(), JSON)

        return make

    return prepare


def _short_lines(path: Path, part: float) -> None:
    path.write_bytes(b"\n" * int((64 << 20) * part))


def _short_events(path: Path, part: float) -> None:
    path.write_bytes(summary_stream(max(int(10_000_000 * part), 1), 1, 1))


def _row_groups(path: Path, part: float) -> None:
    table = pa.table({"x": np.arange(int(80_000 * part))})
    pq.write_table(table, path, row_group_size=2)


TILES = f"GET {OF}/views/{{name}}/tiles"
TABLE.add(TILES, "tiles", stored("/tiles", dtype="<f8"))
TABLE.add(TILES, "shuffled tiles", stored("/tiles", select={"shuffle": {"seed": 1}}))
TABLE.add(TILES, "shuffled pixels", stored("/tiles", BITS, select={"shuffle": {"seed": 1}}))
TABLE.add(TILES, "tiles with corrections", stored("/tiles", corrected, dtype="<f4"))
TABLE.add(TILES, "compressed tiles", stored("/tiles?codec=blosc2", target_bytes=64 << 20))
TABLE.add(TILES, "sums of neighbours", stored("/tiles", bin={"nav": 16, "sig": 16}))
for _opened in (hdf5, zarr_store, seq, k2is):
    TABLE.add(TILES, f"tiles of {_opened.__name__}", stored("/tiles", _opened))
TABLE.add(f"POST {OF}/tiles", "tiles of a posted view", posted("/tiles", dtype="<f4"))
TABLE.add(f"GET {OF}/views/{{name}}/raw", "raw values", stored("/raw", dtype="<f4"))
TABLE.add(
    f"GET {OF}/views/{{name}}/tiles/{{index}}",
    "the largest tile",
    stored("/tiles/0", HUGE, target_bytes=64 << 20, dtype="<f8"),
)
TABLE.add(
    f"GET {OF}/views/{{name}}/tiles/{{index}}",
    "a tile in json",
    stored("/tiles/0?format=json", sparse(16, 250, 250), tile_shape=[16, 250, 250]),
)
TABLE.add("GET /zarr/{view}/{key}", "a chunk of zarr", chunk)
for _route in ("plan", "views"):
    TABLE.add(
        f"POST {OF}/{_route}",
        f"a shuffle of 2^26, to /{_route}",
        posted(f"/{_route}", BITS, select={"shuffle": {"seed": 1}}),
    )
TABLE.add(f"POST {OF}/views", "a mask of 2^22", masked)
TABLE.add(
    f"GET {OF}/views/{{name}}/plan",
    "a plan of many tiles",
    stored("/plan", sparse(4_900_000, 1, 1, dtype="u1"), tile_shape=[1, 1, 1]),
)
TABLE.add(f"GET {OF}/files/{{number}}", "a file", got("/files/0", FRAMES))
TABLE.add(
    "POST /v1/datasets",
    "registering short lines",
    registering("short.txt", _short_lines, format="lines"),
)
TABLE.add(
    "POST /v1/datasets",
    "registering short events",
    registering("short.bin", _short_events, format="loss"),
)
TABLE.add(
    "POST /v1/datasets",
    "registering row groups",
    registering("groups.parquet", _row_groups, format="parquet"),
)

REDUCE = f"POST {OF}/reduce"
TABLE.add(REDUCE, "sum", reduction(op="sum", over="frames"))
TABLE.add(REDUCE, "std", reduction(op="std", over="frames"))
TABLE.add(REDUCE, "std of hdf5", reduction(hdf5, op="std", over="frames"))
TABLE.add(REDUCE, "std of pixels", reduction(SMALL, op="std", over="pixels"))
TABLE.add(REDUCE, "com", reduction(op="com"))
TABLE.add(
    REDUCE,
    "virtual detectors",
    reduction(
        op="virtual",
        detectors=[{"disk": {"centre": [128, 128], "radius": r}} for r in range(9, 73)],
    ),
)
IMAGE = f"GET {OF}/image.png"
TABLE.add(IMAGE, "a picture of many frames", got("/image.png", FRAMES))
TABLE.add(IMAGE, "the largest picture", got("/image.png?map=viridis", HUGE))
