"""Values of an HDF5 array that are had without the library, or in half its time.

Where they lie in the file as numpy has them, the service reads them by itself. Chunks that are
deflated are inflated here, by isal. Whatever is unusual is left to the library, which then also
says what is wrong.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from operator import mod
from typing import Any

import h5py
import numpy as np
from isal import isal_zlib

_MAX_CHUNKS = 1 << 18
"""Chunks that are located; it takes a second."""
_MAX_STRETCHES = 1 << 12
_PIPELINES = ([h5py.h5z.FILTER_DEFLATE], [h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE])
_LEAST = 1 << 10
"""Bytes of a chunk: of smaller ones, the library decodes many in the time of a call."""
_KEPT_BYTES = 2 << 20
"""Decoded chunks that are kept of an array."""


def offset_of(dataset: Any) -> int | None:  # noqa: ANN401 - h5py
    """Return the offset of values stored contiguously in numpy's representation, else None."""
    layout = dataset.id.get_create_plist().get_layout()
    if layout != h5py.h5d.CONTIGUOUS or not is_as_in_memory(dataset):
        return None
    offset: int | None = dataset.id.get_offset()
    return offset


def is_as_in_memory(dataset: Any) -> bool:  # noqa: ANN401 - h5py
    """Whether values are stored as numpy has them in memory."""
    equal: bool = dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype, logical=True))
    return equal


def stretches_of(dataset: Any) -> Any:  # noqa: ANN401 - h5py; an array
    """Return number and first byte of values that follow each other, shape (k, 2), or None."""
    chunks, shape = dataset.chunks, dataset.shape
    filtered = chunks is None or dataset.id.get_create_plist().get_nfilters()
    if filtered or not is_as_in_memory(dataset) or dataset.id.get_num_chunks() > _MAX_CHUNKS:
        return None
    # Along the last axes, which a chunk has whole, values follow each other.
    split = next(k for k in range(len(shape) + 1) if chunks[k:] == shape[k:])
    if math.prod(shape[:split]) > _MAX_CHUNKS or math.prod(chunks[:split]) > _MAX_CHUNKS:
        return None
    values = math.prod(shape[split:])
    size = values * dataset.dtype.itemsize
    places = np.full(shape[:split], -1, np.int64)
    inside = size * np.arange(math.prod(chunks[:split])).reshape(chunks[:split])

    def note(chunk: Any) -> None:  # noqa: ANN401 - h5py
        cells = zip(chunk.chunk_offset, chunks[:split], strict=False)
        where: Any = (..., *(slice(a, a + n) for a, n in cells))
        part = places[where]
        kept: Any = (..., *map(slice, part.shape))
        part[...] = chunk.byte_offset + inside[kept]

    dataset.id.chunk_iter(note)
    flat = places.reshape(-1)
    begins = np.flatnonzero(np.diff(flat, prepend=flat[:1]) != size)
    # A chunk that was never written has fill values.
    if (flat < 0).any() or len(begins) > _MAX_STRETCHES:
        return None
    return np.stack([np.diff(begins, append=len(flat)) * values, flat[begins]], axis=1)


class Chunks:
    """The chunks of an array.

    Args:
        dataset: the array, of h5py.
    """

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 - h5py
        self._id = dataset.id
        self._dtype: np.dtype[Any] = dataset.dtype
        self._shape: tuple[int, ...] = dataset.chunks
        self._nbytes = math.prod(self._shape) * self._dtype.itemsize
        filters = dataset.id.get_create_plist()
        self._is_shuffled = filters.get_nfilters() > 1 and self._dtype.itemsize > 1
        self._kept: OrderedDict[tuple[int, ...], Any] = OrderedDict()

    @classmethod
    def of(cls, dataset: Any) -> Chunks | None:  # noqa: ANN401 - h5py
        """Return the chunks of an array; None if the library has to decode them."""
        if not dataset.chunks or not is_as_in_memory(dataset):
            return None
        plist = dataset.id.get_create_plist()
        filters = [plist.get_filter(k)[0] for k in range(plist.get_nfilters())]
        size = math.prod(dataset.chunks) * dataset.dtype.itemsize
        return cls(dataset) if filters in _PIPELINES and size >= _LEAST else None

    def read(self, starts: tuple[int, ...], values: Any) -> bool:  # noqa: ANN401 - an array
        """Read a box of the shape of ``values``; False if the library has to."""
        try:
            if values.shape == self._shape and not any(map(mod, starts, self._shape)):
                chunk = self._chunk(starts)
                if chunk is not None:
                    values[...] = chunk
                return chunk is not None
            shape, stops = self._shape, [a + n for a, n in zip(starts, values.shape, strict=True)]
            corners = [range(a - a % n, b, n) for a, b, n in zip(starts, stops, shape, strict=True)]
            for corner in itertools.product(*corners):
                chunk = self._chunk(corner)
                if chunk is None:
                    return False
                # Slices of the box, and of the chunk, for what they have in common.
                targets, sources = [], []
                for a, b, at, n in zip(starts, stops, corner, shape, strict=True):
                    low, high = a if a > at else at, b if b < at + n else at + n  # noqa: FURB136
                    targets.append(slice(low - a, high - a))
                    sources.append(slice(low - at, high - at))
                values[tuple(targets)] = chunk[tuple(sources)]
        except Exception:  # noqa: BLE001 - the library knows better what it is
            return False  # a MemoryError may be a chunk that was never written
        return True

    def _chunk(self, corner: tuple[int, ...]) -> Any:  # noqa: ANN401 - an array, or None
        if (chunk := self._kept.get(corner)) is not None:
            self._kept.move_to_end(corner)
            return chunk
        passed_over, octets = self._id.read_direct_chunk(corner)
        inflater = isal_zlib.decompressobj()
        inflated = inflater.decompress(octets, self._nbytes)
        if passed_over or not inflater.eof or len(inflated) != self._nbytes:
            return None
        flat = np.frombuffer(inflated, np.uint8)
        if self._is_shuffled:
            flat = np.ascontiguousarray(flat.reshape(self._dtype.itemsize, -1).T)
        chunk = flat.reshape(-1).view(self._dtype).reshape(self._shape)
        self._kept[corner] = chunk
        while len(self._kept) * self._nbytes > _KEPT_BYTES:
            self._kept.popitem(last=False)
        return chunk
