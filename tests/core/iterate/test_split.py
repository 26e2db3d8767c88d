"""Splits: deterministic, of the share asked for, and nobody moves when data grows."""

from __future__ import annotations

import numpy as np
import pytest

from core.errors import PipelineError, PositionError
from core.iterate.base import Indexed, Ragged
from core.iterate.positions import Permute
from core.iterate.sources import ArraySource, CounterSource
from core.iterate.split import KeySplit, Part, Split

PARTS: tuple[Part, Part] = ("train", "validation")


def everything(stage: Indexed, name: str = "index") -> list[int]:
    assert stage.length is not None
    column = stage.at(np.arange(stage.length))[name]
    assert not isinstance(column, Ragged)
    return [int(each) for each in column]


@pytest.mark.parametrize(
    "n", [0, 1, 10, 1023, 1024, 1025, 5000, pytest.param(140_000, marks=pytest.mark.once)]
)
def test_every_item_is_on_one_side(n: int) -> None:
    sides = [everything(Split(CounterSource(n), fraction=0.3, part=part)) for part in PARTS]
    assert all(side == sorted(side) for side in sides)
    assert sorted(sides[0] + sides[1]) == list(range(n))


def test_nobody_moves_when_data_grows() -> None:
    for part in PARTS:
        large = everything(Split(CounterSource(9000), fraction=0.2, part=part, seed=4))
        for n in (10, 1000, 4097, 8999):
            small = everything(Split(CounterSource(n), fraction=0.2, part=part, seed=4))
            assert small == [each for each in large if each < n]


def test_a_larger_fraction_only_adds_to_the_validation() -> None:
    sides = [
        set(everything(Split(CounterSource(3000), fraction=fraction, part="validation")))
        for fraction in (0.1, 0.2, 0.5)
    ]
    assert sides[0] < sides[1] < sides[2]


@pytest.mark.once
@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5, 0.9])
def test_the_share_is_what_was_asked_for(fraction: float) -> None:
    n = 100_000
    counts = [Split(CounterSource(n), fraction=fraction, part="validation", seed=s).length
              for s in range(5)]  # fmt: skip
    sigma = (n * fraction * (1 - fraction)) ** 0.5
    for count in counts:
        assert count is not None
        assert abs(count - n * fraction) < 5 * sigma
    assert len(set(counts)) > 1


def test_random_access_and_any_order() -> None:
    split = Split(CounterSource(5000), fraction=0.3, part="train", seed=9)
    whole = everything(split)
    positions = np.random.default_rng(1).integers(0, len(whole), 300)
    assert split.at(positions)["index"].tolist() == [whole[k] for k in positions]  # type: ignore[union-attr]
    assert sorted(everything(Permute(split, seed=1))) == whole
    assert len(split.at(np.empty(0, np.int64))["index"]) == 0
    with pytest.raises(PositionError):
        split.at(np.array([len(whole)]))


def test_the_split_is_frozen() -> None:
    split = Split(CounterSource(60), fraction=0.2, part="validation", seed=7)
    assert everything(split) == FROZEN_POSITIONS
    source = ArraySource({"k": np.arange(40, dtype="<i4"), "index": np.arange(40)})
    by_key = KeySplit(source, "k", fraction=0.2, part="validation", seed=7)
    assert everything(by_key) == FROZEN_KEYS


FROZEN_POSITIONS = [0, 1, 17, 20, 25, 26, 28, 33, 34, 39, 43, 47, 49, 57, 59]
FROZEN_KEYS = [6, 8, 11, 19, 21, 24, 28, 33, 34, 38, 39]


def keyed(n: int, kind: str) -> ArraySource:
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 40, 3000)[:n]
    match kind:
        case "numbers":
            return ArraySource({"key": keys, "index": np.arange(n)})
        case "big":
            return ArraySource({"key": keys.astype(">i8"), "index": np.arange(n)})
        case "rows":
            rows = np.stack([keys, keys % 3], axis=1)
            return ArraySource({"key": rows, "index": np.arange(n)})
    lengths = keys % 5 + 1
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    column = Ragged(np.repeat(keys, lengths), offsets)
    return ArraySource({"key": column, "index": np.arange(n)})


@pytest.mark.parametrize("kind", ["numbers", "rows", "ragged"])
def test_equal_keys_are_together_and_stay(kind: str) -> None:
    keys = np.random.default_rng(3).integers(0, 40, 3000)
    sides = [everything(KeySplit(keyed(3000, kind), "key", fraction=0.4, part=p)) for p in PARTS]
    assert sorted(sides[0] + sides[1]) == list(range(3000))
    assert not {keys[k] for k in sides[0]} & {keys[k] for k in sides[1]}
    assert sides[0]
    assert sides[1]
    fewer = [everything(KeySplit(keyed(1500, kind), "key", fraction=0.4, part=p)) for p in PARTS]
    assert fewer == [[k for k in side if k < 1500] for side in sides]


def test_the_byte_order_of_keys_is_no_matter() -> None:
    for part in PARTS:
        little, big = (
            everything(KeySplit(keyed(500, kind), "key", fraction=0.4, part=part))
            for kind in ("numbers", "big")
        )
        assert little == big


def test_what_cannot_be_split() -> None:
    source = CounterSource(9)
    for fraction in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(PipelineError) as caught:
            Split(source, fraction=fraction, part="train")
        assert caught.value.field == "fraction"
    with pytest.raises(PipelineError):
        Split(source, fraction=0.5, part="test")  # type: ignore[arg-type]
    with pytest.raises(PipelineError):
        Split(source, fraction=0.5, part="train", seed=-1)
    with pytest.raises(PipelineError):
        KeySplit(source, "nothing", fraction=0.5, part="train")
    for endless in (CounterSource(None), CounterSource((1 << 28) + 1)):
        with pytest.raises(PipelineError):
            Split(endless, fraction=0.5, part="train")
