"""Bands: of what they are, where they end, and what they say of samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError
from core.portfolio.combining import Subject
from core.portfolio.uncertainty import NONE, ORDERED, RESAMPLED, Doubt, bands
from tests.portfolios import SetCase, random_set

SEEDS = st.integers(0, 2**32 - 1)


def yearly(losses: np.ndarray) -> SetCase:
    """A set with an event of its own in each period; shape (periods, samples)."""
    periods, samples = losses.shape
    rows = {
        (p + 1, 1, s + 1): float(losses[p, s])
        for p in range(periods)
        for s in range(samples)
        if losses[p, s] > 0
    }
    happening = tuple((p, 0, p) for p in range(1, periods + 1))
    return SetCase(samples, rows, periods, happening, width=8)


def rows_of(case: SetCase, doubt: Doubt) -> np.ndarray:
    (rows,) = bands(Subject([case.member()], 1), doubt)
    return rows


def test_bands_hold_their_estimates_and_widen_with_the_return_period() -> None:
    rng = np.random.default_rng(1)
    rows = rows_of(yearly(rng.exponential(1.0, (200, 1))), Doubt((4, 10, 20), replicates=200))
    assert (rows["Method"] == RESAMPLED).all()
    assert (rows["Low"] <= rows["Loss"]).all()
    assert (rows["Loss"] <= rows["High"]).all()
    tvar = rows[rows["EPType"] == 4]
    assert list(tvar["ReturnPeriod"]) == [20, 10, 4]
    assert (np.diff(tvar["High"] - tvar["Low"]) < 0).all()
    # One sample tells nothing of its noise.
    assert np.isnan(rows["SampleError"]).all()
    assert np.isnan(rows["SamplesNeeded"]).all()
    assert (rows["Confidence"] == 0.95).all()


def test_estimates_and_their_standard_errors_are_the_definitions() -> None:
    rng = np.random.default_rng(2)
    losses = rng.lognormal(0, 1, (100, 4))
    rows = rows_of(yearly(losses), Doubt((5,), replicates=100))
    assert rows["Loss"][0] == pytest.approx(losses.mean())
    ordered = np.sort(losses.ravel())[::-1]
    for kind in (1, 3):
        level, tail = rows["Loss"][[kind, kind + 1]]
        assert level == ordered[79]
        assert tail == pytest.approx(ordered[:80].mean())
    leave = [np.delete(losses, s, axis=1).mean() for s in range(4)]
    error = math.sqrt(3 * np.var(leave))
    assert rows["SampleError"][0] == pytest.approx(error)
    needed = 4 * (1.959964 * error / (0.05 * losses.mean())) ** 2
    assert rows["SamplesNeeded"][0] == math.ceil(needed)


def test_far_return_periods_have_order_statistics_or_nothing() -> None:
    losses = np.arange(1.0, 101.0)[:, None]
    with pytest.raises(InputError, match="beyond 100 periods"):
        rows_of(yearly(losses), Doubt((101,)))
    rows = rows_of(yearly(losses), Doubt((100, 50, 20), replicates=100))
    level = {int(r["ReturnPeriod"]): r for r in rows if r["EPType"] == 3}
    tail = rows[rows["EPType"] == 4]
    assert (tail["Method"] == NONE).all()
    assert np.isnan(tail["High"]).all()
    assert all(row["Method"] == ORDERED for row in level.values())

    def beyond(rank: int, share: float) -> float:
        """Probability of fewer than so many of 100."""
        return sum(math.comb(100, k) * share**k * (1 - share) ** (100 - k) for k in range(rank))

    for years, row in level.items():
        ranks = [r for r in range(1, 100) if beyond(r, 1 / years) <= 0.025]
        lowest = next(r for r in range(1, 100) if beyond(r, 1 / years) >= 0.975)
        assert row["Low"] == 101 - lowest
        missed = beyond(max(ranks), 1 / years) if ranks else 0.0
        assert row["Confidence"] == pytest.approx(beyond(lowest, 1 / years) - missed)
        assert row["Confidence"] >= 0.95
        if ranks:
            assert row["High"] == 101 - max(ranks)
        else:
            assert np.isnan(row["High"])
    assert np.isnan(tail["Confidence"]).all()
    assert not np.isnan(level[20]["High"])
    assert np.isnan(level[50]["High"])


def test_equal_losses_have_a_band_of_no_width() -> None:
    rows = rows_of(yearly(np.full((100, 2), 3.0)), Doubt((5,), replicates=100))
    np.testing.assert_allclose(rows["Low"], 3.0)
    np.testing.assert_allclose(rows["High"], 3.0)


@given(SEEDS)
def test_bands_depend_on_the_seed_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_set(rng, samples=8)
    subject = Subject([case.member()], len(case.summaries))
    doubt = Doubt((3, 1), replicates=100, seed=seed)

    def backwards(function: Any, elements: Any) -> Any:  # noqa: ANN401 - as any map
        tasks = list(elements)
        return iter([function(task) for task in reversed(tasks)][::-1])

    first, second = (
        np.concatenate(list(bands(subject, doubt, apply))).tobytes() for apply in (map, backwards)
    )
    assert first == second
