"""Contributions against the oracle, and what they sum to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.arrays import Floats
from core.errors import InputError
from core.losses.inputs import ReturnPeriods
from core.losses.reports.report import RunOptions
from core.portfolio.combining import Subject
from core.portfolio.contributions import Amounts, contribute, contribute_amounts
from core.portfolio.curves import Question, roll_up
from core.portfolio.inuring import Subject as Layered
from core.portfolio.inuring import join_parts, run_programme
from core.portfolio.layers import Recoveries
from core.portfolio.losses import OccurrenceLosses
from core.portfolio.programme import parse_programme
from core.portfolio.tails import Aim, Kind
from tests import portfolio_oracle as oracle
from tests.portfolio_programme_oracle import Row, run_year
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


@pytest.mark.parametrize(
    ("years", "band", "ranks"),
    [
        (100, 0.01, [1]),
        (100, 0.99, [1]),
        (17, 0.1, [6]),
        (17, 0.2, [5, 6, 7]),
        (10, 0.3, [7, 8, 9, 10, 11, 12, 13]),
        (10, 0.29, [8, 9, 10, 11, 12]),
        (50, 0.5, [1, 2, 3]),
    ],
)
def test_a_band_has_the_ranks_within_its_share(years: int, band: float, ranks: list[int]) -> None:
    losses = {(event, 1, 1): 1001.0 - event for event in range(1, 101)}
    happens = tuple((event, 0, event) for event in range(1, 101))
    subject = Subject([SetCase(1, losses, 100, happens).member()], 1)
    whole = subject.whole().occurrence_losses()
    found = contribute(subject, whole, Aim((years,), band=band)).rows[0]
    wanted = [len(ranks), 1001 - ranks[-1], 1001 - ranks[0]]
    assert [found["Cells"], found["BandLow"], found["BandHigh"]] == wanted


@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize(
    ("years", "band", "wanted"),
    [
        (4, 0.0, [1, 6.0, 6.0, 25, 6.0, 30.0]),
        (4, 0.9, [98, 0.0, 28.0, 25, 6.0, 30.0]),
        (4, 0.2, [11, 1.0, 11.0, 25, 6.0, 30.0]),
        (2, 0.0, [70, 0.0, 0.0, 100, 0.0, 30.0]),
    ],
)
def test_periods_without_a_loss_are_in_a_band_that_reaches_them(
    weighs: bool, years: int, band: float, wanted: list[float]
) -> None:
    losses = {(event, 1, 1): float(event) for event in range(1, 31)}
    happens = tuple((event, 0, event) for event in range(1, 31))
    weights = (0.01,) * 100 if weighs else None
    subject = Subject([SetCase(1, losses, 100, happens, weights).member()], 1)
    whole = subject.whole().occurrence_losses()
    var, tvar = contribute(subject, whole, Aim((years,), band=band)).rows
    names = ("Cells", "BandLow", "BandHigh")
    assert [row[name] for row in (var, tvar) for name in names] == wanted
    largest = [30.0 - n for n in range(30)] + [0.0] * 70
    tail = sum(largest[: 100 // years]) / (100 // years)
    assert [var["Loss"], tvar["Loss"]] == pytest.approx([largest[100 // years - 1], tail])


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


LAYERS: list[dict[str, Any]] = [
    {"ReinsNumber": 1, "ReinsType": "QS", "Scope": ["b"], "CededPercent": 0.4},
    {"ReinsNumber": 2, "ReinsType": "CXL", "InuringPriority": 2, "OccAttachment": 90.0,
     "PlacedPercent": 0.7},
    {"ReinsNumber": 3, "ReinsType": "CXL", "InuringPriority": 3, "OccAttachment": 30.0,
     "Scope": ["a"], "PlacedPercent": 0.8, "HoursClause": {"Hours": 48}},
]  # fmt: skip


def made_of(
    case: SetCase, groups: dict[int, int], of: str
) -> dict[tuple[int, int, int, int], float]:
    """What plain Python's programme keeps or cedes, by group, period, sample and occurrence."""
    losses = oracle.by_occurrence([oracle.Set(case.losses, case.occurrences, groups)])
    found: dict[tuple[int, int, int, int], float] = {}
    for cell in {key[1:3] for key in losses}:
        keys = sorted((key for key in losses if key[1:3] == cell), key=lambda k: (k[3], k[0]))
        rows = [Row(*case.occurrences[k[3]][1:], "", "ab"[k[0]], 1.0, losses[k]) for k in keys]
        year = run_year(LAYERS, rows)
        for i, (key, net) in enumerate(zip(keys, year.net, strict=True)):
            row = keys[year.joined.get(i, i)][3] if of == "ceded" else key[3]
            name = (*key[:3], row)
            found[name] = found.get(name, 0.0) + (net if of == "net" else losses[key] - net)
    return {key: amount for key, amount in found.items() if amount > 0}


