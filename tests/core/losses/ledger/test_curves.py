from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from core.losses._kernels import curves
from core.losses._kernels.quantiles import STACK
from core.losses._kernels.spreading import BUCKETS, SPREADING, spread
from core.losses._kernels.tails import EXPONENTS
from tests.scale import PURE_PYTHON

SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "heavy-tailed": lambda rng, n: rng.lognormal(10, 2, n),
    "equal": lambda _rng, n: np.full(n, 3.5),
    "two": lambda rng, n: rng.choice([1.0, 1e9], n),
    "one above": lambda _rng, n: np.append(np.ones(n - 1), 1e300),
    "neighbours": lambda rng, n: 1.0 + rng.integers(0, 9, n) * 2.0**-52,
    "all exponents": lambda rng, n: np.ldexp(1.0 + rng.random(n), rng.integers(-1022, 1023, n)),
    "infinite": lambda rng, n: rng.choice([1.0, 2.0, np.inf], n),
    "rising": lambda _rng, n: np.arange(1.0, n + 1),
}
SIZES = (1, 2, 99, 100, 101, 700) if PURE_PYTHON else (1, 2, 99, 100, 101, 700, 4095, 4096, 20_000)


@pytest.mark.parametrize("shape", SHAPES)
def test_losses_are_spread_alike_in_slices_of_any_size(shape: str) -> None:
    rng = np.random.default_rng(4)
    for n in SIZES:
        given = SHAPES[shape](rng, n)
        made = []
        for most in (n, 7, 1000):
            values, counts = given.copy(), np.zeros(BUCKETS, np.int64)
            progress, spare = np.zeros(SPREADING, np.int64), np.empty(n)
            while spread(values, values.view(np.int64), counts, spare, progress, most):
                pass
            made.append((spare.tobytes(), counts.tobytes()))
        assert len(set(made)) == 1
        np.testing.assert_array_equal(np.sort(spare), np.sort(given))
        assert np.array_equal(values, given)


@pytest.mark.parametrize("shape", SHAPES)
def test_levels_are_those_of_sorted_curves(shape: str) -> None:
    rng = np.random.default_rng(3)
    every = [SHAPES[shape](rng, n) for n in SIZES]
    starts = np.cumsum([0, *map(len, every)])
    values = np.concatenate(every)
    first = np.array([0, 0, 1, 2, 2, 7, 40, 99, 100, 101, 650, 2048, 5000, 30_000])
    found = np.empty((len(every), 3, len(first)))
    spare = np.empty(max(SIZES))
    with np.errstate(over="ignore", invalid="ignore"):
        curves.find_levels(
            values,
            values.view(np.int64),
            starts,
            first,
            np.zeros(2 * len(first), np.int64),
            np.zeros(BUCKETS, np.int64),
            spare,
            spare.view(np.int64),
            np.zeros(4 * STACK, np.int64),
            np.zeros(SPREADING, np.int64),
            False,
            np.zeros((2, EXPONENTS), np.int64),
            found,
        )
    for losses, levels in zip(every, found, strict=True):
        n = len(losses)
        falling = np.sort(losses)[::-1]
        for k, i in enumerate(first):
            assert levels[curves.LEVEL, k] == (falling[i - 1] if 0 < i <= n else 0.0)
            assert levels[curves.BEFORE, k] == (falling[i - 2] if 1 < i <= n + 1 else 0.0)
            if shape != "all exponents":
                above = falling[: max(i - 1, 0)].sum()
                np.testing.assert_allclose(levels[curves.TOTAL, k], above, rtol=1e-12)
