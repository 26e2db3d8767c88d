"""What an HDF5 file holds: its paths, links, arrays and axes, none of them outside of the file."""

from __future__ import annotations

from typing import Any, NoReturn

import h5py
import numpy as np

from ..wire import RefusedError
from .hdf5_chunks import offset_of, stretches_of
from .requests import Pending

_MAX_OBJECTS = 100_000
_MAX_LINKS = 32
_MAX_SOURCES = 10_000
_MAX_COORDINATES = 1 << 20
_THIS_FILE = "."
_PATTERN = "%"
"""In names of virtual sources, the library expands ``%b`` to numbers and ``%%`` to ``%``: the
name that is checked would not be the name that is opened."""


class Inside:
    """Resolves paths and arrays in an open file, and never leaves that file."""

    def __init__(self, handle: Any) -> None:  # noqa: ANN401 - h5py
        self._handle = handle

    def contents(self) -> dict[str, list[Any]]:
        """List shapes of arrays of numbers and what others hold, each once, but through no link.

        Links to other files are listed, too.
        """
        links: list[str] = []
        shapes: list[tuple[str, Any]] = []
        others: list[tuple[str, Any]] = []
        seen: set[int] = set()
        pending = ["/"]
        count = 0
        while pending:
            path = pending.pop()
            group = self._handle[path]
            for name in group:
                count += 1
                if count > _MAX_OBJECTS:
                    raise RefusedError(
                        f"the file has more than {_MAX_OBJECTS} objects",
                        "Set array to the path of the array",
                    )
                inner = f"{path.rstrip('/')}/{name}"
                link = group.get(name, getlink=True)
                if isinstance(link, h5py.ExternalLink):
                    links.append(inner)
                if not isinstance(link, h5py.HardLink):
                    continue
                child = group[name]
                address = h5py.h5o.get_info(child.id).addr
                if address in seen:
                    continue
                seen.add(address)
                if isinstance(child, h5py.Group):
                    pending.append(inner)
                elif isinstance(child, h5py.Dataset):
                    form = _form(child)
                    others.append((inner, form)) if form else shapes.append((inner, child.shape))
        return {"arrays": sorted(shapes), "others": sorted(others)[:9], "links": sorted(links)[:9]}

    def resolve(self, path: str) -> str:
        """Resolve the soft links of a path; return the path of the object itself.

        Raises:
            RefusedError: there is no such object, or it is in another file.
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
                    _refuse(f"{path!r} leads through more than {_MAX_LINKS} links")
                parts.extend(link.path.split("/")[::-1])
                resolved = "" if link.path.startswith("/") else resolved
            elif isinstance(link, h5py.ExternalLink):
                _refuse(
                    f"{resolved}/{name} is a link to another file",
                    "Name that file in files instead",
                )
            else:
                found = self.contents()["arrays"][:8]
                names = ", ".join(f"{name} {shape}" for name, shape in found)
                hint = f"Use {names}" if names else "Name a file with an array of numbers"
                _refuse(f"there is no array {path!r}", hint)
        return resolved or "/"

    def plain(self, name: str) -> Any:  # noqa: ANN401 - h5py
        """Open an array that has all of its values in this file.

        Raises:
            RefusedError: the object is not an array, or has values in other files.
        """
        dataset = self._own(name)
        if dataset.is_virtual:
            sources = dataset.virtual_sources()
            if len(sources) > _MAX_SOURCES:
                _refuse(f"the virtual array {name!r} refers to {len(sources)} arrays")
            for path, inner_name in {(source.file_name, source.dset_name) for source in sources}:
                if path != _THIS_FILE:
                    _refuse(
                        f"the virtual array {name!r} refers to other files",
                        "Name those files in files instead",
                    )
                if _PATTERN in inner_name:
                    _refuse(
                        f"the virtual array {name!r} refers to arrays by a pattern, {inner_name!r}",
                        "Name each of its arrays, without %",
                    )
                inner = self._own(self.resolve(inner_name))
                if inner.is_virtual:
                    _refuse(f"the virtual array {name!r} refers to another virtual array")
                check_filters(inner)
        return dataset

    def _own(self, name: str) -> Any:  # noqa: ANN401 - h5py
        dataset = self._handle[name]
        if not isinstance(dataset, h5py.Dataset):
            _refuse(f"{name!r} is not an array", "Set array to the path of an array in it")
        if dataset.external:
            _refuse(f"the values of {name!r} are in other files", "Copy them into this file")
        return dataset

    def describe(self, path: str) -> dict[str, Any] | Pending:
        """Describe an array: name, shape, dtype, chunks, offset, axes.

        The result's bytes are the coordinates of its axes, one after the other, as float64.

        Raises:
            RefusedError: there is no such array, or it cannot be read.
        """
        name = self.resolve(path)
        dataset = self.plain(name)
        if form := _form(dataset):
            _refuse(f"the array {name!r} holds {form}", "Name an array of numbers in array")
        check_filters(dataset)
        shape = tuple(dataset.shape)
        axes, columns = self._axes(dataset, name)
        description = {
            "name": name,
            "shape": list(shape),
            "dtype": dataset.dtype.str,
            "chunks": list(dataset.chunks or (*(1,) * len(shape[:-2]), *shape[-2:])),
            "offset": offset_of(dataset),
            "axes": axes,
        }
        if not columns:
            return description

        def write(memory: memoryview) -> dict[str, Any]:
            np.concatenate(columns, out=np.frombuffer(memory, np.float64))
            return description

        return Pending(sum(column.nbytes for column in columns), write)

    def locate(self, name: str) -> dict[str, Any] | Pending:
        """Locate the values of an array in chunks.

        The result's bytes are the number of values and the first byte of each stretch in which
        they lie in C order, int64 of shape (k, 2); none if the file does not have all of them as
        they are, or if there are too many chunks or stretches.
        """
        stretches = stretches_of(self.plain(name))
        if stretches is None:
            return {}

        def write(memory: memoryview) -> dict[str, Any]:
            np.frombuffer(memory, np.int64).reshape(-1, 2)[...] = stretches
            return {}

        return Pending(stretches.nbytes, write)

    def _axes(self, dataset: Any, name: str) -> tuple[list[dict[str, Any]], list[Any]]:  # noqa: ANN401 - h5py
        """Describe each dimension by labels and coordinates in the file; empty without any."""
        parent = name.rpartition("/")[0] or "/"
        siblings = self._siblings(self._handle[parent], dataset.ndim)
        axes: list[dict[str, Any]] = []
        columns: list[Any] = []
        known = False
        for k, size in enumerate(dataset.shape or ()):
            scales = [scale for _, scale in dataset.dims[k].items() if _is_plain(scale)]
            label = dataset.dims[k].label
            coordinates = scales[0] if scales else siblings[k]
            known |= bool(label) or coordinates is not None
            axis, values = _axis(label or f"axis_{k}", size, coordinates)
            axes.append(axis)
            columns += values
        return (axes, columns) if known else ([], [])

    @staticmethod
    def _siblings(group: Any, count: int) -> list[Any]:  # noqa: ANN401 - h5py
        """Find the coordinates beside an array, as NeXus (attribute axes) or EMD (dim1, …) do."""
        names = _texts(group.attrs.get("axes"))
        if len(names) != count:
            names = [f"dim{k + 1}" for k in range(count)]
        siblings: list[Any] = []
        for name in names:
            link = group.get(name, getlink=True) if "/" not in name else None
            sibling = group[name] if isinstance(link, h5py.HardLink) else None
            siblings.append(sibling if _is_plain(sibling) else None)
        return siblings


def check_filters(dataset: Any) -> None:  # noqa: ANN401 - h5py
    """Check that the filters of an array are installed.

    Raises:
        RefusedError: one is not.
    """
    properties = dataset.id.get_create_plist()
    for number in range(properties.get_nfilters()):
        code, _, _, name = properties.get_filter(number)
        if not h5py.h5z.filter_avail(code):
            text = name.decode("utf-8", "replace") or "unnamed"
            _refuse(
                f"{dataset.name!r} is compressed with filter {code} ({text})",
                "Install the package hdf5plugin, or compress the array with gzip",
            )


def _form(dataset: Any) -> str:  # noqa: ANN401 - h5py
    """What a dataset holds that is no array of numbers; nothing if it is one."""
    try:
        dtype = dataset.dtype
    except TypeError:
        return "values of a type that numpy does not have"
    if not dataset.shape:
        return "nothing" if dataset.shape is None else "a single value"
    if dtype.names:
        return f"records of {', '.join(dtype.names):.100}"
    if dtype.kind == "O":
        return "texts" if h5py.check_string_dtype(dtype) else "lists of different lengths"
    return "" if dtype.kind in "biufc" else f"values of type {dtype}"


def _is_plain(dataset: Any) -> bool:  # noqa: ANN401 - h5py
    """Whether an object holds coordinates in this file, and not too many."""
    return (
        isinstance(dataset, h5py.Dataset)
        and not _form(dataset)
        and dataset.ndim == 1
        and 0 < dataset.size <= _MAX_COORDINATES
        and not dataset.is_virtual
        and not dataset.external
    )


def _axis(name: str, size: int, coordinates: Any) -> tuple[dict[str, Any], list[Any]]:  # noqa: ANN401 - h5py
    """Describe an axis; return its coordinates too, if they may be evenly spaced."""
    if coordinates is None:
        return {"name": name, "size": size, "unit": None, "coordinates": 0}, []
    attributes = coordinates.attrs
    if name.startswith("axis_"):
        names = _texts(attributes.get("name")) or _texts(attributes.get("long_name"))
        name = names[0] if names and names[0] else coordinates.name.rpartition("/")[2]
    units = _texts(attributes.get("units"))
    unit = units[0].strip("[]") if units and units[0] else None
    fits = coordinates.size in {size, 2} and coordinates.dtype.kind in "iuf"
    columns = [coordinates[...].astype(np.float64)] if fits else []
    count = len(columns[0]) if columns else 0
    return {"name": name, "size": size, "unit": unit, "coordinates": count}, columns


def _texts(value: Any) -> list[str]:  # noqa: ANN401 - an attribute
    """Return the strings of an attribute, whether it is one or many, text or bytes."""
    if value is None:
        return []
    items = np.asarray(value, dtype=object).reshape(-1).tolist()[:16]
    return [i.decode("utf-8", "replace") if isinstance(i, bytes) else str(i) for i in items]


def _refuse(message: str, hint: str = "Set array to the path of its values") -> NoReturn:
    raise RefusedError(message, hint)
