"""Curves of the small Oasis run under period weights, row by row: the peer's and ours.

Its points of tied losses are in the order of the peer's unstable sort, so that the two tables
cannot be compared with each other. Both are compared with the same slow reference instead, which
is told how either side orders ties, rounds sums, and finds the periods that are not used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, Final, Literal

import numba  # noqa: TID251 - its sort is the peer's, and no code of ours
import numpy as np

from core.arrays import Floats
from core.losses.inputs import parse_occurrence, parse_periods
from tests import oracle, run_oracle
from tests.oasis_runs import RUN

MEAN: Final = -1
INPUTS: Final = RUN / "run" / "input"
Source = Literal["peer", "indexed", "summaries", "items"]
"""The peer's tables, and those it writes if its streams have indices; ours of the saved streams of
summaries, and of those of items."""


@cache
def _sort() -> Callable[[Any], Any]:
    return numba.njit(lambda losses: np.argsort(losses)[::-1])  # type: ignore[no-any-return]


def unstable(losses: Floats) -> Sequence[int]:
    """The peer's order: numba's quick sort of float32, from its end."""
    return _sort()(losses.astype(np.float32)).tolist()  # type: ignore[no-any-return]


@cache
def curves(name: str, source: Source) -> dict[str, Floats]:
    """Rows of ept and psept of a set such as ``gul_S1``, sorted as :func:`sorted_rows`.

    The peer had return periods for set 1 alone, and no index of the streams.
    """
    occurrence = parse_occurrence((INPUTS / "occurrence.bin").read_bytes())
    weights = parse_periods((INPUTS / "periods.bin").read_bytes()).weights
    returns: Sequence[int] = ()
    if name.endswith("_S1"):
        returns = np.fromfile(INPUTS / "returnperiods.bin", "<i4").tolist()
    run = run_oracle.Run(10, occurrence.periods, weights, returns)
    if source in {"peer", "indexed"}:
        run.single, run.order, run.shares_unused = True, unstable, source == "peer"
    periods = defaultdict(list)
    for event, period in zip(occurrence.event_ids, occurrence.period_numbers, strict=True):
        periods[int(event)].append(int(period))
    for part in (1, 2):
        if source == "items":
            for (event, summary), pairs in _summed(name, part).items():
                run.take(summary, pairs.items(), periods[event])
        else:
            path = RUN / "streams" / "work" / f"{name}_summary" / f"P{part}.bin"
            for block in oracle.parse(path.read_bytes(), 4).blocks:
                run.take(block.ident, block.pairs, periods[block.event])
    ept, psept = run_oracle.exceedance(run)
    return {
        "ept": sorted_rows(np.array(ept, np.float64)),
        "psept": sorted_rows(np.array(psept, np.float64)),
    }


def _summed(name: str, part: int) -> dict[tuple[int, int], dict[int, float]]:
    """Sums of the items of a process by event and summary, then by sample.

    They are exact, and rounded once to the width of the streams, which leave out samples of zero,
    and events without a loss.
    """
    perspective, _, number = name.partition("_S")
    path = {"ri_IP1": "RI_1/fm", "ri": "RI_2/fm", "il": "fm", "gul": "gul"}[perspective]
    xref = np.fromfile(INPUTS / f"{path}summaryxref.bin", "<i4").reshape(-1, 3)
    summaries = {item: summary for item, summary, n in xref.tolist() if n == int(number)}
    octets = (RUN / "streams" / f"{perspective}_P{part}.bin").read_bytes()
    sums: dict[tuple[int, int], dict[int, Fraction]] = {}
    for block in oracle.parse(octets, 4).blocks:
        losses = sums.setdefault((block.event, summaries[block.ident]), {})
        for sidx, loss in block.pairs:
            losses[sidx] = losses.get(sidx, Fraction(0)) + Fraction(loss)
    return {
        key: {
            sidx: float(np.float32(run_oracle.nearest(x)))
            for sidx, x in losses.items()
            if x or sidx == MEAN
        }
        for key, losses in sums.items()
        if any(losses.values())
    }


def sorted_rows(rows: Floats) -> Floats:
    """Rows by summary, curve and kind; the points of a curve stay in their order."""
    return rows[np.lexsort(rows[:, 2::-1].T)]


def assert_curves(actual: Floats, name: str, report: str, source: Source) -> None:
    """Every point is there, and no other, with its return period and loss."""
    expected = curves(name, source)[report]
    actual = sorted_rows(actual)
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual[:, :3], expected[:, :3])
    np.testing.assert_allclose(actual[:, 3:], expected[:, 3:], 2e-6, 2e-5)
