"""Contributions against the oracle, and what they sum to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError, OptionError
from core.losses.inputs import ReturnPeriods
from core.losses.reports.report import RunOptions
from core.portfolio.combining import Subject
from core.portfolio.contributions import Aim, Kind, contribute
from core.portfolio.curves import Question, roll_up
from tests import portfolio_oracle as oracle
from tests.portfolios import SetCase, random_set

SEEDS = st.integers(0, 2**32 - 1)
KINDS = st.sampled_from(["oep", "aep"])


def masses(case: SetCase, *, mean: bool = False) -> dict[tuple[int, int], float]:
    weights = case.weights or [1 / case.periods] * case.periods
    samples = [0] if mean else range(1, case.samples + 1)
    return {
        (p, s): weights[p - 1] / len(samples) for p in range(1, case.periods + 1) for s in samples
    }


@given(SEEDS, KINDS, st.booleans(), st.sampled_from([0.0, 0.3]))
def test_parts_equal_the_oracle(seed: int, kind: Kind, mean: bool, band: float) -> None:
    rng = np.random.default_rng(seed)
    case = random_set(rng)
    groups = {s: int(rng.integers(0, 2)) for s in (1, 2, 5)}
    subject = Subject([case.member(groups)], 2)
    whole = subject.whole().occurrence_losses()
    # Not a multiple of what cells have, so that no rounding decides which cell is the last.
    years = int(rng.choice([1, 3, 7, 13]))
    if years > len(masses(case, mean=mean)):
        years = 1
    found = contribute(subject, whole, Aim((years,), kind, mean, band)).rows
    losses = oracle.by_occurrence([oracle.Set(case.losses, case.occurrences, groups)])
    largest = kind == "oep"
    wanted = oracle.contributions(
        losses, masses(case, mean=mean), 1 / years, largest=largest, band=band
    )
    first, last = found[:2], found[2:]
    np.testing.assert_allclose(first["Whole"], wanted[0], rtol=1e-6)
    np.testing.assert_allclose(last["Whole"], wanted[1], rtol=1e-6)
    for rows, parts in ((first, wanted[2]), (last, wanted[3])):
        scale = 1e-6 * max(parts.values(), default=0.0)
        np.testing.assert_allclose(rows["Loss"], [parts.get(g, 0) for g in (0, 1)], 1e-6, scale)


@given(SEEDS, KINDS)
def test_parts_sum_to_the_points_of_ept(seed: int, kind: Kind) -> None:
    case = random_set(np.random.default_rng(seed))
    subject = Subject([case.member()], len(case.summaries))
    whole = subject.whole()
    returns = tuple(r for r in (50, 7, 5, 2, 1) if r <= case.periods * case.samples)
    found = contribute(subject, whole.occurrence_losses(), Aim(returns, kind)).rows
    question = Question(
        ("ept",),
        ReturnPeriods(np.array(returns, np.int32)),
        RunOptions(curves="F" if kind == "aep" else "f", tvar="weight"),
    )
    ((_, points),) = roll_up(whole, question)
    points = points[points["EPCalc"] == 2]
    for point in points:
        rows = found[
            (found["EPType"] == point["EPType"]) & (found["ReturnPeriod"] == point["ReturnPeriod"])
        ]
        assert rows["Loss"].sum() == pytest.approx(rows["Whole"][0], rel=1e-9)
        if point["EPType"] in {2, 4}:
            assert rows["Whole"][0] == pytest.approx(point["Loss"], rel=1e-9)
        elif case.weights is None:
            # With weights, rounding of their sum decides which cell is at the boundary.
            assert rows["Whole"][0] <= point["Loss"] * (1 + 1e-12)


@given(SEEDS, KINDS)
def test_what_is_kept_is_shared_as_the_losses_of_an_occurrence(seed: int, kind: Kind) -> None:
    rng = np.random.default_rng(seed)
    case = random_set(rng, samples=8)
    subject = Subject([case.member()], len(case.summaries))
    whole = subject.whole().occurrence_losses()
    gross = contribute(subject, whole, Aim((3, 1), kind)).rows
    half = contribute(subject, whole, Aim((3, 1), kind), whole.losses / 2).rows
    np.testing.assert_allclose(half["Loss"], gross["Loss"] / 2, rtol=1e-9)
    net = np.minimum(whole.losses, 100.0)
    capped = contribute(subject, whole, Aim((3, 1), kind), net).rows
    for of in (capped["EPType"] % 2 == 0, capped["EPType"] % 2 == 1):
        for years in (3, 1):
            rows = capped[of & (capped["ReturnPeriod"] == years)]
            assert rows["Loss"].sum() == pytest.approx(rows["Whole"][0], rel=1e-9)


@given(SEEDS, KINDS)
def test_leave_one_out_is_the_whole_minus_the_others(seed: int, kind: Kind) -> None:
    rng = np.random.default_rng(seed)
    case = random_set(rng, samples=8)
    subject = Subject([case.member({1: 0, 2: 1, 5: 1})], 2)
    aim = Aim((3, 1), kind, leave_one_out=True)
    found = contribute(subject, subject.whole().occurrence_losses(), aim).rows
    for group in (0, 1):
        rest = {s: -1 if (s == 1) == (group == 0) else 0 for s in (1, 2, 5)}
        losses = oracle.by_occurrence([oracle.Set(case.losses, case.occurrences, rest)])
        for years in (3, 1):
            wanted = oracle.contributions(losses, masses(case), 1 / years, largest=kind == "oep")
            rows = found[(found["SummaryId"] == group + 1) & (found["ReturnPeriod"] == years)]
            np.testing.assert_allclose(
                rows["Whole"] - rows["LeaveOneOut"], wanted[:2], 1e-6, 1e-9 * rows["Whole"].max()
            )


def test_keys_tell_the_events_and_periods_of_a_tail() -> None:
    losses = {(e, 1, 1): float(10**e) for e in (1, 2, 3)}
    case = SetCase(1, losses, 10, ((1, 0, 3), (2, 0, 1), (2, 0, 2), (4, 0, 2)))
    subject = Subject([case.member()], 1)
    keys = contribute(subject, subject.whole().occurrence_losses(), Aim((5,))).keys
    assert [(k["Catalogue"], k["Id"], k["Loss"]) for k in keys] == [
        (1, 3, 500.0),
        (1, 2, 50.0),
        (1, 1, 5.0),
        (0, 1, 500.0),
        (0, 2, 55.0),
    ]
    assert keys["Share"].sum() == pytest.approx(2)


def test_groups_that_are_not_of_the_whole_are_refused() -> None:
    case = SetCase(1, {(1, 1, 1): 1.0, (1, 2, 1): 2.0}, 1, ((1, 0, 1),))
    whole = Subject([case.member({1: 0, 2: 0})], 1).occurrence_losses()
    with pytest.raises(InputError, match="not of this whole"):
        contribute(Subject([case.member({1: 0})], 1), whole, Aim((1,)))
    with pytest.raises(InputError, match="at most 1 years"):
        contribute(Subject([case.member()], 2), whole, Aim((2,)))
    aim = Aim((1,), leave_one_out=True)
    with pytest.raises(OptionError, match="leave-one-out"):
        contribute(Subject([case.member()], 2), whole, aim, whole.losses)
