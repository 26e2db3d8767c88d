"""Arrays in HDF5 files, decoded by isolated processes.

Nothing outside of the file is read. Links to other files, values stored in other files and
virtual arrays over other files are refused: they could name any path of the server.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from app.decoding.base import Decoders, Effort
from core.arrays import Array, Octets
from core.errors import FormatError
from core.tiles.formats.arrays import ArrayInfo, BlockArray, check, choose, linear, some_of
from core.tiles.plan import Box
from core.tiles.recording import Axis

from .file_set import FileSet
from .foreign import ForeignFile, check_chunks, number, sequence, text

FORM = "hdf5"
_DTYPE = re.compile(r"[|<>][biufcSUVOmM][0-9]{0,9}(\[[0-9]{0,9}[a-zA-Z]{1,2}\])?")
_MAX_DIMENSIONS = 32


@dataclass(frozen=True, slots=True, eq=False)
class Hdf5Array(BlockArray):
    """A numeric array in an HDF5 file."""

    foreign: ForeignFile
    notes: tuple[str, ...] = ()

    def read(self, boxes: Sequence[Box]) -> list[Array]:
        """Read the values in boxes.

        Raises:
            FormatError: the values cannot be decoded.
            DatasetUnreadableError: decoding them crashed, hung or needed too much memory.
            DataChangedError: the file changed since it was opened.
        """
        arguments = {"array": self.name, "dtype": self.dtype.str, "boxes": boxes}
        return self.foreign.ask(
            "read",
            arguments,
            lambda _, octets: divide(octets, boxes, self.dtype),
            effort_of(boxes, self.chunks, self.dtype),
        )


def effort_of(boxes: Sequence[Box], chunks: Sequence[int], dtype: np.dtype[Any]) -> Effort:
    """Return the size of the values in boxes, and of those in all chunks that these touch."""
    size = dtype.itemsize
    nbytes = work = 0
    for box in boxes:
        requested = decoded = size
        for (a, b), n in zip(box, chunks, strict=True):
            requested *= b - a
            decoded *= (-(-b // n) - a // n) * n
        nbytes += requested
        work += decoded
    return Effort(nbytes, work=work)


def divide(octets: Octets, boxes: Sequence[Box], dtype: np.dtype[Any]) -> list[Array]:
    """Divide the values of several boxes, which lie one after the other."""
    arrays = []
    at = 0
    for box in boxes:
        shape = [b - a for a, b in box]
        stop = at + math.prod(shape) * dtype.itemsize
        arrays.append(octets[at:stop].view(dtype).reshape(shape))
        at = stop
    return arrays


@dataclass(frozen=True, slots=True)
class _Description:
    """What a worker says of an array."""

    name: str
    info: ArrayInfo
    axes: tuple[Axis, ...]
    offset: int | None


def open_hdf5(files: FileSet, file: int, array: str | None, decoders: Decoders) -> Hdf5Array:
    """Open an array of one of the files.

    Args:
        files: the set.
        file: index of the file.
        array: path of the array; None for the only one with at least three dimensions.
        decoders: read it.

    Raises:
        AmbiguousFormatError: no path is given, and no array or several could be meant.
        FormatError: there is no such array, it cannot be read, or it lies in other files.
        DatasetUnreadableError: reading it crashed, hung or needed too much memory.
        DataChangedError: the file changed since it was opened.
    """
    source = files.name(file)
    foreign = ForeignFile(files, file, FORM, decoders)
    notes: tuple[str, ...] = ()
    if array is None:
        shapes, others, links = foreign.ask("list", {}, _contents)
        array = choose(shapes, source, dict.fromkeys(links, "a link to another file") | others)
        if links:
            notes = (f"{source}: links to other files are not followed: {some_of(links)}",)
    arguments = {"array": array}
    # Coordinates come along, of which there are a few megabytes at most.
    found = foreign.ask("describe", arguments, _description, Effort(max_bytes=decoders.max_bytes))
    info = found.info
    check(info, found.name, source)
    stretches: Sequence[tuple[int, int]] = ((math.prod(info.shape), found.offset or 0),)
    if found.offset is None:
        check_chunks(info, found.name, source, decoders)
        arguments, effort = {"array": found.name}, Effort(max_bytes=decoders.max_bytes)
        stretches = foreign.ask("locate", arguments, partial(_stretches, info), effort)
    _check_inside(files, file, found, stretches)
    return Hdf5Array(
        file, found.name, info.shape, info.dtype, info.chunks, found.axes, stretches, foreign, notes
    )


def _check_inside(
    files: FileSet, file: int, found: _Description, stretches: Sequence[tuple[int, int]]
) -> None:
    """Check that values lie in the file, each at a place of its own.

    Raises:
        FormatError: they do not.
    """
    size = found.info.dtype.itemsize
    spans = sorted((begin, begin + count * size) for count, begin in stretches)
    hint = "Copy the file again from its origin"
    if spans and spans[-1][1] > files.size(file):
        raise FormatError(
            f"the values of the array {found.name!r} end at byte {spans[-1][1]}, but the file at "
            f"byte {files.size(file)}",
            source=files.name(file),
            offset=files.size(file),
            hint=hint,
        )
    if any(before[1] > after[0] for before, after in pairwise(spans)):
        raise FormatError(
            f"chunks of the array {found.name!r} overlap", source=files.name(file), hint=hint
        )


def _stretches(
    info: ArrayInfo, _values: Mapping[str, Any], octets: Octets
) -> Sequence[tuple[int, int]]:
    pairs = np.frombuffer(octets.tobytes(), np.int64).reshape(-1, 2).tolist()
    stretches = [(number(count), number(begin)) for count, begin in pairs]
    if stretches and sum(count for count, _ in stretches) != math.prod(info.shape):
        raise ValueError("stretches of another array")
    return stretches


def _contents(
    values: Mapping[str, Any], _octets: Octets
) -> tuple[dict[str, tuple[int, ...]], dict[str, str], list[str]]:
    shapes = {text(name): _lengths(shape) for name, shape in sequence(values["arrays"])}
    others = {text(name): text(form) for name, form in sequence(values["others"])}
    return shapes, others, [text(name) for name in sequence(values["links"])]


def _description(values: Mapping[str, Any], octets: Octets) -> _Description:
    shape = _lengths(values["shape"])
    chunks = _lengths(values["chunks"])
    if len(chunks) != len(shape) or (all(shape) and 0 in chunks):
        raise ValueError("chunks of another array")
    code = text(values["dtype"])
    if not _DTYPE.fullmatch(code):
        raise ValueError("no dtype")
    offset = values["offset"]
    return _Description(
        name=text(values["name"]),
        info=ArrayInfo(shape, np.dtype(code), chunks),
        axes=_axes(sequence(values["axes"]), octets),
        offset=None if offset is None else number(offset),
    )


def _lengths(value: Any) -> tuple[int, ...]:  # noqa: ANN401 - JSON
    lengths = tuple(number(n) for n in sequence(value))
    if len(lengths) > _MAX_DIMENSIONS:
        raise ValueError("too many dimensions")
    return lengths


def _axes(described: Sequence[Mapping[str, Any]], octets: Octets) -> tuple[Axis, ...]:
    """Build the axes; the bytes are the coordinates of those that have some."""
    coordinates = np.frombuffer(octets.tobytes(), np.float64)
    axes = []
    at = 0
    for axis in described[:_MAX_DIMENSIONS]:
        stop = at + number(axis["coordinates"])
        line = linear(coordinates[at:stop]) if stop > at else None
        at = stop
        unit = axis["unit"]
        label = text(axis["name"]), number(axis["size"]), None if unit is None else text(unit)
        axes.append(Axis(*label) if line is None else Axis(*label, *line))
    if at != len(coordinates):
        raise ValueError("coordinates of other axes")
    return tuple(axes)
