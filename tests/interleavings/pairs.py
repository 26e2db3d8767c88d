"""Operations with what they may answer, run at once from one state, and looked at afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from .exploring import Explored, Failure, explore, sample
from .points import Shared
from .scheduler import Operation, Outcome, Scheduler

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)


@dataclass(frozen=True)
class Act(Generic[P]):
    """An operation of a client or of the service."""

    name: str
    run: Callable[[P], Any]
    """Takes the process that does it."""
    answers: frozenset[str]
    """Codes of the problems that it may answer with."""


@dataclass
class Done:
    """An act that ended."""

    name: str
    outcome: Outcome

    @property
    def acknowledged(self) -> bool:
        """Whether its answer was a success."""
        return not self.outcome.killed and self.outcome.error is None


class World(Protocol[P_co]):
    """What acts are done in."""

    def process(self, shared: Shared) -> P_co:
        """Return a process of the service, which has just started."""

    def look(self, shared: Shared, done: Sequence[Done]) -> list[str]:
        """Return what is wrong at the end, before and after what is left is swept."""


@dataclass
class Execution(Generic[P]):
    """Acts at once, each in a process of its own, or all in one."""

    world: World[P]
    acts: Sequence[Act[P]]
    shared: Shared
    together: bool = False
    operations: Sequence[Operation] = field(init=False)

    def __post_init__(self) -> None:
        process = self.world.process(self.shared)
        self.operations = [
            self._operation(act, process if self.together else self.world.process(self.shared))
            for act in self.acts
        ]

    @staticmethod
    def _operation(act: Act[P], process: P) -> Operation:
        return lambda: act.run(process)

    def check(self, outcomes: Sequence[Outcome]) -> list[str]:
        """See ``exploring.Execution``."""
        faults = []
        for letter, act, outcome in zip("ABCD", self.acts, outcomes, strict=False):
            if outcome.error is not None:
                code = getattr(outcome.error, "code", type(outcome.error).__name__)
                if code not in act.answers:
                    faults.append(f"{letter}, to {act.name}, answers {code}: {outcome.error}")
        done = [Done(act.name, o) for act, o in zip(self.acts, outcomes, strict=True)]
        if any(outcome.killed for outcome in outcomes):
            # The system has closed the files of who died.
            self.shared.written.clear()
        try:
            return faults + self.world.look(self.shared, done)
        except Exception as e:  # noqa: BLE001 - that things cannot be looked at is a fault
            return [*faults, f"afterwards, {type(e).__name__}: {e}"]


@dataclass
class Plan(Generic[P]):
    """Acts to explore, from a state."""

    world: World[P]
    state: str
    begin: Shared
    acts: tuple[Act[P], ...]
    together: bool = False

    @property
    def name(self) -> str:
        """Name for people."""
        where = " in one process" if self.together else ""
        return f"{self.state}: {' | '.join(act.name for act in self.acts)}{where}"

    def start(self) -> Execution[P]:
        """Begin an execution."""
        return Execution(self.world, self.acts, self.begin.copy(), self.together)

    def explore(
        self,
        scheduler: Scheduler,
        most: int | None = None,
        deaths: Mapping[int, int] | None = None,
    ) -> Explored:
        """Run the acts in every order; see ``exploring.explore``."""
        return explore(self.start, scheduler, deaths, most)

    def sample(
        self,
        scheduler: Scheduler,
        seeds: Sequence[int],
        deaths: Mapping[int, int] | None = None,
    ) -> Explored:
        """Run the acts in drawn orders."""
        return sample(self.start, scheduler, seeds, deaths)

    def explore_some(
        self, scheduler: Scheduler, most: int | None, deaths: Mapping[int, int] | None = None
    ) -> Explored:
        """Run the acts in every order, or in so many, and as many drawn ones; None for every."""
        explored = self.explore(scheduler, most, deaths)
        if most is not None and explored.executions == most:
            explored.add(self.sample(scheduler, range(most), deaths))
        return explored


def pairs_of(
    world: World[P], states: Mapping[str, tuple[Shared, Sequence[Act[P]]]]
) -> list[Plan[P]]:
    """Return the plans of all pairs of acts of each state, equal ones too."""
    return [
        Plan(world, state, begin, pair)
        for state, (begin, acts) in states.items()
        for pair in itertools.combinations_with_replacement(acts, 2)
    ]


def told(plan: Plan[P], failure: Failure) -> str:
    """Tell a failure in full."""
    died = "".join(f"; {'ABCD'[n]} dies before call {k}" for n, k in failure.deaths)
    return f"{plan.name}{died}\n{failure}"
