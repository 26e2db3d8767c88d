"""Frames out of HDF5 files and zarr stores are what numpy wrote into them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pytest

from app.command.inspect import inspect_files
from app.datasets.catalogue import Catalogue
from app.datasets.files.backends import open_backend
from app.datasets.files.buffers import BufferPool
from app.datasets.files.identity import is_young
from app.datasets.files.roots import FileMissingError, PathRefusedError, Roots
from app.datasets.files.zarr_files import StoreFiles
from app.datasets.files.zarr_source import ZarrArray
from app.datasets.opened import OpenDataset
from app.datasets.opening import Source, open_recording
from app.datasets.spec import parse_dataset
from app.decoding.pool import DecoderPool
from app.errors import DataChangedError, DatasetUnreadableError, InvalidOptionError
from app.http.identity import SINGLE_USER
from core.errors import AmbiguousFormatError, CoreError, FormatError, ShapeError
from core.tiles import chunked
from core.tiles.corrections import Corrections
from core.tiles.frames import FileFrames, FrameSource, Loaded
from core.tiles.plan import make_plan
from core.tiles.reader import TileReader
from core.tiles.recording import Hints
from core.tiles.view import parse_view
from tests.app.state.memory import MemoryStateStore
from tests.core.tiles import reference
from tests.decoders import DECODERS
from tests.descriptors import nothing_left_open
from tests.scale import examples

Array = npt.NDArray[Any]
Write = Callable[[Path, Array, "np.random.Generator"], str]

DTYPES = ["b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"]
FRAMES = np.arange(4 * 5 * 6 * 7, dtype="<u2").reshape(4, 5, 6, 7)
ONE = Hints(sig_shape=(1,))
"""Frames of one pixel."""
OF_DECODERS = ("socket:", "/memfd:")
"""Connections to decoders and the memory shared with them stay open."""


def drawn(rng: np.random.Generator, nav: int, sig: int) -> Array:
    """A random array of any type and byte order."""
    shape = (*rng.integers(1, 8, nav).tolist(), *rng.integers(1, 9, sig).tolist())
    dtype = np.dtype(str(rng.choice(["<", ">"])) + str(rng.choice(DTYPES)))
    if dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if dtype.kind == "f":
        return rng.normal(size=shape).astype(dtype)
    octets = rng.bytes(math.prod(shape) * dtype.itemsize)
    values = np.frombuffer(octets, "u1" if dtype.kind == "b" else dtype)
    return (
        values.astype(dtype).reshape(shape) if dtype.kind != "b" else (values > 99).reshape(shape)
    )


def chunks_of(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(rng.integers(1, n + 1)) for n in shape)


def hdf5(path: Path, data: Array, rng: np.random.Generator) -> str:
    h5py = pytest.importorskip("h5py")
    name = str(rng.choice(["data", "entry/data/data"]))
    options: dict[str, Any] = {}
    if rng.random() < 0.75:
        options = {
            "chunks": chunks_of(rng, data.shape),
            "compression": rng.choice(["gzip", "lzf", ""]) or None,
            "shuffle": bool(rng.random() < 0.5),
            "fletcher32": bool(rng.random() < 0.3),
        }
    with h5py.File(path, "w", userblock_size=int(rng.choice([0, 512, 2048]))) as file:
        file.create_dataset("small", data=np.arange(3))
        file.create_dataset(name, data=data, **options)
    return name


def zarr(path: Path, data: Array, rng: np.random.Generator) -> str:
    library = pytest.importorskip("zarr", minversion="3")
    codecs = library.codecs
    name = str(rng.choice(["", "data", "entry/data"]))
    chunks = chunks_of(rng, data.shape)
    shards = tuple(c * int(rng.integers(1, 3)) for c in chunks) if rng.random() < 0.3 else None
    compressors: list[Any] = [
        None,
        codecs.ZstdCodec(level=1),
        codecs.GzipCodec(level=1),
        codecs.BloscCodec(cname="lz4"),
        [codecs.ZstdCodec(level=1), codecs.Crc32cCodec()],
    ]
    order = "big" if data.dtype.byteorder == ">" else "little"
    filters = None
    if rng.random() < 0.3:
        filters = [codecs.TransposeCodec(order=rng.permutation(data.ndim).tolist())]
    array = library.create_array(
        str(path),
        name=name or None,
        shape=data.shape,
        dtype=data.dtype.newbyteorder("="),
        chunks=chunks,
        shards=shards,
        filters=filters,
        serializer=codecs.BytesCodec(endian=order),
        compressors=compressors[int(rng.integers(len(compressors)))],
    )
    array[...] = data
    return name or "/"


WRITERS = {"hdf5": hdf5, "zarr": zarr}


def source_of(found: Source) -> FrameSource:
    if found.arrays:
        return found.array_frames()
    backend = open_backend("buffered", found.files, BufferPool(4, 1 << 20))
    return FileFrames(found.recording, backend)


def values_of(source: FrameSource, frames: Array, rows: tuple[int, int]) -> Array:
    """Rows of frames, one line each."""
    lines: list[Array] = []

    def keep(_first: int, loaded: Loaded) -> None:
        size = (rows[1] - rows[0]) * loaded.pitch
        lines.extend(loaded.values[start : start + size].copy() for start in loaded.starts)

    source.visit(frames, rows, keep)
    return np.array(lines)


def whole_view(found: Source, spec: dict[str, Any]) -> Array:
    plan = make_plan(found.recording, parse_view(spec))
    corrections = Corrections(found.recording.sig_shape, None, None, None)
    reader = TileReader(plan, found.recording, source_of(found), corrections)
    made = np.zeros(plan.shape, plan.dtype)
    for k in range(plan.tiles):
        tile = plan.tile(k)
        made[tuple(slice(a, b) for a, b in tile.box)] = reader.read(tile)
    return made


def view_of(
    rng: np.random.Generator, scan: tuple[int, ...], sig: tuple[int, ...]
) -> dict[str, Any]:
    spec: dict[str, Any] = {"target_bytes": int(rng.integers(1, 3000))}
    how = rng.random()
    if how < 0.3:
        spec["select"] = {"frames": rng.integers(0, math.prod(scan), 9).tolist()}
    elif how < 0.6:
        pairs = [sorted(rng.choice(n + 1, 2, replace=False).tolist()) for n in scan]
        spec["select"] = {"nav": [[*pair, int(rng.integers(1, 3))] for pair in pairs]}
    if rng.random() < 0.5:
        spec["sig"] = [sorted(rng.choice(n + 1, 2, replace=False).tolist()) for n in sig]
    return spec


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("seed", range(examples(40)))
def test_views_are_what_numpy_says(
    form: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    dims = int(rng.integers(1, 4))
    data = drawn(rng, int(rng.integers(1, 4)), dims)
    path = tmp_path / f"made.{form}"
    name = WRITERS[form](path, data, rng)
    scan, sig = data.shape[: data.ndim - dims], data.shape[data.ndim - dims :]
    monkeypatch.setattr(chunked, "READ_BYTES", int(rng.choice([1, 50, 400, 8 << 20])))
    found = open_recording(
        Roots([tmp_path]), [path.name], Hints(sig_shape=sig), decoders=DECODERS, array=name
    )
    with found.files:
        recording = found.recording
        assert (recording.nav_shape, recording.sig_shape) == (scan, sig)
        assert recording.dtype == data.dtype.newbyteorder("=")
        assert recording.stored is not None
        if form == "hdf5":
            assert recording.stored == data.dtype
        assert recording.frames == math.prod(scan)
        for _ in range(3):
            spec = view_of(rng, scan, sig)
            flat = data.astype(recording.dtype).reshape(-1, *sig)
            wanted = reference.view(flat, scan, {"select": {"all": True}, **spec})
            assert np.array_equal(whole_view(found, spec), wanted)
        assert len(found.fingerprint()) == 8


# -- HDF5 -----------------------------------------------------------------------------


@pytest.fixture
def h5py() -> ModuleType:
    module: ModuleType = pytest.importorskip("h5py")
    return module


def opened(directory: Path, name: str, hints: Hints | None = None, **more: str | None) -> Source:
    return open_recording(Roots([directory]), [name], hints or Hints(), decoders=DECODERS, **more)


def check_frames(found: Source, data: Array) -> None:
    with found.files:
        assert np.array_equal(whole_view(found, {}), data)


def refused(directory: Path, name: str, says: str, **more: str) -> FormatError:
    with nothing_left_open(OF_DECODERS), pytest.raises(FormatError, match=says) as caught:
        opened(directory, name, None, **more)
    assert caught.value.hint
    return caught.value


def test_hdf5_in_one_piece_is_read_by_ranges(tmp_path: Path, h5py: ModuleType) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = FRAMES
    found = opened(tmp_path, "a.h5")
    assert found.arrays == ()
    assert found.recording.extents[0].offset > 0
    check_frames(found, FRAMES)


def test_hdf5_array_is_chosen_or_asked_for(tmp_path: Path, h5py: ModuleType) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["mask"] = np.zeros((6, 7))
        file["text"] = np.array([b"x"] * 8).reshape(2, 2, 2)
        file["none/here"] = h5py.Empty("f4")
        file["one/data"] = FRAMES
        file["one/again"] = h5py.SoftLink("data")
        file["one/hard"] = file["one/data"]
        file["one/loop"] = file["/"]
    check_frames(opened(tmp_path, "a.h5"), FRAMES)
    check_frames(opened(tmp_path, "a.h5", array="one/again"), FRAMES)
    check_frames(opened(tmp_path, "a.h5", array="/one/loop/one//data"), FRAMES)
    check_frames(opened(tmp_path, "a.h5", array="mask"), np.zeros((1, 6, 7)))
    refused(tmp_path, "a.h5", "no array 'two/data'", array="two/data")
    refused(tmp_path, "a.h5", "no array", array="one/data/further")
    refused(tmp_path, "a.h5", "is not an array", array="one")
    refused(tmp_path, "a.h5", "holds", array="text")
    refused(tmp_path, "a.h5", "holds nothing", array="none/here")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["two"] = FRAMES[0]
    with pytest.raises(AmbiguousFormatError, match="several arrays") as caught:
        opened(tmp_path, "a.h5")
    assert "/two (5, 6, 7)" in str(caught.value)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["mask"] = np.zeros((6, 7))
    check_frames(opened(tmp_path, "b.h5"), np.zeros((1, 6, 7)))
    with h5py.File(tmp_path / "b.h5", "a") as file:
        file["other"] = np.zeros((6, 7))
    with pytest.raises(AmbiguousFormatError, match="no array of three") as caught:
        opened(tmp_path, "b.h5")
    assert "/mask (6, 7)" in str(caught.value)
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["text"] = ["a", "b"]
    with pytest.raises(AmbiguousFormatError, match="no array of numbers"):
        opened(tmp_path, "c.h5")


def test_hdf5_files_follow_each_other(tmp_path: Path, h5py: ModuleType) -> None:
    for k in range(3):
        with h5py.File(tmp_path / f"data_{k}.h5", "w") as file:
            chunks = (2, 6, 7) if k else None
            file.create_dataset("data", data=FRAMES[k], chunks=chunks)
    hints = Hints(nav_shape=(3, 5))
    found = open_recording(Roots([tmp_path]), ["data_*.h5"], hints, decoders=DECODERS)
    check_frames(found, FRAMES[:3])
    with h5py.File(tmp_path / "data_1.h5", "w") as file:
        file["data"] = FRAMES[1].astype("f4")
    with pytest.raises(FormatError, match="<f4") as caught:
        open_recording(Roots([tmp_path]), ["data_*.h5"], Hints(), decoders=DECODERS)
    assert caught.value.source == "data_1.h5"


@pytest.mark.parametrize(
    ("options", "hints", "extents"),
    [
        ({"chunks": (1, 1, 6, 7)}, Hints(), 1),
        ({"chunks": (2, 5, 6, 7)}, Hints(), 1),
        ({"chunks": (3, 2, 6, 7), "maxshape": (None, None, 6, 7)}, Hints(), 12),
        ({"chunks": (4, 5, 6, 7)}, Hints(), 1),
        ({"chunks": (1, 2, 3, 7)}, Hints(sig_shape=(7,)), 32),
        ({"chunks": (1, 2, 3, 7)}, Hints(), 0),
        ({"chunks": (1, 1, 6, 7), "compression": "lzf"}, Hints(), 0),
        ({"chunks": (1, 1, 6, 7), "fletcher32": True}, Hints(), 0),
    ],
)
def test_hdf5_chunks_of_whole_frames_are_read_from_the_file(
    tmp_path: Path, h5py: ModuleType, options: dict[str, Any], hints: Hints, extents: int
) -> None:
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512) as file:
        file.create_dataset("data", data=FRAMES, **options)
    found = opened(tmp_path, "a.h5", hints)
    assert bool(found.arrays) == (not extents)
    assert len(found.recording.extents) == (extents or 1)
    check_frames(found, FRAMES)


def test_hdf5_chunks_that_were_never_written_have_fill_values(
    tmp_path: Path, h5py: ModuleType
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("data", (4, 6, 7), "<u2", chunks=(1, 6, 7), fillvalue=9)
        data[2] = FRAMES[0, 0]
    expected = np.full((4, 6, 7), 9, "<u2")
    expected[2] = FRAMES[0, 0]
    check_frames(opened(tmp_path, "a.h5"), expected)


def test_hdf5_hints(tmp_path: Path, h5py: ModuleType) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=FRAMES, chunks=True)
    for hints, scan, sig in (
        (Hints(), (4, 5), (6, 7)),
        (Hints(sig_shape=(7,)), (4, 5, 6), (7,)),
        (Hints(nav_shape=(4,)), (4,), (5, 6, 7)),
        (Hints(nav_shape=(3, 3)), (3, 3), (6, 7)),
    ):
        with (found := opened(tmp_path, "a.h5", hints)).files:
            assert (found.recording.nav_shape, found.recording.sig_shape) == (scan, sig)
    with pytest.raises(ShapeError, match="does not end in frames"):
        opened(tmp_path, "a.h5", Hints(sig_shape=(7, 6)))
    with pytest.raises(FormatError, match="dtype"):
        opened(tmp_path, "a.h5", Hints(dtype=np.dtype("f4")))
    with pytest.raises(FormatError, match="growing dataset cannot be"):
        opened(tmp_path, "a.h5", Hints(growing=True))


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("seed", range(4))
def test_values_of_a_list_are_frames_as_in_an_npy(tmp_path: Path, form: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for shape, hints in (((12,), Hints()), ((12,), Hints(sig_shape=(1,))), ((3, 4), ONE)):
        data = rng.integers(0, 99, shape, "<i8")
        path = tmp_path / f"{len(shape)}{hints.sig_shape}"
        name = WRITERS[form](path, data, rng)
        with (found := opened(tmp_path, path.name, hints, array=name)).files:
            assert (found.recording.nav_shape, found.recording.sig_shape) == (shape, (1,))
            assert np.array_equal(whole_view(found, {})[..., 0], data)
            picked = whole_view(found, {"select": {"frames": [11, 0, 5, 6]}})
            assert np.array_equal(picked.reshape(-1), data.reshape(-1)[[11, 0, 5, 6]])
        np.save(tmp_path / "a.npy", data)
        with (found := opened(tmp_path, "a.npy", hints)).files:
            assert (found.recording.frames, found.recording.sig_shape) == (12, (1,))


def test_hdf5_axes(tmp_path: Path, h5py: ModuleType) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("data", data=FRAMES)
        data.dims[0].label = "y"
        file["x"] = np.arange(5) * 0.5 + 3
        file["x"].attrs["units"] = "nm"
        file["x"].make_scale("x")
        data.dims[1].attach_scale(file["x"])
        group = file.create_group("nexus")
        group["data"] = FRAMES
        group.attrs["axes"] = ["y", "x", "ky", "kx"]
        group["ky"] = np.arange(6.0)
        group["ky"].attrs["units"] = "1/nm"
        emd = file.create_group("emd")
        emd["data"] = FRAMES
        emd["dim4"] = np.array([1.0, 3.0])
        emd["dim4"].attrs["name"] = "kx"
        emd["dim4"].attrs["units"] = "[n_m^-1]"
    with (found := opened(tmp_path, "a.h5", array="data")).files:
        assert [(a.name, a.unit, a.scale, a.offset) for a in found.recording.axes] == [
            ("y", None, 1, 0),
            ("x", "nm", 0.5, 3),
            ("axis_2", None, 1, 0),
            ("axis_3", None, 1, 0),
        ]
    with (found := opened(tmp_path, "a.h5", array="nexus/data")).files:
        assert (found.recording.axes[2].name, found.recording.axes[2].unit) == ("ky", "1/nm")
    with (found := opened(tmp_path, "a.h5", array="emd/data")).files:
        axis = found.recording.axes[3]
        assert (axis.name, axis.unit, axis.scale, axis.offset) == ("kx", "n_m^-1", 2, 1)


def test_hdf5_never_leads_out_of_its_file(tmp_path: Path, h5py: ModuleType) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["data"] = FRAMES
    (tmp_path / "secret.raw").write_bytes(FRAMES.tobytes())
    with h5py.File(root / "a.h5", "w") as file:
        file["inner"] = FRAMES
        file["link"] = h5py.ExternalLink("../secret.h5", "/data")
        file["group"] = h5py.ExternalLink("../secret.h5", "/")
        file["soft"] = h5py.SoftLink("/group/data")
        file["circle"] = h5py.SoftLink("/circle")
        raw = [(str(tmp_path / "secret.raw"), 0, FRAMES.nbytes)]
        file.create_dataset("raw", shape=FRAMES.shape, dtype=FRAMES.dtype, external=raw)
        for name, where, inner in (
            ("other", "../secret.h5", "data"),
            ("own", ".", "inner"),
            ("nested", ".", "own"),
            ("through", ".", "link"),
            ("rawer", ".", "raw"),
        ):
            layout = h5py.VirtualLayout(FRAMES.shape, FRAMES.dtype)
            layout[...] = h5py.VirtualSource(where, inner, FRAMES.shape)
            file.create_virtual_dataset(name, layout)
    for name in ("link", "group/data", "soft", "through"):
        refused(root, "a.h5", "link to another file", array=name)
    refused(root, "a.h5", "in other files", array="raw")
    refused(root, "a.h5", "in other files", array="rawer")
    refused(root, "a.h5", "refers to other files", array="other")
    refused(root, "a.h5", "another virtual array", array="nested")
    refused(root, "a.h5", "more than 32 links", array="circle")
    check_frames(opened(root, "a.h5", array="own"), FRAMES)


def test_hdf5_links_to_other_files_are_told(tmp_path: Path, h5py: ModuleType) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["entry/d"] = h5py.ExternalLink("b.h5", "/data")
        file["entry/name"] = "scan"
    with pytest.raises(
        AmbiguousFormatError, match=r"only /entry/d \(a link to another file\), /en"
    ):
        opened(tmp_path, "a.h5")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["e"] = FRAMES
        file["soft"] = h5py.SoftLink("/e")
    with (found := opened(tmp_path, "a.h5")).files:
        assert found.recording.metadata["array"] == "/e"
        notes = ("a.h5: links to other files are not followed: /entry/d",)
        assert found.recording.notes == notes
    with (found := opened(tmp_path, "a.h5", array="soft")).files:
        assert found.recording.notes == ()


def test_hdf5_coordinates_in_other_files_are_left_alone(tmp_path: Path, h5py: ModuleType) -> None:
    (tmp_path / "secret").write_bytes(np.arange(4.0).tobytes())
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = FRAMES
        file.create_dataset("dim1", (4,), "f8", external=[(str(tmp_path / "secret"), 0, 32)])
    with (found := opened(tmp_path, "a.h5", array="data")).files:
        assert found.recording.axes == ()


def test_hdf5_damaged(tmp_path: Path, h5py: ModuleType) -> None:
    rng = np.random.default_rng(3)
    noise = rng.integers(0, 99, (64, 16, 16)).astype("u2")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=noise, chunks=(8, 16, 16), compression="gzip")
        file["plain"] = noise[:, :, 0]
    good = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(good[: len(good) // 2])
    error = refused(tmp_path, "a.h5", "cannot read it")
    assert error.source == "a.h5"
    with nothing_left_open(OF_DECODERS):
        for _ in range(examples(200)):
            octets = bytearray(good)
            for at in rng.integers(0, len(good), 8):
                octets[at] = rng.integers(0, 256)
            (tmp_path / "a.h5").write_bytes(octets)
            try:
                with (found := opened(tmp_path, "a.h5")).files:
                    whole_view(found, {})
            except CoreError:
                pass


def test_hdf5_filters_that_are_not_there(tmp_path: Path, h5py: ModuleType) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((1, 6, 7))
        properties.set_filter(31999, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((5, 6, 7))
        h5py.h5d.create(file.id, b"data", h5py.h5t.NATIVE_UINT16, space, properties)
    refused(tmp_path, "a.h5", "filter 31999")


def test_hdf5_that_changes(tmp_path: Path, h5py: ModuleType) -> None:
    def write(data: Array) -> None:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("data", data=data, chunks=(1, 5, 6, 7), compression="gzip")

    write(FRAMES)
    old = opened(tmp_path, "a.h5")
    fingerprint = old.fingerprint()
    frames = source_of(old)
    assert len(values_of(frames, np.arange(4), (0, 6))) == 4
    write(FRAMES[::-1] + 1)
    with pytest.raises(DataChangedError):
        values_of(frames, np.arange(4), (0, 6))
    # while the old one is still open, the new one is read as it is
    new = opened(tmp_path, "a.h5")
    assert new.fingerprint() != fingerprint
    check_frames(new, FRAMES[::-1] + 1)
    old.files.close()


@pytest.mark.parametrize("form", ["hdf5", "zarr"])
def test_a_time_that_was_set_back_hides_no_change(tmp_path: Path, form: str) -> None:
    pytest.importorskip("h5py" if form == "hdf5" else "zarr")
    path = tmp_path / "a"
    WRITERS[form](path, FRAMES, np.random.default_rng(0))
    found = opened(tmp_path, "a")
    frames = source_of(found)
    assert len(values_of(frames, np.arange(4), (0, 6))) == 4
    inside = [path] if form == "hdf5" else [p for p in path.rglob("c/**/*") if p.is_file()]
    for changed in inside:
        known = changed.stat()
        octets = bytearray(changed.read_bytes())
        octets[-1] ^= 255
        with changed.open("r+b") as file:
            file.write(octets)
        os.utime(changed, ns=(known.st_atime_ns, known.st_mtime_ns))
    with pytest.raises(DataChangedError, match="was modified"):
        values_of(frames, np.arange(4), (0, 6))
    found.files.close()


def test_threads_at_once(tmp_path: Path, h5py: ModuleType) -> None:
    rng = np.random.default_rng(1)
    hdf5(tmp_path / "a.h5", FRAMES, np.random.default_rng(0))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=FRAMES, chunks=(1, 2, 6, 7), compression="gzip")
    found = opened(tmp_path, "a.h5")

    def read(frames: Array) -> bool:
        values = values_of(source_of(found), frames, (0, 6))
        return np.array_equal(values.reshape(-1, 6, 7), FRAMES.reshape(-1, 6, 7)[frames])

    picks = [rng.integers(0, 20, 10) for _ in range(100)]
    with found.files, ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, picks))


# -- zarr -----------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with an array of which only half of the chunks were written."""
    library = pytest.importorskip("zarr", minversion="3")
    path = tmp_path / "root" / "a.zarr"
    array = library.create_array(
        str(path),
        name="data",
        shape=FRAMES.shape,
        dtype="u2",
        chunks=(1, 1, 6, 7),
        fill_value=9,
        dimension_names=["y", "x", "ky", "kx"],
        attributes={"units": ["nm", "nm", None, 3]},
    )
    array[:2] = FRAMES[:2]
    x = library.create_array(
        str(path),
        name="x",
        shape=(5,),
        dtype="f8",
        dimension_names=["x"],
        attributes={"units": "m"},
    )
    x[:] = np.arange(5) * 2.0 + 1
    return path


