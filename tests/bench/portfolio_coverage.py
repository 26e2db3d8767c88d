"""How often bands of 95 % hold the truth, on distributions of which it is known.

    python -m tests.bench.portfolio_coverage [TRIALS]

Every trial draws a loss set of 500 periods, with an event or none in each, and asks for bands. The
truth is that of 10 million periods. Of a "mixed" model a period has a hazard and samples about it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from core.losses._kernels.cells import Cells
from core.portfolio.losses import Calendar, Occurrences
from core.portfolio.uncertainty import Doubt, bands_of

PERIODS = 500
RETURNS = (40, 20, 10, 5, 2)
TRUTH = 10_000_000
Draw = Callable[[np.random.Generator, int, int], np.ndarray]
"""Losses of periods and samples."""


def _mixed(rng: np.random.Generator, periods: int, samples: int) -> np.ndarray:
    hazard = rng.lognormal(0, 0.8, (periods, 1)) * (rng.random((periods, 1)) < 0.7)
    return hazard * rng.gamma(4, 0.25, (periods, samples))


MODELS: dict[str, tuple[Draw, int]] = {
    "exponential": (lambda rng, p, s: rng.exponential(1, (p, s)), 1),
    "gamma 0.5": (lambda rng, p, s: rng.gamma(0.5, 1, (p, s)), 1),
    "lognormal 0.5": (lambda rng, p, s: rng.lognormal(0, 0.5, (p, s)), 1),
    "lognormal 1": (lambda rng, p, s: rng.lognormal(0, 1, (p, s)), 1),
    "Pareto 4": (lambda rng, p, s: 1 + rng.pareto(4, (p, s)), 1),
    "mixed": (_mixed, 10),
}


def _truth(draw: Draw, samples: int) -> dict[tuple[int, int], float]:
    rng = np.random.default_rng(0)
    losses = np.concatenate([draw(rng, TRUTH // 10, samples)[:, 0] for _ in range(10)])
    losses.sort()
    known = {(0, 0): float(losses.mean())}
    for years in RETURNS:
        tail = losses[len(losses) - TRUTH // years :]
        known[3, years], known[4, years] = float(tail[0]), float(tail.mean())
    return known


def _cells(losses: np.ndarray) -> Cells:
    periods, samples = losses.shape
    kept = losses.ravel() > 0
    counts = (losses > 0).sum(1)
    busy = np.flatnonzero(counts)
    of_samples = np.tile(np.arange(1, samples + 1, dtype=np.int32), periods)[kept]
    values = losses.ravel()[kept]
    starts = np.append(0, np.cumsum(counts[busy]))
    numbers = (busy + 1).astype(np.int32)
    return Cells(np.zeros_like(numbers), numbers, starts, of_samples, values, values)


def coverage(name: str, trials: int) -> dict[tuple[int, int], float]:
    """Share of trials whose band holds the truth, by EPType and return period."""
    draw, samples = MODELS[name]
    known = _truth(draw, samples)
    nothing = np.zeros(0, np.int32)
    calendar = Calendar(PERIODS, Occurrences(nothing, nothing, np.zeros(0, np.int64)), np.zeros(0))
    hits = dict.fromkeys(known, 0)
    for trial in range(trials):
        losses = draw(np.random.default_rng(1 + trial), PERIODS, samples)
        doubt = Doubt(RETURNS, seed=trial)
        rows: np.ndarray = bands_of(_cells(losses), calendar, samples, doubt)
        for row in rows:
            key = int(row["EPType"]), int(row["ReturnPeriod"])
            if key in hits:
                hits[key] += bool(row["Low"] <= known[key] <= row["High"])
    return {key: count / trials for key, count in hits.items()}


def main(trials: int) -> None:
    """Print a line for each distribution."""
    names = {0: "AAL", 3: "AEP", 4: "TVaR"}
    for name in MODELS:
        found = coverage(name, trials)
        shares = (
            f"{names[kind]}{years or ''} {share:.1%}" for (kind, years), share in found.items()
        )
        print(f"{name:14}", "  ".join(shares), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 2000)
