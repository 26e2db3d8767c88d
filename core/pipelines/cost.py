"""What a pipeline will cost, computed before any item is read.

The service runs pipelines that strangers wrote, so it must refuse a shuffle of a million large
items *before* it allocates them. Two costs follow from the options of the stages and the size
of their items, and the sums are held against :class:`Bounds`:

* *memory*: the bytes that one reader may hold at once, caches included;
* *resume work*: the items or random draws that come between a state and the first batch after
  it. A client may resume at every batch, so this is paid per request, not per pipeline.

Memory has three parts. The *tables* of a stage, such as those of a shuffle, follow from its
options. Its *blocks* follow from the batch: a batch of 8 windows of 100 items asks the stage below
for 800 items, and each stage copies its share a few times while those above wait::

    source      filter      window 100    batch 8     pad
    <= 16 MiB  <- 800 items <- 8 windows <- 8 rows <- the padded batch
    3 copies     2 copies      2 copies

Last come the batches that a pipeline in order keeps for the next step and for other ranks.

Both costs are upper bounds, with one exception: the length of ragged items is unknown until they
are read, so they count as ``RAGGED_VALUES`` elements. Only a budget (:mod:`core.budget`) bounds
those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..iterate.base import Schema

RAGGED_VALUES = 256
"""Elements that a ragged item is assumed to have."""
STATE_VALUE_BYTES = 9
"""Bytes of the largest integer of a state, encoded as a varint."""
INDEX_BYTES = 8
"""Bytes of a position."""
BASE_BYTES = 1 << 20
"""Bytes for everything of a bounded size, such as states and small arrays."""
CACHED_EPOCHS = 8
"""Epochs whose stages are cached, for readers in different epochs."""
_INDEX_ARRAYS = 4
"""Positions per item that a stage computes with."""
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
class Demand:
    """How much a stage is asked for at once."""

    items: int
    nbytes: int | None = None
    """Most bytes, unless one item is larger; None for no bound but the number."""

    def block_bytes(self, schema: Schema, copies: int) -> int:
        """Bytes that a stage takes to answer, in blocks and positions."""
        size = item_bytes(schema)
        block = self.items * size
        if self.nbytes is not None:
            block = min(block, max(self.nbytes, size))
        return copies * block + _INDEX_ARRAYS * INDEX_BYTES * self.items


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one stage."""

    memory: int = 0
    """Bytes."""
    resume_work: int = 0
    """Items or draws between a state and the first batch after it."""
    cached: int = 0
    """Further bytes of memory, in every epoch whose stages are cached."""


def item_bytes(schema: Schema, longest: int = RAGGED_VALUES) -> int:
    """Bytes of one item; a ragged field counts as ``longest`` elements and an offset."""
    total = 0
    for field in schema:
        size = field.dtype.itemsize * math.prod(longest if n < 0 else n for n in field.shape)
        total += size * longest + INDEX_BYTES if field.ragged else size
    return total