def test_zarr_missing_chunks_are_the_fill_value(store: Path) -> None:
    check_frames(
        opened(store.parent, "a.zarr"), np.where(np.arange(4)[:, None, None, None] < 2, FRAMES, 9)
    )


def test_zarr_axes_and_names(store: Path) -> None:
    with (found := opened(store.parent, "a.zarr", array="data")).files:
        assert [(a.name, a.unit, a.scale, a.offset) for a in found.recording.axes] == [
            ("y", "nm", 1, 0),
            ("x", "nm", 2, 1),
            ("ky", None, 1, 0),
            ("kx", None, 1, 0),
        ]
        names = [info.name for info in found.files.infos]
        assert "data/c/0/3/0/0" in names
        assert "zarr.json" not in names
        assert len(names) == len(set(names))
    with (found := opened(store.parent, "a.zarr/data", array="/")).files:
        assert found.recording.axes[1].name == "x"


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (["nm", "nm", "1/nm", "mrad"], ["nm", "nm", "1/nm", "mrad"]),
        (["", 5, None, "mrad"], [None, None, None, "mrad"]),
        ([None, "", None, 5], [None, "px", None, None]),
        (["nm"], [None, "px", None, None]),
        ("nm", [None, "px", None, None]),
        (None, [None, "px", None, None]),
    ],
)
def test_zarr_units_that_make_no_sense_are_left_out(
    store: Path, units: object, expected: list[str | None]
) -> None:
    for name, value in (("data", units), ("x", "px")):
        path = store / name / "zarr.json"
        metadata = json.loads(path.read_text())
        metadata["attributes"] = {"units": value}
        path.write_text(json.dumps(metadata))
    with (found := opened(store.parent, "a.zarr", array="data")).files:
        assert [axis.unit for axis in found.recording.axes] == expected


