"""What each stage does, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import PipelineError, PositionError, StateError, TransformError
from core.iterate.base import Field, Indexed, Ragged, Stage
from core.iterate.batching import BucketBatch
from core.iterate.combine import Zip, ZipInOrder, zipped
from core.iterate.inorder import in_order
from core.iterate.mapping import Filter, Map, MapInOrder, RandomMap, mapped, named_filter, named_map
from core.iterate.mixing import Mix, RandomMix, mixed
from core.iterate.positions import Permute, Range, Repeat, Shard
from core.iterate.recurrent import SCANS, Scan
from core.iterate.selecting import SelectMany, SelectManyIndexed, select_many
from core.iterate.shuffle import BlockShuffle, OverlapShuffle, ReservoirShuffle
from core.iterate.sources import ArraySource, CounterSource
from core.iterate.transforms import PREDICATES, RANDOM_TRANSFORMS, TRANSFORMS
from core.iterate.window import Window
from tests.core.iterate.drain import at, drain, first, rows, values

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


# Sources


def test_a_source_gives_what_it_was_given() -> None:
    block = WORDS.at(np.array([3, 0, 0]))
    assert rows(block) == [(3, [6]), (0, [1, 2]), (0, [1, 2])]
    assert WORDS.schema == (
        Field("id", np.dtype(np.int64)),
        Field("words", np.dtype(np.int64), (), ragged=True),
    )
    assert rows(WORDS.at(np.array([], np.int64))) == []
    assert first(Counter(), 3) == [0, 1, 2]


def test_fingerprints_tell_data_apart() -> None:
    one = ArraySource({"a": np.arange(3)})
    assert one.fingerprint == ArraySource({"a": np.arange(3)}).fingerprint
    others = [
        ArraySource({"b": np.arange(3)}),
        ArraySource({"a": np.arange(3).astype(np.int32)}),
        ArraySource({"a": np.arange(3).astype(np.uint64)}),
        ArraySource({"a": np.array([0, 1, 3])}),
        ArraySource({"a": np.arange(3).reshape(3, 1)}),
        ArraySource({"a": ragged([0], [1], [2])}),
        ArraySource({"a": ragged([0, 1], [], [2])}),
        Counter(3),
        Counter(4),
        Counter(3, "x"),
        Counter(),
    ]
    prints = {source.fingerprint for source in (one, *others)}
    assert len(prints) == 1 + len(others)
    assert all(len(each) == 16 for each in prints)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"a": np.arange(3), "b": np.arange(2)},
        {"a": np.array(1)},
        {"a": np.array([None])},
        {"a": Ragged(np.arange(3), np.array([1, 3]))},
        {"a": Ragged(np.arange(3), np.array([0, 4]))},
        {"a": Ragged(np.arange(3), np.array([0, 2, 1]))},
    ],
)
def test_columns_that_are_no_source(columns: Mapping[str, Any]) -> None:
    with pytest.raises(PipelineError) as caught:
        ArraySource(columns)
    assert caught.value.field in {"columns", "a"}


# Positions


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
        Map(TEN, dict),
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


# Options


def options(make: Callable[..., object], **more: object) -> Callable[[], object]:
    return lambda: make(**more)


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("n", lambda: Counter(-1)),
    ("n", lambda: Counter(2**63)),
    ("start", lambda: Range(TEN, start=11)),
    ("start", lambda: Range(TEN, start=-1)),
    ("stop", lambda: Range(TEN, stop=11)),
    ("stop", lambda: Range(TEN, start=5, stop=4)),
    ("of", lambda: Shard(TEN, of=0, index=0)),
    ("index", lambda: Shard(TEN, of=2, index=2)),
    ("index", lambda: Shard(TEN, of=2, index=-1)),
    ("mode", lambda: Shard(TEN, of=2, index=0, mode="odd")),
    ("mode", lambda: Shard(Counter(), of=2, index=0)),
    ("epochs", lambda: Permute(Counter(0), epochs=None)),
    ("epochs", lambda: Repeat(Counter(0), epochs=None)),
    ("epochs", lambda: Permute(TEN, epochs=-1)),
    ("epochs", lambda: Permute(Counter(), epochs=1)),
    ("epochs", lambda: Repeat(Counter())),
    ("epochs", lambda: Permute(Counter(2**48 + 1))),
    ("epochs", lambda: Permute(Counter(2**40), epochs=2**30)),
    ("seed", lambda: Permute(TEN, seed=-1)),
    ("seed", lambda: Permute(TEN, seed=2**63)),
    ("seed", lambda: Permute(TEN, seed=True)),
    ("seed", options(Permute, inner=TEN, seed=1.0)),
    ("seed", options(Permute, inner=TEN, seed=None)),
    ("size", lambda: BlockShuffle(TEN, size=0)),
    ("size", lambda: OverlapShuffle(TEN, size=-3)),
    ("size", lambda: ReservoirShuffle(TEN, size=2**20 + 1)),
    ("seed", lambda: BlockShuffle(TEN, size=1, seed=-1)),
    ("seed", lambda: OverlapShuffle(TEN, size=1, seed=-1)),
    ("seed", lambda: ReservoirShuffle(TEN, size=1, seed=2**63)),
    ("kind", lambda: ReservoirShuffle(ReservoirShuffle(TEN, size=2), size=2)),
    ("fn", lambda: named_map(TEN, "import os")),
    ("pred", lambda: named_filter(TEN, "maybe")),
    ("width", lambda: Window(TEN, width=11)),
    ("width", lambda: Window(TEN, width=11, partial="keep")),
    ("width", lambda: Window(Counter(0), width=1)),
    ("width", lambda: Window(TEN, width=0)),
    ("width", lambda: Window(WORDS, width=1)),
    ("stride", lambda: Window(TEN, width=1, stride=0)),
    ("partial", lambda: Window(TEN, width=1, partial="wrap")),
    ("inputs", lambda: Zip([])),
    ("inputs", lambda: Mix([TEN] * 65)),
    ("names", lambda: Zip([TEN, TEN])),
    ("names", lambda: Zip([TEN, TEN], names=["a", "a"])),
    ("names", lambda: Zip([TEN, TEN], names=["a"])),
    ("stop", lambda: Zip([TEN], stop="never")),
    ("stop", lambda: Zip([TEN, Counter(9)], names=["a", "b"], stop="strict")),
    ("inputs", lambda: Mix([TEN, WORDS])),
    ("weights", lambda: Mix([TEN, TEN], weights=[0, 0])),
    ("weights", lambda: Mix([TEN, TEN], weights=[1])),
    ("weights", lambda: Mix([TEN, TEN], weights=[2, -1])),
    ("weights", lambda: RandomMix([TEN, TEN], weights=[0, 0])),
    ("weights", lambda: Mix([TEN, TEN], weights=[65536, 1])),
    ("stop", lambda: Mix([TEN, Counter(0)], stop="cycle")),
    ("stop", lambda: RandomMix([TEN, Counter(0)], stop="cycle")),
    ("stop", lambda: RandomMix([ReservoirShuffle(TEN, size=2)], stop="cycle")),
    ("stop", lambda: Mix([TEN], stop="never")),
    ("seed", lambda: RandomMix([TEN], seed=-1)),
    ("order", lambda: mixed([TEN], order="best")),
    ("order", lambda: mixed([ReservoirShuffle(TEN, size=2)])),
    ("field", lambda: SelectMany(WORDS, field="id")),
    ("field", lambda: SelectMany(WORDS, field="none")),
    ("offsets", lambda: SelectManyIndexed(WORDS, field="words", offsets=np.array([0, 1]))),
    ("fn", lambda: Scan(TEN, fn="median", field="index")),
    ("field", lambda: Scan(TEN, fn="cumsum", field="none")),
    ("field", lambda: Scan(WORDS, fn="cumsum", field="words")),
    ("field", lambda: Scan(Scan(TEN, fn="diff", field="index"), fn="diff", field="index")),
    ("args", lambda: Scan(TEN, fn="ema", field="index")),
    ("args", lambda: Scan(TEN, fn="ema", field="index", args={"alpha": 0})),
    ("args", lambda: Scan(TEN, fn="cumsum", field="index", args={"alpha": 1})),
    ("read_ahead", lambda: BucketBatch(TEN, read_ahead=0, key="index", size=1)),
    ("read_ahead", lambda: BucketBatch(TEN, read_ahead=10**6 + 1, key="index", size=1)),
    ("size", lambda: BucketBatch(TEN, read_ahead=5, key="index")),
    ("size", lambda: BucketBatch(TEN, read_ahead=5, key="index", size=0)),
    ("budget", lambda: BucketBatch(TEN, read_ahead=5, key="index", budget=0)),
    ("key", lambda: BucketBatch(TEN, read_ahead=5, key="none", size=1)),
    ("key", lambda: BucketBatch(MIXED, read_ahead=5, key="f", size=1)),
    ("boundary", lambda: BucketBatch(TEN, read_ahead=5, key="index", size=1, boundary="none")),
    ("boundary", lambda: BucketBatch(WORDS, read_ahead=5, key="id", size=1, boundary="words")),
    ("seed", lambda: BucketBatch(TEN, read_ahead=5, key="index", size=1, seed=-1)),
]


@pytest.mark.parametrize(("field", "make"), REFUSED, ids=range(len(REFUSED)))
def test_options_that_cannot_be(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(PipelineError) as caught:
        make()
    assert caught.value.field == field
    assert caught.value.message


# Maps and filters


def test_maps_of_both_kinds() -> None:
    assert first(Map(TEN, lambda b: {"x": np.asarray(b["index"]) ** 2}), 4) == [0, 1, 4, 9]
    behind = mapped(ReservoirShuffle(TEN, size=1), lambda b: {"x": np.asarray(b["index"]) + 1})
    assert isinstance(behind, MapInOrder)
    assert sorted(first(behind, 10)) == list(range(1, 11))
    assert first(Map(Counter(0), dict), 3) == []


def test_numbers_of_a_random_map_depend_on_the_position_only() -> None:
    stage = RandomMap(TEN, lambda b, draws: {**b, "u": draws.uniform("a")}, seed=5)
    everything = drain(stage)
    assert at(stage, 3) == [3]
    assert rows(stage.at(np.array([7, 3, 3]))) == [everything[7], everything[3], everything[3]]
    other = drain(RandomMap(TEN, lambda b, draws: {**b, "u": draws.uniform("b")}, seed=5))
    assert all(a[1] != b[1] for a, b in zip(everything, other, strict=True))


def _fragile(block: Mapping[str, Any]) -> dict[str, Any]:
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
            Map(TEN, lie, schema).at(np.arange(3))


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
    monkeypatch.setattr("core.iterate.mapping._MOST_REFUSED", 1000)
    stage = Filter(Repeat(TEN), lambda b: np.asarray(b["index"]) < 0)
    with pytest.raises(TransformError, match="of an endless stage"):
        stage.take(stage.initial, 1)
    assert drain(Filter(Counter(5000), lambda b: np.asarray(b["index"]) < 0)) == []


def one(stage: Stage, name: str) -> list[Any]:
    reader = in_order(stage)
    return values(reader.take(reader.initial, 100)[0][name])


NAMED: list[tuple[str, dict[str, Any], str, list[Any]]] = [
    ("absolute", {"field": "i"}, "i", [1, 2, 3]),
    ("cast", {"field": "i", "dtype": "f4"}, "i", [1.0, -2.0, 3.0]),
    ("cast", {"field": "w", "dtype": "u1"}, "w", [[1], [2, 3], []]),
    ("clip", {"field": "i", "low": -1, "high": 2}, "i", [1, -1, 2]),
    ("clip", {"field": "f", "low": -1, "high": 1, "dtype": "i1"}, "f", [1, -1, -1]),
    ("flatten", {"field": "m"}, "m", np.arange(12).reshape(3, 4).tolist()),
    ("length", {"field": "w"}, "length", [1, 2, 0]),
    ("rename", {"field": "i", "to": "j"}, "j", [1, -2, 3]),
    ("scale", {"field": "i", "factor": 0.5, "offset": 1}, "i", [1.5, 0.0, 2.5]),
    ("select", {"fields": ["i"]}, "i", [1, -2, 3]),
    ("sqrt", {"field": "m"}, "m", np.sqrt(np.arange(12)).reshape(3, 2, 2).tolist()),
]


@pytest.mark.parametrize(("fn", "args", "field", "expected"), NAMED)
def test_named_transforms(fn: str, args: dict[str, Any], field: str, expected: list[Any]) -> None:
    stage = named_map(MIXED, fn, args)
    assert one(stage, field) == expected
    assert field in {each.name for each in stage.schema}


def test_every_transform_is_tested() -> None:
    assert {fn for fn, *_ in NAMED} == set(TRANSFORMS)
    assert set(RANDOM_TRANSFORMS) == {"flip", "jitter", "uniform"}


def test_named_random_transforms() -> None:
    numbers = one(named_map(MIXED, "uniform", {}, seed=1), "random")
    assert all(0 <= x < 1 for x in numbers)
    moved = np.array(one(named_map(MIXED, "jitter", {"field": "m", "amount": 2}, seed=1), "m"))
    shift = moved - np.arange(12).reshape(3, 2, 2)
    assert np.allclose(shift, shift[:, :1, :1])
    assert len(set(shift[:, 0, 0])) == 3
    flipped = one(named_map(MIXED, "flip", {"field": "m", "probability": 1}), "m")
    assert flipped == np.arange(12).reshape(3, 2, 2)[:, :, ::-1].tolist()
    kept = one(named_map(MIXED, "flip", {"field": "m", "axis": 0, "probability": 0}), "m")
    assert kept == np.arange(12).reshape(3, 2, 2).tolist()
    ragged_too = one(named_map(MIXED, "jitter", {"field": "w", "amount": 1}), "w")
    assert [len(item) for item in ragged_too] == [1, 2, 0]


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        ("scale", {"field": "none"}),
        ("scale", {"field": "i", "factor": "2"}),
        ("scale", {"field": "i", "factor": float("inf")}),
        ("scale", {"field": "i", "factor": 10**400}),
        ("scale", {"field": "i", "fctor": 2}),
        ("cast", {"field": "i"}),
        ("cast", {"field": "i", "dtype": "O"}),
        ("cast", {"field": "i", "dtype": "nonsense"}),
        ("cast", {"field": "f", "dtype": "i4"}),
        ("clip", {"field": "i", "low": 2, "high": 1}),
        ("clip", {"field": "i", "low": 0, "high": 300, "dtype": "u1"}),
        ("flatten", {"field": "i"}),
        ("length", {"field": "i"}),
        ("rename", {"field": "i", "to": "f"}),
        ("rename", {"field": "i", "to": ""}),
        ("select", {"fields": []}),
        ("select", {"fields": ["i", "i"]}),
        ("select", {"fields": ["none"]}),
        ("uniform", {"to": "i"}),
        ("flip", {"field": "i"}),
        ("flip", {"field": "m", "axis": 2}),
        ("flip", {"field": "m", "probability": 2}),
    ],
)
def test_arguments_that_do_not_fit(fn: str, args: dict[str, Any]) -> None:
    with pytest.raises(PipelineError) as caught:
        named_map(MIXED, fn, args)
    assert caught.value.field == "args"


@pytest.mark.parametrize(
    ("pred", "args", "expected"),
    [
        ("between", {"field": "i", "low": -2, "high": 3}, [1, -2]),
        ("equal", {"field": "i", "value": 3}, [3]),
        ("finite", {"field": "f"}, [1, -2]),
        ("greater", {"field": "i", "value": 1}, [3]),
        ("greater_equal", {"field": "i", "value": 1}, [1, 3]),
        ("length_between", {"field": "w", "low": 1, "high": 3}, [1, -2]),
        ("less", {"field": "f", "value": 0}, [-2]),
        ("less_equal", {"field": "f", "value": 1.5}, [1, -2]),
        ("not_equal", {"field": "i", "value": 3}, [1, -2]),
    ],
)
def test_named_predicates(pred: str, args: dict[str, Any], expected: list[int]) -> None:
    assert one(named_filter(MIXED, pred, args), "i") == expected
    assert pred in PREDICATES


# Flattening and windows


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


def test_windows() -> None:
    assert first(Window(TEN, width=4, stride=3), 9) == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    kept = Window(TEN, width=4, stride=3, partial="keep")
    assert first(kept, 9) == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9], [9]]
    assert kept.schema[0].ragged
    assert first(Window(TEN, width=1, stride=9), 9) == [[0], [9]]
    assert first(Window(Counter(), width=2, partial="keep"), 2) == [[0, 1], [1, 2]]
    assert at(Window(TEN, width=2, stride=4), 2, 0) == [[8, 9], [0, 1]]
    two = Window(Window(TEN, width=2), width=2)
    assert first(two, 1) == [[[0, 1], [1, 2]]]


# Several inputs


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


def test_quotas() -> None:
    a, b = Counter(6), Map(Counter(9), lambda block: {"index": np.asarray(block["index"]) + 100})
    assert first(Mix([a, b], weights=[1, 2]), 99) == [
        100,
        0,
        101,
        102,
        1,
        103,
        104,
        2,
        105,
        106,
        3,
        107,
        108,
        4,
    ]
    everything = first(Mix([a, b], weights=[10, 20], stop="all"), 99)
    assert everything[-1] == 5
    assert sorted(everything) == [*range(6), *range(100, 109)]
    cycle = Mix([a, b], stop="cycle")
    assert cycle.length is None
    assert first(cycle, 20)[::2] == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert first(Mix([a, b], weights=[1, 0]), 99) == list(range(6))
    assert first(Mix([Counter(0), a], stop="all"), 99) == list(range(6))
    assert Mix([Counter(), a], stop="all").length is None
    assert Mix([Counter(), a]).length == 13


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 7)), min_size=1, max_size=5))
def test_quotas_are_kept_and_nothing_is_lost(inputs: list[tuple[int, int]]) -> None:
    sources = [
        Map(Counter(n), lambda b, j=j: {"index": np.asarray(b["index"]) + 1000 * j})  # type: ignore[misc]
        for j, (n, _) in enumerate(inputs)
    ]
    weights = [weight for _, weight in inputs]
    everything = first(Mix(sources, weights=weights, stop="all"), 500)
    assert sorted(everything) == [1000 * j + i for j, (n, _) in enumerate(inputs) for i in range(n)]
    some = first(Mix(sources, weights=weights), 500)
    assert everything[: len(some)] == some
    for k in range(1, len(some) + 1):
        for j, weight in enumerate(weights):
            share = k * weight / sum(weights)
            assert abs(sum(x // 1000 == j for x in some[:k]) - share) < len(inputs)


def test_random_mixes() -> None:
    n = 4000
    sources = [
        Map(Counter(n), lambda b, j=j: {"index": np.asarray(b["index"]) + n * j})  # type: ignore[misc]
        for j in range(3)
    ]
    given_items = first(RandomMix(sources, weights=[1, 0, 3], seed=3), 2000)
    assert 400 < sum(x < n for x in given_items) < 600
    assert not any(n <= x < 2 * n for x in given_items)
    for j in range(3):
        mine = [x - n * j for x in given_items if x // n == j]
        assert mine == list(range(len(mine)))
    everything = first(RandomMix(sources, stop="all", seed=3), 3 * n + 9)
    assert sorted(everything) == list(range(3 * n))
    short = RandomMix([Counter(5), Counter(5)], seed=2)
    assert 5 <= len(drain(short)) <= 10
    assert len(first(RandomMix([Counter(2), Counter(3)], stop="cycle"), 50)) == 50


def test_draws_of_mixes_and_maps_are_frozen() -> None:
    stage = RandomMix([Counter(5), Counter(9)], weights=[2, 3], stop="all", seed=6)
    assert [x for (x,) in drain(stage)] == [0, 1, 0, 1, 2, 2, 3, 4, 5, 3, 4, 6, 7, 8]
    numbers = one(named_map(Counter(3), "uniform", {}, seed=7), "random")
    assert numbers == [0.8400755493449802, 0.10213281548623132, 0.42342756008846505]


# Running results


def test_running_results() -> None:
    x = np.array([3.0, -1.0, 4.0, 1.5])
    source = ArraySource({"x": x, "k": np.array([5, -7, 2, 2])})

    def run(fn: str, field: str, name: str, **args: float) -> list[Any]:
        return one(Scan(source, fn=fn, field=field, args=args), f"{field}.{name}")

    assert run("cumsum", "x", "cumsum") == np.cumsum(x).tolist()
    assert run("cumsum", "k", "cumsum") == [5, -2, 0, 2]
    assert run("diff", "k", "diff") == [0, -12, 9, 0]
    assert run("minmax", "x", "min") == [3, -1, -1, -1]
    assert run("minmax", "k", "max") == [5, 5, 5, 5]
    assert run("count", "k", "count") == [1, 2, 3, 4]
    assert run("ema", "x", "ema", alpha=0.5) == [3.0, 1.0, 2.5, 2.0]
    assert np.allclose(run("welford", "x", "mean"), [x[: k + 1].mean() for k in range(4)])
    assert np.allclose(run("welford", "x", "std"), [x[: k + 1].std() for k in range(4)])


@pytest.mark.parametrize("fn", sorted(SCANS))
def test_running_results_do_not_depend_on_cuts(fn: str) -> None:
    rng = np.random.default_rng(3)
    source = ArraySource({"x": rng.normal(size=200) * 1e3, "k": rng.integers(-(2**62), 2**62, 200)})
    args = {"alpha": 0.3} if fn == "ema" else {}
    for field in ("x", "k"):
        whole = drain(Scan(source, fn=fn, field=field, args=args), 300)
        for count in (1, 7, 64):
            assert drain(Scan(source, fn=fn, field=field, args=args), count) == whole


def test_an_accumulator_of_too_many_bits() -> None:
    stage = Scan(TEN, fn="cumsum", field="index")
    with pytest.raises(StateError):
        stage.take((2**32, 0, 1), 1)


# Buckets


def batches(stage: BucketBatch) -> list[list[tuple[Any, ...]]]:
    state, found = stage.initial, []
    while (step := stage.next_batch(state)) is not None:
        found.append(rows(step[0]))
        state = step[1]
    return found


def reference(
    keys: list[int], read_ahead: int, full: Callable[[list[int]], bool], kinds: list[int]
) -> list[list[int]]:
    """Read ahead, sort stably from the longest, cut greedily."""
    found = []
    for start in range(0, len(keys), read_ahead):
        window = list(range(start, min(start + read_ahead, len(keys))))
        window.sort(key=lambda i: -keys[i])
        batch: list[int] = []
        for i in window:
            if batch and (full([keys[j] for j in (*batch, i)]) or kinds[i] != kinds[batch[0]]):
                found.append(batch)
                batch = []
            batch.append(i)
        found.append(batch)
    return found


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=60),
    st.integers(1, 25),
    st.integers(1, 9),
    st.integers(1, 70),
    st.sampled_from([1, 1_000_003]),
)
def test_buckets_are_what_the_definition_gives(
    items: list[tuple[int, int]], read_ahead: int, size: int, budget: int, scale: int
) -> None:
    keys, kinds = [key * scale for key, _ in items], [kind for _, kind in items]
    source = ArraySource(
        {"k": np.array(keys, np.int64), "i": np.arange(len(keys)), "b": np.array(kinds, np.int8)}
    )
    budget *= scale
    limits: list[tuple[dict[str, Any], Callable[[list[int]], bool]]] = [
        ({"size": size}, lambda batch: len(batch) > size),
        ({"budget": budget}, lambda batch: max(batch) * len(batch) > budget),
        ({"budget": budget, "padded": False}, lambda batch: sum(batch) > budget),
        ({"size": size, "budget": budget}, lambda b: len(b) > size or max(b) * len(b) > budget),
    ]
    for options_, full in limits:
        for boundary in (None, "b"):
            compared = kinds if boundary else [0] * len(kinds)
            expected = reference(keys, read_ahead, full, compared)
            stage = BucketBatch(
                source, read_ahead=read_ahead, key="k", boundary=boundary, shuffle=False, **options_
            )
            assert [[row[1] for row in batch] for batch in batches(stage)] == expected
            shuffled = BucketBatch(
                source, read_ahead=read_ahead, key="k", boundary=boundary, seed=1, **options_
            )
            got = [[row[1] for row in batch] for batch in batches(shuffled)]
            assert sorted(got) == sorted(expected)


def test_buckets_by_length_and_their_frozen_order() -> None:
    lengths = [3, 1, 4, 1, 5, 9, 2, 6]
    source = ArraySource({"i": np.arange(8), "w": ragged(*([7] * n for n in lengths))})
    stage = BucketBatch(source, read_ahead=8, key="w", size=2, seed=4)
    got = [[row[0] for row in batch] for batch in batches(stage)]
    assert sorted(got) == [[0, 6], [1, 3], [4, 2], [5, 7]]
    assert got == [[5, 7], [4, 2], [1, 3], [0, 6]]


def test_keys_that_are_none() -> None:
    for bad in (-1, 2**40):
        source = ArraySource({"k": np.array([1, 2, bad, 3])})
        stage = BucketBatch(source, read_ahead=3, key="k", size=2)
        with pytest.raises(TransformError) as caught:
            stage.next_batch(stage.initial)
        assert caught.value.position == 2
    large = ArraySource({"k": np.array([1, 2**63 + 5], np.uint64)})
    stage = BucketBatch(large, read_ahead=3, key="k", size=2)
    with pytest.raises(TransformError) as caught:
        stage.next_batch(stage.initial)
    assert caught.value.position == 1


def test_batches_beyond_a_window() -> None:
    stage = BucketBatch(TEN, read_ahead=4, key="index", size=2)
    for state in ((2, 0), (1, 10), (0,), (0, 11), (-1, 0)):
        with pytest.raises(StateError):
            stage.next_batch(state)
    assert stage.next_batch((0, 10)) is None
    assert stage.next_window((0, 10)) is None
