"""The files and metadata of a zarr v3 store on disk."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from core.budget import current
from core.errors import FormatError
from core.tiles.formats.arrays import ArrayInfo, check, choose

from .file_set import FileSet, changed, on_error
from .identity import CLOCK_STEP, Identity, is_young
from .object_set import StoreObjects
from .roots import Roots

METADATA = "zarr.json"
_MAX_METADATA_BYTES = 16 << 20
_MAX_NODES = 10_000
_VALUE_BYTES = 72
"""Memory of a JSON value."""
_MAX_DIMENSIONS = 64
"""Longest shape that is looked at; fewer dimensions are served."""

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
_MAX_INNER_CHUNKS = 1 << 22
"""Maximum number of chunks per shard, whose index is read as a whole."""


class StoreFiles(FileSet):
    """The files of an array in a store, and the directories they lie in.

    Names are relative to the store. A missing chunk stands for fill values, so adding one
    changes the data without changing a file: directories must stay unchanged as well. They
    are compared as files are; where only the change time moved, their entries decide, as the
    contents of a file do.

    Args:
        roots: opens the files.
        top: directory of the store, absolute.
        paths: the files.
        directories: identity of each directory.

    Raises:
        FileMissingError, PathRefusedError, BusyError: see FileSet.
        DataChangedError: a file or directory was changed just now.
    """

    def __init__(
        self, roots: Roots, top: Path, paths: Sequence[Path], directories: Mapping[Path, Identity]
    ) -> None:
        self.top = top
        self.indices = {path.relative_to(top).as_posix(): k for k, path in enumerate(paths)}
        self._names = list(self.indices)
        self._paths = tuple(paths)
        self._directories = dict(directories)
        super().__init__(paths, roots.open)
        with on_error(self.close):
            newest = max((known.changed for known in self._directories.values()), default=0)
            if is_young(newest):
                time.sleep(max(CLOCK_STEP - (time.time() - newest / 1e9), 0))
            self.verify()

    @property
    def metadata(self) -> frozenset[int]:
        """Indices of the metadata files."""
        return frozenset(k for k, name in enumerate(self._names) if Path(name).name == METADATA)

    def name(self, file: int) -> str:
        """Return the name of a file, relative to the store."""
        return self._names[file]

    def verify(self) -> None:
        """Check that no file was changed or added.

        Raises:
            DataChangedError: one was modified, replaced, removed or added.
            ReadFailedError: the disk failed.
        """
        super().verify()
        for path, known in self._directories.items():
            try:
                now = Identity.of(os.stat(path))  # noqa: PTH116 - a third faster
                is_same = now == known or self._is_as_listed(path, known, now)
            except OSError:
                is_same = False
            if not is_same:
                raise changed(path.relative_to(self.top).as_posix(), "was modified")

    def _is_as_listed(self, path: Path, known: Identity, now: Identity) -> bool:
        """Whether a directory that is not as it was known has the same entries nevertheless.

        Raises:
            OSError: it cannot be listed.
        """
        if now._replace(changed=known.changed) != known:
            return False
        with os.scandir(path) as entries:
            listed = {entry.name for entry in entries if not entry.name.startswith(".")}
        if listed != self._entries[path]:
            return False
        if not is_young(now.changed):
            self._directories[path] = now
        return True

    @cached_property
    def _entries(self) -> Mapping[Path, set[str]]:
        """Names in each directory, as they were listed."""
        entries: dict[Path, set[str]] = {path: set() for path in self._directories}
        for path in [*self._paths, *self._directories]:
            if path.parent in entries:
                entries[path.parent].add(path.name)
        return entries

    def check_missing(self, name: str) -> None:
        """Check that a file that the store did not have is still missing.

        Raises:
            FormatError: it is a directory.
            DataChangedError: it was added since the store was opened.
        """
        if self.top / name in self._directories:
            raise FormatError(
                "the chunk is a directory, not a file",
                source=name,
                hint="Copy the store again from its origin, and register it anew",
            )
        if os.path.lexists(self.top / name):
            raise changed(name, "was added")


Store = StoreFiles | StoreObjects
"""The files of an array in a store."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """An array with the coordinates of a dimension."""

    path: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredArray:
    """Metadata of an array in a store."""

    path: str
    """Path in the store; empty if the store is the array."""
    info: ArrayInfo
    file_chunks: tuple[int, ...]
    """Shape of what a file holds: a chunk, or a shard of several."""
    max_chunk_bytes: int | None
    """Maximum size of a chunk's file; None for shards."""
    keys: tuple[str, str]
    """Prefix and separator of the names of chunk files."""
    metadata: Mapping[str, Any]
    coordinates: tuple[Coordinates | None, ...] = ()
    """Coordinates of each dimension."""

    def chunk_key(self, cell: Sequence[int]) -> str:
        """Return the name of a chunk's file relative to the array.

        Args:
            cell: position of the chunk in the grid of chunks.
        """
        prefix, separator = self.keys
        return prefix + separator.join(map(str, cell))