@dataclasses.dataclass(frozen=True)
class Crashing:
    """Decoders of which each crashes, after ``meanwhile``."""

    meanwhile: Callable[[], None]
    max_bytes: int = 1 << 30

    def ask(self, *_: object) -> NoReturn:
        self.meanwhile()
        raise DatasetUnreadableError("decoding 'a.zarr' crashed its process")

    def forget(self, key: str) -> None:
        del key


def test_zarr_chunks_that_crash_their_decoder(store: Path) -> None:
    with (found := opened(store.parent, "a.zarr", array="data")).files:
        (array,) = found.arrays
        assert isinstance(array, ZarrArray)
        box = ((0, 1), (0, 1), (0, 6), (0, 7))
        with pytest.raises(DatasetUnreadableError, match="crashed its process"):
            dataclasses.replace(array, decoders=Crashing(lambda: None)).read([box])
        # A file that changed is told as that: it may be why the decoder crashed.
        with pytest.raises(DataChangedError):
            dataclasses.replace(array, decoders=Crashing(partial(replace, store))).read([box])


def test_a_zarr_chunk_that_is_a_directory_is_named_as_that(store: Path) -> None:
    chunk = store / "data/c/1/1/0/0"
    chunk.unlink()
    chunk.mkdir()
    with (found := opened(store.parent, "a.zarr", array="data")).files:
        with pytest.raises(FormatError, match="is a directory") as caught:
            whole_view(found, {})
        assert (caught.value.source, bool(caught.value.hint)) == ("data/c/1/1/0/0", True)


