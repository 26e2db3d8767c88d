"""Loss sets that are added: what is one catalogue, and how others are paired."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError, LimitError
from core.losses._kernels.annual import DEVIATION, MEAN
from core.losses.inputs import day_ids
from core.portfolio.combining import Subject
from core.portfolio.curves import averages
from core.portfolio.joining import Member, join
from tests.portfolios import SetCase, random_set

SEEDS = st.integers(0, 2**32 - 1)


def annual(subject: Subject) -> np.ndarray:
    """AAL by group."""
    cells = subject.cells()
    starts = np.searchsorted(cells.summaries, np.arange(subject.groups + 1))
    return averages(cells, subject.calendar, subject.samples, starts)


def other(rng: np.random.Generator, case: SetCase, times: int = 1) -> SetCase:
    """A set of another catalogue, with the same samples."""
    drawn = random_set(rng, samples=case.samples)
    periods = case.periods * times
    happening = sorted(
        (int(rng.integers(1, periods, endpoint=True)), int(rng.integers(0, 9)), event)
        for event in range(1, 14)
    )
    return replace(drawn, periods=periods, occurrences=tuple(happening), weights=None)


@given(SEEDS, st.integers(1, 5))
def test_copies_of_a_set_lose_so_many_times_as_much(seed: int, copies: int) -> None:
    case = random_set(np.random.default_rng(seed))
    one = Subject([case.member()], 3).cells()
    many = Subject([case.member() for _ in range(copies)], 3).cells()
    for found, wanted in zip(many[:4], one[:4], strict=True):
        np.testing.assert_array_equal(found, wanted)
    for found, wanted in zip(many[4:], one[4:], strict=True):
        np.testing.assert_allclose(found, copies * wanted, rtol=1e-14)


@given(SEEDS)
def test_what_filters_divide_sums_to_the_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_set(rng)
    member = case.member(dict.fromkeys((1, 2, 5), 0))
    whole = annual(Subject([member], 1))[0, :, MEAN]
    kept = rng.random(len(case.occurrences)) < 0.5
    halves = [Subject([replace(member, kept=mask)], 1) for mask in (kept, ~kept)]
    np.testing.assert_allclose(sum(annual(h)[0, :, MEAN] for h in halves), whole, rtol=1e-9)
    groups = Subject([case.member({s: k for k, s in enumerate((1, 2, 5))})], 3)
    np.testing.assert_allclose(annual(groups)[:, :, MEAN].sum(0), whole, rtol=1e-9)


@given(SEEDS, st.integers(1, 3))
def test_sets_of_other_catalogues_are_added_period_by_period(seed: int, times: int) -> None:
    rng = np.random.default_rng(seed)
    first = replace(random_set(rng), weights=None)
    second = other(rng, first, times)
    members = [
        first.member(dict.fromkeys((1, 2, 5), 0)),
        second.member(dict.fromkeys((1, 2, 5), 1)),
    ]
    subject = Subject(members, 2, seed=seed)
    own = [Subject([m], 2) for m in members]
    found = annual(subject)
    assert subject.calendar.periods == second.periods
    for group in (0, 1):
        wanted = annual(own[group])[group]
        np.testing.assert_allclose(found[group, :, MEAN], wanted[:, MEAN], rtol=1e-9)
    # Each period is taken as often as any other, whole.
    cells, alone = subject.cells(1, 2), own[1].cells(1, 2)
    assert sorted(cells.sums.tolist()) == sorted(alone.sums.tolist())
    occurrences = subject.calendar.occurrences
    ordered = list(zip(occurrences.periods, occurrences.dates, occurrences.event_ids, strict=True))
    assert ordered == sorted(ordered)
    happened = Counter(subject.joint.sources.tolist())
    assert happened[0] == len(first.occurrences) * times
    assert happened[1] == len(second.occurrences)


def test_a_pairing_depends_on_its_seed_and_leaves_the_first_as_it_is() -> None:
    rng = np.random.default_rng(5)
    losses = {(e, 1, s): float(rng.lognormal()) for e in range(1, 41) for s in range(1, 9)}
    first = SetCase(8, losses, 40, tuple((p, 0, p) for p in range(1, 41)))
    second = replace(first, occurrences=tuple((41 - p, 1, p) for p in range(40, 0, -1)))
    members = [first.member(), second.member()]
    sums = [Subject(members, 1, seed).cells().sums.tolist() for seed in (1, 1, 2)]
    assert sums[0] == sums[1]
    assert sums[0] != sums[2]
    joint = join(members, 1)
    own = joint.calendar.occurrences.event_ids[joint.sources == 0]
    assert own.tolist() == list(range(1, 41))
    assert sorted(joint.mapped[1].tolist()) == list(range(9))
    assert joint.mapped[1][0] == 0


def _day(text: str) -> int:
    year, month, day = (np.array([int(part)]) for part in text.split("-"))
    return int(day_ids(year, month, day)[0])


@pytest.mark.parametrize("granular", [False, True])
@pytest.mark.parametrize("year", [2031, 2048, 2050])
def test_dates_of_other_catalogues_go_together_by_the_day_of_the_year(
    year: int, *, granular: bool
) -> None:
    """Events 1 and 2 are of the year 2031, 11 to 13 of another, of which one is in the next."""
    one = ((1, _day("2031-06-01"), 1), (1, _day("2031-12-31"), 2))
    texts = (f"{year}-05-31", f"{year}-06-02", f"{year + 1}-01-02")
    other = [(1, _day(text), event) for event, text in enumerate(texts, 11)]
    cases = [
        SetCase(1, {(event, 1, 1): 1.0 for _, _, event in c}, 1, tuple(c)) for c in (one, other)
    ]
    members = [case.member() for case in cases]
    if granular:
        calendar = members[1].calendar
        minutes = calendar.occurrences._replace(dates=calendar.occurrences.dates * 1440 + 600)
        members[1] = replace(
            members[1], calendar=replace(calendar, occurrences=minutes, granular=True)
        )
    _, events, dates = join(members).calendar.occurrences
    assert events.tolist() == [11, 1, 12, 2, 13]
    wanted = [840, 2040, 304_680, 3480] if granular else [1, 1, 212, 2]
    assert np.diff(dates).tolist() == wanted


def test_occurrences_without_dates_come_first_by_their_ids() -> None:
    dated = SetCase(1, {(1, 1, 1): 1.0}, 1, ((1, _day("2031-01-01"), 1),)).member()
    own = SetCase(1, {(e, 1, 1): 1.0 for e in (5, 9)}, 1, ((1, 11_688, 9), (1, 11_690, 5))).member()
    members = [dated, replace(own, calendar=replace(own.calendar, dated=False))]
    joint = join(members).calendar
    assert joint.occurrences.event_ids.tolist() == [9, 5, 1]
    assert not joint.dated


@given(SEEDS)
def test_losses_of_a_period_are_at_least_those_of_an_occurrence(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = replace(random_set(rng, width=8), weights=None)
    members = [c.member(factor=1.1) for c in (first, other(rng, first))]
    cells = Subject(members, 3).cells()
    assert (cells.largest <= cells.sums).all()


@pytest.mark.parametrize("models", [(None, None), (("a", 0.3), ("b", 0.7))])
def test_periods_that_count_are_those_of_the_joint_calendar(
    models: tuple[tuple[str, float] | None, ...],
) -> None:
    first = SetCase(1, {(k, 1, 1): float(k) for k in (1, 2, 4, 8)}, 4, ((1, 0, 1), (2, 0, 2)))
    second = SetCase(1, {(9, 1, 1): 100.0}, 2, ((2, 0, 9),))
    pair = zip((first, second), models, strict=True)
    members = [replace(case.member({1: 0}), model=model) for case, model in pair]
    whole = Subject(members, 1, 3).cells()
    last = 4 if models[0] is None else 6
    for k in range(1, last + 1):
        alone = Subject(members, 1, 3, (k, k)).cells()
        assert alone.sums.tolist() == whole.sums[whole.periods == k].tolist()
    with pytest.raises(InputError, match=f"there are {last} periods"):
        Subject(members, 1, 3, (1, last + 1))


def test_members_that_do_not_go_together_are_refused() -> None:
    case = SetCase(2, {(1, 1, 1): 1.0}, 4, ((1, 0, 1),))
    weighted = replace(case, weights=(0.1, 0.2, 0.3, 0.4))
    elsewhere = replace(case, occurrences=((2, 0, 1),))

    def refused(match: str, *members: Member) -> None:
        with pytest.raises(InputError, match=match):
            Subject(members, 1)

    first = case.member()
    refused("factor of loss set 2", first, replace(first, factor=math.nan))
    refused("factor of loss set 1", replace(first, factor=0.0))
    refused("2 has 3 samples", first, replace(case, samples=3).member())
    refused("other weights", first, weighted.member())
    refused("has weights", first, replace(elsewhere, weights=weighted.weights).member())
    refused("no multiple .* no_of_periods=6", first, replace(elsewhere, periods=6).member())
    refused("in group 1", case.member({1: 1}))
    with pytest.raises(LimitError, match="groups"):
        Subject([first], 10**7)


def test_sums_beyond_floats_and_damaged_samples_are_refused() -> None:
    case = SetCase(2, {(1, 1, 1): 1e308, (1, 2, 1): 1e308}, 1, ((1, 0, 1),), width=8)
    with pytest.raises(InputError, match="beyond float64"):
        Subject([case.member({1: 0, 2: 0})], 1).cells()
    with pytest.raises(InputError, match="beyond float64"):
        Subject([case.member({1: 0, 2: 0})], 1).occurrence_losses()
    member = case.member()
    for sample in (-1, 3):
        damaged = member.table._replace(samples=np.full(2, sample, np.int32))
        with pytest.raises(InputError, match="from 0 to 2"):
            Subject([replace(member, table=damaged)], 2).cells()


def test_a_loss_too_small_for_its_factor_does_not_vanish() -> None:
    case = SetCase(1, {(1, 1, 1): 1e-300}, 1, ((1, 0, 1),), width=8)
    cells = Subject([case.member(factor=1e-300)], 1).cells()
    assert cells.sums.tolist() == [5e-324]


def test_events_without_an_occurrence_never_happen() -> None:
    case = SetCase(1, {(1, 1, 1): 1.0, (2, 1, 1): 5.0}, 2, ((1, 0, 1), (2, 0, 9)))
    results = annual(Subject([case.member()], 1))
    assert results[0, 1, MEAN] == 0.5
    assert results[0, 1, DEVIATION] == pytest.approx(math.sqrt(0.5))
