"""Runs and uploads of two processes on SQLite and files, in drawn orders of their calls."""

from __future__ import annotations

import itertools
import random
from contextlib import closing
from pathlib import Path

from tests.scale import SOAK

from .exploring import Failure
from .pairs import Execution, Plan, told
from .run_acts import STATES, allowing
from .run_faults import RunsWorld
from .runs_world import begin
from .scheduler import Scheduler
from .two_processes import Stored, TwoProcesses

ORDERS = 200 if SOAK else 12


def test_nothing_is_wrong_after_drawn_orders(scheduler: Scheduler, tmp_path: Path) -> None:
    pairs = [
        (state, pair)
        for state, (_, acts) in STATES.items()
        for pair in itertools.combinations_with_replacement(acts, 2)
    ]
    pairs = random.Random(27).sample(pairs, min(ORDERS, len(pairs)))  # noqa: S311 - no secret
    directory = tmp_path / "data"
    with closing(Stored(scheduler, directory)) as stored, closing(TwoProcesses(directory)) as two:
        for seed in range(ORDERS):
            state, acts = pairs[seed % len(pairs)]
            shared = begin(stored, *STATES[state][0])
            plan = allowing(Plan(RunsWorld(), state, shared, acts))
            outcomes, steps = two.run([act.name for act in acts], shared.names, seed)
            faults = Execution(plan.world, plan.acts, shared).check(outcomes)
            assert not faults, told(plan, Failure(tuple(steps), tuple(faults)))