OTHER_TYPES: list[object] = [
    [],
    {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}},
    {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}},
    {"name": "structured", "configuration": {"fields": [["a", "uint16"]]}},
    "r24",
]


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_arrays_of_other_types_do_not_disturb_the_one_that_is_served(
    store: Path, kind: object
) -> None:
    metadata = json.loads((store / "data/zarr.json").read_text())
    (store / "other").mkdir()
    for name, members in (
        ("other", metadata),
        ("x", json.loads((store / "x/zarr.json").read_text())),
    ):
        (store / name / "zarr.json").write_text(json.dumps(members | {"data_type": kind}))
    with (found := opened(store.parent, "a.zarr")).files:
        assert np.array_equal(whole_view(found, {})[0, 0], FRAMES[0, 0])
    refused(store.parent, "a.zarr", "the array has values of type", array="other")


def test_zarr_array_is_chosen_or_asked_for(store: Path) -> None:
    library = pytest.importorskip("zarr")
    refused(store.parent, "a.zarr", "no array 'other'", array="other")
    refused(store.parent, "a.zarr/data/c", "no zarr.json")
    library.create_array(str(store), name="more", shape=(1, 2, 3), dtype="u1")
    with pytest.raises(AmbiguousFormatError, match="several arrays"):
        opened(store.parent, "a.zarr")


