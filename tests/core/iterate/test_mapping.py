"""Maps and filters with functions of a caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from core.arrays import Indices
from core.errors import PipelineError, TransformError
from core.iterate.base import Field, in_order
from core.iterate.mapping import Filter, Map, MapInOrder, mapped, randomly_mapped
from core.iterate.positions import Permute, Repeat
from core.iterate.shuffle import ReservoirShuffle
from tests.core.iterate.drain import at, drain, first, rows
from tests.core.iterate.items import TEN, Counter


def test_maps_of_both_kinds() -> None:
    assert first(mapped(TEN, lambda b: {"x": np.asarray(b["index"]) ** 2}), 4) == [0, 1, 4, 9]
    behind = mapped(ReservoirShuffle(TEN, size=1), lambda b: {"x": np.asarray(b["index"]) + 1})
    assert isinstance(behind, MapInOrder)
    assert sorted(first(behind, 10)) == list(range(1, 11))
    assert first(mapped(Counter(0), dict), 3) == []


def test_numbers_of_a_random_map_depend_on_the_position_only() -> None:
    stage = randomly_mapped(TEN, lambda b, draws: {**b, "u": draws.uniform("a")}, seed=5)
    assert isinstance(stage, Map)
    everything = drain(stage)
    assert at(stage, 3) == [3]
    assert rows(stage.at(np.array([7, 3, 3]))) == [everything[7], everything[3], everything[3]]
    other = drain(randomly_mapped(TEN, lambda b, draws: {**b, "u": draws.uniform("b")}, seed=5))
    assert all(a[1] != b[1] for a, b in zip(everything, other, strict=True))


def _fragile(block: Mapping[str, Any], _positions: Indices) -> dict[str, Any]:
    if 6 in block["index"]:
        raise ZeroDivisionError("six")
    return {"x": block["index"]}


def test_a_transform_that_fails_names_the_item() -> None:
    for stage in (Map(TEN, _fragile), MapInOrder(ReservoirShuffle(TEN, size=1), _fragile)):
        reader = in_order(stage)
        block, state = reader.take(reader.initial, 5)
        assert len(rows(block)) == 5
        with pytest.raises(TransformError, match="six") as caught:
            reader.take(state, 5)
        assert caught.value.position in {5, 6}
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(TransformError) as caught:
        Map(Permute(TEN, seed=1), _fragile).at(np.arange(10))
    assert at(Permute(TEN, seed=1), caught.value.position or 0) == [6]


def test_a_transform_that_lies() -> None:
    schema = (Field("x", np.dtype(np.int64)),)
    lies: list[Callable[[Any], Any]] = [
        lambda b: {"x": b["index"][:-1]},
        lambda b: {"x": b["index"].astype(float)},
        lambda b: {"y": b["index"]},
        lambda _: {},
        lambda b: {"x": np.array([None] * len(b["index"]))},
    ]
    for lie in lies:
        with pytest.raises((TransformError, PipelineError)):
            in_order(mapped(TEN, lie, schema)).take((0,), 3)


def test_filters() -> None:
    assert [x for (x,) in drain(Filter(TEN, lambda b: np.asarray(b["index"]) % 3 == 0))] == [
        0,
        3,
        6,
        9,
    ]
    assert drain(Filter(TEN, lambda b: np.zeros(len(b["index"]), bool))) == []
    rare = Filter(Counter(300_000), lambda b: np.asarray(b["index"]) % 100_000 == 7)
    assert drain(rare) == [(7,), (100_007,), (200_007,)]


def test_predicates_that_fail() -> None:
    wrong: list[Any] = [lambda b: b["none"], lambda _: np.ones(1), lambda b: b["index"]]
    for predicate in wrong:
        stage = Filter(TEN, predicate)
        with pytest.raises(TransformError) as caught:
            stage.take(stage.initial, 4)
        assert caught.value.position == 0


def test_a_filter_that_refuses_all_of_what_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.iterate.mapping._MAX_REJECTED", 1000)
    stage = Filter(Repeat(TEN), lambda b: np.asarray(b["index"]) < 0)
    with pytest.raises(TransformError, match="of an endless stage"):
        stage.take(stage.initial, 1)
    assert drain(Filter(Counter(5000), lambda b: np.asarray(b["index"]) < 0)) == []