class Top(Protocol):
    """The directory of a store, on disk or in a bucket, with all it holds."""

    name: str

    @property
    def names(self) -> Collection[str]:
        """Names of all files, relative to the store."""

    def open(self, names: Sequence[str]) -> FileSet:
        """Open some of the files; see FileSet."""

    def store(self, prefixes: tuple[str, ...]) -> Store:
        """Open the files whose names begin in one of some ways, and watch for others."""


class DirectoryTop:
    """The directory of a store on disk; see Top.

    Args:
        roots: the directories that files may lie in.
        top: the directory.

    Raises:
        FileMissingError, PathRefusedError, TooLargeError, BusyError: see Roots.below.
    """

    def __init__(self, roots: Roots, top: Path) -> None:
        self.name = top.name
        self._roots, self._top = roots, top
        paths, self._directories = roots.below(top)
        self._paths = {path.relative_to(top).as_posix(): path for path in paths}

    @property
    def names(self) -> Collection[str]:
        """See Top."""
        return self._paths

    def open(self, names: Sequence[str]) -> FileSet:
        """See Top."""
        return FileSet([self._paths[name] for name in names], self._roots.open)

    def store(self, prefixes: tuple[str, ...]) -> StoreFiles:
        """See Top."""
        files = [path for name, path in self._paths.items() if name.startswith(prefixes)]
        inside = tuple(f"{self._top}/{prefix}" for prefix in prefixes)
        around = {
            path: known
            for path, known in self._directories.items()
            if f"{path}/".startswith(inside)
        }
        return StoreFiles(self._roots, self._top, files, around)


def open_store(top: Top, array: str | None) -> tuple[Store, StoredArray]:
    """Open the files of one array in a store and parse its metadata; the caller closes them.

    Args:
        top: the directory of the store.
        array: path of the array; None for the only one with at least three dimensions.

    Raises:
        AmbiguousFormatError: no path is given, and no array or several could be meant.
        FormatError: the directory is not a zarr v3 store, lacks the array, or holds one that
            cannot be read.
        DataChangedError: a file or directory was changed just now.
    """
    nodes = _nodes(top)
    arrays = {path: node for path, node in nodes.items() if node.get("node_type") == "array"}
    if array is None:
        shapes = {
            path: _lengths(node.get("shape")) or ()
            for path, node in arrays.items()
            if isinstance(node.get("data_type"), str) and node["data_type"] in _TYPES
        }
        others = {path: f"{node.get('data_type')!r:.60}" for path, node in arrays.items()}
        path = choose(shapes, top.name, others)
    else:
        path = array.strip("/")
    if path not in arrays:
        known = ", ".join(sorted(arrays)[:8])
        hint = f"Use {known}" if known else "Name a store with an array"
        raise FormatError(f"there is no array {path!r}", source=top.name, hint=hint)
    node = arrays[path]
    stored = replace(
        parse_array(path, node, top.name), coordinates=_coordinates(path, node, arrays)
    )
    used = [path, *(other.path for other in stored.coordinates if other is not None)]
    prefixes = tuple(f"{name}/" if name else "" for name in used)
    return top.store(prefixes), stored


def _nodes(top: Top) -> dict[str, Mapping[str, Any]]:
    """Read the metadata of all arrays and groups, by path in the store."""
    metadata = [name for name in top.names if name.rpartition("/")[2] == METADATA]
    if METADATA not in metadata:
        raise FormatError(
            f"the directory has no {METADATA}",
            source=top.name,
            hint="Name a zarr v3 store, to which one of v2 has to be copied, or for other formats"
            " the files themselves",
        )
    if len(metadata) > _MAX_NODES:
        raise FormatError(
            f"the store has more than {_MAX_NODES} arrays and groups",
            source=top.name,
            hint="Name the directory of the array itself",
        )
    nodes = {}
    with top.open(metadata) as files:
        for index, name in enumerate(metadata):
            if files.size(index) > _MAX_METADATA_BYTES:
                raise FormatError(
                    f"the metadata has more than {_MAX_METADATA_BYTES} bytes", source=name
                )
            octets = files.read(index, 0, files.size(index))
            values = sum(map(octets.count, (b",", b"[", b"{", b":")))
            current().hold("metadata", 4 * len(octets) + _VALUE_BYTES * values)
            try:
                node = json.loads(octets)
            except (ValueError, RecursionError) as e:
                raise FormatError(f"the metadata is not JSON: {e}", source=name) from e
            if not isinstance(node, Mapping) or node.get("zarr_format") != 3:  # noqa: PLR2004
                raise FormatError("the metadata is not of zarr version 3", source=name)
            nodes[name.rpartition("/")[0]] = node
    return nodes


