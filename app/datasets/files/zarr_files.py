"""The files of a zarr v3 store on disk, and what its metadata says; without the library."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.errors import DataChangedError
from core.errors import FormatError
from core.tiles.recording import FileInfo

from .arrays import ArrayInfo, check, choose
from .file_set import FileSet
from .roots import Roots

METADATA = "zarr.json"
_MOST_METADATA_BYTES = 16 << 20
_MOST_NODES = 10_000
_CLOCK_STEP = 0.02
"""Seconds by which the clock that stamps directories may lag behind."""

_TYPES = {
    "bool": "b1",
    **{
        f"{sign}int{8 * size}": f"{sign or 'i'}{size}"
        for sign in ("", "u")
        for size in (1, 2, 4, 8)
    },
    **{f"float{8 * size}": f"f{size}" for size in (2, 4, 8)},
    **{f"complex{8 * size}": f"c{size}" for size in (8, 16)},
}
_CODECS = frozenset({"bytes", "gzip", "zstd", "blosc", "crc32c", "transpose", "sharding_indexed"})
_MOST_INNER_CHUNKS = 1 << 22
"""Chunks of one shard: its index is read as a whole."""


class StoreFiles(FileSet):
    """The files of an array in a store, and the directories they lie in.

    Names are relative to the store. Chunks that are not there hold the fill value: they
    must stay away, so that directories must stay what they are too.

    Args:
        roots: opens the files.
        top: directory of the store, absolute.
        paths: the files.
        directories: the directories, with their times of modification.

    Raises:
        FileMissingError, PathRefusedError, BusyError: as FileSet.
        DataChangedError: something was changed just now.
    """

    def __init__(
        self, roots: Roots, top: Path, paths: Sequence[Path], directories: Mapping[Path, int]
    ) -> None:
        self.top = top
        self.indices = {path.relative_to(top).as_posix(): k for k, path in enumerate(paths)}
        self._names = list(self.indices)
        self._directories = dict(directories)
        super().__init__(paths, roots.open)
        try:
            age = time.time() - max(self._directories.values(), default=0) / 1e9
            if 0 <= age < _CLOCK_STEP:
                time.sleep(_CLOCK_STEP - age)
            self.verify()
        except BaseException:
            self.close()
            raise

    @property
    def infos(self) -> tuple[FileInfo, ...]:
        """Names, relative to the store, and sizes."""
        return tuple(FileInfo(name, self.size(k)) for k, name in enumerate(self._names))

    @property
    def described(self) -> frozenset[int]:
        """Indices of the files that are metadata."""
        found = (k for k, name in enumerate(self._names) if Path(name).name == METADATA)
        return frozenset(found)

    def name(self, file: int) -> str:
        """Name of a file, relative to the store."""
        return self._names[file]

    def verify(self) -> None:
        """Make sure that all files are what they were, and no others came.

        Raises:
            DataChangedError: one was modified, replaced, removed or added.
            ReadFailedError: the disk failed.
        """
        super().verify()
        for path, modified in self._directories.items():
            try:
                same = os.stat(path).st_mtime_ns == modified  # noqa: PTH116 - a third faster
            except OSError:
                same = False
            if not same:
                raise self._differs(path.relative_to(self.top).as_posix(), "was modified")

    def get(self, name: str, start: int, stop: int | None) -> bytes | None:
        """Bytes of a file, to its end without ``stop``; None if it is not there, as before.

        Raises:
            DataChangedError: it changed, or was added.
            ReadFailedError: the disk failed.
        """
        index = self.indices.get(name)
        if index is None:
            if os.path.lexists(self.top / name):
                raise self._differs(name, "was added")
            return None
        return self.read(index, start, self.size(index) if stop is None else stop)

    @staticmethod
    def _differs(name: str, how: str) -> DataChangedError:
        return DataChangedError(f"{name!r} {how} since it was opened", file=name, change=how)


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array of a store, as its metadata says."""

    path: str
    """In the store; empty if the store is the array."""
    info: ArrayInfo
    most_stored: int | None
    """Bytes a chunk's file can have at most; None for shards."""
    metadata: Mapping[str, Any]
    coordinates: tuple[str | None, ...]
    """Paths of arrays with the coordinates of each dimension."""


def open_store(roots: Roots, top: Path, array: str | None) -> tuple[StoreFiles, StoredArray]:
    """The files of one array in a store, and what is known of it; the caller closes them.

    Raises:
        AmbiguousFormatError: no name is given, and no array or several could be meant.
        FormatError: it is no store of zarr v3, has no such array, or one that cannot be read.
        FileMissingError, PathRefusedError, TooLargeError, BusyError: see Roots.below.
        DataChangedError: something was changed just now.
    """
    paths, directories = roots.below(top)
    names = {path.relative_to(top).as_posix(): path for path in paths}
    nodes = _nodes(roots, top, names)
    arrays = {path: node for path, node in nodes.items() if node.get("node_type") == "array"}
    if array is None:
        shapes = {
            path: _lengths(node.get("shape")) or ()
            for path, node in arrays.items()
            if node.get("data_type") in _TYPES
        }
        path = choose(shapes, top.name)
    else:
        path = array.strip("/")
    if path not in arrays:
        known = ", ".join(sorted(arrays)[:8]) or "no arrays"
        raise FormatError(f"there is no array {path!r}", source=top.name, hint=f"There are {known}")
    described = _described(path, arrays, top.name)
    used = [path, *(name for name in described.coordinates if name is not None)]
    prefixes = tuple(f"{name}/" if name else "" for name in used)
    kept = [full for name, full in names.items() if name.startswith(prefixes)]
    inside = tuple(f"{top / name}/" for name in used)
    around = {full: time for full, time in directories.items() if f"{full}/".startswith(inside)}
    return StoreFiles(roots, top, kept, around), described


