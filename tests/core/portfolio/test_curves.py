"""Reports of groups against the ordinary reports of the same stream."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.losses.inputs import ReturnPeriods
from core.losses.reports import exceedance
from core.losses.reports.report import RunOptions, TailMean
from core.portfolio import curves as portfolio_curves
from core.portfolio.combining import Subject
from core.portfolio.curves import REPORTED, Question, roll_up
from tests.portfolios import as_run, random_set
from tests.runs import compute

SEEDS = st.integers(0, 2**32 - 1)
REPORTS = ("aal", "aal_mean", "ept", "psept")


@given(SEEDS, st.sampled_from([4, 8]), st.booleans(), st.sampled_from(["count", "weight"]))
def test_a_group_for_each_summary_has_the_ordinary_reports(
    seed: int, width: int, at_returns: bool, tvar: TailMean
) -> None:
    rng = np.random.default_rng(seed)
    case = random_set(rng, width=width)
    years = tuple(np.unique(rng.integers(1, 2 * case.periods, 6, endpoint=True))[::-1].tolist())
    run = as_run(case, years if at_returns else ())
    options = RunOptions(tvar=tvar)
    wanted = compute(run, reports=REPORTS, options=options)
    returns = ReturnPeriods(np.array(years, np.int32)) if at_returns else None
    question = Question(REPORTS, returns, options, width)
    found = {name: [np.zeros(0, REPORTED[name].dtype(width))] for name in REPORTS}
    for name, rows in roll_up(Subject([case.member()], len(case.summaries)), question):
        found[name].append(rows)
    ids = np.array([0, *case.summaries], np.int32)
    for name in REPORTS:
        rows = np.concatenate(found[name])
        rows["SummaryId"] = ids[rows["SummaryId"]]
        if name.startswith("aal"):
            # Summaries without an occurrence have no row in an ordinary report.
            rows = rows[np.isin(rows["SummaryId"], wanted[name]["SummaryId"])]
        assert rows.tobytes() == wanted[name].tobytes(), name


@given(SEEDS, st.sampled_from([4, 8]), st.sampled_from(["count", "weight"]), st.integers(1, 3))
def test_curves_of_large_groups_are_those_of_small_ones(
    seed: int, width: int, tvar: TailMean, members: int
) -> None:
    rng = np.random.default_rng(seed)
    case = replace(random_set(rng, width=width), weights=())
    years = np.unique(rng.integers(1, 2 * case.periods, 6, endpoint=True))[::-1].astype(np.int32)
    question = Question(("ept", "psept"), ReturnPeriods(years), RunOptions(tvar=tvar), width)
    # Several blocks of an event, if they are in one group.
    groups = int(rng.integers(1, len(case.summaries), endpoint=True))
    of = {summary: int(rng.integers(groups)) for summary in case.summaries}
    sets = [case.member(of, factor) for factor in rng.choice([1.0, 0.3, 7.0], members)]
    kept = rng.random(len(case.calendar.occurrences.periods)) < 0.7
    sets[-1] = replace(sets[-1], kept=kept)
    subject = Subject(sets, groups)
    listed = list(roll_up(subject, question))
    with mock.patch.multiple(portfolio_curves, pays=lambda *_: True, _CURVE_CELLS=1):
        distinct = list(roll_up(subject, question))
    with (
        mock.patch.object(exceedance, "pays", return_value=True),
        mock.patch.object(portfolio_curves, "_CURVE_CELLS", 1),
    ):
        tallied = list(roll_up(subject, question))
    for name in question.reports:
        for rolled in (distinct, tallied):
            rows = [[of.rows for of in each if of.report == name] for each in (listed, rolled)]
            wanted, found = (np.concatenate(each) for each in rows)
            assert found.tobytes() == wanted.tobytes(), name
