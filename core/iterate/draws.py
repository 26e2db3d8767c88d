"""Random numbers for random transforms, one per item and reproducible at any position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Floats, Indices, Words
from ..rng import Key, below, bits, uniform


@dataclass(frozen=True, slots=True)
class Draws:
    """Random numbers for a block of items: functions of a key and the items' positions."""

    key: Key
    positions: Indices

    def bits(self, *path: str | int) -> Words:
        """64 random bits for every item, different for every path."""
        return bits(self.key.child(*path), self.positions.view(np.uint64))

    def uniform(self, *path: str | int) -> Floats:
        """A number in [0, 1) for every item."""
        return uniform(self.key.child(*path), self.positions.view(np.uint64))

    def below(self, n: int, *path: str | int) -> Indices:
        """A number from 0 to n - 1 for every item."""
        return below(self.key.child(*path), self.positions.view(np.uint64), n)
