"""Ranges, shards, repetitions and permutations, and positions out of range."""

from __future__ import annotations

import numpy as np
import pytest

from core.errors import PositionError
from core.iterate.base import Indexed
from core.iterate.combine import Zip
from core.iterate.mapping import Map
from core.iterate.mixing import Mix
from core.iterate.positions import Permute, Range, Repeat, Shard
from core.iterate.selecting import SelectManyIndexed
from core.iterate.shuffle import BlockShuffle, OverlapShuffle
from core.iterate.window import Window
from tests.core.iterate.items import TEN, WORDS


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