def replace(store: Path) -> None:
    (store / "data/c/0/0/0/0").write_bytes((store / "data/c/1/1/0/0").read_bytes())


def remove(store: Path) -> None:
    (store / "data/c/0/0/0/0").unlink()


def add(store: Path) -> None:
    (store / "data/c/2/0/0").mkdir(parents=True)
    shutil.copy(store / "data/c/1/1/0/0", store / "data/c/2/0/0/0")


def describe(store: Path) -> None:
    (store / "data/zarr.json").write_text((store / "data/zarr.json").read_text() + " ")


@pytest.mark.parametrize("change", [replace, remove, add, describe])
def test_zarr_that_changes(store: Path, change: Callable[[Path], None]) -> None:
    found = opened(store.parent, "a.zarr")
    before = found.fingerprint()
    with opened(store.parent, "a.zarr").files as again:
        again.verify()
    change(store)
    with found.files:
        with pytest.raises(DataChangedError):
            found.files.verify()
        if change is not describe:
            with pytest.raises(DataChangedError):
                whole_view(found, {})
    with (after := opened(store.parent, "a.zarr")).files:
        assert after.fingerprint() != before


def keep_times(path: Path, change: Callable[[], object]) -> None:
    """Change a directory and set its modification time back."""
    status = path.stat()
    change()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns


