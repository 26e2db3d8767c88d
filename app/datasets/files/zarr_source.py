"""Arrays in zarr v3 stores on disk, through the zarr library.

The library reads through the files as they were opened, and never opens one itself.
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
from core.errors import CoreError, FormatError
from core.tiles.recording import Axis

from .arrays import Box, Values, linear
from .zarr_files import METADATA, StoredArray, StoreFiles, names_of

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer, BufferPrototype


@dataclass(frozen=True, slots=True, eq=False)
class ZarrArray:
    """An array of a store; see BlockArray."""

    files: StoreFiles
    array: Any
    file: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    axes: tuple[Axis, ...]
    offset: int | None = None

    def read(self, box: Box) -> Values:
        """The values in a box.

        Raises:
            FormatError: they cannot be decoded.
            DataChangedError: a file is not what it was.
        """
        return _read(self.files, self.array, self.name, box)


def open_zarr(files: StoreFiles, stored: StoredArray) -> ZarrArray:
    """An array whose files are open.

    Raises:
        FormatError: the library cannot read it.
        DataChangedError: a file is not what it was.
    """
    array = _open(files, stored.path, stored.most_stored)
    info = stored.info
    if tuple(array.shape) != info.shape or array.dtype.newbyteorder("=") != info.dtype:
        raise FormatError(f"the library reads {array.dtype} {array.shape}", source=files.top.name)
    file = files.indices[f"{stored.path}/{METADATA}".lstrip("/")]
    axes = _axes(files, stored)
    name = f"/{stored.path}"
    return ZarrArray(files, array, file, name, info.shape, array.dtype, info.chunks, axes)


def _open(files: StoreFiles, path: str, most: int | None) -> Any:  # noqa: ANN401 - one of zarr's
    try:
        return zarr.open_array(
            _Reading(files, most), path=path, mode="r", zarr_format=3, config={"order": "C"}
        )
    except (CoreError, ServiceError, MemoryError):
        raise
    except Exception as e:  # the library and its codecs raise what they like
        raise FormatError(
            f"zarr cannot open it: {str(e)[:200]}", source=f"{path}/{METADATA}".lstrip("/")
        ) from e


def _read(files: StoreFiles, array: Any, name: str, box: Box) -> Values:  # noqa: ANN401 - zarr's
    try:
        return np.asarray(array[tuple(slice(a, b) for a, b in box)])
    except (CoreError, ServiceError, MemoryError):
        raise
    except Exception as e:  # as above
        files.verify()
        where = [f"{a}:{b}" for a, b in box]
        raise FormatError(
            f"a chunk of {name!r} in [{', '.join(where)}] cannot be decoded: {str(e)[:200]}",
            source=files.top.name,
            hint="Copy the store again from where it came",
        ) from e


def _axes(files: StoreFiles, stored: StoredArray) -> tuple[Axis, ...]:
    """Named by the metadata, with scales where coordinates lie beside the array."""
    names = names_of(stored.metadata)
    attributes = stored.metadata.get("attributes")
    units = attributes.get("units") if isinstance(attributes, dict) else None
    if not isinstance(units, list) or len(units) != len(names):
        units = [None] * len(names)
    if not any(names) and not any(units):
        return ()
    made = []
    for k, (name, size) in enumerate(zip(names, stored.info.shape, strict=True)):
        unit, line = units[k], None
        if (beside := stored.coordinates[k]) is not None:
            array = _open(files, beside, None)
            if array.dtype.kind in "iuf":
                line = linear(_read(files, array, beside, ((0, size),)))
            unit = unit or array.attrs.get("units")
        text = unit if isinstance(unit, str) and unit else None
        called = name or f"axis_{k}"
        made.append(Axis(called, size, text) if line is None else Axis(called, size, text, *line))
    return tuple(made)


class _Reading(Store):
    """A store of zarr's over files that are open."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, files: StoreFiles, most: int | None) -> None:
        super().__init__(read_only=True)
        self._files = files
        self._most = most

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reading) and other._files is self._files

    def __hash__(self) -> int:
        return id(self._files)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        octets = self._octets(key, byte_range)
        return None if octets is None else prototype.buffer.from_bytes(octets)

    def _octets(self, key: str, wanted: ByteRequest | None) -> bytes | None:
        index = self._files.indices.get(key)
        size = 0 if index is None else self._files.size(index)
        start, stop = 0, size
        if isinstance(wanted, RangeByteRequest):
            start, stop = wanted.start, wanted.end
        elif isinstance(wanted, OffsetByteRequest):
            start = wanted.offset
        elif isinstance(wanted, SuffixByteRequest):
            start = max(size - wanted.suffix, 0)
        elif self._most is not None and size > self._most and not key.endswith(METADATA):
            raise FormatError(
                f"a chunk of {size} bytes; at most {self._most} can be",
                source=key,
                offset=self._most,
                hint="Check that the store is not damaged",
            )
        return self._files.get(key, start, stop)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, wanted) for key, wanted in key_ranges]

    async def exists(self, key: str) -> bool:
        return key in self._files.indices

    async def set(self, key: str, value: Buffer) -> None:
        raise PermissionError(f"{key} cannot be written with {len(value)} bytes: read only")

    async def delete(self, key: str) -> None:
        raise PermissionError(f"{key} cannot be removed: read only")

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
