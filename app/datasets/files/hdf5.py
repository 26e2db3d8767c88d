"""Arrays in HDF5 files, through h5py.

The library keeps what it knows of a file for as long as anybody has it open, and works
for one thread at a time. So a file is opened for each read, under one lock: a file that
was written anew is never read with the chunk index of the old one.

Nothing outside of the file is read: links to other files, values kept in other files,
and virtual arrays of other files are refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

import h5py
import numpy as np

from core.errors import FormatError
from core.tiles.recording import Axis

from .arrays import ArrayInfo, Box, Values, check, choose, linear
from .file_set import FileSet

_LOCK = threading.Lock()
_MOST_OBJECTS = 100_000
_MOST_LINKS = 32
_MOST_COORDINATES = 1 << 20
_MOST_SOURCES = 10_000
_HERE = "."


@dataclass(frozen=True, slots=True, eq=False)
class Hdf5Array:
    """An array of numbers in an HDF5 file; see BlockArray."""

    files: FileSet
    file: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    axes: tuple[Axis, ...]
    offset: int | None

    def read(self, box: Box) -> Values:
        """The values in a box.

        Raises:
            FormatError: they cannot be decoded.
            DataChangedError: the file is not what it was.
        """
        with _opened(self.files, self.file) as handle:
            values: Values = handle[self.name][tuple(slice(a, b) for a, b in box)]
        return values


def open_hdf5(files: FileSet, file: int, array: str | None) -> Hdf5Array:
    """The array of a name in one of the files, or the only one there can be.

    Raises:
        AmbiguousFormatError: no name is given, and no array or several could be meant.
        FormatError: there is no such array, it cannot be read, or it is in other files.
        DataChangedError: the file is not what it was.
    """
    with _opened(files, file) as handle:
        source = files.name(file)
        if array is None:
            array = choose(_shapes(handle, source), source)
        reader = _Inside(handle, source)
        name = reader.resolve(array)
        dataset = reader.plain(name)
        shape = tuple(dataset.shape or ())
        chunks = dataset.chunks or (*(1,) * len(shape[:-2]), *shape[-2:])
        info = ArrayInfo(shape, np.dtype(dataset.dtype.str), chunks)
        check(info, name, source)
        reader.check_filters(dataset)
        axes = reader.axes(dataset, name)
        offset = _offset(dataset)
    nbytes = int(np.prod(shape, dtype=object)) * info.dtype.itemsize
    if offset is not None and offset + nbytes > files.size(file):
        raise FormatError(
            f"the array {name!r} has {nbytes} bytes from byte {offset} on, and the file ends at "
            f"{files.size(file)}",
            source=source,
            offset=files.size(file),
            hint="Copy the file again from where it came",
        )
    return Hdf5Array(files, file, name, shape, info.dtype, info.chunks, axes, offset)


@contextmanager
def _opened(files: FileSet, file: int) -> Iterator[Any]:
    """A file, open for as long as the block lasts; what it reads is of the file as it was."""
    with files.use(file) as descriptor, _LOCK:
        try:
            with h5py.File(f"/proc/self/fd/{descriptor}", "r", locking=False) as handle:
                yield handle
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as e:
            files.check((file,))
            raise FormatError(
                f"the HDF5 library cannot read it: {str(e)[:200]}",
                source=files.name(file),
                hint="Check that the file is not damaged, and not being written",
            ) from e
    files.check((file,))


def _shapes(handle: Any, source: str) -> Mapping[str, tuple[int, ...]]:  # noqa: ANN401 - h5py
    """Shapes of all arrays of numbers, by name; each once, and none behind a link."""
    found: dict[str, tuple[int, ...]] = {}
    seen: set[int] = set()
    waiting = ["/"]
    looked_at = 0
    while waiting:
        path = waiting.pop()
        group = handle[path]
        for name in group:
            looked_at += 1
            if looked_at > _MOST_OBJECTS:
                raise FormatError(
                    f"more than {_MOST_OBJECTS} objects", source=source, hint="Give array"
                )
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            child = group[name]
            address = h5py.h5o.get_info(child.id).addr
            if address in seen:
                continue
            seen.add(address)
            inner = f"{path.rstrip('/')}/{name}"
            if isinstance(child, h5py.Group):
                waiting.append(inner)
            elif isinstance(child, h5py.Dataset) and _is_numbers(child):
                found[inner] = tuple(child.shape)
    return dict(sorted(found.items()))


def _is_numbers(dataset: Any) -> bool:  # noqa: ANN401 - h5py
    try:
        return dataset.shape is not None and dataset.dtype.kind in "biufc"
    except TypeError:  # a type numpy has not
        return False


def _offset(dataset: Any) -> int | None:  # noqa: ANN401 - h5py
    """Where values lie that are stored as numpy has them in memory, in one piece."""
    layout = dataset.id.get_create_plist().get_layout()
    stored = dataset.id.get_type()
    same = stored.equal(h5py.h5t.py_create(dataset.dtype, logical=True))
    if layout != h5py.h5d.CONTIGUOUS or not same:
        return None
    offset: int | None = dataset.id.get_offset()
    return offset


class _Inside:
    """Looks into an open file, and never out of it."""

    def __init__(self, handle: Any, source: str) -> None:  # noqa: ANN401 - h5py
        self._handle = handle
        self._source = source

    def resolve(self, path: str) -> str:
        """The path of an object without links on it.

        Raises:
            FormatError: it is not there, or in another file.
        """
        parts = path.split("/")[::-1]
        at, followed = "", 0
        while parts:
            name = parts.pop()
            if name in {"", _HERE}:
                continue
            group = self._handle[at or "/"]
            link = group.get(name, getlink=True) if isinstance(group, h5py.Group) else None
            if isinstance(link, h5py.HardLink):
                at = f"{at}/{name}"
            elif isinstance(link, h5py.SoftLink):
                followed += 1
                if followed > _MOST_LINKS:
                    self._fault(f"{path!r} leads through more than {_MOST_LINKS} links")
                parts.extend(link.path.split("/")[::-1])
                at = "" if link.path.startswith("/") else at
            elif isinstance(link, h5py.ExternalLink):
                self._fault(
                    f"{at}/{name} is a link to another file", "Name that file in files instead"
                )
            else:
                shapes = _shapes(self._handle, self._source)
                known = ", ".join(f"{name} {shape}" for name, shape in list(shapes.items())[:8])
                self._fault(f"there is no array {path!r}", f"There are {known or 'no arrays'}")
        return at or "/"

    def plain(self, name: str) -> Any:  # noqa: ANN401 - h5py
        """The array of a name, with all of its values in this file.

        Raises:
            FormatError: it is no array, or has values in other files.
        """
        dataset = self._own(name)
        if dataset.is_virtual:
            sources = dataset.virtual_sources()
            if len(sources) > _MOST_SOURCES:
                self._fault(f"{name!r} is put together from {len(sources)} arrays")
            for each in {(source.file_name, source.dset_name) for source in sources}:
                if each[0] != _HERE:
                    self._fault(
                        f"{name!r} is put together from other files",
                        "Name those files in files instead",
                    )
                inner = self._own(self.resolve(each[1]))
                if inner.is_virtual:
                    self._fault(f"{name!r} is put together from arrays that are so themselves")
                self.check_filters(inner)
        return dataset

    def _own(self, name: str) -> Any:  # noqa: ANN401 - h5py
        dataset = self._handle[name]
        if not isinstance(dataset, h5py.Dataset):
            self._fault(f"{name!r} is no array", "Give the path of an array in it")
        if dataset.external:
            self._fault(f"the values of {name!r} are in other files", "Copy them into this one")
        return dataset

    def check_filters(self, dataset: Any) -> None:  # noqa: ANN401 - h5py
        """Refuse chunks that cannot be decoded here.

        Raises:
            FormatError: a filter is not installed.
        """
        properties = dataset.id.get_create_plist()
        for number in range(properties.get_nfilters()):
            code, _, _, name = properties.get_filter(number)
            if not h5py.h5z.filter_avail(code):
                self._more_filters()
                if not h5py.h5z.filter_avail(code):
                    text = name.decode("utf-8", "replace") or "without a name"
                    self._fault(
                        f"{dataset.name!r} is compressed with filter {code}, {text}",
                        "Install the package hdf5plugin, or write it with gzip",
                    )

    @staticmethod
    def _more_filters() -> None:
        try:
            import_module("hdf5plugin")
        except ImportError:
            return

    # -- axes -----------------------------------------------------------------------

    def axes(self, dataset: Any, name: str) -> tuple[Axis, ...]:  # noqa: ANN401 - h5py
        """One for each dimension, by what lies beside the array; empty if that is nothing."""
        parent = name.rpartition("/")[0] or "/"
        siblings = self._siblings(self._handle[parent], dataset.ndim)
        made, known = [], False
        for k, size in enumerate(dataset.shape):
            scales = [scale for _, scale in dataset.dims[k].items() if self._is_plain(scale)]
            label = dataset.dims[k].label
            beside = scales[0] if scales else siblings[k]
            axis = _axis(label or f"axis_{k}", size, beside)
            known |= bool(label) or beside is not None
            made.append(axis)
        return tuple(made) if known else ()

    def _siblings(self, group: Any, count: int) -> list[Any]:  # noqa: ANN401 - h5py
        """The coordinates NeXus (attribute axes) or EMD (dim1, dim2, …) put beside an array."""
        names = _texts(group.attrs.get("axes"))
        if len(names) != count:
            names = [f"dim{k + 1}" for k in range(count)]
        found: list[Any] = []
        for name in names:
            link = group.get(name, getlink=True) if "/" not in name else None
            sibling = group[name] if isinstance(link, h5py.HardLink) else None
            found.append(sibling if self._is_plain(sibling) else None)
        return found

    @staticmethod
    def _is_plain(dataset: Any) -> bool:  # noqa: ANN401 - h5py
        """Whether coordinates are in this file, and not too many."""
        return (
            isinstance(dataset, h5py.Dataset)
            and _is_numbers(dataset)
            and dataset.ndim == 1
            and 0 < dataset.size <= _MOST_COORDINATES
            and not dataset.is_virtual
            and not dataset.external
        )

    def _fault(self, message: str, hint: str = "Give array the path of its values") -> NoReturn:
        raise FormatError(message, source=self._source, hint=hint)


def _axis(name: str, size: int, beside: Any) -> Axis:  # noqa: ANN401 - h5py
    """An axis with the name, unit and scale of its coordinates, if they are a line."""
    if beside is None:
        return Axis(name, size)
    if name.startswith("axis_"):
        told = _texts(beside.attrs.get("name")) or _texts(beside.attrs.get("long_name"))
        name = told[0] if told and told[0] else beside.name.rpartition("/")[2]
    units = _texts(beside.attrs.get("units"))
    unit = units[0].strip("[]") if units and units[0] else None
    line = linear(beside[...]) if beside.size in {size, 2} else None
    return Axis(name, size, unit) if line is None else Axis(name, size, unit, *line)


def _texts(value: Any) -> list[str]:  # noqa: ANN401 - an attribute
    """The texts of an attribute, however it was written."""
    if value is None:
        return []
    items = np.asarray(value, dtype=object).reshape(-1).tolist()[:16]
    return [i.decode("utf-8", "replace") if isinstance(i, bytes) else str(i) for i in items]
