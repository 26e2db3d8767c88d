"""Chunks of zarr v3 arrays, from the files that hold them.

The service finds the files of the chunks that a box touches, and hands over their descriptors.
All that is known of an array is in its metadata, so a subject is the metadata, parsed.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..wire import RefusedError
from . import codecs
from .codecs import Array, Chain, max_encoded, parse_chain
from .requests import Request

_NO_CHUNK = (1 << 64) - 1
"""Offset and length of a chunk that a shard does not have."""
_FLOATS = {2: "e", 4: "f", 8: "d"}

Box = list[tuple[int, int]]


def touch() -> None:
    """Decode a chunk with each codec."""
    codecs.preload()


def preload() -> None:
    """Do nothing: the codecs have no threads."""


def open_subject(form: str, arguments: Mapping[str, Any], descriptors: Sequence[int]) -> ZarrArray:
    """Parse the metadata of an array; see ``serving.Format``."""
    del form, descriptors
    try:
        return ZarrArray(json.loads(arguments["metadata"]), np.dtype(arguments["dtype"]))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as e:
        raise RefusedError(f"its metadata is invalid: {str(e)[:200]}") from e


class ZarrArray:
    """An array; see ``serving.OpenHandle``.

    Args:
        metadata: content of its ``zarr.json``.
        dtype: type of its values, in native byte order.
    """

    def __init__(self, metadata: Mapping[str, Any], dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._chunks = [int(n) for n in metadata["chunk_grid"]["configuration"]["chunk_shape"]]
        self._fill = fill_value(metadata.get("fill_value"), dtype)
        dimensions = len(self._chunks)
        chain = metadata["codecs"]
        first = chain[0] if chain else {}
        self._shards: _Shards | None = None
        if isinstance(first, Mapping) and first.get("name") == "sharding_indexed":
            self._shards = _Shards(first["configuration"], self._chunks, dtype)
        else:
            self._chain = parse_chain(chain, dtype, dimensions)

    def act(self, request: Request) -> dict[str, Any]:
        """Read a box, or only tell that the metadata is valid."""
        out = request.out
        if request.action == "check":
            return {}
        if request.action != "read" or out is None:
            raise ValueError(request.action)
        for box, chunks, complete in request.arguments["boxes"]:
            values = np.ndarray([b - a for a, b in box], self._dtype, buffer=out)
            if not complete:
                values[...] = self._fill
            for coordinates, size in chunks:
                corner = [k * n for k, n in zip(coordinates, self._chunks, strict=True)]
                self._read_chunk(request.files.next(), size, (corner, box), values)
            out = out[values.nbytes :]
        return {}

    def _read_chunk(
        self, descriptor: int, size: int, where: tuple[list[int], Box], out: Array
    ) -> None:
        """Copy what a chunk, which may be a shard, has of a box.

        Args:
            descriptor: file of the chunk.
            size: its size in bytes.
            where: position of the chunk's first value in the array, and the box.
            out: values of the box.
        """
        corner, box = where
        if self._shards is None:
            room = _room(corner, self._chunks, box, out)
            values = self._chain.decode(_bytes(descriptor, 0, size), self._chunks, room)
            if values is not room:
                _copy(values, corner, box, out)
            return
        for inner, start, stop in self._shards.chunks(descriptor, size, corner, box):
            shape = self._shards.inner
            if stop is None:
                _copy(np.broadcast_to(self._fill, shape), inner, box, out)
                continue
            room = _room(inner, shape, box, out)
            values = self._shards.chain.decode(_bytes(descriptor, start, stop), shape, room)
            if values is not room:
                _copy(values, inner, box, out)

    def explain(self, error: Exception) -> RefusedError:
        """See ``serving.OpenHandle``."""
        return RefusedError(str(error)[:200] or type(error).__name__)

    def close(self) -> None:
        """Do nothing: nothing is open."""


class _Shards:
    """Files that hold several chunks each, and an index of them.

    Args:
        configuration: of the codec.
        outer: shape of a shard.
        dtype: type of the values.
    """

    def __init__(
        self, configuration: Mapping[str, Any], outer: Sequence[int], dtype: np.dtype[Any]
    ) -> None:
        self.inner = [int(n) for n in configuration["chunk_shape"]]
        self.chain: Chain = parse_chain(configuration["codecs"], dtype, len(outer))
        self._grid = [a // b for a, b in zip(outer, self.inner, strict=True)]
        self._index = parse_chain(
            configuration["index_codecs"], np.dtype(np.uint64), len(outer) + 1
        )
        location = configuration.get("index_location", "end")
        if self._index.fixed is None or location not in {"start", "end"}:
            raise RefusedError("the index of the shards is compressed, or at an unknown place")
        self._at_end = location == "end"
        self._index_bytes = math.prod(self._grid) * 16 + self._index.fixed
        self._max_bytes = max_encoded(math.prod(self.inner) * dtype.itemsize)

    def chunks(
        self, descriptor: int, size: int, corner: list[int], box: Box
    ) -> Iterator[tuple[list[int], int, int | None]]:
        """Find the chunks of a shard that a box touches: corner, first byte, byte after the last.

        The last is None for a chunk that is missing.
        """
        if size < self._index_bytes:
            raise RefusedError(f"a shard of {size} bytes has no room for its index")
        at = size - self._index_bytes if self._at_end else 0
        octets = _bytes(descriptor, at, at + self._index_bytes)
        index = self._index.decode(octets, [*self._grid, 2])
        ranges = []
        for (a, b), start, step, count in zip(box, corner, self.inner, self._grid, strict=True):
            low, high = max(a - start, 0) // step, -(-(b - start) // step)
            ranges.append(range(low, min(high, count)))
        for cell in itertools.product(*ranges):
            first, length = (int(n) for n in index[cell])
            where = [c + k * n for c, k, n in zip(corner, cell, self.inner, strict=True)]
            if (first, length) == (_NO_CHUNK, _NO_CHUNK):
                yield where, 0, None
            elif first + length > size or length > self._max_bytes:
                raise RefusedError(f"the index of a shard of {size} bytes names {first} + {length}")
            else:
                yield where, first, first + length


def _bytes(descriptor: int, start: int, stop: int) -> bytearray:
    octets = bytearray(stop - start)
    view = memoryview(octets)
    total = 0
    while total < len(octets):
        count = os.preadv(descriptor, [view[total:]], start + total)
        if not count:
            raise EOFError(f"a file ends at byte {start + total}")
        total += count
    return octets


def _room(corner: Sequence[int], shape: Sequence[int], box: Box, out: Array) -> Array | None:
    """Return where a chunk belongs in a box; None if it is not whole and in one piece there."""
    where = []
    for (a, b), start, length in zip(box, corner, shape, strict=True):
        if start < a or start + length > b:
            return None
        where.append(slice(start - a, start - a + length))
    room = out[tuple(where)]
    return room if room.flags.c_contiguous else None


def _copy(values: Array, corner: Sequence[int], box: Box, out: Array) -> None:
    """Copy the part of a chunk that lies in a box."""
    source, target = [], []
    for (a, b), start, length in zip(box, corner, values.shape, strict=True):
        low, high = max(a, start), min(b, start + length)
        source.append(slice(low - start, high - start))
        target.append(slice(low - a, high - a))
    out[tuple(target)] = values[tuple(source)]


def fill_value(value: Any, dtype: np.dtype[Any]) -> Any:  # noqa: ANN401 - JSON
    """Parse the value of missing chunks.

    Raises:
        RefusedError: it is none of this type.
    """
    fits: bool | np.bool_ = False
    if dtype.kind == "b":
        fits = isinstance(value, bool)
    elif dtype.kind in "iu":
        fits = type(value) is int and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    elif dtype.kind == "f":
        return np.array([_float(value, dtype)], dtype)[0]
    elif isinstance(value, list) and len(value) == 2:  # noqa: PLR2004 - parts of a complex one
        part = np.dtype(f"f{dtype.itemsize // 2}")
        pair = np.array([_float(v, part) for v in value], part)
        return np.array([complex(pair[0], pair[1])], dtype)[0]
    if not fits:
        raise _no_fill(value)
    return np.array([value], dtype)[0]


def _float(value: Any, dtype: np.dtype[Any]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str) and value in {"NaN", "Infinity", "-Infinity"}:
        return float(value)
    if isinstance(value, str) and value.startswith("0x") and len(value) == 2 + 2 * dtype.itemsize:
        return struct.unpack(f">{_FLOATS[dtype.itemsize]}", bytes.fromhex(value[2:]))[0]
    if type(value) in {int, float}:
        return value
    raise _no_fill(value)


def _no_fill(value: object) -> RefusedError:
    return RefusedError(f"fill_value {str(value)[:60]} does not fit the array's dtype")
