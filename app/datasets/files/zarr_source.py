"""Arrays in zarr v3 stores on disk, read through the zarr library.

The library never opens a file itself: it reads through our open files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)

from app.errors import ServiceError
from core.arrays import Array
from core.errors import CoreError, FormatError
from core.tiles.plan import Box
from core.tiles.recording import Axis

from .arrays import linear
from .zarr_files import METADATA, StoredArray, StoreFiles, names_of

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer, BufferPrototype


@dataclass(frozen=True, slots=True, eq=False)
class ZarrArray:
    """An array in a zarr store; see :class:`.arrays.BlockArray`."""

    files: StoreFiles
    array: Any
    file: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    axes: tuple[Axis, ...]
    offset: int | None = None

    def read(self, box: Box) -> Array:
        """Read the values in a box.

        Raises:
            FormatError: the values cannot be decoded.
            DataChangedError: a file changed since it was opened.
        """
        return _read(self.files, self.array, self.name, box)


def open_zarr(files: StoreFiles, stored: StoredArray) -> ZarrArray:
    """Open an array over files that are open.

    Raises:
        FormatError: the library cannot read the array.
        DataChangedError: a file changed since it was opened.
    """
    array = _open(files, stored.path, stored.max_chunk_bytes)
    info = stored.info
    if tuple(array.shape) != info.shape or array.dtype.newbyteorder("=") != info.dtype:
        raise FormatError(
            f"zarr reads {array.dtype} {array.shape}, but the metadata declares "
            f"{info.dtype} {info.shape}",
            source=files.top.name,
        )
    file = files.indices[f"{stored.path}/{METADATA}".lstrip("/")]
    axes = _axes(files, stored)
    name = f"/{stored.path}"
    return ZarrArray(files, array, file, name, info.shape, array.dtype, info.chunks, axes)


def _open(files: StoreFiles, path: str, limit: int | None) -> Any:  # noqa: ANN401 - one of zarr's
    try:
        return zarr.open_array(
            _OpenFilesStore(files, limit), path=path, mode="r", zarr_format=3, config={"order": "C"}
        )
    except (CoreError, ServiceError, MemoryError):
        raise
    except Exception as e:  # the library and its codecs document no common error
        raise FormatError(
            f"zarr cannot open it: {str(e)[:200]}", source=f"{path}/{METADATA}".lstrip("/")
        ) from e


def _read(files: StoreFiles, array: Any, name: str, box: Box) -> Array:  # noqa: ANN401 - zarr's
    try:
        return np.asarray(array[tuple(slice(a, b) for a, b in box)])
    except (CoreError, ServiceError, MemoryError):
        raise
    except Exception as e:  # as above
        files.verify()
        region = ", ".join(f"{a}:{b}" for a, b in box)
        raise FormatError(
            f"a chunk of {name!r} in [{region}] cannot be decoded: {str(e)[:200]}",
            source=files.top.name,
            hint="Copy the store again from its origin",
        ) from e


def _axes(files: StoreFiles, stored: StoredArray) -> tuple[Axis, ...]:
    """Describe each dimension by the metadata, with scales from coordinates if there are any."""
    names = names_of(stored.metadata)
    attributes = stored.metadata.get("attributes")
    units = attributes.get("units") if isinstance(attributes, dict) else None
    if not isinstance(units, list) or len(units) != len(names):
        units = [None] * len(names)
    if not any(names) and not any(units):
        return ()
    axes = []
    for k, (name, size) in enumerate(zip(names, stored.info.shape, strict=True)):
        unit, line = units[k], None
        if (path := stored.coordinates[k]) is not None:
            array = _open(files, path, None)
            if array.dtype.kind in "iuf":
                line = linear(_read(files, array, path, ((0, size),)))
            unit = unit or array.attrs.get("units")
        text = unit if isinstance(unit, str) and unit else None
        label = name or f"axis_{k}"
        axes.append(Axis(label, size, text) if line is None else Axis(label, size, text, *line))
    return tuple(axes)


class _OpenFilesStore(Store):
    """A read-only zarr store over open files; ``limit`` bounds the size of a chunk's file."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, files: StoreFiles, limit: int | None) -> None:
        super().__init__(read_only=True)
        self._files = files
        self._limit = limit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OpenFilesStore) and other._files is self._files

    def __hash__(self) -> int:
        return id(self._files)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        octets = self._octets(key, byte_range)
        return None if octets is None else prototype.buffer.from_bytes(octets)

    def _octets(self, key: str, byte_range: ByteRequest | None) -> bytes | None:
        index = self._files.indices.get(key)
        size = 0 if index is None else self._files.size(index)
        start, stop = 0, size
        if isinstance(byte_range, RangeByteRequest):
            start, stop = byte_range.start, byte_range.end
        elif isinstance(byte_range, OffsetByteRequest):
            start = byte_range.offset
        elif isinstance(byte_range, SuffixByteRequest):
            start = max(size - byte_range.suffix, 0)
        elif self._limit is not None and size > self._limit and not key.endswith(METADATA):
            raise FormatError(
                f"a chunk has {size} bytes, but can have at most {self._limit}",
                source=key,
                offset=self._limit,
                hint="Check that the store is not damaged",
            )
        return self._files.get(key, start, stop)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return key in self._files.indices

    async def set(self, key: str, value: Buffer) -> None:
        raise PermissionError(f"the store is read-only: {key} ({len(value)} bytes)")

    async def delete(self, key: str) -> None:
        raise PermissionError(f"the store is read-only: {key}")

    async def list(self) -> AsyncIterator[str]:
        for name in self._files.indices:
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for name in self._files.indices:
            if name.startswith(prefix):
                yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        top = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        inside = {
            name[len(top) :].partition("/")[0]
            for name in self._files.indices
            if name.startswith(top)
        }
        for name in sorted(inside):
            yield name
