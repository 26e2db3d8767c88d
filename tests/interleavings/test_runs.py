"""Runs and uploads: what several do at once, in every order of their calls."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

import pytest

from app.run_errors import PartitionTakenError
from app.runs.records import RunRecord, StreamRecord
from app.runs.streams import Streams
from app.state.base import HeadMissingError
from tests.scale import SOAK

from . import runs_world
from .exploring import Explored
from .pairs import Plan, told
from .run_acts import STATES, plans, repairs, triples
from .runs_world import Process
from .scheduler import Scheduler

DEATHS = 40
REPAIRS = 30
TRIPLES = 40
ORDERS = 100 if SOAK else 5
"""Drawn orders of three acts."""
MOST = None if SOAK else 80
"""Executions with one death."""
FIRST = [(state, act.name) for state, (_, acts) in STATES.items() for act in acts]


def nothing_is_wrong(plan: Plan[Process], explored: Explored) -> None:
    """Fail with the order that is the easiest to follow."""
    shortest = explored.shortest
    assert shortest is None, told(plan, shortest)
    assert explored.executions


def drawn(found: Sequence[Plan[Process]], count: int) -> Sequence[Plan[Process]]:
    """Some of the plans; all of them in a soak."""
    if SOAK or count >= len(found):
        return found
    return random.Random(27).sample(found, count)  # noqa: S311 - no secret


@pytest.mark.parametrize(("state", "first"), FIRST)
def test_two_acts_may_meet_in_any_order(scheduler: Scheduler, state: str, first: str) -> None:
    for plan in plans(scheduler):
        if (plan.state, plan.acts[0].name) == (state, first):
            nothing_is_wrong(plan, plan.explore(scheduler))


def test_a_process_may_die_before_any_call(scheduler: Scheduler) -> None:
    for place, plan in enumerate(drawn(plans(scheduler), DEATHS)):
        longest = plan.explore(scheduler, most=MOST).longest
        points = [(n, k) for n, calls in enumerate(longest) for k in range(calls)]
        for death in points if SOAK else points[place % 7 :: 7][:1]:
            nothing_is_wrong(plan, plan.explore(scheduler, MOST, dict([death])))


def test_what_a_death_left_is_removed_while_others_go_on(scheduler: Scheduler) -> None:
    for plan in drawn(list(repairs(scheduler)), REPAIRS):
        nothing_is_wrong(plan, plan.explore(scheduler, MOST))


def test_three_acts_may_meet_in_drawn_orders(scheduler: Scheduler) -> None:
    for plan in drawn(triples(scheduler), TRIPLES):
        nothing_is_wrong(plan, plan.sample(scheduler, range(ORDERS)))


class CheckingThenActing(Streams):
    """Streams that look at a partition first, and replace what is there afterwards."""

    def _create(self, run: RunRecord, stream: StreamRecord) -> StreamRecord:
        known = self.find(run, stream.partition)
        if known is not None and not known.is_untouched:
            raise PartitionTakenError("the partition is being uploaded")
        with contextlib.suppress(HeadMissingError):
            self._heads.delete(run.owner, stream.key)
        return StreamRecord.decode(
            self._heads.insert(run.owner, stream.key, stream.encode(), size=0)
        )


def test_a_check_before_an_act_is_found(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_world, "Streams", CheckingThenActing)
    (plan,) = (p for p in plans(scheduler) if p.name == "no stream: post 1 | create 1")
    failures = plan.explore(scheduler).failures
    lost = [f for f in failures if any("is gone" in fault for fault in f.faults)]
    shortest = min(lost, key=lambda failure: failure.weight)
    calls = [f"{'AB'[number]} {text.rpartition(' ')[0]}" for number, text in shortest.steps]
    # Between B's look at the partition and its deletion, A has created it and uploaded to it.
    looked, created, deleted = map(
        calls.index, ("B get stream", "A create stream", "B delete stream")
    )
    assert looked < created < deleted, told(plan, shortest)
