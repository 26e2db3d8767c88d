"""Options of every stage that are refused, with the field they name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from core.errors import PipelineError
from core.iterate.batching import BucketBatch
from core.iterate.combine import Zip
from core.iterate.mapping import named_filter, named_map
from core.iterate.mixing import Mix, RandomMix, mixed
from core.iterate.positions import Permute, Range, Repeat, Shard, Window
from core.iterate.recurrent import Scan
from core.iterate.selecting import SelectMany, SelectManyIndexed
from core.iterate.shuffle import BlockShuffle, OverlapShuffle, ReservoirShuffle
from tests.core.iterate.items import MIXED, TEN, WORDS, Counter


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
