"""Datasets in a bucket are what they are in a directory: every format, view and kind of item."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import obstore
import pytest
from backports.zstd import compress as zstd_compress
from obstore.store import MemoryStore

from app.datasets.catalogue import Catalogue
from app.datasets.files.backends import ObjectBackend
from app.datasets.files.buffers import BufferPool
from app.datasets.files.object_set import ObjectSet
from app.datasets.files.roots import FileMissingError, PathRefusedError, Roots
from app.datasets.opened import OpenDataset, OpenItems
from app.datasets.opening import open_recording
from app.datasets.permissions import check_paths
from app.datasets.scanning import scan
from app.datasets.spec import parse_dataset
from app.errors import DataChangedError, InvalidOptionError, TooLargeError
from app.http.identity import SINGLE_USER, Identity
from app.tiles.streaming import read_tiles
from app.tiles.views import Views
from app.tokens import KeyRing, new_key
from core.errors import CoreError, FormatError
from core.tiles.recording import Hints
from tests.app.datasets.files.bucket import ADDRESS, bucket_roots, upload, uploaded
from tests.app.datasets.files.test_arrays import WRITERS, drawn, view_of
from tests.app.datasets.items.test_items import every
from tests.app.state.memory import MemoryStateStore
from tests.core.tiles.test_detect import SETS
from tests.decoders import DECODERS
from tests.scale import examples
from tests.streams import random_stream

FRAMES = np.arange(12 * 30 * 40, dtype="<u2").reshape(12, 30, 40)


class Desk:
    """A catalogue and views over some roots."""

    def __init__(self, roots: Roots) -> None:
        store = MemoryStateStore()
        self.roots = roots
        self.catalogue = Catalogue(store, roots, {}, BufferPool(4), DECODERS)
        self.views = Views(self.catalogue, store, KeyRing([new_key()]))

    def register(self, **entry: Any) -> OpenDataset | OpenItems:  # noqa: ANN401 - JSON
        return self.catalogue.register(SINGLE_USER, {"id": "x", **entry})[0]

    def tiles(self, view: dict[str, Any], first: int = 0) -> Iterator[npt.NDArray[Any]]:
        opened = self.views.open(SINGLE_USER, "x", view)
        try:
            for tile in read_tiles(opened, first, opened.plan.tiles):
                yield tile.values
        finally:
            opened.close()


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[Callable[[], tuple[Desk, Desk]]]:
    """Desks over the files of a directory, and over the same in a bucket."""
    made: list[Desk] = []

    def make() -> tuple[Desk, Desk]:
        made.extend((Desk(Roots([tmp_path])), Desk(uploaded(tmp_path))))
        return made[-2], made[-1]

    yield make
    for desk in made:
        desk.catalogue.close()


def described(opened: OpenDataset | OpenItems) -> dict[str, Any]:
    return {name: value for name, value in opened.describe().items() if name != "fingerprint"}


def check_tiles(desks: tuple[Desk, Desk], view: dict[str, Any]) -> None:
    one, other = desks
    for a, b in zip(one.tiles(view), other.tiles(view), strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


@pytest.mark.parametrize("name", sorted(set(SETS) - {"raw_csr", "k2is"}))
def test_every_format(name: str, tmp_path: Path, desks: Callable[[], tuple[Desk, Desk]]) -> None:
    for path, content in SETS[name].items():
        (tmp_path / path).write_bytes(content)
    both = desks()
    one, other = (desk.register(files=sorted(SETS[name])) for desk in both)
    assert isinstance(other.files, ObjectSet)
    assert described(one) == described(other)
    check_tiles(both, {"target_bytes": 500})


@pytest.mark.parametrize("seed", range(examples(12)))
def test_random_views_of_frames(
    seed: int, tmp_path: Path, desks: Callable[[], tuple[Desk, Desk]]
) -> None:
    rng = np.random.default_rng(seed)
    data = drawn(rng, 3, 2)
    parts = np.array_split(data, rng.integers(1, min(4, len(data)) + 1))
    for number, part in enumerate(parts):
        (tmp_path / f"a_{number}.raw").write_bytes(b"head" + part.tobytes())
    np.save(tmp_path / "dark.npy", rng.normal(size=data.shape[3:]).astype("f4"))
    entry: dict[str, Any] = {
        "glob": "a_*.raw",
        "format": "raw",
        "dtype": data.dtype.str,
        "file_header": 4,
        "nav_shape": list(data.shape[:3]),
        "sig_shape": list(data.shape[3:]),
    }
    if data.dtype.kind in "uif" and rng.random() < 0.5:
        entry["corrections"] = {"dark": "dark.npy"}
    both = desks()
    for desk in both:
        desk.register(**entry)
    for _ in range(4):
        check_tiles(both, view_of(rng, data.shape[:3], data.shape[3:]))


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("seed", range(examples(5)))
def test_arrays_that_decoders_read(
    form: str, seed: int, tmp_path: Path, desks: Callable[[], tuple[Desk, Desk]]
) -> None:
    rng = np.random.default_rng(seed)
    data = drawn(rng, 2, 2)
    array = WRITERS[form](tmp_path / f"made.{form}", data, rng)
    both = desks()
    one, other = (desk.register(files=[f"made.{form}"], array=array) for desk in both)
    assert described(one) == described(other)
    for _ in range(2):
        check_tiles(both, view_of(rng, data.shape[:2], data.shape[2:]))


def test_a_large_array_that_a_decoder_asks_for_in_blocks(
    tmp_path: Path, desks: Callable[[], tuple[Desk, Desk]]
) -> None:
    h5py = pytest.importorskip("h5py")
    data = np.random.default_rng(0).integers(0, 1 << 16, (40, 256, 256), "u2")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=data, chunks=(1, 256, 256), compression="gzip")
    both = desks()
    for desk in both:
        desk.register(files=["a.h5"])
    check_tiles(both, {"target_bytes": 1 << 20})


ITEMS: dict[str, Callable[[], bytes]] = {
    "lines": lambda: b"".join(b"line %d\n" % k for k in range(30_000)),
    "loss": lambda: random_stream(np.random.default_rng(0), events=200).encode(),
}


@pytest.mark.parametrize(
    ("form", "packed"),
    [("lines", "plain"), ("lines", "gzip"), ("lines", "zstd"), ("loss", "plain")],
)
def test_items(
    form: str, packed: str, tmp_path: Path, desks: Callable[[], tuple[Desk, Desk]]
) -> None:
    content = ITEMS[form]()
    if packed != "plain":
        content = gzip.compress(content) if packed == "gzip" else zstd_compress(content)
    (tmp_path / "a").write_bytes(content)
    check_items(desks(), files=["a"], format=form)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_tables(form: str, tmp_path: Path, desks: Callable[[], tuple[Desk, Desk]]) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": np.arange(50_000), "text": [f"t{k % 7}" for k in range(50_000)]})
    if form == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(
            table, tmp_path / "a", row_group_size=7000
        )
    else:
        with pa.ipc.new_file(str(tmp_path / "a"), table.schema) as writer:
            writer.write_table(table, max_chunksize=7000)
    check_items(desks(), files=["a"], format=form)


def check_items(desks: tuple[Desk, Desk], **entry: Any) -> None:  # noqa: ANN401 - JSON
    one, other = (desk.register(**entry) for desk in desks)
    assert isinstance(one, OpenItems)
    assert isinstance(other, OpenItems)
    assert described(one) == described(other)
    for unit in one.items.units:
        assert every(one.items.source(unit, None)) == every(other.items.source(unit, None))


# -- changes --------------------------------------------------------------------------


@pytest.fixture
def bucket(tmp_path: Path) -> tuple[Desk, MemoryStore]:
    np.save(tmp_path / "scan.npy", FRAMES)
    np.save(tmp_path / "dark.npy", np.ones((30, 40), "f4"))
    store = MemoryStore()
    upload(tmp_path, store)
    return Desk(bucket_roots(store)), store


def npy(tmp_path: Path, array: npt.NDArray[Any]) -> bytes:
    np.save(tmp_path / "other.npy", array)
    return (tmp_path / "other.npy").read_bytes()


def test_an_object_that_changes_under_a_stream_is_never_mixed(
    bucket: tuple[Desk, MemoryStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, store = bucket
    monkeypatch.setattr(ObjectBackend, "ahead", 0)
    desk.register(files=["scan.npy"]).close()
    tiles = desk.tiles({"target_bytes": 2400})
    seen = [next(tiles), next(tiles)]
    obstore.put(store, "scan.npy", npy(tmp_path, FRAMES[::-1]))
    with pytest.raises(DataChangedError, match=r"'scan.npy' was modified"):
        seen.extend(tiles)
    assert np.array_equal(np.concatenate(seen), FRAMES[: len(seen)])
    desk.catalogue.close()
    assert np.array_equal(np.concatenate(list(desk.tiles({}))), FRAMES[::-1])


def test_corrections_are_objects_too(bucket: tuple[Desk, MemoryStore], tmp_path: Path) -> None:
    desk, store = bucket
    first = desk.register(files=["scan.npy"], corrections={"dark": "dark.npy"})
    assert np.array_equal(next(desk.tiles({})).reshape(-1, 30, 40), FRAMES - np.float32(1))
    obstore.put(store, "dark.npy", npy(tmp_path, np.full((30, 40), 2, "f4")))
    first.files._next_look = 0.0  # type: ignore[attr-defined]
    first.files.beside["dark"]._next_look = 0.0  # type: ignore[attr-defined]
    with desk.catalogue.open(SINGLE_USER, "x").files as files:
        assert files is not first.files
    assert next(desk.tiles({}))[0, 0, 5] == FRAMES[0, 0, 5] - 2.0


def test_the_same_contents_again_are_the_same_data(bucket: tuple[Desk, MemoryStore]) -> None:
    """Stores that make ETags of contents; this one counts, so it is another version."""
    desk, store = bucket
    first = desk.register(files=["scan.npy"])
    obstore.put(store, "copy.npy", bytes(obstore.get(store, "scan.npy").bytes()))
    desk.catalogue.close()
    again = desk.catalogue.open(SINGLE_USER, "x")
    assert again.fingerprint == first.fingerprint


# -- what is refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"files": ["nothing.npy"]}, FileMissingError),
        ({"glob": "nothing*"}, FileMissingError),
        ({"files": ["s3://scans/2025/scan.npy"]}, PathRefusedError),
        ({"files": ["s3://other/scan.npy"]}, PathRefusedError),
        ({"files": ["/scan.npy"]}, PathRefusedError),
        ({"files": ["scan.npy"], "growing": True}, InvalidOptionError),
        ({"files": ["scan.npy"], "corrections": {"dark": "s3://other/d.npy"}}, PathRefusedError),
        ({"files": ["scan.npy", "scan.npy"]}, InvalidOptionError),
    ],
)
def test_entries_that_are_refused(
    bucket: tuple[Desk, MemoryStore], entry: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        bucket[0].register(**entry)


def test_a_shard_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS["zarr"](tmp_path / "a.zarr", FRAMES, np.random.default_rng(1))
    monkeypatch.setattr("app.datasets.files.object_set.MAX_STAGED", 10)
    found = open_recording(uploaded(tmp_path), ["a.zarr"], Hints(), decoders=DECODERS)
    with found.files, pytest.raises(TooLargeError, match="read whole from a bucket"):
        found.arrays[0].read([((0, 1), (0, 30), (0, 40))])


def test_a_damaged_file_is_a_problem_of_the_file(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = FRAMES
    octets = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(octets[:700] + bytes(2000) + octets[2700:])
    with pytest.raises(FormatError):
        open_recording(uploaded(tmp_path), ["a.h5"], Hints(), decoders=DECODERS)


def test_an_object_that_changes_while_a_decoder_asks_for_it(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=FRAMES, chunks=(1, 30, 40), compression="gzip")
    store = MemoryStore()
    upload(tmp_path, store)
    found = open_recording(bucket_roots(store), ["a.h5"], Hints(), decoders=DECODERS)
    obstore.put(store, "a.h5", b"another")
    starts = DECODERS.starts
    found.files._blocks.clear()  # type: ignore[attr-defined]
    DECODERS.forget(next(iter(found.arrays[0].foreign._keys)))  # type: ignore[attr-defined]
    with found.files, pytest.raises(DataChangedError, match=r"'a.h5' was modified"):
        found.arrays[0].read([((0, 12), (0, 30), (0, 40))])
    assert DECODERS.starts == starts


def test_scopes_of_keys_hold_in_buckets(tmp_path: Path) -> None:
    for name in ("w/a.raw", "w/b.raw", "x/a.raw"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    roots = uploaded(tmp_path)

    def check(scope: str, **entry: object) -> None:
        who = Identity("alice", frozenset({scope}), "0" * 12)
        check_paths(who, roots, parse_dataset({"id": "x", **entry}))

    for name in ("w/a.raw", "./w/../w/a.raw", f"{ADDRESS}/w/a.raw"):
        check("register:w/*", files=[name])
        check(f"register:{ADDRESS}/w/*", files=[name])
    check("register:w/*", glob="w/*.raw")
    for name in ("x/a.raw", "w/../x/a.raw", f"{ADDRESS}/w/../x/a.raw", "x/nothing", "?/a.raw"):
        with pytest.raises(PathRefusedError):
            check("register:w/*", files=[name])


def test_a_scan_finds_what_lies_in_buckets(tmp_path: Path) -> None:
    for path, content in {**SETS["blo"], **SETS["npy"], **SETS["tvips"]}.items():
        (tmp_path / path).write_bytes(content)
    WRITERS["zarr"](tmp_path / "z.zarr", FRAMES, np.random.default_rng(1))
    (tmp_path / "notes.txt").write_text("nothing")
    ids = set(scan(Roots([tmp_path]), DECODERS).specs)
    found = scan(uploaded(tmp_path), DECODERS)
    assert set(found.specs) == ids
    assert all(name.startswith(ADDRESS) for spec in found.specs.values() for name in spec.files)
    for spec in found.specs.values():
        source = open_recording(uploaded(tmp_path), list(spec.files), spec.hints, decoders=DECODERS)
        source.files.close()


def test_without_decoders_arrays_are_refused_by_name(tmp_path: Path) -> None:
    WRITERS["zarr"](tmp_path / "a.zarr", FRAMES, np.random.default_rng(1))
    with pytest.raises(CoreError, match="decoders"):
        open_recording(uploaded(tmp_path), ["a.zarr"], Hints())
