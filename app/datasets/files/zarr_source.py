"""Arrays in zarr v3 stores on disk, decoded by isolated processes.

Which files hold the chunks of a box follows from the metadata. They are opened here, and their
descriptors handed over.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from app.decoding.base import Decoders, LibraryMissingError, OpenHandle, Request
from app.decoding.wire import RefusedError
from app.errors import DatasetUnreadableError
from core.arrays import Array
from core.budget import current
from core.errors import FormatError
from core.tiles.formats.arrays import BlockArray, linear
from core.tiles.plan import Box
from core.tiles.recording import Axis

from .foreign import check_chunks, missing
from .hdf5 import divide, effort_of
from .zarr_files import METADATA, Coordinates, Store, StoredArray, names_of, parse_array

FORM = "zarr"
_CELL_BYTES = 256
"""Memory of what is said of a file to a decoder."""
_MAX_LINE_FILES = 1 << 10
"""Most files of the coordinates of a dimension; it has no scale if there may be more."""
_BATCH = 128
"""Files that are handed over at once, and stay open meanwhile."""
_BATCH_BYTES = 64 << 20
"""Bytes of them after which no further one is: those of a bucket are in memory meanwhile."""


@dataclass(frozen=True, slots=True, eq=False)
class ZarrArray(BlockArray):
    """An array in a zarr store."""

    files: Store
    decoders: Decoders
    subject: OpenHandle
    stored: StoredArray

    def read(self, boxes: Sequence[Box]) -> list[Array]:
        """Read the values in boxes.

        Raises:
            FormatError: the values cannot be decoded.
            DatasetUnreadableError: decoding them crashed, hung or needed too much memory.
            DataChangedError: a file changed since it was opened.
        """
        used: list[int] = []
        parts = [self._part(box, used) for box in boxes]
        with closing(_batches(self.files, used)) as batches:
            request = Request(
                self.files.top.name,
                self.subject,
                "read",
                {"boxes": parts},
                files=batches,
                effort=effort_of(boxes, self.chunks, self.dtype),
            )
            try:
                arrays = self.decoders.ask(
                    request, lambda _, octets: divide(octets, boxes, self.dtype)
                )
            except RefusedError as e:
                self.files.verify()
                region = ", ".join(f"{a}:{b}" for a, b in boxes[0])
                more = f" or {len(boxes) - 1} other regions" if len(boxes) > 1 else ""
                raise FormatError(
                    f"a chunk of {self.name!r} in [{region}]{more} cannot be decoded: {e.message}",
                    source=self.files.top.name,
                    hint="Copy the store again from its origin",
                ) from e
            except DatasetUnreadableError:
                self.files.verify()
                raise
        self.files.check(dict.fromkeys(used))
        return arrays

    def _part(
        self, box: Box, used: list[int]
    ) -> tuple[Box, list[tuple[tuple[int, ...], int]], bool]:
        """Find the files that hold a box, and append them to those used.

        Returns:
            The box, position in the grid and size of each chunk file that exists, and whether
            all exist.
        """
        files, limit = self.files, self.stored.max_chunk_bytes
        prefix = f"{self.stored.path}/" if self.stored.path else ""
        ranges = [
            range(a // n, -(-b // n))
            for (a, b), n in zip(box, self.stored.file_chunks, strict=True)
        ]
        found: list[tuple[tuple[int, ...], int]] = []
        complete = True
        for cell in itertools.product(*ranges):
            current().check("zarr")
            key = prefix + self.stored.chunk_key(cell)
            index = files.indices.get(key)
            if index is None:
                files.check_missing(key)
                complete = False
                continue
            size = files.size(index)
            if limit is not None and size > limit:
                raise FormatError(
                    f"a chunk has {size} bytes, but can have at most {limit}",
                    source=key,
                    offset=limit,
                    hint="Check that the store is not damaged",
                )
            current().hold("zarr", _CELL_BYTES)
            found.append((cell, size))
            used.append(index)
        return box, found, complete


def _batches(files: Store, used: Sequence[int]) -> Generator[Sequence[int]]:
    """Open files batch by batch."""
    batch, size = list[int](), 0
    for position, index in enumerate(used, 1):
        batch.append(index)
        size += files.size(index)
        if len(batch) == _BATCH or size >= _BATCH_BYTES or position == len(used):
            with files.staged(batch) as descriptors:
                yield descriptors
            batch, size = [], 0


def open_zarr(files: Store, stored: StoredArray, decoders: Decoders) -> ZarrArray:
    """Open an array over files that are open.

    Raises:
        FormatError: the array has codecs, fill values or chunks that cannot be decoded, or the
            library is not installed.
        DataChangedError: a file changed since it was opened.
    """
    check_chunks(stored.info, f"/{stored.path}", files.top.name, decoders)
    return replace(_open(files, stored, decoders), axes=_axes(files, stored, decoders))


def _open(files: Store, stored: StoredArray, decoders: Decoders) -> ZarrArray:
    """Open an array without its axes."""
    metadata = json.dumps(stored.metadata, sort_keys=True)
    info, dtype = stored.info, stored.info.dtype.str
    key = hashlib.blake2b(f"{dtype} {metadata}".encode(), digest_size=16).hexdigest()
    subject = OpenHandle(f"{FORM} {key}", FORM, {"metadata": metadata, "dtype": dtype})
    source = f"{stored.path}/{METADATA}".lstrip("/")
    try:
        decoders.ask(Request(source, subject, "check"), lambda _, octets: len(octets))
    except RefusedError as e:
        raise FormatError(f"zarr cannot open it: {e.message}", source=source, hint=e.hint) from e
    except LibraryMissingError as e:
        raise missing(e.package, FORM) from e
    array = files.indices[source], f"/{stored.path}", info.shape, info.dtype, info.chunks
    return ZarrArray(*array, (), (), files, decoders, subject, stored)


def _axes(files: Store, stored: StoredArray, decoders: Decoders) -> tuple[Axis, ...]:
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
        if (sibling := stored.coordinates[k]) is not None:
            line = _line(files, sibling, decoders)
            more = sibling.metadata.get("attributes")
            unit = unit or (more.get("units") if isinstance(more, dict) else None)
        label = name or f"axis_{k}", size, unit if isinstance(unit, str) and unit else None
        axes.append(Axis(*label) if line is None else Axis(*label, *line))
    return tuple(axes)


def _line(files: Store, coordinates: Coordinates, decoders: Decoders) -> tuple[float, float] | None:
    """Return scale and offset of coordinates; None if they are not evenly spaced numbers."""
    try:
        stored = parse_array(coordinates.path, coordinates.metadata, files.top.name)
    except FormatError:
        return None
    files_of_line = -(-stored.info.shape[0] // stored.file_chunks[0])
    if stored.info.dtype.kind not in "iuf" or files_of_line > _MAX_LINE_FILES:
        return None
    return linear(_open(files, stored, decoders).read([((0, stored.info.shape[0]),)])[0])
