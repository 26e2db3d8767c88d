"""Ranges, shards, repetitions, permutations and windows, and positions out of range."""

from __future__ import annotations

import numpy as np
import pytest

from core.errors import PositionError
from core.iterate.base import Indexed
from core.iterate.combine import Zip
from core.iterate.mapping import Map
from core.iterate.mixing import Mix
from core.iterate.positions import Permute, Range, Repeat, Shard, Window
from core.iterate.selecting import SelectManyIndexed
from core.iterate.shuffle import BlockShuffle, OverlapShuffle
from tests.core.iterate.drain import at, first
from tests.core.iterate.items import TEN, WORDS, Counter


@pytest.mark.parametrize(
    "stage",
    [
        TEN,
        WORDS,
        Range(TEN, start=1),
        Shard(TEN, of=2, index=0),
        Permute(TEN),
        Repeat(TEN, epochs=1),
        BlockShuffle(TEN, size=3),
        OverlapShuffle(TEN, size=3),
        Map(TEN, lambda b, _: dict(b)),
        Window(TEN, width=3),
        Zip([TEN]),
        Mix([TEN]),
        SelectManyIndexed(WORDS, field="words", offsets=np.array([0, 2, 2, 5, 6])),
    ],
    ids=lambda stage: type(stage).__name__,
)
def test_positions_outside(stage: Indexed) -> None:
    assert stage.length is not None
    for position in (-1, stage.length):
        with pytest.raises(PositionError):
            stage.at(np.array([0, position]))


def test_windows() -> None:
    assert first(Window(TEN, width=4, stride=3), 9) == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    kept = Window(TEN, width=4, stride=3, partial="keep")
    assert first(kept, 9) == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9], [9]]
    assert kept.schema[0].ragged
    assert first(Window(TEN, width=1, stride=9), 9) == [[0], [9]]
    assert first(Window(Counter(), width=2, partial="keep"), 2) == [[0, 1], [1, 2]]
    wide = Window(Counter(3), width=9, stride=2, partial="keep")
    assert (wide.length, first(wide, 2)) == (2, [[0, 1, 2], [2]])
    assert at(Window(TEN, width=2, stride=4), 2, 0) == [[8, 9], [0, 1]]
    two = Window(Window(TEN, width=2), width=2)
    assert first(two, 1) == [[[0, 1], [1, 2]]]
