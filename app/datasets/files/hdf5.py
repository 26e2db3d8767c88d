"""Arrays in HDF5 files, read through h5py.

The HDF5 library is not thread-safe, and caches the metadata of a file while anyone has it
open. Every read therefore opens the file anew, under one lock: a file that was rewritten
is never read with the chunk index of its predecessor.

Nothing outside of the file is read. Links to other files, values stored in other files and
virtual arrays over other files are refused: they could name any path of the server.
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

from core.arrays import Array
from core.errors import FormatError
from core.tiles.plan import Box
from core.tiles.recording import Axis

from .arrays import ArrayInfo, check, choose, linear
from .file_set import FileSet

_LOCK = threading.Lock()
_MAX_OBJECTS = 100_000
_MAX_LINKS = 32
_MAX_COORDINATES = 1 << 20
_MAX_SOURCES = 10_000
_THIS_FILE = "."


@dataclass(frozen=True, slots=True, eq=False)
class Hdf5Array:
    """A numeric array in an HDF5 file; see :class:`.arrays.BlockArray`."""

    files: FileSet
    file: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    axes: tuple[Axis, ...]
    offset: int | None

    def read(self, box: Box) -> Array:
        """Read the values in a box.

        Raises:
            FormatError: the values cannot be decoded.
            DataChangedError: the file changed since it was opened.
        """
        with _opened(self.files, self.file) as handle:
            values: Array = handle[self.name][tuple(slice(a, b) for a, b in box)]
        return values


def open_hdf5(files: FileSet, file: int, array: str | None) -> Hdf5Array:
    """Open an array of one of the files.

    Args:
        files: the set.
        file: index of the file.
        array: path of the array; None for the only one with at least three dimensions.

    Raises:
        AmbiguousFormatError: no path is given, and no array or several could be meant.
        FormatError: there is no such array, it cannot be read, or it lies in other files.
        DataChangedError: the file changed since it was opened.
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
            f"the array {name!r} has {nbytes} bytes from byte {offset} on, but the file ends at "
            f"byte {files.size(file)}",
            source=source,
            offset=files.size(file),
            hint="Copy the file again from its origin",
        )
    return Hdf5Array(files, file, name, shape, info.dtype, info.chunks, axes, offset)


@contextmanager
def _opened(files: FileSet, file: int) -> Iterator[Any]:
    """Open a file until the end of the block, then check that it is still unchanged."""
    with files.use(file) as descriptor, _LOCK:
        try:
            with h5py.File(f"/proc/self/fd/{descriptor}", "r", locking=False) as handle:
                yield handle
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as e:
            files.check((file,))
            raise FormatError(
                f"the HDF5 library cannot read it: {str(e)[:200]}",
                source=files.name(file),
                hint="Check that the file is neither damaged nor being written",
            ) from e
    files.check((file,))


