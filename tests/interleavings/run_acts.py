"""What is done to a run at once, from which states, and what may be answered."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .pairs import Act, Plan, pairs_of
from .points import Shared
from .run_faults import RunsWorld
from .runs_world import DATA, OTHER, Process, begin, empty, half, left, unfinished, whole
from .scheduler import Scheduler

_GONE = {"not-found", "run-expired"}
_WRITE = ("run-sealed", "upload-taken")


def _act(name: str, run: Callable[[Process], Any], *answers: str) -> Act[Process]:
    return Act(name, run, frozenset(answers))


CREATE = _act("create 1", lambda p: p.create(1), "partition-taken", "run-sealed")
CREATE_2 = _act("create 2", lambda p: p.create(2), "partition-taken", "run-sealed")
POST = _act("post 1", lambda p: p.post(1, DATA[1]), "partition-taken", *_WRITE)
OTHERS = _act("post other 1", lambda p: p.post(1, OTHER), "partition-taken", *_WRITE)
POST_2 = _act("post 2", lambda p: p.post(2, DATA[2]), "partition-taken", *_WRITE)
CONTINUE = _act(
    "continue 1",
    lambda p: p.continue_(1, DATA[1]),
    *_WRITE,
    "offset-mismatch",
    "upload-complete",
)
CHECKED = _act("append checked 1", lambda p: p.append_checked(1, DATA[1]), *CONTINUE.answers)
CREATE_RUN = _act("create run", lambda p: p.create_run())
LOOK = _act("look at 1", lambda p: p.look(1))
DELETE = _act("delete stream 1", lambda p: p.delete_stream(1), "run-sealed")
SEAL = _act("seal", lambda p: p.seal(), "seal-refused")
WORK = _act("work", lambda p: p.work())
MORE = _act("compute more", lambda p: p.compute_more())
SWEEP = _act("sweep", lambda p: p.sweep())
DELETE_RUN = _act("delete run", lambda p: p.delete_run())

STATES: dict[str, tuple[list[Callable[[Process], Any]], list[Act[Process]]]] = {
    "no stream": ([], [POST, OTHERS, CREATE, POST_2, SEAL, DELETE_RUN, CREATE_RUN, SWEEP]),
    "created": ([empty(1)], [POST, CREATE, CONTINUE, LOOK, DELETE, SEAL, DELETE_RUN, SWEEP]),
    "half": ([half(1)], [CREATE, CONTINUE, CHECKED, LOOK, DELETE, POST_2, SEAL, DELETE_RUN, SWEEP]),
    "unfinished": ([unfinished(1)], [CONTINUE, LOOK, DELETE, SEAL, CHECKED]),
    "whole": ([whole(1)], [SEAL, DELETE, CREATE, CREATE_2, POST_2, CONTINUE, DELETE_RUN, SWEEP]),
    "sealed": (
        [whole(1), whole(2), lambda process: process.seal()],
        [WORK, SEAL, DELETE, CREATE, MORE, LOOK, DELETE_RUN, CREATE_RUN, SWEEP],
    ),
}
"""Names of states: what leads to them, and what is done then."""


def begun(scheduler: Scheduler) -> dict[str, Shared]:
    """The states to begin from, by name."""
    new = Shared(scheduler)
    return {state: begin(new, *parts) for state, (parts, _) in STATES.items()}


def plans(scheduler: Scheduler) -> list[Plan[Process]]:
    """All pairs of acts, from all states."""
    states = begun(scheduler)
    pairs = pairs_of(RunsWorld(), {s: (states[s], acts) for s, (_, acts) in STATES.items()})
    return list(map(allowing, pairs))


def triples(scheduler: Scheduler) -> list[Plan[Process]]:
    """All sets of three acts, from all states."""
    states = begun(scheduler)
    return [
        allowing(Plan(RunsWorld(), state, states[state], chosen))
        for state, (_, acts) in STATES.items()
        for chosen in itertools.combinations_with_replacement(acts, 3)
    ]


def repairs(scheduler: Scheduler) -> Iterator[Plan[Process]]:
    """What others do while a sweeper removes what a death has left a day ago, for each death."""
    states = begun(scheduler)
    for state, (_, acts) in STATES.items():
        for act in acts:
            for calls in itertools.count():
                remains = left(states[state], act.run, calls)
                if remains is None:
                    break
                for other in (CREATE, POST, SEAL, WORK, DELETE_RUN, SWEEP):
                    name = f"{state}, {act.name} died before call {calls}"
                    yield allowing(Plan(RunsWorld(), name, remains, (SWEEP, other)))


def allowing(plan: Plan[Process]) -> Plan[Process]:
    """Let what is deleted, or replaced before it had any bytes, be answered with 404."""
    names = [act.name for act in plan.acts]
    acts = []
    for place, act in enumerate(plan.acts):
        others = {*names[:place], *names[place + 1 :]}
        gone = "delete run" in others or "deleted" in plan.begin.names
        if act in {CONTINUE, CHECKED, LOOK, DELETE}:
            replaced = plan.state == "created" and others & {"create 1", "post 1", "post other 1"}
            gone = gone or "delete stream 1" in others or bool(replaced)
        acts.append(replace(act, answers=act.answers | _GONE) if gone else act)
    return replace(plan, acts=tuple(acts))
