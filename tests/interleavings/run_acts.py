"""What is done to a run at once, from which states, and what may be answered."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from app.errors import BusyError
from app.runs.sealing.lease import StoppedError

from .alone import dies_alone, work_alone
from .pairs import Act, Plan, pairs_of
from .points import Shared
from .run_faults import LimitedWorld, RunsWorld
from .runs_world import (
    ANY,
    CUT,
    DATA,
    OTHER,
    UNFIT,
    Process,
    begin,
    claimed,
    dying,
    empty,
    failed,
    half,
    left,
    poisoned,
    tired,
    unfinished,
    whole,
)
from .scheduler import Scheduler

_GONE = {"not-found", "run-expired"}
_WRITE = ("run-sealed", "upload-taken")


def _act(name: str, run: Callable[[Process], Any], *answers: str) -> Act[Process]:
    return Act(name, run, frozenset(answers))


CREATE = _act("create 1", lambda p: p.create(1), "partition-taken", "run-sealed")
CREATE_2 = _act("create 2", lambda p: p.create(2), "partition-taken", "run-sealed")
CREATE_ANY = _act("create any", lambda p: p.create(None), "run-sealed")
POST_ANY = _act("post any", lambda p: p.post(None, ANY), *_WRITE)
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
CONTINUE_2 = _act("continue 2", lambda p: p.continue_(2, DATA[2]), *CONTINUE.answers)
POST_3 = _act("post 3", lambda p: p.post(3, DATA[3]), "partition-taken", *_WRITE)
CHECKED = _act("append checked 1", lambda p: p.append_checked(1, DATA[1]), *CONTINUE.answers)
CREATE_RUN = _act("create run", lambda p: p.create_run())
LOOK = _act("look at 1", lambda p: p.look(1))
DELETE = _act("delete stream 1", lambda p: p.delete_stream(1), "run-sealed")
SEAL = _act("seal", lambda p: p.seal(), "seal-refused")
WORK = _act("work", lambda p: p.work())
MORE = _act("compute more", lambda p: p.compute_more())
SWEEP = _act("sweep", lambda p: p.sweep())
DELETE_RUN = _act("delete run", lambda p: p.delete_run())
STOP = _act("work until stopped", lambda p: p.work_in_vain(StoppedError()))
TRY = _act("work while busy", lambda p: p.work_in_vain(BusyError("others have the memory")))
FAIL = _act("work and fail", lambda p: p.work_in_vain(UNFIT))
TAKE_OVER = _act("take over", lambda p: p.take_over())
ALONE = _act("work alone", work_alone)
RUN_2 = _act("create run 2", lambda p: p.create_other_run("another"))
RUN_3 = _act("create run 3", lambda p: p.create_other_run("a third"))

RUN_BYTES = 400
"""More than those of one run, and fewer than those of two."""
REPORT_BYTES = 40
"""The same of reports."""

STATES: dict[str, tuple[list[Callable[[Process], Any]], list[Act[Process]]]] = {
    "no stream": (
        [],
        [POST, OTHERS, CREATE, CREATE_ANY, POST_ANY, POST_2, SEAL, DELETE_RUN, CREATE_RUN, SWEEP],
    ),
    "created": (
        [empty(1)],
        [POST, CREATE, CREATE_ANY, CONTINUE, LOOK, DELETE, SEAL, DELETE_RUN, SWEEP],
    ),
    "half": ([half(1)], [CREATE, CONTINUE, CHECKED, LOOK, DELETE, POST_2, SEAL, DELETE_RUN, SWEEP]),
    "unfinished": ([unfinished(1)], [CONTINUE, LOOK, DELETE, SEAL, CHECKED]),
    "whole": ([whole(1)], [SEAL, DELETE, CREATE, CREATE_2, POST_2, CONTINUE, DELETE_RUN, SWEEP]),
    "sealed": (
        [whole(1), whole(2), lambda process: process.seal()],
        [WORK, SEAL, DELETE, CREATE, MORE, LOOK, DELETE_RUN, CREATE_RUN, SWEEP],
    ),
}
"""Names of states: what leads to them, and what is done then."""
JOBS: dict[str, tuple[list[Callable[[Process], Any]], list[Act[Process]]]] = {
    "claimable": (
        [whole(1), lambda process: process.seal()],
        [SEAL, WORK, FAIL, STOP, TRY, TAKE_OVER, DELETE_RUN],
    ),
    "computing": (
        [whole(1), claimed],
        [SEAL, WORK, ALONE, FAIL, TAKE_OVER, MORE, SWEEP, DELETE_RUN],
    ),
    "tried often": ([whole(1), tired], [SEAL, WORK, STOP, TRY, SWEEP, DELETE_RUN]),
    "failed": ([whole(1), failed], [SEAL, WORK, FAIL, POST_2, DELETE, DELETE_RUN]),
    "suspect": ([whole(1), dying(0)], [ALONE, SEAL, TAKE_OVER, SWEEP, DELETE_RUN]),
    "died alone": ([whole(1), dying(2)], [SEAL, WORK, FAIL, ALONE, TAKE_OVER, DELETE_RUN]),
    "died for good": ([whole(1), dying(3)], [SEAL, WORK, FAIL, MORE, TAKE_OVER, DELETE_RUN]),
    "poisoned": ([whole(1), poisoned], [SEAL, WORK, FAIL, DELETE, TAKE_OVER, SWEEP, DELETE_RUN]),
}
"""The same of jobs, which workers claim, renew, release and take over, and operators retry."""
SUSPECTS = ("computing", "suspect", "died alone")
"""Those that are computed alone once they are claimed."""
LIMITED: dict[str, tuple[list[Callable[[Process], Any]], dict[str, int], list[Act[Process]]]] = {
    "room for one stream": ([], {"stream": 1}, [CREATE, CREATE_2, POST, POST_2, SEAL]),
    "no room for another stream": (
        [whole(1)],
        {"stream": 1},
        [DELETE, CREATE, CREATE_2, POST_2, DELETE_RUN, SWEEP],
    ),
    "room for one run": ([], {"run": 2}, [RUN_2, RUN_3, CREATE_RUN, DELETE_RUN]),
    "no room for another run": ([empty(1)], {"run": 1}, [RUN_2, CREATE_RUN, DELETE_RUN]),
}
"""The same at quotas, which are given by kind."""
CRAMPED: dict[str, tuple[list[Callable[[Process], Any]], dict[str, int], list[Act[Process]]]] = {
    "bytes for one append": (
        [half(1), half(2)],
        {"stream": len(DATA[1]) - CUT},
        [CONTINUE, CONTINUE_2, CHECKED, POST_3, LOOK, DELETE, DELETE_RUN],
    ),
    "bytes for one stream": ([], {"stream": len(DATA[1])}, [POST, POST_2, CREATE, SEAL]),
    "bytes for one run": ([whole(1)], {"run": RUN_BYTES}, [RUN_2, RUN_3, CREATE_RUN, SEAL]),
    "no bytes for a run": (
        [whole(1), lambda process: process.seal()],
        {"run": 0},
        [WORK, FAIL, MORE, SEAL, DELETE_RUN],
    ),
    "bytes for one report": (
        [whole(1), lambda process: process.seal(), lambda process: process.compute_more()],
        {"report": REPORT_BYTES},
        [WORK, FAIL, TAKE_OVER, SEAL, DELETE_RUN],
    ),
}
"""The same at quotas of bytes: so many more than there are by then."""


def begun(scheduler: Scheduler) -> dict[str, Shared]:
    """The states to begin from, by name."""
    new = Shared(scheduler)
    return {state: begin(new, *parts) for state, (parts, _) in STATES.items()}


def plans(scheduler: Scheduler) -> list[Plan[Process]]:
    """All pairs of acts, from all states."""
    states = begun(scheduler)
    pairs = pairs_of(RunsWorld(), {s: (states[s], acts) for s, (_, acts) in STATES.items()})
    return list(map(allowing, pairs))


def of_jobs(scheduler: Scheduler, count: int = 2) -> list[Plan[Process]]:
    """All sets of so many acts on jobs."""
    return list(map(allowing, _sets(scheduler, JOBS, count)))


def alone_of_jobs(scheduler: Scheduler) -> Iterator[Plan[Process]]:
    """Workers whose process of a suspect dies, for each of its calls, beside what others do."""
    new = Shared(scheduler)
    for state in SUSPECTS:
        shared = begin(new, *JOBS[state][0])
        for calls in itertools.takewhile(partial(dies_alone, shared), itertools.count()):
            run = partial(work_alone, dies_before=calls)
            act = _act(f"work alone, to die before call {calls}", run)
            for other in (act, ALONE, SEAL, TAKE_OVER, MORE, SWEEP, DELETE_RUN):
                yield allowing(Plan(RunsWorld(), state, shared, (act, other)))


def at_limits(scheduler: Scheduler) -> list[Plan[Process]]:
    """All pairs of acts at the limits of quotas."""
    new, found = Shared(scheduler), []
    states = [(s, begin(new, *parts).limited(**n), a) for s, (parts, n, a) in LIMITED.items()]
    states += [(s, begin(new, *parts).cramped(**n), a) for s, (parts, n, a) in CRAMPED.items()]
    for state, shared, acts in states:
        for pair in itertools.combinations_with_replacement(acts, 2):
            plan = allowing(Plan(LimitedWorld(shared, pair), state, shared, pair))
            limited = [replace(a, answers=a.answers | {"quota-exceeded"}) for a in plan.acts]
            found.append(replace(plan, acts=tuple(limited)))
    return found


def triples(scheduler: Scheduler) -> list[Plan[Process]]:
    """All sets of three acts, from all states."""
    return [*map(allowing, _sets(scheduler, STATES, 3)), *of_jobs(scheduler, 3)]


def _sets(
    scheduler: Scheduler,
    states: Mapping[str, tuple[list[Callable[[Process], Any]], list[Act[Process]]]],
    count: int,
) -> Iterator[Plan[Process]]:
    new = Shared(scheduler)
    for state, (parts, acts) in states.items():
        shared = begin(new, *parts)
        for chosen in itertools.combinations_with_replacement(acts, count):
            yield Plan(RunsWorld(), state, shared, chosen)


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
    """Let what is deleted be answered with 404."""
    names = [act.name for act in plan.acts]
    acts = []
    for place, act in enumerate(plan.acts):
        others = {*names[:place], *names[place + 1 :]}
        gone = "delete run" in others or "deleted" in plan.begin.names
        if act in {CONTINUE, CHECKED, LOOK, DELETE}:
            gone = gone or "delete stream 1" in others
        acts.append(replace(act, answers=act.answers | _GONE) if gone else act)
    return replace(plan, acts=tuple(acts))
