"""Datasets, views, pipelines, inputs, keys: what owners do at once, in every order of calls."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.scale import CHANGED, SOAK

from .exploring import Explored
from .pairs import Plan, told
from .scheduler import Scheduler
from .thing_acts import STATES, plans
from .things_world import Desk

MOST = 300 if SOAK else 6 if CHANGED else 4
"""Executions of two acts; most pairs have fewer orders."""
DRAWN = range(100 if SOAK else 0)
"""Seeds of drawn orders of those that have more."""
MOST_DEAD = 8 if SOAK else 12 if CHANGED else 6
"""Executions with one death."""
DEATHS = 40


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def found(scheduler: Scheduler, directory: Path) -> Sequence[Plan[Desk]]:
    return plans(scheduler, directory)


def nothing_is_wrong(plan: Plan[Desk], explored: Explored) -> None:
    """Fail with the order that is the easiest to follow."""
    shortest = explored.shortest
    assert shortest is None, told(plan, shortest)
    assert explored.executions


def test_states_have_names(found: Sequence[Plan[Desk]]) -> None:
    assert {plan.state for plan in found} == set(STATES)


@pytest.mark.parametrize("state", STATES)
def test_two_acts_are_as_if_one_came_first(
    scheduler: Scheduler, found: Sequence[Plan[Desk]], state: str
) -> None:
    for plan in found:
        if plan.state == state:
            explored = plan.explore(scheduler, MOST)
            if explored.executions == MOST:
                explored.add(plan.sample(scheduler, DRAWN))
            nothing_is_wrong(plan, explored)


def test_who_dies_has_done_all_or_nothing(
    scheduler: Scheduler, found: Sequence[Plan[Desk]]
) -> None:
    # What is removed, of several owners or things, is removed one after the other; so is noted what
    # is used.
    parts = ("root deletes", "adopt", "sweep", "revoke alice")
    whole = [
        plan
        for plan in found
        if not (plan.state.startswith("old") or any(a.name.startswith(parts) for a in plan.acts))
    ]
    drawn = whole if SOAK else random.Random(27).sample(whole, DEATHS)  # noqa: S311 - no secret
    for place, plan in enumerate(drawn):
        longest = plan.explore(scheduler, 5).longest
        points = [(n, k) for n, calls in enumerate(longest) for k in range(calls)]
        for death in points if SOAK else points[place % len(points) :][:1]:
            nothing_is_wrong(plan, plan.explore(scheduler, MOST_DEAD, dict([death])))
