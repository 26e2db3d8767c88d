"""What a pipeline will cost, estimated before any item is read.

The service runs pipelines that strangers wrote, so it must refuse a shuffle of a million large
items *before* it allocates them. Each kind of stage therefore estimates two costs from its
options and the size of its items, and the sums are held against :class:`Bounds`:

* *memory*: the buffers that the stage may hold at once, in bytes;
* *resume work*: the items or random draws that come between a state and the first batch after
  it. A client may resume at every batch, so this is paid per request, not per pipeline.

Estimates are upper bounds as far as a schema allows. The length of ragged items is unknown
until they are read, so they count as ``RAGGED_VALUES`` elements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..iterate.base import Schema

RAGGED_VALUES = 256
"""Elements that a ragged item is assumed to have."""
STATE_VALUE_BYTES = 9
"""Bytes of the largest integer of a state, encoded as a varint."""
INDEX_BYTES = 8
"""Bytes of a position."""
CACHED = 4
"""Entries that a stage may cache, for readers at different positions."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that a pipeline may cost."""

    memory: int = 1 << 30
    """Bytes."""
    resume_work: int = 1 << 25
    """Items or draws between a state and the first batch after it."""
    state_bytes: int = 320
    """Bytes of a state, encoded as varints."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one stage."""

    memory: int = 0
    """Bytes."""
    resume_work: int = 0
    """Items or draws between a state and the first batch after it."""
    cached: int = 0
    """Further bytes of memory, in every epoch whose stages are cached."""


def item_bytes(schema: Schema) -> int:
    """Bytes of one item; a ragged field counts as ``RAGGED_VALUES`` elements and an offset."""
    total = 0
    for field in schema:
        size = field.dtype.itemsize * int(np.prod(field.shape, dtype=np.int64))
        total += size * RAGGED_VALUES + INDEX_BYTES if field.ragged else size
    return total