@given(SEEDS, KINDS, st.sampled_from(["net", "ceded"]), st.sampled_from([0.0, 0.3]))
def test_parts_of_what_a_programme_makes_equal_the_oracle(
    seed: int, kind: Kind, of: str, band: float
) -> None:
    rng = np.random.default_rng(seed)
    case = random_set(rng, width=8)
    # No two amounts are equal but for rounding: an event happens once.
    once = {event: (period, date, event) for period, date, event in case.occurrences}
    losses = {key: loss % 1000 * (1 + rng.random()) for key, loss in case.losses.items()}
    case = replace(case, losses=losses, occurrences=tuple(sorted(once.values())))
    groups = {1: 0, 2: 1, 5: 1}
    subject = Subject([case.member(groups)], 2)
    parts = {"ab"[k]: subject.occurrence_losses(k) for k in (0, 1)}
    joint = join_parts(parts, subject.calendar, subject.samples)
    programme = parse_programme({"layers": LAYERS})

    def run(joint: Layered) -> Recoveries:
        return run_programme(programme, joint, subject.calendar, subject.samples)

    def amounts_of(made: Recoveries) -> OccurrenceLosses:
        return made.net_losses() if of == "net" else made.ceded_losses()

    def without(group: int) -> Floats:
        rest = np.where(joint.parts == group, 0.0, joint.losses.losses)
        return amounts_of(run(joint._replace(losses=joint.losses._replace(losses=rest)))).losses

    made = run(joint)
    joined = made.joined if of == "ceded" else None
    amounts = Amounts(amounts_of(made), joint.parts, joined, without)
    years = 3 if len(masses(case)) >= 3 else 1
    found = contribute_amounts(subject, amounts, Aim((years,), kind, False, band, True))
    share, largest = 1 / years, kind == "oep"
    of_groups = made_of(case, groups, of)
    wanted = oracle.contributions(of_groups, masses(case), share, largest=largest, band=band)
    rests = [
        oracle.contributions(
            made_of(case, {s: g if g != k else -1 for s, g in groups.items()}, of),
            masses(case), share, largest=largest,
        )
        for k in (0, 1)
    ]  # fmt: skip
    points = ((wanted[0], wanted[2]), (wanted[1], wanted[3]))
    lefts = ([rest[0] for rest in rests], [rest[1] for rest in rests])
    for rows, (point, of_point), left in zip(
        (found.rows[:2], found.rows[2:]), points, lefts, strict=True
    ):
        scale = 1e-6 * max(point, 1.0)
        np.testing.assert_allclose(rows["Whole"], point, 1e-6, scale)
        np.testing.assert_allclose(rows["Loss"], [of_point.get(g, 0) for g in (0, 1)], 1e-6, scale)
        np.testing.assert_allclose(rows["Whole"] - rows["LeaveOneOut"], left, 1e-6, scale)


