"""Programmes give what plain Python gives, and keep what holds for every programme."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.arrays import Floats
from core.budget import installed
from core.errors import CancelledError, InputError, LimitError
from core.portfolio import inuring
from core.portfolio._kernels import layers as kernel
from core.portfolio.inuring import Perils, Subject, join_parts, run_programme
from core.portfolio.layers import Recoveries, cells_of
from core.portfolio.losses import Calendar, OccurrenceLosses, Occurrences
from core.portfolio.programme import parse_programme
from core.slices import slices
from tests.core.portfolio.programmes import PARTS, Case, Layers, random_case, random_layers, seeded
from tests.core.test_slices import Counting, Leaving
from tests.portfolio_programme_oracle import Year, average, run_year
from tests.scale import examples

SEEDS = st.integers(0, 1 << 32)


def run(case: Case, layers: Layers, perils: Perils | None = None) -> Recoveries:
    programme = parse_programme({"layers": layers})
    subject = case.subject._replace(perils=perils or case.perils)
    return run_programme(programme, subject, case.calendar, case.samples)


def net_sums(got: Recoveries) -> Floats:
    """What is left of each cell."""
    return np.array([math.fsum(got.net[a:b]) for a, b in pairwise(got.subject.starts.tolist())])


def sum_of(year: Year) -> float:
    return sum(row.loss for row in year.rows)


def check_against_oracle(case: Case, layers: Layers) -> None:
    """Compare every number that both sides know."""
    got = run(case, layers)
    years = {key: run_year(layers, rows) for key, rows in case.cells.items()}
    net = [x for year in years.values() for x in year.net]
    np.testing.assert_allclose(got.net, net, rtol=1e-9, atol=1e-9)
    parts = case.subject.parts
    joined = got.subject.occurrences if got.joined is None else got.joined
    together = cells_of(got.ceded_losses(), parts * 0, 1, joined)
    largest = {key: year.largest for key, year in years.items() if sum(year.net) < sum_of(year)}
    keys = list(zip(np.repeat(together.periods, np.diff(together.starts)).tolist(),
                    together.samples.tolist(), strict=True))  # fmt: skip
    most = dict(zip(keys, together.largest.tolist(), strict=True))
    for key, wanted_most in largest.items():
        assert most.get(key, 0.0) == pytest.approx(wanted_most, rel=1e-9, abs=1e-9)
    ordered = got.programme.layers
    for k, layer in enumerate(ordered):
        for found, name in (
            (got.ceded(k), "ceded"),
            (got.reinstatement_premiums(k), "premiums"),
            (got.exhausted[k], "exhausted"),
        ):
            wanted = [getattr(year, name)[layer.number] for year in years.values()]
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9, err_msg=name)
    results = {(row.number, row.mean): row for row in got.results()}
    assert {mean for _, mean in results} == (
        {True, False} if 0 in case.subject.losses.samples else {False}
    )
    for (number, mean), row in results.items():
        samples = [0] if mean else range(1, case.samples + 1)
        expected = average(number, years, case.weights, samples)
        layer = next(one for one in ordered if one.number == number)
        premium = expected.premium if layer.premium is not None else math.nan
        exhaustion = expected.exhaustion if layer.exhaustible else math.nan
        assert row[3:7] == pytest.approx((*expected[:3], exhaustion), nan_ok=True, abs=1e-7)
        assert row.reinstatement_premium == pytest.approx(premium, nan_ok=True)


@settings(max_examples=examples(150), deadline=None)
@given(SEEDS)
def test_programmes_of_parts_perils_and_hours_give_what_plain_python_gives(seed: int) -> None:
    random = seeded(seed)
    check_against_oracle(random_case(random), random_layers(random))


@settings(max_examples=examples(100), deadline=None)
@given(SEEDS)
def test_programmes_of_one_part_give_what_plain_python_gives(seed: int) -> None:
    random = seeded(seed)
    case = random_case(random, parts=False, granular=random.random() < 0.5)
    check_against_oracle(case, random_layers(random, parts=False, hours=random.random() < 0.5))


def test_one_period_of_one_sample_has_no_deviation() -> None:
    one = np.ones(1, np.int32)
    calendar = Calendar(1, Occurrences(one, one, np.zeros(1, np.int64)), np.zeros(0))
    losses = OccurrenceLosses(np.array([0, 1]), one, one, one - 1, np.array([7.0]))
    programme = parse_programme({"layers": [{"ReinsNumber": 1, "ReinsType": "CXL", "OccLimit": 5}]})
    (row,) = run_programme(programme, losses, calendar, 1).results()
    assert row.expected_loss == 5
    assert math.isnan(row.standard_deviation)


def test_what_is_left_of_nothing_is_no_cell() -> None:
    starts, two = np.array([0, 1, 2]), np.array([1, 2], np.int32)
    losses = OccurrenceLosses(starts, two, two, two - 1, np.array([0.0, 3.0]))
    cells = cells_of(losses, two * 0, 1)
    assert (cells.periods.tolist(), cells.samples.tolist()) == ([2], [2])
    by_part = cells_of(losses._replace(losses=np.array([1.0, 3.0])), two[::-1] - 1, 2)
    assert by_part.summaries.tolist() == [0, 1]
    assert by_part.sums.tolist() == [3.0, 1.0]


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS)
def test_gross_is_ceded_and_net_and_no_limit_is_passed(seed: int) -> None:
    random = seeded(seed)
    case = random_case(random)
    got = run(case, random_layers(random))
    gross, net = case.subject.losses.losses, got.net
    assert (net >= 0).all()
    assert (net <= gross).all()
    np.testing.assert_array_equal(got.ceded_losses().losses, gross - net)
    assert got.net_losses().losses is net
    ceded = sum((got.ceded(k) for k in range(len(got.recovered))), np.zeros(len(got.gross_sums)))
    np.testing.assert_allclose(got.gross_sums - net_sums(got), ceded, rtol=1e-9, atol=1e-9)
    for k, layer in enumerate(got.programme.layers):
        assert (got.recovered[k] <= layer.terms["AggLimit"]).all()
        if layer.charges and layer.premium:
            most = layer.premium * layer.placed * sum(layer.charges)
            assert (got.reinstatement_premiums(k) <= most * (1 + 1e-12)).all()


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS)
def test_a_higher_limit_never_cedes_less(seed: int) -> None:
    random = seeded(seed)
    case = random_case(random, parts=False)
    layer = {**random_layers(random, parts=False)[0], "ReinsType": "CXL", "OccLimit": 20.0}
    wider = {**layer, "OccLimit": 35.0}
    assert (run(case, [wider]).recovered >= run(case, [layer]).recovered * (1 - 1e-12)).all()


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS)
def test_a_cedant_recovers_at_least_what_first_losses_give(seed: int) -> None:
    random = seeded(seed)
    case = random_case(random, granular=True)
    terms = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 50, "OccLimit": 60}
    first, best = (
        run(case, [{**terms, "HoursClause": {"Hours": 72, "Start": start}}]).recovered
        for start in ("first-loss", "cedant")
    )
    assert (best >= first * (1 - 1e-12)).all()


def test_a_full_quota_share_cedes_the_gross() -> None:
    case = random_case(seeded(1))
    got = run(case, [{"ReinsNumber": 1, "ReinsType": "QS", "CededPercent": 1}])
    assert not got.net.any()
    np.testing.assert_allclose(got.ceded(0), got.gross_sums)


def test_the_unplaced_part_stays_in_the_net() -> None:
    case = random_case(seeded(1))
    terms = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 20, "OccLimit": 30}
    whole, part = run(case, [terms]), run(case, [{**terms, "PlacedPercent": 0.75}])
    np.testing.assert_allclose(part.ceded(0), 0.75 * whole.ceded(0))
    np.testing.assert_allclose(net_sums(part) - net_sums(whole), 0.25 * whole.ceded(0), atol=1e-9)


def test_a_layer_of_which_nothing_is_placed_recovers_nothing() -> None:
    terms = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 20, "OccLimit": 30}
    terms |= {"ReinsPremium": 3, "PlacedPercent": 0}
    for result in run(random_case(seeded(1)), [terms]).results():
        assert (result.expected_loss, result.attachment, result.exhaustion) == (0, 0, 0)
        assert (result.premium, math.isnan(result.loss_on_line)) == (0, True)


def test_premiums_change_no_net_loss() -> None:
    case = random_case(seeded(2))
    terms = {
        "ReinsNumber": 1,
        "ReinsType": "CXL",
        "OccAttachment": 20,
        "OccLimit": 30,
        "Reinstatement": 1,
    }
    paid = run(case, [{**terms, "ReinsPremium": 10, "ReinstatementCharge": 1}])
    np.testing.assert_array_equal(paid.net, run(case, [terms]).net)
    assert paid.reinstatement_premiums(0).any()


def year_of(losses: list[float], dates: list[int] | None = None, **calendar: bool) -> Case:
    """Losses of one period and sample, of events 1, 2 and so on."""
    n = len(losses)
    events = np.arange(1, n + 1, dtype=np.int32)
    when = np.array(dates or range(n), np.int64)
    subject = OccurrenceLosses(
        np.array([0, n]), np.ones(1, np.int32), np.ones(1, np.int32),
        np.arange(n, dtype=np.int32), np.array(losses),
    )  # fmt: skip
    occurrences = Occurrences(np.ones(n, np.int32), events, when)
    perils = Perils(["WTC"], np.zeros(n, np.int32))
    return Case(Calendar(1, occurrences, np.zeros(0), **calendar), perils, Subject(subject), 1, {})


CXL = {"ReinsNumber": 1, "ReinsType": "CXL"}


def test_72_hours_are_the_day_of_the_first_loss_and_the_two_that_follow() -> None:
    case = year_of([10.0, 10.0, 10.0, 10.0], [5, 6, 7, 8])
    got = run(case, [{**CXL, "OccAttachment": 25, "HoursClause": {"Hours": 72}}])
    assert got.ceded(0) == [5]
    np.testing.assert_allclose(got.net, [10 - 5 / 3] * 3 + [10])


HOURS = {"HoursClause": {"Hours": 72}}


def test_what_is_recovered_of_a_window_is_one_loss_in_the_ceded_oep() -> None:
    case = year_of([600.0] * 4, [h * 60 for h in (0, 71, 72, 73)], granular=True)
    got = run(case, [{**CXL, "OccAttachment": 1000, **HOURS}])
    # 600 + 600 - 1000, twice.
    np.testing.assert_allclose(got.ceded_losses().losses, [100] * 4)
    assert cells_of(got.ceded_losses(), case.subject.parts, 1).largest == [100]
    assert cells_of(got.ceded_losses(), case.subject.parts, 1, got.joined).largest == [200]
    assert run(case, [{**CXL, "OccAttachment": 100}]).joined is None


def test_a_period_of_a_cedant_runs_its_hours_before_the_next_one() -> None:
    clause = {"HoursClause": {"Hours": 72, "Start": "cedant"}}
    layer = {**CXL, "OccAttachment": 10, "OccLimit": 20, **clause}
    # Days 0 to 2 and 3 to 5: 5 + 30 and 30, of which the layer pays 20 each. A window of day 0
    # alone, one of days 1 and 2 and one from day 3 on would overlap.
    got = run(year_of([5.0, 25.0, 5.0, 30.0], [0, 1, 2, 3]), [layer])
    assert got.ceded(0) == [40]
    # Days 1 to 3 are best, and what was lost before and is in no period is not recovered.
    got = run(year_of([4.0, 15.0, 15.0], [0, 1, 3]), [{**layer, "OccLimit": 40}])
    np.testing.assert_allclose(got.net, [4, 5, 5])
    # Losses of one day are in the same period.
    got = run(year_of([12.0, 30.0, 30.0], [1, 1, 3]), [{**layer, "OccLimit": 40}])
    assert got.ceded(0) == [40]


def test_no_more_is_reinstated_than_an_aggregate_limit_leaves() -> None:
    terms = {**CXL, "OccLimit": 1000, "Reinstatement": 1, "ReinsPremium": 100}
    layer = {**terms, "ReinstatementCharge": 1}
    case = year_of([1000.0, 1000.0])
    for limit, premium in ((None, 100), (1500, 50), (1000, 0), (900, 0)):
        got = run(case, [{**layer, "AggLimit": limit}])
        assert got.ceded(0) == [limit or 2000]
        assert got.reinstatement_premiums(0) == [premium]
        assert got.results()[0].reinstatement_premium == premium


def of_risks(losses: list[float], values: list[float]) -> Case:
    """Losses of risks in one event of one period and sample."""
    case, n = year_of([1.0]), len(losses)
    rows = case.subject.losses._replace(
        starts=np.array([0, n]), occurrences=np.zeros(n, np.int32), losses=np.array(losses)
    )
    case.subject = Subject(rows, [""], np.zeros(n, np.int32), np.array(values))
    return case


def test_what_is_reinstated_of_a_layer_of_risks_is_its_limit_of_an_occurrence() -> None:
    terms = {"ReinsNumber": 1, "ReinsType": "PR", "RiskAttachment": 200, "RiskLimit": 500}
    terms |= {"Reinstatement": 2, "ReinstatementCharge": [1, 0], "ReinsPremium": 100}
    case = of_risks([600.0, 450.0, 900.0], [1000.0] * 3)
    # 400 + 250 + 500, less 100, up to 800: the limit whole, and all of it is reinstated at 100 %.
    wanted = {800: (800, 100, 2400, 0.125), 2000: (1050, 52.5, 6000, 0.05)}
    for limit, (paid, premium, most, rate) in wanted.items():
        got = run(case, [{**terms, "OccAttachment": 100, "OccLimit": limit}])
        assert got.ceded(0) == [paid]
        assert got.reinstatement_premiums(0) == pytest.approx([premium])
        assert got.programme.layers[0].terms["AggLimit"] == most
        assert got.results()[0].rate_on_line == rate
    # Without it, that of a risk.
    got = run(case, [terms])
    assert [got.ceded(0), got.reinstatement_premiums(0)] == [[1150], [100]]
    assert got.results()[0].rate_on_line == 0.2


def test_each_type_applies_its_share_where_the_documents_say() -> None:
    losses, values = np.array([100.0, 260.0, 900.0]), np.array([400.0, 300.0, 1000.0])
    clip = np.clip
    cut = 0.5 * clip(losses - 150, 0, 300)
    line = clip(values - 250, 0, 500) / values * losses
    occurrence, annual = {"OccAttachment": 20, "OccLimit": 400}, {"AggAttachment": 30}
    risk, half = {"RiskAttachment": 150, "RiskLimit": 300}, {"CededPercent": 0.5}
    franchise = {"OccFranchiseDed": 40, "OccReverseFranchise": 5000}

    def of_occurrence(brought: Any, attachment: float, limit: float) -> float:  # noqa: ANN401
        return float(clip(brought.sum() - attachment, 0, limit))

    for layer, wanted in (
        ({"ReinsType": "FAC", **risk, **half, **annual}, cut.sum() - 30),
        ({"ReinsType": "PR", **risk, **half, **occurrence, **annual},
         of_occurrence(cut, 20, 400) - 30),
        ({"ReinsType": "QS", "RiskLimit": 300, **half, **franchise, "OccLimit": 310},
         of_occurrence(0.5 * clip(losses, 0, 300), 0, 310)),
        ({"ReinsType": "SS", "RiskAttachment": 250, "RiskLimit": 500, "OccLimit": 600},
         of_occurrence(line, 0, 600)),
        ({"ReinsType": "CXL", **half, **franchise, **occurrence, **annual},
         of_occurrence(0.5 * losses, 20, 400) - 30),
        ({"ReinsType": "AXL", **half, **occurrence, **annual, "AggLimit": 350},
         min(of_occurrence(0.5 * losses, 20, 400) - 30, 350)),
        ({"ReinsType": "SL", **half, **annual, "AggLimit": 580},
         min(0.5 * losses.sum() - 30, 580)),
    ):  # fmt: skip
        terms = {"ReinsNumber": 1, **layer, "PlacedPercent": 0.8}
        got = run(of_risks(losses.tolist(), values.tolist()), [terms])
        assert got.ceded(0) == pytest.approx([0.8 * wanted]), layer


def test_an_hours_clause_counts_minutes_where_dates_do() -> None:
    case = year_of([10.0, 10.0, 10.0], [0, 89, 90], granular=True)
    got = run(case, [{**CXL, "OccAttachment": 15, "HoursClause": {"Hours": 1.5}}])
    np.testing.assert_allclose(got.net, [7.5, 7.5, 10])


def test_windows_begin_in_order_of_date_among_perils() -> None:
    case = year_of([30.0, 30.0, 30.0], [0, 1, 2])
    perils = Perils(["WTC", "XHL"], np.array([0, 1, 0], np.int32))
    layer = {**CXL, "OccAttachment": 20, "AggLimit": 45, "HoursClause": {"Hours": 72}}
    np.testing.assert_allclose(run(case, [layer], perils).net, [10, 25, 10])


REFUSED: list[tuple[Case, dict[str, Any], str]] = [
    (year_of([1.0], dated=False), {**CXL, "OccLimit": 1, "HoursClause": {"Hours": 72}},
     r"layers\[0\].HoursClause needs dates, and the occurrences of the loss set have none"),
    (year_of([1.0]), {**CXL, "OccLimit": 1, "HoursClause": {"Hours": 36}},
     r"layers\[0\].HoursClause.Hours is 36. Give a multiple of 24"),
    (year_of([1.0], granular=True), {**CXL, "OccLimit": 1, "HoursClause": {"Hours": 0.01}},
     r"layers\[0\].HoursClause.Hours is 0.01. Give whole minutes"),
    (year_of([1.0]), {"ReinsNumber": 1, "ReinsType": "SS", "RiskAttachment": 1},
     r"layers\[0\] has terms of risks, and the losses are of no risks whose insured value"),
    (year_of([1.0]), {"ReinsNumber": 1, "ReinsType": "QS", "CededPercent": 1, "RiskLimit": 1},
     r"layers\[0\] has terms of risks"),
    (year_of([1.0]), {**CXL, "OccLimit": 1, "Scope": ["north"]},
     r"layers\[0\].Scope has 'north', which no part is"),
    (year_of([1.0]), {**CXL, "OccLimit": 1, "ReinsPeril": "WTD"},
     r"layers\[0\].ReinsPeril has 'WTD', which no peril is. Did you mean WTC\?"),
    (random_case(seeded(1)), {**CXL, "OccLimit": 1, "Scope": ["nord"]},
     r"layers\[0\].Scope has 'nord', which no part is. Did you mean north\?"),
    (year_of([1.5e308, 1.5e308]), {"ReinsNumber": 1, "ReinsType": "QS", "CededPercent": 1},
     r"losses to layer 1 \(layers\[0\]\) in period 1 \(sample 1\) add up to more than a number"),
    (year_of([1.5e308, 1.5e308]), {**CXL, "OccAttachment": 1, "HoursClause": {"Hours": 72}},
     "add up to more than a number"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "layer", "message"), REFUSED)
def test_what_does_not_fit_the_losses_is_refused(
    case: Case, layer: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(case, [layer])


def test_layers_of_a_priority_that_cede_more_than_there_is_are_named() -> None:
    layers = [
        {"ReinsNumber": 4, "ReinsName": "first", "ReinsType": "QS", "CededPercent": 0.6},
        {"ReinsNumber": 7, "ReinsType": "CXL", "OccAttachment": 50},
    ]
    message = (
        r"the layers of priority 1 cede more than the loss of event 2 in period 1 \(sample 1\): "
        r"layer 4 'first' \(layers\[0\]\), layer 7 \(layers\[1\]\)"
    )
    with pytest.raises(InputError, match=message) as caught:
        run(year_of([60.0, 200.0]), layers)
    assert caught.value.event == 2
    layers[1]["InuringPriority"] = 2
    np.testing.assert_allclose(run(year_of([60.0, 200.0]), layers).net, [24, 50])


def test_shares_that_are_one_together_leave_nothing() -> None:
    shares = [0.1, 0.2, 0.3, 0.4]
    layers = [
        {"ReinsNumber": k, "ReinsType": "QS", "CededPercent": x} for k, x in enumerate(shares, 1)
    ]
    assert run(year_of([0.1, 1 / 3]), layers).net == pytest.approx([0, 0], abs=1e-16)


def test_a_peril_that_is_not_known_is_refused_where_it_matters() -> None:
    case = year_of([1.0, 2.0])
    perils = Perils(["WTC"], np.array([0, -1], np.int32))
    with pytest.raises(InputError, match=r"layers\[0\] depends on perils, and that of event 2"):
        run(case, [{**CXL, "OccLimit": 1, "ReinsPeril": "WTC"}], perils)
    assert run(case, [{**CXL, "OccLimit": 1}], perils).ceded(0) == [2]


def test_an_insured_value_of_zero_is_refused() -> None:
    case = random_case(seeded(1))
    assert case.subject.values is not None
    case.subject.values[0] = 0
    with pytest.raises(InputError, match="the insured value of north is not above 0 and"):
        run(case, [{"ReinsNumber": 1, "ReinsType": "SS", "RiskAttachment": 1}])


def test_a_period_of_too_many_losses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inuring, "MOST_IN_CELL", 2)
    with pytest.raises(
        LimitError, match="3 losses of one period and sample are too many for 1 layers"
    ):
        run(year_of([1.0, 1.0, 1.0]), [{**CXL, "OccLimit": 1}])


@pytest.mark.once
def test_windows_that_take_a_cedant_too_long_are_refused() -> None:
    n = math.isqrt(2 * kernel.MOST_STEPS) + 2
    case = year_of([1.0] * n, [0] * n)
    clause = {"Hours": 72, "Start": "cedant"}
    with pytest.raises(LimitError, match="are too many for the windows of layer 1"):
        run(case, [{**CXL, "OccLimit": 1, "HoursClause": clause}])


@settings(max_examples=examples(40), deadline=None)
@given(SEEDS)
def test_parts_are_joined_in_order(seed: int) -> None:
    case = random_case(seeded(seed))
    whole = case.subject
    parts, values = {}, {}
    for k, name in enumerate(PARTS):
        rows = np.flatnonzero(whole.parts == k)
        cells = np.searchsorted(whole.losses.starts, rows, side="right") - 1
        used, counts = np.unique(cells, return_counts=True)
        parts[name] = OccurrenceLosses(
            np.cumsum([0, *counts]), whole.losses.periods[used], whole.losses.samples[used],
            whole.losses.occurrences[rows], whole.losses.losses[rows],
        )  # fmt: skip
        values[name] = 40.0 * (k + 1)
    joined = join_parts(parts, case.calendar, case.samples, values)
    for got, wanted in zip((*joined.losses, *joined[2:]), (*whole.losses, *whole[2:]), strict=True):
        np.testing.assert_array_equal(got, wanted)


@settings(max_examples=examples(30), deadline=None)
@given(SEEDS)
def test_slices_do_not_show(seed: int) -> None:
    random = seeded(seed)
    case, layers = random_case(random), random_layers(random)
    whole = run(case, layers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inuring, "SLICE", 1)
        patch.setattr(slices, "__defaults__", (1,))
        cut = run(case, layers)
        for got, wanted in zip(cut.results(), whole.results(), strict=True):
            assert got[3:] == pytest.approx(wanted[3:], nan_ok=True, rel=1e-13)
        for name in ("net", "recovered", "exhausted", "gross_sums"):
            np.testing.assert_array_equal(getattr(cut, name), getattr(whole, name))


def test_a_client_that_leaves_is_noticed_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inuring, "SLICE", 1)
    case = random_case(seeded(1))
    with installed(counting := Counting()):
        run(case, [{**CXL, "OccLimit": 1}])
    assert counting.asked >= len(case.cells)
    with installed(Leaving(counting.asked - 1)), pytest.raises(CancelledError):
        run(case, [{**CXL, "OccLimit": 1}])


def test_a_subject_without_a_loss_has_results() -> None:
    nothing = np.zeros(0, np.int32)
    subject = OccurrenceLosses(np.zeros(1, np.int64), nothing, nothing, nothing, np.zeros(0))
    calendar = Calendar(10, Occurrences(nothing, nothing, np.zeros(0, np.int64)), np.zeros(0))
    programme = parse_programme({"layers": [{**CXL, "OccLimit": 1}]})
    (result,) = run_programme(programme, subject, calendar, 5).results()
    assert result[3:7] == (0, 0, 0, 0)
