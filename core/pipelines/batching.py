"""How the items of a pipeline become batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..iterate.collate import Padding

Last = Literal["keep", "drop", "pad", "wrap"]


@dataclass(frozen=True, slots=True)
class Batching:
    """The settings of the stage that makes batches, and of those after it."""

    size: int
    """Rows of a global batch; the most rows if batches differ."""
    last: Last = "keep"
    """What becomes of a last batch that is too short."""
    padding: Padding | None = None
    limit: int | None = None
    """Most batches of the pipeline; None for no limit."""
    epoch_size: int | None = None
    """Batches of an epoch; None if an epoch is one pass over the data."""
    epochs: int | None = 1
    """Passes over the data; None for no end."""