@pytest.mark.parametrize("kind", ["oep", "aep"])
def test_what_is_left_of_a_retention_is_tied_in_all_years_that_reach_it(kind: Kind) -> None:
    rng, count, kept = np.random.default_rng(7), 200, 300_000.1
    losses = {(e, s, 1): float(rng.uniform(1e5, 1e9)) for e in range(1, count + 1) for s in (1, 2)}
    happens = tuple((e, 0, e) for e in range(1, count + 1))
    case = SetCase(1, losses, count, happens, width=8)
    subject = Subject([case.member({1: 0, 2: 1})], 2)
    parts = {"ab"[k]: subject.occurrence_losses(k) for k in (0, 1)}
    joint = join_parts(parts, subject.calendar, subject.samples)
    layer = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": kept}
    made = run_programme(parse_programme({"layers": [layer]}), joint, subject.calendar, 1)
    amounts = Amounts(made.net_losses(), joint.parts, None, lambda _: made.net_losses().losses)
    rows = contribute_amounts(subject, amounts, Aim((10,), kind)).rows[:2]
    share = np.mean([losses[e, 1, 1] / (losses[e, 1, 1] + losses[e, 2, 1]) for e, *_ in happens])
    np.testing.assert_array_equal(rows["Cells"], count)
    np.testing.assert_allclose(rows["Loss"], kept * np.array([share, 1 - share]), 1e-9)


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


def test_keys_are_the_ten_largest_events_of_all_catalogues() -> None:
    sizes = np.random.default_rng(5).permutation(60) + 1.0
    losses = {
        (source, event): sizes[30 * source + event - 1]
        for source in (0, 1)
        for event in range(1, 31)
    }
    cases = []
    for source, periods in enumerate((range(1, 31), range(30, 0, -1))):
        happens = tuple(sorted((period, 0, event) for event, period in enumerate(periods, 1)))
        rows = {(event, 1, 1): losses[source, event] for event in range(1, 31)}
        cases.append(SetCase(1, rows, 30, happens, width=8))
    subject = Subject([case.member() for case in cases], 1)
    keys = contribute(subject, subject.whole().occurrence_losses(), Aim((1,))).keys
    found = keys[(keys["EPType"] == 4) & (keys["Catalogue"] > 0)]
    wanted = sorted(losses, key=losses.__getitem__, reverse=True)[:10]
    assert [(row["Catalogue"] - 1, row["Id"]) for row in found] == wanted
    np.testing.assert_allclose(found["Loss"], [losses[key] / 30 for key in wanted])


def test_keys_tell_the_events_and_periods_of_a_tail() -> None:
    losses = {(e, 1, 1): float(10**e) for e in (1, 2, 3)}
    case = SetCase(1, losses, 10, ((1, 0, 3), (2, 0, 1), (2, 0, 2), (4, 0, 2)))
    subject = Subject([case.member()], 1)
    keys = contribute(subject, subject.whole().occurrence_losses(), Aim((5,))).keys
    assert [(k["Catalogue"], k["Id"], k["Loss"]) for k in keys] == [
        # The loss of five years is that of the second largest period, 110: of events 1 and 2.
        (1, 2, 100.0),
        (1, 1, 10.0),
        (0, 2, 110.0),
        (1, 3, 500.0),
        (1, 2, 50.0),
        (1, 1, 5.0),
        (0, 1, 500.0),
        (0, 2, 55.0),
    ]
    assert list(keys["EPType"]) == [3] * 3 + [4] * 5
    assert keys["Share"].sum() == pytest.approx(4)


def test_groups_that_are_not_of_the_whole_are_refused() -> None:
    case = SetCase(1, {(1, 1, 1): 1.0, (1, 2, 1): 2.0}, 1, ((1, 0, 1),))
    whole = Subject([case.member({1: 0, 2: 0})], 1).occurrence_losses()
    with pytest.raises(InputError, match="not of this whole"):
        contribute(Subject([case.member({1: 0})], 1), whole, Aim((1,)))
    with pytest.raises(InputError, match="at most 1 years"):
        contribute(Subject([case.member()], 2), whole, Aim((2,)))
