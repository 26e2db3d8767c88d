"""Small sources that several tests read."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.iterate.base import Ragged, Stage, in_order
from core.iterate.sources import ArraySource, CounterSource
from tests.core.iterate.drain import values

Counter = CounterSource
TEN = Counter(10)


def ragged(*items: list[int]) -> Ragged:
    offsets = np.cumsum([0, *(len(item) for item in items)])
    return Ragged(np.array([x for item in items for x in item], np.int64), offsets)


WORDS = ArraySource({"id": np.arange(4), "words": ragged([1, 2], [], [3, 4, 5], [6])})
MIXED = ArraySource(
    {
        "i": np.array([1, -2, 3], np.int16),
        "f": np.array([1.5, -2.25, np.nan], np.float32),
        "m": np.arange(12, dtype=np.int32).reshape(3, 2, 2),
        "w": ragged([1], [2, 3], []),
    }
)


def one(stage: Stage, name: str) -> list[Any]:
    reader = in_order(stage)
    return values(reader.take(reader.initial, 100)[0][name])
