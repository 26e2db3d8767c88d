"""Files made to harm: each is one problem document, and no byte of another file ever comes out."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from zarr import codecs

from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.file_set import FileSet
from app.datasets.files.hdf5 import open_hdf5
from app.datasets.files.roots import Roots
from app.datasets.opened import OpenDataset
from app.decoding.base import DecoderLimits
from app.decoding.pool import DecoderPool
from app.errors import DataChangedError, DatasetUnreadableError
from app.http.identity import SINGLE_USER
from core.arrays import Array
from core.errors import CoreError, FormatError
from tests.app.harness import Service, check_problem
from tests.app.state.memory import MemoryStateStore
from tests.decoders import DECODERS
from tests.fuzz.fuzz_files import workers_of
from tests.scale import PURE_PYTHON, SOAK
from tests.server_process import ROOT

SHARED = ROOT.parent / "shared/conformance/hostile"
SHAPE = (3, 10, 100)
SECRET = b"TOP-SECRET outside the roots! " * 100
MIB = 1 << 20

Make = Callable[[h5py.File, Path], None]


def external(file: h5py.File, name: str, secret: Path, shape: tuple[int, ...] = SHAPE) -> None:
    """A dataset whose values are those of another file."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_external(str(secret).encode(), 0, h5py.h5f.UNLIMITED)
    space = h5py.h5s.create_simple(shape)
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_UINT8, space, properties)


def virtual(file: h5py.File, source: bytes, name: bytes) -> None:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    space = h5py.h5s.create_simple(SHAPE)
    properties.set_virtual(space, source, name, space)
    h5py.h5d.create(file.id, b"data", h5py.h5t.NATIVE_UINT8, space, properties)


def percent(file: h5py.File, secret: Path) -> None:
    file.create_dataset("a%%b", data=np.zeros(SHAPE, "u1"))
    external(file, "a%b", secret)
    virtual(file, b".", b"a%%b")


def numbered(file: h5py.File, secret: Path) -> None:
    file.create_dataset("x%b", data=np.zeros(SHAPE, "u1"))
    for k in range(2):
        external(file, f"x{k}", secret, (1, *SHAPE[1:]))
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    unlimited = (h5py.h5s.UNLIMITED, *SHAPE[1:])
    space = h5py.h5s.create_simple((2, *SHAPE[1:]), unlimited)
    whole = h5py.h5s.create_simple((2, *SHAPE[1:]), unlimited)
    blocks = {"stride": (1, 1, 1), "block": (1, *SHAPE[1:])}
    whole.select_hyperslab((0, 0, 0), (h5py.h5s.UNLIMITED, 1, 1), **blocks)
    properties.set_virtual(whole, b".", b"x%b", h5py.h5s.create_simple((1, *SHAPE[1:])))
    h5py.h5d.create(file.id, b"data", h5py.h5t.NATIVE_UINT8, space, properties)


def elsewhere(file: h5py.File, secret: Path) -> None:
    virtual(file, str(secret.with_name("o%%b.h5")).encode(), b"data")


def linked(file: h5py.File, secret: Path) -> None:
    file["data"] = h5py.ExternalLink(str(secret.with_name("o.h5")), "/data")


def stored_elsewhere(file: h5py.File, secret: Path) -> None:
    external(file, "data", secret)


def bomb(file: h5py.File, secret: Path) -> None:
    del secret
    options = {"chunks": (1, 32768, 32768), "compression": "gzip"}
    file.create_dataset("data", shape=(2, 32768, 32768), dtype="u1", **options)


def missing(file: h5py.File, secret: Path) -> None:
    del secret
    virtual(file, b".", b"nowhere")


def smaller(file: h5py.File, secret: Path) -> None:
    del secret
    file.create_dataset("inner", data=np.ones((3, 10, 50), "u1"))
    virtual(file, b".", b"inner")


REFUSED: dict[str, tuple[Make, str]] = {
    "percent": (percent, "by a pattern"),
    "numbered": (numbered, "by a pattern"),
    "other file": (elsewhere, "refers to other files"),
    "link": (linked, "link to another file"),
    "external": (stored_elsewhere, "in other files"),
    "bomb": (bomb, "of more than 536870912 bytes"),
    "missing source": (missing, "no array 'nowhere'"),
}


