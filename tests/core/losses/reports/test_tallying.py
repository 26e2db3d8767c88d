"""Losses found by tallies against those of sorted curves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from core.losses._kernels.cells import Cells
from core.losses._kernels.curves import TOTAL
from core.losses._kernels.tallies import CELLS
from core.losses.reports.tallying import _MOST_BUCKETS, Repeated, Tally, Wanted
from tests.core.losses.ledger.test_curves import SHAPES
from tests.scale import PURE_PYTHON

SAMPLES = 3
FIRST = np.array([0, 1, 1, 2, 5, 17, 60, 399, 400, 900, 10_000])


def wanted(losses: np.ndarray, first: int) -> tuple[float, float, float]:
    """Loss i, loss i - 1, and the exact sum of those before i."""
    falling = np.append(np.sort(losses)[::-1], [0.0, 0.0])
    n = len(losses)
    level = falling[first - 1] if 0 < first <= n else 0.0
    before = falling[first - 2] if 1 < first <= n + 1 else 0.0
    try:
        return level, before, math.fsum(falling[: min(max(first - 1, 0), n)])
    except OverflowError:
        return level, before, np.inf


@pytest.mark.parametrize("size", [1, 40] if PURE_PYTHON else [1, 40, 3000])
@pytest.mark.parametrize("shape", SHAPES)
def test_losses_at_ranks_are_those_of_sorted_curves(shape: str, size: int) -> None:
    rng = np.random.default_rng(size)
    there = rng.random((size, SAMPLES + 1)) < 0.7
    there[0, 1:3] = True
    there[:, SAMPLES] = False
    counts, samples = there.sum(1), there.nonzero()[1].astype(np.int32)
    sums = SHAPES[shape](rng, len(samples))
    # Where losses are below 0, a sum may be 0.
    sums[rng.random(len(sums)) < 0.1] = 0.0
    alone = size // 2
    largest = sums.copy()
    largest[counts[:alone].sum() :] *= rng.choice([0.25, 1.0])
    nothing = np.zeros(size, np.int32)
    # Those of groups that are alone are not there.
    given = largest.copy()
    given[: counts[:alone].sum()] = np.nan
    # Room for cells may be more than there are.
    room = [np.append(column, column.dtype.type(-1)) for column in (samples, sums, given)]
    room[1][-1] = np.nan
    cells = Cells(nothing, nothing, np.append(0, counts.cumsum()), *room)
    times = rng.integers(1, 4, size)
    tally = Tally(cells, Repeated(times, alone), SAMPLES)
    # What is not there makes no bucket wider, either.
    whole = Tally(cells._replace(largest=largest), Repeated(times, alone), SAMPLES)
    np.testing.assert_equal(tally._buckets, whole._buckets)
    with np.errstate(over="ignore", invalid="ignore"):
        found_of = tally.read([Wanted(of, FIRST, FIRST) for of in (cells.sums, cells.largest)])
        for losses, (full, each, labels) in zip((sums, largest), found_of, strict=True):
            assert labels.tolist() == np.unique(samples[samples > 0]).tolist()
            assert len(full) == 1
            repeated = np.repeat(losses, np.repeat(times, counts))
            of = np.repeat(samples, np.repeat(times, counts))
            curves = [(of > 0, full[0]), *((of == s, each[k]) for k, s in enumerate(labels))]
            for chosen, found in curves:
                positive = repeated[chosen & (repeated > 0)]
                expected = np.array([wanted(positive, int(first)) for first in FIRST]).T
                np.testing.assert_array_equal(found[:TOTAL], expected[:TOTAL])
                np.testing.assert_allclose(found[TOTAL], expected[TOTAL], rtol=3e-16)


def test_buckets_have_about_equally_many_losses() -> None:
    count, samples = 6000, 2
    losses = np.random.default_rng(1).lognormal(10, 2, count)
    labels = np.tile(np.array([1, 2], np.int32), count // 2)
    periods = np.arange(count // 2, dtype=np.int32)
    starts = np.append(0, 2 * (periods + 1)).astype(np.int64)
    cells = Cells(0 * periods, periods, starts, labels, losses, losses)
    tally = Tally(cells, Repeated(np.ones(count // 2, np.int64), len(periods)), samples)
    counts = tally._alone[..., CELLS].sum(0)
    assert counts.sum() == count
    # More would be read for each return period.
    assert counts.max() < count / 60
    # A bucket is of one exponent.
    assert len(counts) <= _MOST_BUCKETS + len(np.unique(np.frexp(losses)[1]))
