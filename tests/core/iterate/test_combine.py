"""Zips of inputs."""

from __future__ import annotations

import pytest

from core.errors import PipelineError
from core.iterate.base import in_order
from core.iterate.combine import Zip, ZipInOrder, zipped
from core.iterate.shuffle import ReservoirShuffle
from tests.core.iterate.drain import drain, rows
from tests.core.iterate.items import TEN, Counter


def test_zips_take_nothing_that_they_do_not_give() -> None:
    named = Zip([TEN, Counter(3)], names=["a", "b"])
    assert [field.name for field in named.schema] == ["a.index", "b.index"]
    assert drain(named) == [(0, 0), (1, 1), (2, 2)]
    assert Zip([TEN, Counter(10, "x")], stop="strict").length == 10
    in_turn = zipped([ReservoirShuffle(TEN, size=1), Counter(3)], names=["a", "b"])
    assert isinstance(in_turn, ZipInOrder)
    block, state = in_turn.take(in_turn.initial, 100)
    assert len(rows(block)) == 3
    assert state == (3, 3, 3)


def test_a_strict_zip_of_what_differs_in_length() -> None:
    three = ReservoirShuffle(Counter(3), size=1)
    stage = zipped([three, Counter(4)], names=["a", "b"], stop="strict")
    reader = in_order(stage)
    with pytest.raises(PipelineError) as caught:
        reader.take(reader.initial, 10)
    assert caught.value.field == "stop"
    same = zipped([three, Counter(3)], names=["a", "b"], stop="strict")
    assert len(drain(same)) == 3
    assert len(drain(same, 1)) == 3