def _nodes(roots: Roots, top: Path, names: Mapping[str, Path]) -> dict[str, Mapping[str, Any]]:
    """Metadata of all nodes, by their path in the store."""
    metadata = {name: path for name, path in names.items() if path.name == METADATA}
    if METADATA not in metadata:
        raise FormatError(
            f"the directory has no {METADATA}",
            source=top.name,
            hint="Directories can be stores of zarr version 3; of other recordings name the files",
        )
    if len(metadata) > _MOST_NODES:
        raise FormatError(
            f"a store of {len(metadata)} arrays and groups",
            source=top.name,
            hint="Name the directory of the array itself",
        )
    found = {}
    with FileSet(list(metadata.values()), roots.open) as files:
        for index, name in enumerate(metadata):
            if files.size(index) > _MOST_METADATA_BYTES:
                raise FormatError(f"metadata of {files.size(index)} bytes", source=name)
            try:
                node = json.loads(files.read(index, 0, files.size(index)))
            except (ValueError, RecursionError) as e:
                raise FormatError(f"the metadata is not JSON: {e}", source=name) from e
            if not isinstance(node, Mapping) or node.get("zarr_format") != 3:  # noqa: PLR2004
                raise FormatError("the metadata is not of zarr version 3", source=name)
            found[name.rpartition("/")[0]] = node
    return found


def _described(path: str, arrays: Mapping[str, Mapping[str, Any]], store: str) -> StoredArray:
    node = arrays[path]
    source = f"{path}/{METADATA}".lstrip("/")
    shape, code = _lengths(node.get("shape")), node.get("data_type")
    grid, codecs = node.get("chunk_grid"), node.get("codecs")
    chunks = None
    if isinstance(grid, Mapping) and grid.get("name") == "regular":
        chunks = _lengths(_inside(grid).get("chunk_shape"))
    if shape is None or chunks is None or len(chunks) != len(shape) or 0 in chunks:
        raise FormatError("shape or chunk_grid cannot be", source=source, hint="Or are not regular")
    if not isinstance(code, str) or code not in _TYPES:
        raise FormatError(
            f"values of type {str(code)[:60]}", source=source, hint=f"Known: {', '.join(_TYPES)}"
        )
    if node.get("storage_transformers"):
        raise FormatError("storage transformers are not known", source=source)
    inner = _check_codecs(codecs, source)
    dtype = np.dtype(_TYPES[code])
    nbytes = math.prod(chunks) * dtype.itemsize
    if inner is not None:
        if len(inner) != len(chunks) or any(a % b for a, b in zip(chunks, inner, strict=True)):
            raise FormatError(f"shards of {chunks} in chunks of {inner}", source=source)
        if math.prod(chunks) // math.prod(inner) > _MOST_INNER_CHUNKS:
            raise FormatError(f"shards of {chunks} have too many chunks", source=source)
    info = ArrayInfo(shape, dtype, inner or chunks)
    check(info, path or "/", store)
    most = None if inner is not None else 2 * nbytes + (1 << 16)
    return StoredArray(path, info, most, node, _coordinates(path, node, arrays))


def _check_codecs(codecs: Any, source: str) -> tuple[int, ...] | None:  # noqa: ANN401 - JSON
    """Refuse codecs that are not known; returns the shape of the chunks of a shard."""
    inner = None
    for codec in codecs if isinstance(codecs, Sequence) else [None]:
        name = codec.get("name") if isinstance(codec, Mapping) else codec
        if not isinstance(name, str) or name not in _CODECS:
            raise FormatError(
                f"values are encoded with {str(name)[:60]!r}",
                source=source,
                hint=f"Known: {', '.join(sorted(_CODECS))}",
            )
        if name == "sharding_indexed":
            inside = _inside(codec)
            inner = _lengths(inside.get("chunk_shape"))
            nested = _check_codecs(inside.get("codecs"), source)
            _check_codecs(inside.get("index_codecs"), source)
            if inner is None or 0 in inner or nested is not None or len(codecs) > 1:
                raise FormatError("shards that cannot be read in parts", source=source)
    return inner


def _inside(named: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
    found = named.get("configuration") if isinstance(named, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _lengths(value: Any) -> tuple[int, ...] | None:  # noqa: ANN401 - JSON
    if not isinstance(value, list) or not all(type(n) is int and 0 <= n < 1 << 62 for n in value):
        return None
    return tuple(value)


def _coordinates(
    path: str, node: Mapping[str, Any], arrays: Mapping[str, Mapping[str, Any]]
) -> tuple[str | None, ...]:
    """Arrays beside an array that are named as its dimensions."""
    group = path.rpartition("/")[0]
    shape = node["shape"]
    found = []
    for name, size in zip(names_of(node), shape, strict=True):
        beside = f"{group}/{name}".lstrip("/") if path and name and "/" not in name else ""
        other = arrays.get(beside)
        fits = other is not None and beside != path and other.get("shape") == [size]
        found.append(beside if fits and size < 1 << 20 else None)
    return tuple(found)


def names_of(node: Mapping[str, Any]) -> list[str | None]:
    """Names of the dimensions, None where there is none."""
    names = node.get("dimension_names")
    count = len(node["shape"])
    if not isinstance(names, list) or len(names) != count:
        return [None] * count
    return [name if isinstance(name, str) and name else None for name in names]