def _shapes(handle: Any, source: str) -> Mapping[str, tuple[int, ...]]:  # noqa: ANN401 - h5py
    """List the shapes of all numeric arrays by name, each once, without following links."""
    shapes: dict[str, tuple[int, ...]] = {}
    seen: set[int] = set()
    pending = ["/"]
    count = 0
    while pending:
        path = pending.pop()
        group = handle[path]
        for name in group:
            count += 1
            if count > _MAX_OBJECTS:
                raise FormatError(
                    f"the file has more than {_MAX_OBJECTS} objects",
                    source=source,
                    hint="Set array to the path of the array",
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
                pending.append(inner)
            elif isinstance(child, h5py.Dataset) and _is_numeric(child):
                shapes[inner] = tuple(child.shape)
    return dict(sorted(shapes.items()))


def _is_numeric(dataset: Any) -> bool:  # noqa: ANN401 - h5py
    try:
        return dataset.shape is not None and dataset.dtype.kind in "biufc"
    except TypeError:  # numpy has no such type
        return False


def _offset(dataset: Any) -> int | None:  # noqa: ANN401 - h5py
    """Return the offset of values stored contiguously in numpy's representation, else None."""
    layout = dataset.id.get_create_plist().get_layout()
    stored = dataset.id.get_type()
    same = stored.equal(h5py.h5t.py_create(dataset.dtype, logical=True))
    if layout != h5py.h5d.CONTIGUOUS or not same:
        return None
    offset: int | None = dataset.id.get_offset()
    return offset


class _Inside:
    """Resolves paths and arrays in an open file, and never leaves that file."""

    def __init__(self, handle: Any, source: str) -> None:  # noqa: ANN401 - h5py
        self._handle = handle
        self._source = source

    def resolve(self, path: str) -> str:
        """Resolve the soft links of a path; return the path of the object itself.

        Raises:
            FormatError: there is no such object, or it is in another file.
        """
        parts = path.split("/")[::-1]
        resolved, followed = "", 0
        while parts:
            name = parts.pop()
            if name in {"", "."}:
                continue
            group = self._handle[resolved or "/"]
            link = group.get(name, getlink=True) if isinstance(group, h5py.Group) else None
            if isinstance(link, h5py.HardLink):
                resolved = f"{resolved}/{name}"
            elif isinstance(link, h5py.SoftLink):
                followed += 1
                if followed > _MAX_LINKS:
                    self._fault(f"{path!r} leads through more than {_MAX_LINKS} links")
                parts.extend(link.path.split("/")[::-1])
                resolved = "" if link.path.startswith("/") else resolved
            elif isinstance(link, h5py.ExternalLink):
                self._fault(
                    f"{resolved}/{name} is a link to another file",
                    "Name that file in files instead",
                )
            else:
                shapes = _shapes(self._handle, self._source)
                names = ", ".join(f"{name} {shape}" for name, shape in list(shapes.items())[:8])
                hint = f"Use {names}" if names else "Name a file with an array of numbers"
                self._fault(f"there is no array {path!r}", hint)
        return resolved or "/"

    def plain(self, name: str) -> Any:  # noqa: ANN401 - h5py
        """Open an array that has all of its values in this file.

        Raises:
            FormatError: the object is not an array, or has values in other files.
        """
        dataset = self._own(name)
        if dataset.is_virtual:
            sources = dataset.virtual_sources()
            if len(sources) > _MAX_SOURCES:
                self._fault(f"the virtual array {name!r} refers to {len(sources)} arrays")
            for path, inner_name in {(source.file_name, source.dset_name) for source in sources}:
                if path != _THIS_FILE:
                    self._fault(
                        f"the virtual array {name!r} refers to other files",
                        "Name those files in files instead",
                    )
                inner = self._own(self.resolve(inner_name))
                if inner.is_virtual:
                    self._fault(f"the virtual array {name!r} refers to another virtual array")
                self.check_filters(inner)
        return dataset

    def _own(self, name: str) -> Any:  # noqa: ANN401 - h5py
        dataset = self._handle[name]
        if not isinstance(dataset, h5py.Dataset):
            self._fault(f"{name!r} is not an array", "Set array to the path of an array in it")
        if dataset.external:
            self._fault(f"the values of {name!r} are in other files", "Copy them into this file")
        return dataset

    def check_filters(self, dataset: Any) -> None:  # noqa: ANN401 - h5py
        """Check that the filters of an array are installed.

        Raises:
            FormatError: one is not.
        """
        properties = dataset.id.get_create_plist()
        for number in range(properties.get_nfilters()):
            code, _, _, name = properties.get_filter(number)
            if not h5py.h5z.filter_avail(code):
                self._load_plugins()
                if not h5py.h5z.filter_avail(code):
                    text = name.decode("utf-8", "replace") or "unnamed"
                    self._fault(
                        f"{dataset.name!r} is compressed with filter {code} ({text})",
                        "Install the package hdf5plugin, or compress the array with gzip",
                    )

    @staticmethod
    def _load_plugins() -> None:
        try:
            import_module("hdf5plugin")
        except ImportError:
            return

    # -- axes -----------------------------------------------------------------------

    def axes(self, dataset: Any, name: str) -> tuple[Axis, ...]:  # noqa: ANN401 - h5py
        """Describe each dimension by labels and coordinates in the file; empty without any."""
        parent = name.rpartition("/")[0] or "/"
        siblings = self._siblings(self._handle[parent], dataset.ndim)
        axes, known = [], False
        for k, size in enumerate(dataset.shape):
            scales = [scale for _, scale in dataset.dims[k].items() if self._is_plain(scale)]
            label = dataset.dims[k].label
            coordinates = scales[0] if scales else siblings[k]
            known |= bool(label) or coordinates is not None
            axes.append(_axis(label or f"axis_{k}", size, coordinates))
        return tuple(axes) if known else ()

    def _siblings(self, group: Any, count: int) -> list[Any]:  # noqa: ANN401 - h5py
        """Find the coordinates beside an array, as NeXus (attribute axes) or EMD (dim1, …) do."""
        names = _texts(group.attrs.get("axes"))
        if len(names) != count:
            names = [f"dim{k + 1}" for k in range(count)]
        siblings: list[Any] = []
        for name in names:
            link = group.get(name, getlink=True) if "/" not in name else None
            sibling = group[name] if isinstance(link, h5py.HardLink) else None
            siblings.append(sibling if self._is_plain(sibling) else None)
        return siblings

    @staticmethod
    def _is_plain(dataset: Any) -> bool:  # noqa: ANN401 - h5py
        """Whether an object holds coordinates in this file, and not too many."""
        return (
            isinstance(dataset, h5py.Dataset)
            and _is_numeric(dataset)
            and dataset.ndim == 1
            and 0 < dataset.size <= _MAX_COORDINATES
            and not dataset.is_virtual
            and not dataset.external
        )

    def _fault(self, message: str, hint: str = "Set array to the path of its values") -> NoReturn:
        raise FormatError(message, source=self._source, hint=hint)


def _axis(name: str, size: int, coordinates: Any) -> Axis:  # noqa: ANN401 - h5py
    """Build an axis with the name, unit and, if evenly spaced, the scale of its coordinates."""
    if coordinates is None:
        return Axis(name, size)
    attributes = coordinates.attrs
    if name.startswith("axis_"):
        names = _texts(attributes.get("name")) or _texts(attributes.get("long_name"))
        name = names[0] if names and names[0] else coordinates.name.rpartition("/")[2]
    units = _texts(attributes.get("units"))
    unit = units[0].strip("[]") if units and units[0] else None
    line = linear(coordinates[...]) if coordinates.size in {size, 2} else None
    return Axis(name, size, unit) if line is None else Axis(name, size, unit, *line)


def _texts(value: Any) -> list[str]:  # noqa: ANN401 - an attribute
    """Return the strings of an attribute, whether it is one or many, text or bytes."""
    if value is None:
        return []
    items = np.asarray(value, dtype=object).reshape(-1).tolist()[:16]
    return [i.decode("utf-8", "replace") if isinstance(i, bytes) else str(i) for i in items]