def add_unseen(directory: Path) -> None:
    keep_times(directory, lambda: shutil.copy(directory / "0", directory / "1"))


def swap_unseen(directory: Path) -> None:
    """Put a copy in the directory's place, whose files are links to the old ones."""
    old = directory.with_name(".old")

    def swap() -> None:
        directory.rename(old)
        directory.mkdir()
        for path in old.iterdir():
            (directory / path.name).hardlink_to(path)
        shutil.copystat(old, directory)

    keep_times(directory.parent, swap)


@pytest.mark.parametrize("change", [add_unseen, swap_unseen])
def test_zarr_directories_that_change_with_their_times_set_back(
    store: Path, change: Callable[[Path], None]
) -> None:
    with opened(store.parent, "a.zarr").files as files:
        files.verify()
        change(store / "data/c/1/1/0")
        with pytest.raises(DataChangedError, match="was modified"):
            files.verify()


def test_zarr_directories_whose_mode_changes_are_unchanged(store: Path) -> None:
    with opened(store.parent, "a.zarr").files as files:
        directory = store / "data/c/1/1/0"
        directory.chmod(0o700)
        files.verify()
        while is_young(directory.stat().st_ctime_ns):
            time.sleep(0.001)
        files.verify()
        # From now on it is not listed again.
        assert isinstance(files, StoreFiles)
        assert files._directories[directory].changed == directory.stat().st_ctime_ns


