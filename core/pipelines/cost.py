"""How much memory a pipeline takes and how much work resuming it is, before it is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..iterate.base import Schema

RAGGED_VALUES = 256
"""Values an item of varying length is assumed to have, where nothing is known of it."""
STATE_VALUE_BYTES = 9
"""Of the largest integer of a state, as a varint."""
INDEX_BYTES = 8
CACHED = 4
"""Results a stage may cache, for readers at different places."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a pipeline may take."""

    memory: int = 1 << 30
    """Bytes."""
    resume_work: int = 1 << 25
    """Items or draws gone through before the first batch after a state."""
    state_bytes: int = 320
    """Of a state as varints."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one stage takes."""

    memory: int = 0
    """Bytes."""
    resume_work: int = 0
    """Items or draws."""


def item_bytes(schema: Schema) -> int:
    """Bytes of an item, assumed to have RAGGED_VALUES elements in each ragged field."""
    total = 0
    for field in schema:
        size = field.dtype.itemsize * int(np.prod(field.shape, dtype=np.int64))
        total += size * RAGGED_VALUES + INDEX_BYTES if field.ragged else size
    return total