def zarr_bomb(path: Path) -> None:
    """A store whose first chunk decompresses to a hundred times its size."""
    store = zarr.create_array(
        str(path),
        shape=(2, 1024, 1024),
        chunks=(1, 1024, 1024),
        dtype="u1",
        compressors=[codecs.GzipCodec()],
    )
    store[...] = 1
    (path / "c/0/0/0").write_bytes(gzip.compress(bytes(100 * MIB), 1))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.bin").write_bytes(SECRET)
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.mark.parametrize("how", REFUSED)
def test_virtual_arrays_stay_inside(how: str, root: Path) -> None:
    make, says = REFUSED[how]
    with h5py.File(root / "a.h5", "w") as file:
        make(file, root.parent / "secret.bin")
    with (
        FileSet([root / "a.h5"], Roots([root]).open) as files,
        pytest.raises(FormatError, match=says),
    ):
        open_hdf5(files, 0, "data", DECODERS)


def test_a_virtual_source_that_is_too_small_is_an_error(root: Path) -> None:
    with h5py.File(root / "a.h5", "w") as file:
        smaller(file, root)
    with FileSet([root / "a.h5"], Roots([root]).open) as files:
        array = open_hdf5(files, 0, "data", DECODERS)
        with pytest.raises(FormatError):
            array.read([tuple((0, n) for n in SHAPE)])


