"""Where in an HDF5 file the values of an array lie, if they lie there as numpy has them."""

from __future__ import annotations

import math
from typing import Any

import h5py
import numpy as np

_MAX_CHUNKS = 1 << 18
"""Chunks that are located; it takes a second."""
_MAX_STRETCHES = 1 << 12


def offset_of(dataset: Any) -> int | None:  # noqa: ANN401 - h5py
    """Return the offset of values stored contiguously in numpy's representation, else None."""
    layout = dataset.id.get_create_plist().get_layout()
    if layout != h5py.h5d.CONTIGUOUS or not is_as_in_memory(dataset):
        return None
    offset: int | None = dataset.id.get_offset()
    return offset


def is_as_in_memory(dataset: Any) -> bool:  # noqa: ANN401 - h5py
    """Whether values are stored as numpy has them in memory."""
    same: bool = dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype, logical=True))
    return same


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