def parse_array(path: str, node: Mapping[str, Any], store: str) -> StoredArray:
    """Parse the metadata of an array, without its coordinates.

    Args:
        path: path of the array in the store.
        node: content of its ``zarr.json``.
        store: name of the store, for messages.

    Raises:
        FormatError: it is invalid, or the array cannot be served.
    """
    source = f"{path}/{METADATA}".lstrip("/")
    shape, code = _lengths(node.get("shape")), node.get("data_type")
    grid, codecs = node.get("chunk_grid"), node.get("codecs")
    chunks = None
    if isinstance(grid, Mapping) and grid.get("name") == "regular":
        chunks = _lengths(_configuration(grid).get("chunk_shape"))
    if shape is None or chunks is None or len(chunks) != len(shape) or 0 in chunks:
        raise FormatError(
            "shape or chunk_grid is invalid", source=source, hint="Use a regular chunk grid"
        )
    if not isinstance(code, str) or code not in _TYPES:
        raise FormatError(
            f"the array has values of type {str(code)[:60]}",
            source=source,
            hint=f"Use {', '.join(_TYPES)}",
        )
    if node.get("storage_transformers"):
        raise FormatError("storage transformers are not supported", source=source)
    inner = _check_codecs(codecs, source)
    dtype = np.dtype(_TYPES[code])
    nbytes = math.prod(chunks) * dtype.itemsize
    if inner is not None:
        if len(inner) != len(chunks) or any(a % b for a, b in zip(chunks, inner, strict=True)):
            raise FormatError(
                f"shards of {chunks} do not divide into chunks of {inner}", source=source
            )
        if math.prod(chunks) // math.prod(inner) > _MAX_INNER_CHUNKS:
            raise FormatError(
                f"a shard of {chunks} has more than {_MAX_INNER_CHUNKS} chunks", source=source
            )
    info = ArrayInfo(shape, dtype, inner or chunks)
    check(info, path or "/", store)
    limit = None if inner is not None else 2 * nbytes + (1 << 16)
    return StoredArray(path, info, chunks, limit, _chunk_keys(node, source), node)


def _chunk_keys(node: Mapping[str, Any], source: str) -> tuple[str, str]:
    """Return prefix and separator of the names of chunk files."""
    encoding = node.get("chunk_key_encoding")
    name = encoding.get("name") if isinstance(encoding, Mapping) else encoding
    known = {"default": "/", "v2": "."}
    options = _configuration(encoding)
    separator = options.get("separator", known.get(name) if isinstance(name, str) else None)
    if not isinstance(name, str) or name not in known or separator not in ("/", "."):
        raise FormatError("chunk_key_encoding is invalid", source=source, hint="Use default or v2")
    return f"c{separator}" if name == "default" else "", separator


def _check_codecs(codecs: Any, source: str) -> tuple[int, ...] | None:  # noqa: ANN401 - JSON
    """Check that all codecs are supported; return the shape of a shard's chunks, if sharded."""
    inner = None
    for codec in codecs if isinstance(codecs, Sequence) else [None]:
        name = codec.get("name") if isinstance(codec, Mapping) else codec
        if not isinstance(name, str) or name not in _CODECS:
            raise FormatError(
                f"values are encoded with {str(name)[:60]!r}",
                source=source,
                hint=f"Use {', '.join(sorted(_CODECS))}",
            )
        if name == "sharding_indexed":
            configuration = _configuration(codec)
            inner = _lengths(configuration.get("chunk_shape"))
            nested = _check_codecs(configuration.get("codecs"), source)
            _check_codecs(configuration.get("index_codecs"), source)
            if inner is None or 0 in inner or nested is not None or len(codecs) > 1:
                raise FormatError("the shards cannot be read chunk by chunk", source=source)
    return inner


def _configuration(extension: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
    value = extension.get("configuration") if isinstance(extension, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _lengths(value: Any) -> tuple[int, ...] | None:  # noqa: ANN401 - JSON
    if not isinstance(value, list) or len(value) > _MAX_DIMENSIONS:
        return None
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in value):
        return None
    return tuple(value)


def _coordinates(
    path: str, node: Mapping[str, Any], arrays: Mapping[str, Mapping[str, Any]]
) -> tuple[Coordinates | None, ...]:
    """Find the siblings of an array that are named after its dimensions, or None for each."""
    group = path.rpartition("/")[0]
    shape = node["shape"]
    siblings: list[Coordinates | None] = []
    for name, size in zip(names_of(node), shape, strict=True):
        sibling = f"{group}/{name}".lstrip("/") if path and name and "/" not in name else ""
        other = arrays.get(sibling)
        fits = sibling != path and 0 < size < 1 << 20
        if other is not None and fits and other.get("shape") == [size]:
            siblings.append(Coordinates(sibling, other))
        else:
            siblings.append(None)
    return tuple(siblings)


def names_of(node: Mapping[str, Any]) -> list[str | None]:
    """Return the names of an array's dimensions; None for unnamed ones."""
    names = node.get("dimension_names")
    count = len(node["shape"])
    if not isinstance(names, list) or len(names) != count:
        return [None] * count
    return [name if isinstance(name, str) and name else None for name in names]