def frame_of(dataset: OpenDataset, number: int, rows: tuple[int, int]) -> Array:
    """Rows of one frame, read anew."""
    found: list[Array] = []
    dataset.frames().visit(
        np.array([number]), rows, lambda _first, loaded: found.append(loaded.values.copy())
    )
    return np.concatenate(found)


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_a_file_that_is_swapped_in_place_gives_nothing_of_others(
    root: Path,
    sandbox: Any,  # noqa: ANN401
) -> None:
    """Same size, same modification time: only the time of the status change tells."""
    with h5py.File(root / "a.h5", "w") as file:
        file.create_dataset("data", data=np.ones(SHAPE, "u1"), chunks=SHAPE, compression="gzip")
    with h5py.File(root.parent / "b.h5", "w") as file:
        external(file, "data", root.parent / "secret.bin")
    clean = (root / "a.h5").read_bytes()
    hostile = (root.parent / "b.h5").read_bytes()
    size = max(len(clean), len(hostile))
    (root / "a.h5").write_bytes(clean.ljust(size, b"\0"))
    with contextlib.closing(DecoderPool(DecoderLimits(sandbox=sandbox))) as pool:
        catalogue = Catalogue(MemoryStateStore(), Roots([root]), {}, BufferPool(4), pool)
        dataset, _ = catalogue.register(SINGLE_USER, {"id": "a", "files": ["a.h5"]})
        assert isinstance(dataset, OpenDataset)
        assert (frame_of(dataset, 0, (0, 10)) == 1).all()
        before = (root / "a.h5").stat()
        with (root / "a.h5").open("r+b") as opened:
            opened.write(hostile.ljust(size, b"\0"))
        os.utime(root / "a.h5", ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises((FormatError, DataChangedError)):
            frame_of(dataset, 0, (0, 10))
        dataset.close()
        catalogue.close()


def test_links_and_modes_are_no_change_of_data(root: Path) -> None:
    with h5py.File(root / "a.h5", "w") as file:
        file.create_dataset("data", data=np.ones(SHAPE, "u1"), chunks=SHAPE, compression="gzip")
    with FileSet([root / "a.h5"], Roots([root]).open) as files:
        array = open_hdf5(files, 0, None, DECODERS)
        (root / "a.h5").chmod(0o600)
        (root.parent / "link").hardlink_to(root / "a.h5")
        assert (array.read([tuple((0, n) for n in SHAPE)])[0] == 1).all()


def test_bombs_are_bounded(root: Path) -> None:
    zarr_bomb(root / "a.zarr")
    rows = pa.table({"x": pa.array([bytes(40 * MIB)] * 4)})
    pq.write_table(rows, root / "a.parquet", compression="zstd", row_group_size=4)
    limits = DecoderLimits(memory=128 * MIB)
    with contextlib.closing(DecoderPool(limits)) as pool:
        catalogue = Catalogue(MemoryStateStore(), Roots([root]), {}, BufferPool(4), pool)
        dataset, _ = catalogue.register(SINGLE_USER, {"id": "zarr", "files": ["a.zarr"]})
        assert isinstance(dataset, OpenDataset)
        with pytest.raises(FormatError, match="decompresses to more than 1048576 bytes"):
            frame_of(dataset, 0, (0, 1))
        assert (frame_of(dataset, 1, (0, 1)) == 1).all()
        dataset.close()
        table, _ = catalogue.register(
            SINGLE_USER, {"id": "t", "files": ["a.parquet"], "format": "parquet"}
        )
        assert not isinstance(table, OpenDataset)
        with pytest.raises(DatasetUnreadableError, match="more than the 128 MiB"):
            table.items.source("row", None).at(np.array([0]))
        table.close()
        catalogue.close()


# -- through the service --------------------------------------------------------------


def ask(service: Service, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    with contextlib.closing(connection):
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        document = json.loads(answer.read())
        if answer.headers.get_content_type() == "application/problem+json":
            check_problem(document)
        return answer.status, document


FILES: dict[str, Make] = {
    "external.h5": stored_elsewhere,
    "link.h5": linked,
    "virtual.h5": elsewhere,
    "percent.h5": percent,
    "printf.h5": numbered,
    "bomb.h5": bomb,
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"there are no conformance files in {SHARED}")
    directory = tmp_path_factory.mktemp("hostile")
    if SOAK:  # the compression of larger bombs takes a minute
        subprocess.run([sys.executable, str(SHARED / "make.py"), str(directory)], check=True)
    else:
        (directory / "roots").mkdir()
        (directory / "outside").mkdir()
        secret = directory / "outside/secret.bin"
        secret.write_bytes(SECRET)
        for name, make in FILES.items():
            with h5py.File(directory / "roots" / name, "w") as file:
                make(file, secret)
        zarr_bomb(directory / "roots/bomb.zarr")
    (directory / "roots/crash.h5").write_bytes((SHARED / "crash.h5").read_bytes())
    return directory


@pytest.fixture(scope="module")
def service(hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server that scans the hostile files when it starts."""
    if PURE_PYTHON:
        pytest.skip("the server is a process of its own, whatever kernels are here")
    directory = tmp_path_factory.mktemp("scanning")
    made = Service(directory, dataset_roots=hostile / "roots", scan=True)
    try:
        yield made
        assert made.stop() == 0
        assert not made.failures()
    finally:
        made.kill()


PROBLEMS = {
    "crash.h5": ("dataset-unreadable", "crash"),
    "external.h5": ("format", None),
    "link.h5": ("format-ambiguous", None),
    "virtual.h5": ("format", None),
    "bomb.h5": ("format", None),
    "percent.h5": ("format", None),
    "printf.h5": ("format", None),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_is_one_problem(name: str, service: Service) -> None:
    code, reason = PROBLEMS[name]
    entry = {"id": f"the-{name}", "files": [name]}
    if name in {"percent.h5", "printf.h5"}:
        entry["array"] = "data"
    before = service.pid
    status, found = ask(service, "POST", "/v1/datasets", entry)
    assert (status, found["code"]) == (422, code), found
    assert found.get("file", name) == name
    assert found.get("reason") == reason
    assert service.pid == before
    assert service.process.poll() is None
    # What is sound is read as ever.
    assert ask(service, "GET", "/v1/datasets/bomb.zarr")[0] == 200


def test_the_service_itself_loads_no_foreign_library(service: Service) -> None:
    status, made = ask(service, "POST", "/v1/datasets/bomb.zarr/views", {})
    assert status in {200, 201}
    assert ask(service, "GET", f"/v1/datasets/bomb.zarr/views/{made['id']}/tiles/0")[0] == 422
    (worker, *_) = workers_of(service.pid)
    foreign = ("h5py", "libhdf5", "numcodecs", "_parquet.", "crc32c")
    maps = Path(f"/proc/{service.pid}/maps").read_text()
    theirs = Path(f"/proc/{worker}/maps").read_text()
    assert [name for name in foreign if name not in theirs] == []
    # The service writes parquet itself.
    assert [name for name in foreign if name in maps and name != "_parquet."] == []


def test_no_byte_of_others_came_out(hostile: Path) -> None:
    roots = Roots([hostile / "roots"])
    for path in sorted((hostile / "roots").glob("*.h5")):
        if path.name == "bomb.h5":
            continue
        for array in (None, "data", "x0", "a%b"):
            with (
                FileSet([path], roots.open) as files,
                contextlib.suppress(CoreError, DatasetUnreadableError),
            ):
                found = open_hdf5(files, 0, array, DECODERS)
                values = found.read([tuple((0, n) for n in found.shape)])[0]
                assert b"SECRET" not in values.tobytes()
