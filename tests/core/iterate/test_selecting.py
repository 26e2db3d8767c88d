"""Flattening of ragged fields."""

from __future__ import annotations

import numpy as np
import pytest

from core.errors import StateError, TransformError
from core.iterate.mapping import Filter
from core.iterate.selecting import SelectMany, select_many
from core.iterate.sources import ArraySource
from tests.core.iterate.drain import at, drain
from tests.core.iterate.items import WORDS, ragged


def test_flattening() -> None:
    expected = [(0, 1), (0, 2), (2, 3), (2, 4), (2, 5), (3, 6)]
    offsets = np.array([0, 2, 2, 5, 6])
    for stage in (
        select_many(WORDS, field="words"),
        select_many(WORDS, field="words", offsets=offsets),
        select_many(Filter(WORDS, lambda b: np.ones(len(b["id"]), bool)), field="words"),
    ):
        assert drain(stage, 4) == expected
    assert at(select_many(WORDS, field="words", offsets=offsets), 5, 2, 3, 0) == [3, 2, 2, 0]  # type: ignore[arg-type]
    nothing = ArraySource({"w": ragged([], [])})
    assert drain(select_many(nothing, field="w")) == []
    wrong = select_many(WORDS, field="words", offsets=np.array([0, 1, 2, 5, 6]))
    with pytest.raises(TransformError, match="lengths"):
        drain(wrong)


def test_a_state_inside_an_item_that_is_shorter() -> None:
    with pytest.raises(StateError):
        SelectMany(WORDS, field="words").take((2, 0), 1)
