"""Cells and occurrence losses against the oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.budget import installed
from core.errors import BudgetExceededError, InputError
from core.losses.inputs import ReturnPeriods
from core.portfolio import combining, curves
from core.portfolio.combining import Subject
from core.portfolio.curves import Question, roll_up
from tests import portfolio_oracle as oracle
from tests.portfolios import SetCase, random_set

SEEDS = st.integers(0, 2**32 - 1)


def cells_of(subject: Subject) -> dict[oracle.Cell, tuple[float, float]]:
    found = subject.cells()
    return {
        (int(found.summaries[pair]), int(found.periods[pair]), int(found.samples[k])): (
            float(found.sums[k]),
            float(found.largest[k]),
        )
        for pair in range(len(found.summaries))
        for k in range(found.starts[pair], found.starts[pair + 1])
    }


@given(SEEDS, st.sampled_from([4, 8]), st.sampled_from([1, 1 << 17]))
def test_cells_of_any_groups_and_sets_equal_the_oracle(seed: int, width: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    first = random_set(rng, width=width)
    second = replace(first, losses=random_set(rng, width=width, samples=first.samples).losses)
    maps = [{s: int(rng.integers(-1, 3)) for s in (1, 2, 5)} for _ in range(2)]
    factors = [float(x) for x in rng.choice([1.0, 0.5, 1.3], 2)]
    both = list(zip((first, second), maps, factors, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combining, "_ROWS", rows)
        found = cells_of(Subject([c.member(m, f) for c, m, f in both], 3))
    losses = oracle.by_occurrence([oracle.Set(c.losses, c.occurrences, m, f) for c, m, f in both])
    sums, largest = oracle.cells(losses, math.fsum), oracle.cells(losses, max)
    assert list(found) == sorted(sums)
    for cell, (total, most) in found.items():
        assert total == pytest.approx(sums[cell], rel=1e-14)
        assert most == pytest.approx(largest[cell], rel=1e-14)
        assert most <= total


@given(SEEDS)
def test_losses_of_occurrences_equal_the_oracle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_set(rng)
    groups = {s: int(rng.integers(-1, 2)) for s in (1, 2, 5)}
    found = Subject([case.member(groups)], 2).occurrence_losses(1)
    rows = [
        (int(found.periods[c]), int(found.samples[c]), int(found.occurrences[k]), found.losses[k])
        for c in range(len(found.periods))
        for k in range(found.starts[c], found.starts[c + 1])
    ]
    losses = oracle.by_occurrence([oracle.Set(case.losses, case.occurrences, groups)])
    wanted = sorted((p, s, o, loss) for (g, p, s, o), loss in losses.items() if g == 1)
    assert [row[:3] for row in rows] == [row[:3] for row in wanted]
    np.testing.assert_allclose([r[3] for r in rows], [w[3] for w in wanted], rtol=1e-14)


class Small:
    """A budget of so many bytes."""

    check = spend = renew = staticmethod(lambda *_: None)

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.peak = 0

    def hold(self, stage: str, nbytes: int) -> None:
        if self.held + nbytes > self.limit:
            raise BudgetExceededError("too much", stage_name=stage, hint="Ask for less")
        self.held += nbytes
        self.peak = max(self.peak, self.held)

    def release(self, nbytes: int) -> None:
        self.held -= nbytes


@pytest.mark.parametrize("wrong", [-1, 4, 2**31 - 1])
def test_a_sample_that_cannot_be_is_refused_and_not_written(wrong: int) -> None:
    losses = {(1, b, s): 1.0 for b in (1, 2) for s in range(1, 4)}
    member = SetCase(3, losses, 2, ((1, 0, 1),)).member({1: 0, 2: 0})
    member.table.samples[4] = wrong
    for ask in (Subject.cells, partial(Subject.distinct_cells, group=0)):
        with pytest.raises(InputError, match="is not from 0 to 3"):
            ask(Subject([member], 1))


@pytest.mark.once
def test_groups_that_do_not_fit_together_come_one_after_the_other() -> None:
    losses = {(e, b, s): float(e + b) for e in range(1, 61) for b in (1, 2) for s in range(1, 101)}
    case = SetCase(100, losses, 60, tuple((p, 0, p) for p in range(1, 61)))
    subject = Subject([case.member()], 2)
    question = Question(("aal", "ept"), ReturnPeriods(np.array([5, 2], np.int32)))
    asked: list[int] = []

    def apply(function: Any, tasks: Any) -> Any:  # noqa: ANN401 - of any types
        tasks = list(tasks)
        asked.append(len(tasks))
        return map(function, tasks)

    def rows(limit: int) -> list[bytes]:
        asked.clear()
        with installed(Small(limit)), mock.patch.object(curves, "_PART_CELLS", 1):
            return [each.rows.tobytes() for each in roll_up(subject, question, apply)]

    assert rows(1 << 30) == rows(1_000_000)
    assert len(asked) > 1
    rows(1 << 30)
    assert asked == [2]


@pytest.mark.once
def test_a_group_that_does_not_fit_is_refused_before_it_is_held() -> None:
    losses = {(e, 1, s): 1.0 for e in range(1, 201) for s in range(1, 101)}
    case = SetCase(100, losses, 200, tuple((p, 0, p) for p in range(1, 201)))
    with installed(budget := Small(1 << 30)):
        cells = Subject([case.member()], 1).cells()
        assert budget.held >= sum(column.nbytes for column in cells)
        before = budget.held
        for _ in roll_up(Subject([case.member()], 1), Question(("aal", "ept"))):
            assert budget.held < budget.peak
        assert budget.held < 2 * before
    for ask in (Subject.cells, Subject.occurrence_losses):
        with installed(Small(300_000)), pytest.raises(BudgetExceededError) as caught:
            ask(Subject([case.member()], 1))
        assert "more dimensions" in str(caught.value)
