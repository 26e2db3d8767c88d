"""How the items of a pipeline become batches: what its last stages say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..iterate.collate import Padding

Last = Literal["keep", "drop", "pad", "wrap"]


@dataclass(frozen=True, slots=True)
class Batching:
    """What the stages from the batches on say."""

    size: int
    """Rows of a global batch; the largest number where batches differ."""
    last: Last = "keep"
    padding: Padding | None = None
    limit: int | None = None
    """Batches in all."""
    epoch_size: int | None = None
    """Batches of an epoch; None for natural epochs."""
    epochs: int | None = 1
    """How often the data is gone through; None for no end."""
