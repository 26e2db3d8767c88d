"""How much memory a pipeline takes and how much work its resumption is, before it is read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..iterate.base import Schema, Stage
from ..iterate.split import CHUNK
from .spec import StageSpec

RAGGED_VALUES = 256
"""Values an item of differing length is taken to have, where nothing is known of it."""
STATE_VALUE_BYTES = 9
"""Of the largest integer of a state, as a varint."""
_INDEX = 8
_SMALL = 1 << 16
_KEPT = 4


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a pipeline may take."""

    memory: int = 1 << 30
    """Bytes."""
    resume_work: int = 1 << 25
    """Items or draws gone through before the first batch behind a state."""
    state_bytes: int = 320
    """Of a state as varints."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one stage takes."""

    memory: int = 0
    resume_work: int = 0


def item_bytes(schema: Schema) -> int:
    """Bytes of an item, taken to have RAGGED_VALUES elements where it is ragged."""
    total = 0
    for field in schema:
        each = field.dtype.itemsize * int(np.prod(field.shape, dtype=np.int64))
        total += each * RAGGED_VALUES + _INDEX if field.ragged else each
    return total


def items_cost(spec: StageSpec, inner: Stage, length: int | None) -> Cost:
    """Of a stage that makes items.

    Args:
        spec: the stage.
        inner: what it takes items from.
        length: number of those; None if not known.
    """
    options, size = spec.options, item_bytes(inner.schema)
    n = options.get("size", 1)
    n = n if length is None else min(n, max(length, 1))
    match spec.op:
        case "shuffle" if options["kind"] == "reservoir":
            return Cost(_KEPT * _INDEX * n, n * (1 + math.ceil(math.log(n + 1))))
        case "shuffle":
            return Cost(2 * _KEPT * _INDEX * n, 2 * n)
        case "permute":
            return Cost(_KEPT * _INDEX * min(length or _SMALL, _SMALL), _SMALL)
        case "split":
            keys = _INDEX * (length or 0) if options["key"] is not None else 0
            return Cost(keys + _INDEX * ((length or 0) // CHUNK + 1), 0)
        case "filter" | "select_many":
            return Cost(_SMALL * size, 1)
    return Cost()


def batch_cost(spec: StageSpec, schema: Schema, batch: int) -> Cost:
    """Of the stage that makes batches of at most so many items."""
    size = item_bytes(schema)
    if spec.op == "bucket_batch":
        ahead = spec.options["read_ahead"]
        return Cost(2 * ahead * (size + 2 * _INDEX) + batch * size, 2 * ahead)
    return Cost((_KEPT + 2) * batch * size, 0)
