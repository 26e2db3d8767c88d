"""HDF5 files, through h5py.

Nothing outside of the file is read. Links to other files, values stored in other files and
virtual arrays over other files are refused by name. In the sandbox they could not be opened
either, but the library gives zeros for a virtual source that it cannot open.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import h5py
import numpy as np

from ..wire import RefusedError
from .hdf5_chunks import Chunks
from .hdf5_inside import Inside
from .octets import DescriptorFile
from .requests import Pending, Request

_MAX_DATASETS = 4
"""Arrays of a file that stay open."""
_CACHE_BYTES = 2 << 20
"""Decoded chunks that the library caches for each of them; larger chunks are not cached."""
_PLUGINS = (305, 307, 32000, 32001, 32004, 32008, 32013, 32015, 32017, 32018, 32024, 32026)
"""Numbers of filters that plugins provide: blosc, bitshuffle, lz4, zstd and others."""


def touch() -> None:
    """Load the plugins of filters, and modules that h5py imports on use."""
    try:
        plugins = import_module("hdf5plugin")
        numbers = {*_PLUGINS, *getattr(plugins, "FILTERS", {}).values()}
    except ImportError:
        numbers = set(_PLUGINS)
    for number in numbers:
        h5py.h5z.filter_avail(number)
    _read_sample()


def preload() -> None:
    """Do nothing: HDF5 has no threads."""


def _read_sample() -> None:
    """Write and read a small file in memory, so that h5py imports all it needs."""
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        data = file.create_dataset("data", data=np.zeros((2, 3, 4), ">u2"), chunks=True)
        data.dims[0].label = "y"
        file["x"] = np.arange(3.0)
        file["x"].attrs["units"] = "nm"
        file["x"].make_scale("x")
        data.dims[1].attach_scale(file["x"])
        file["link"] = h5py.SoftLink("/data")
        layout = h5py.VirtualLayout((2, 3, 4), "u2")
        layout[...] = h5py.VirtualSource(".", "data", (2, 3, 4))
        file.create_virtual_dataset("virtual", layout)
    subject = Hdf5File(memory)
    subject.act(Request("list"))
    for name in ("link", "virtual"):
        described = subject.act(Request("describe", {"array": name}))
        if isinstance(described, Pending):
            described.write(memoryview(bytearray(described.nbytes)))
        subject.act(Request("locate", {"array": "/data"}))
        out = memoryview(bytearray(48))
        arguments = {"array": "/data", "dtype": ">u2", "boxes": [[[0, 2], [0, 3], [0, 4]]]}
        subject.act(Request("read", arguments, out=out))
    subject.close()


def open_subject(form: str, arguments: Mapping[str, Any], descriptors: Sequence[int]) -> Hdf5File:
    """Open a file; see ``serving.Format``."""
    del form
    file = DescriptorFile.of(arguments, descriptors)
    try:
        return Hdf5File(file)
    except BaseException as e:
        file.close()
        if isinstance(e, MemoryError | RefusedError) or not isinstance(e, Exception):
            raise
        raise _explained(e) from e


def _explained(error: Exception) -> RefusedError:
    return RefusedError(
        f"the HDF5 library cannot read it: {str(error)[:200]}",
        "Check that the file is neither damaged nor being written",
    )


class Hdf5File:
    """An open HDF5 file; see ``serving.OpenHandle``.

    Args:
        file: the file, which ``close`` closes.
    """

    def __init__(self, file: io.RawIOBase | io.BytesIO) -> None:
        self._file = file
        self._handle = h5py.File(file, "r", rdcc_nbytes=_CACHE_BYTES)
        self._inside = Inside(self._handle)
        self._datasets: dict[str, _Values] = {}

    def act(self, request: Request) -> dict[str, Any] | Pending:
        """List the arrays, describe or locate one, or read a part of one."""
        action, arguments, out = request.action, request.arguments, request.out
        if action == "list":
            return self._inside.contents()
        if action == "describe":
            return self._inside.describe(arguments["array"])
        if action == "locate":
            return self._inside.locate(arguments["array"])
        if action == "read" and out is not None:
            for box in arguments["boxes"]:
                out = self._read(arguments, box, out)
            return {}
        raise ValueError(action)

    def _read(self, arguments: Mapping[str, Any], box: Any, out: memoryview) -> memoryview:  # noqa: ANN401 - JSON
        """Read the values of a box to the beginning of ``out``; return what follows."""
        name = arguments["array"]
        if (values := self._datasets.get(name)) is None:
            values = self._open(name)
        if values.code != arguments["dtype"]:
            raise RefusedError(f"the array {name!r} has values of type {values.dtype}")
        return values.read(box, out)

    def _open(self, name: str) -> _Values:
        """Open an array after the same checks as when it was described."""
        dataset = self._inside.plain(self._inside.resolve(name))
        if not dataset.id.get_create_plist().get_nfilters():
            dataset = _uncached(self._handle, dataset.name)
        while len(self._datasets) >= _MAX_DATASETS:
            del self._datasets[next(iter(self._datasets))]
        values = self._datasets[name] = _Values(dataset)
        return values

    def explain(self, error: Exception) -> RefusedError:
        """See ``serving.OpenHandle``."""
        return _explained(error)

    def close(self) -> None:
        """Close the file."""
        self._datasets.clear()
        try:
            self._handle.close()
        finally:
            self._file.close()


class _Values:
    """The values of an open array; what the library needs to read some is built once.

    Types and spaces are objects of the library. To build them for each read would take longer
    than to read a small box.

    Args:
        dataset: the array, of h5py.
    """

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 - h5py
        # With the metadata of h5py, which tells a boolean from a byte.
        self.dtype: np.dtype[Any] = dataset.dtype
        self.code = self.dtype.str
        self._id = dataset.id
        self._type = h5py.h5t.py_create(self.dtype)
        self._space = dataset.id.get_space()
        self._counts: tuple[int, ...] = ()
        self._memory: Any = None
        self._chunks = Chunks.of(dataset)

    def read(self, box: Any, out: memoryview) -> memoryview:  # noqa: ANN401 - JSON
        """Read the values of a box to the beginning of ``out``; return what follows."""
        starts, counts = tuple(a for a, _ in box), tuple(b - a for a, b in box)
        values = np.ndarray(counts, self.dtype, buffer=out)
        if self._chunks is not None and self._chunks.read(starts, values):
            return out[values.nbytes :]
        if counts != self._counts or self._memory is None:
            self._memory = h5py.h5s.create_simple(counts)
            self._counts = counts
        self._space.select_hyperslab(starts, counts)
        self._id.read(self._memory, self._space, values, self._type)
        return out[values.nbytes :]


def _uncached(handle: Any, name: str) -> Any:  # noqa: ANN401 - h5py
    """Open an array that is not compressed: a cache of its chunks would be one copy more."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
    properties.set_chunk_cache(521, 0, 0.75)
    return h5py.Dataset(h5py.h5d.open(handle.id, name.encode(), properties))