def test_zarr_stays_under_the_roots(store: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    shutil.copytree(store / "data/c/0", secret)
    roots = store.parent
    for name in ("../secret", str(secret), "a.zarr/../../secret"):
        with pytest.raises(PathRefusedError):
            opened(roots, name)
    with pytest.raises(FileMissingError):
        opened(roots, "b.zarr")
    shutil.rmtree(store / "data/c/0")
    (store / "data/c/0").symlink_to(secret)
    with pytest.raises(PathRefusedError):
        opened(roots, "a.zarr")
    (store / "data/c/0").unlink()
    chunk = store / "data/c/1/0/0/0"
    chunk.unlink()
    chunk.symlink_to(secret / "0/0/0")
    with pytest.raises(PathRefusedError):
        opened(roots, "a.zarr")
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(PathRefusedError):
        opened(roots, "a.zarr")
    chunk.unlink()
    chunk.symlink_to("../../1/0/0")
    opened(roots, "a.zarr").files.close()


DAMAGE: list[tuple[str, Any, str]] = [
    ("zarr_format", 2, "not of zarr version 3"),
    ("data_type", "string", "values of type"),
    ("data_type", {"name": "numpy.datetime64"}, "values of type"),
    ("chunk_grid", {"name": "odd"}, "chunk_grid"),
    (
        "chunk_grid",
        {"name": "regular", "configuration": {"chunk_shape": [0, 1, 6, 7]}},
        "chunk_grid",
    ),
    (
        "chunk_grid",
        {"name": "regular", "configuration": {"chunk_shape": [1 << 20, 1 << 20, 6, 7]}},
        "more than 536870912 bytes",
    ),
    ("shape", [4, 5, -6, 7], "chunk_grid"),
    ("shape", [4, 5, 0, 7], "empty"),
    ("codecs", [{"name": "bytes"}, {"name": "numcodecs.pickle"}], "numcodecs.pickle"),
    ("codecs", None, "None"),
    ("storage_transformers", [{"name": "x"}], "storage transformers"),
]


@pytest.mark.parametrize(("member", "value", "says"), DAMAGE)
def test_zarr_metadata_that_lies(store: Path, member: str, value: object, says: str) -> None:
    path = store / "data/zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {member: value}))
    with pytest.raises(FormatError, match=says) as caught:
        opened(store.parent, "a.zarr", array="data")
    assert caught.value.source
    for text in ("", "{", "[]", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(FormatError, match="metadata"):
            opened(store.parent, "a.zarr", array="data")


def test_zarr_scan_of_any_size_allocates_nothing(store: Path) -> None:
    path = store / "data/zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"shape": [1 << 30, 1 << 9, 6, 7]}))
    with (found := opened(store.parent, "a.zarr", array="data")).files:
        made = whole_view(found, {"select": {"frames": [512 * (1 << 30) - 1, 513]}})
    assert (made[0] == 9).all()
    assert np.array_equal(made[1], FRAMES[1, 1])


def test_zarr_chunks_that_are_damaged(store: Path) -> None:
    chunk = store / "data/c/0/0/0/0"
    for octets, says in (
        (b"", "cannot be decoded"),
        (b"x" * 50, "cannot be decoded"),
        (bytes(1 << 20), "at most"),
    ):
        chunk.write_bytes(octets)
        with (
            (found := opened(store.parent, "a.zarr")).files,
            pytest.raises(FormatError, match=says),
        ):
            whole_view(found, {})


# -- all together ---------------------------------------------------------------------


def test_formats_are_found_by_content_or_said(store: Path, h5py: ModuleType) -> None:
    root = store.parent
    with h5py.File(root / "a.dat", "w") as file:
        file["data"] = FRAMES
    np.save(root / "b.npy", FRAMES)
    for name, form in (("a.dat", "hdf5"), ("a.zarr", "zarr"), ("b.npy", "npy")):
        for said in (None, form):
            with (found := opened(root, name, form=said)).files:
                assert found.recording.format == form
    refused(root, "a.dat", "single directory", form="zarr")
    refused(root, "b.npy", "cannot read it", form="hdf5")
    with pytest.raises(FormatError, match="a directory cannot be a npy dataset"):
        opened(root, "a.zarr", form="npy")
    with pytest.raises(InvalidOptionError, match="array applies only to"):
        opened(root, "b.npy", array="data")


@pytest.mark.parametrize(("name", "module"), [("a.h5", "h5py"), ("a.zarr", "numcodecs")])
def test_a_library_that_is_not_there_is_named(
    name: str, module: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.parent / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / f"{module}.py").write_text(
        f"raise ModuleNotFoundError('hidden', name='{module}')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    form = "hdf5" if module == "h5py" else "zarr"
    with contextlib.closing(DecoderPool()) as pool, pytest.raises(FormatError) as caught:
        open_recording(Roots([store.parent]), [name], Hints(), decoders=pool)
    assert f"package {module}, which is not installed" in str(caught.value)
    assert f"'.[{form}]'" in str(caught.value.hint)


def test_a_process_without_decoders_says_so(store: Path) -> None:
    with pytest.raises(FormatError, match="reading zarr needs decoders"):
        open_recording(Roots([store.parent]), ["a.zarr"], Hints())


def read_all(dataset: object) -> Array:
    assert isinstance(dataset, OpenDataset)
    count = dataset.recording.frames
    values = values_of(dataset.frames(), np.arange(count), (0, dataset.recording.sig_shape[0]))
    return values.reshape(*dataset.recording.nav_shape, *dataset.recording.sig_shape)


def test_the_catalogue_opens_and_inspect_describes(store: Path, h5py: ModuleType) -> None:
    root = store.parent
    with h5py.File(root / "a.h5", "w") as file:
        file.create_dataset("entry/data", data=FRAMES, chunks=(1, 5, 6, 7), compression="gzip")
        file["entry/other"] = FRAMES
    catalogue = Catalogue(MemoryStateStore(), Roots([root]), {}, BufferPool(4), DECODERS)
    dataset, created = catalogue.register(
        SINGLE_USER, {"id": "h", "files": ["a.h5"], "array": "entry/data"}
    )
    assert created
    assert np.array_equal(read_all(dataset), FRAMES)
    assert dataset.describe()["metadata"]["array"] == "/entry/data"
    assert catalogue.spec(SINGLE_USER, "h").to_json()["array"] == "entry/data"
    dataset.close()
    dataset, _ = catalogue.register(SINGLE_USER, {"id": "z", "files": ["a.zarr"]})
    assert np.array_equal(read_all(dataset)[:2], FRAMES[:2])
    before = dataset.fingerprint
    dataset.close()
    add(store)
    dataset = catalogue.open(SINGLE_USER, "z")
    assert dataset.fingerprint != before
    assert np.array_equal(read_all(dataset)[2, 0], FRAMES[1, 1])
    dataset.close()
    catalogue.close()
    about = inspect_files([root / "a.h5"], Hints(), None, "entry/data", DECODERS)
    assert (about["format"], about["nav_shape"]) == ("hdf5", [4, 5])
    assert inspect_files([store], Hints(), None, decoders=DECODERS)["format"] == "zarr"


def test_the_path_of_an_array_leads_nowhere_else() -> None:
    for path in ("../data", "a/../b", "a\n", "", "x" * 2000, 3):
        with pytest.raises(InvalidOptionError, match="array"):
            parse_dataset({"files": ["a.h5"], "array": path})


def test_what_a_file_holds_instead_of_arrays_is_named(tmp_path: Path, h5py: ModuleType) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["note"] = ["words"]
        file["kv"] = 200.0
        file["table"] = np.zeros(5, [("a", "f4"), ("b", "i4")])
        file["empty"] = h5py.Empty("f4")
    with pytest.raises(AmbiguousFormatError) as caught:
        opened(tmp_path, "a.h5")
    for said in ("no array of numbers", "/kv (a single value)", "/table (records of a, b)"):
        assert said in str(caught.value)
    refused(tmp_path, "a.h5", "holds texts", array="note")
    refused(tmp_path, "a.h5", "holds records of a, b", array="table")
    refused(tmp_path, "a.h5", "holds nothing", array="empty")
