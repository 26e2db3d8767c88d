"""The warm-up of random numbers and iteration: uses every kernel once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..rng import SMALL, Permutation, below, bits, derive, uniform
from .base import Stage
from .batching import BucketBatch
from .inorder import in_order
from .positions import Permute
from .recurrent import Scan
from .shuffle import BlockShuffle, ReservoirShuffle
from .sources import CounterSource

_FEW = 8
_SCANS: Mapping[str, Mapping[str, float]] = {"welford": {}, "ema": {"alpha": 0.5}}


def use_kernels() -> None:
    """Draw, permute, shuffle, sort and accumulate a few numbers."""
    key = derive(0)
    indices = np.arange(_FEW, dtype=np.uint64)
    bits(key, indices)
    uniform(key, indices)
    below(key, indices, _FEW)
    for n in (_FEW, SMALL + 1):
        order = Permutation(n, key)
        order.inverse(order.at(np.arange(_FEW)))
    few, many = CounterSource(_FEW), CounterSource(SMALL + 1)
    stages: list[Stage] = [Permute(few), Permute(many), BlockShuffle(few, size=2)]
    stages.append(ReservoirShuffle(few, size=2))
    stages += [Scan(few, fn=fn, field="index", args=args) for fn, args in _SCANS.items()]
    for stage in stages:
        reader = in_order(stage)
        reader.take(reader.initial, _FEW)
    buckets = BucketBatch(few, read_ahead=_FEW, key="index", size=2)
    buckets.next_batch(buckets.initial)
