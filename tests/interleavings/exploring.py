"""Every order of the calls of a few operations, up to equivalence.

Two orders are equivalent if one becomes the other by exchanging neighbours that commute. This is
dynamic partial order reduction (Flanagan and Godefroid, 2005) with sleep sets: each execution
shows which of its calls could have come the other way round, and only these orders are tried next.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .calls import Call
from .scheduler import Operation, Outcome, Scheduler

Step = tuple[int, str]
"""Number of an operation, and its call."""


class Execution(Protocol):
    """One execution, from a state of its own."""

    @property
    def operations(self) -> Sequence[Operation]:
        """What is to be run at once."""

    def check(self, outcomes: Sequence[Outcome]) -> list[str]:
        """Return what is wrong after all operations have ended."""


Start = Callable[[], Execution]


@dataclass(frozen=True)
class Failure:
    """An order after which something is wrong."""

    steps: tuple[Step, ...]
    faults: tuple[str, ...]
    deaths: tuple[tuple[int, int], ...] = ()

    @property
    def weight(self) -> tuple[int, int]:
        """Less for what is easier to follow: changes between operations, and calls."""
        numbers = [number for number, _ in self.steps]
        return sum(a != b for a, b in itertools.pairwise(numbers)), len(numbers)

    def __str__(self) -> str:
        lines = [f"  {'ABCD'[number]}  {text}" for number, text in self.steps]
        return "\n".join([*(f"* {fault}" for fault in self.faults), "after", *lines])


@dataclass
class Explored:
    """What an exploration saw."""

    classes: int = 0
    """Orders that are not equivalent."""
    executions: int = 0
    calls: int = 0
    seconds: float = 0.0
    longest: tuple[int, ...] = ()
    """Most calls that each operation made."""
    failures: list[Failure] = field(default_factory=list)

    @property
    def shortest(self) -> Failure | None:
        """The failure that is easiest to follow."""
        return min(self.failures, key=lambda failure: failure.weight, default=None)

    def add(self, other: Explored) -> None:
        """Add up two explorations."""
        self.classes += other.classes
        self.executions += other.executions
        self.calls += other.calls
        self.seconds += other.seconds
        self.failures += other.failures


@dataclass(slots=True)
class _Node:
    """A state of an execution, and what is known of the choices there."""

    pending: Mapping[int, Call]
    enabled: frozenset[int]
    sleep: set[int]
    """Operations whose call leads to nothing new."""
    chosen: int = -1
    backtrack: set[int] = field(default_factory=set)
    """Operations to choose there, in this or another execution."""
    clock: dict[int, int] = field(default_factory=dict)
    """Of the chosen call: by operation, the depth of its last call that comes before in any
    equivalent order."""

    @property
    def call(self) -> Call:
        return self.pending[self.chosen]


class _Search:
    """The choices of all executions; see the module."""

    def __init__(self) -> None:
        self.stack: list[_Node] = []
        self.depth = 0
        self.steps: list[Step] = []
        self.blocked = False
        """Whether an equivalent execution has been seen."""
        self._last = -1

    def begin(self) -> None:
        """Begin an execution, which repeats the choices that are on the stack."""
        self.depth, self.blocked, self._last = 0, False, -1
        self.steps.clear()

    def choose(self, pending: Mapping[int, Call], enabled: frozenset[int]) -> int | None:
        """See ``Choose``."""
        if self.depth < len(self.stack):
            node = self.stack[self.depth]
            if node.pending != pending:
                raise AssertionError(f"a replay differs: {node.pending} and {pending}")
        else:
            node = _Node(pending, enabled, self._asleep(pending))
            self._note_races(pending)
            awake = enabled - node.sleep
            if not awake:
                self.blocked = True
                return None
            node.chosen = self._last if self._last in awake else min(awake)
            node.backtrack.add(node.chosen)
            self.stack.append(node)
        if not node.clock:
            node.clock = self._clock(node, self.depth)
        self.depth += 1
        self._last = node.chosen
        self.steps.append((node.chosen, node.call.text))
        return node.chosen

    def _asleep(self, pending: Mapping[int, Call]) -> set[int]:
        """Return the operations that sleep after the last choice."""
        if not self.stack:
            return set()
        last = self.stack[-1]
        return {n for n in last.sleep if n in pending and not pending[n].depends_on(last.call)}

    def _clock(self, node: _Node, depth: int) -> dict[int, int]:
        clock: dict[int, int] = {}
        for earlier in self.stack[:depth]:
            if earlier.chosen == node.chosen or earlier.call.depends_on(node.call):
                _advance(clock, earlier.clock)
        clock[node.chosen] = depth
        return clock

    def _note_races(self, pending: Mapping[int, Call]) -> None:
        """Have each next call tried before those that it could have come before."""
        known: dict[int, dict[int, int]] = {}
        for node in self.stack:
            known[node.chosen] = node.clock
        for number, call in pending.items():
            before = dict(known.get(number, {}))
            races = []
            for depth in range(len(self.stack) - 1, -1, -1):
                node = self.stack[depth]
                if depth <= before.get(node.chosen, -1) or not call.depends_on(node.call):
                    continue
                if call.may_wait_for(node.call):
                    races.append(depth)
                    _advance(before, node.clock)
            for depth in races:
                self._reverse(depth, number, before)

    def _reverse(self, depth: int, number: int, before: Mapping[int, int]) -> None:
        """Have an operation's next call, which comes after ``before``, tried before another."""
        first = self.stack[depth]
        free: dict[int, int] = {}
        """By operation, its first call that comes after the other, and not because of it."""
        initials: set[int] = set()
        for at in range(depth + 1, len(self.stack)):
            node = self.stack[at]
            if node.clock.get(first.chosen, -1) < depth and node.chosen not in free:
                if _is_first(node.clock, free):
                    initials.add(node.chosen)
                free[node.chosen] = at
        if number not in free and _is_first(before, free):
            initials.add(number)
        initials &= first.enabled
        if initials & first.backtrack:
            return
        if initials:
            first.backtrack.add(number if number in initials else min(initials))
        else:
            first.backtrack |= first.enabled

    def forth(self) -> bool:
        """Go to the next execution; return whether there is one."""
        while self.stack:
            node = self.stack[-1]
            node.sleep.add(node.chosen)
            left = node.backtrack - node.sleep
            if left:
                node.chosen = min(left)
                node.clock = {}
                return True
            self.stack.pop()
        return False


def _advance(clock: dict[int, int], other: Mapping[int, int]) -> None:
    for number, at in other.items():
        clock[number] = max(clock.get(number, -1), at)


def _is_first(clock: Mapping[int, int], free: Mapping[int, int]) -> bool:
    """Whether a call may come before all that are free."""
    return all(clock.get(number, -1) < at for number, at in free.items())


def explore(
    start: Start,
    scheduler: Scheduler,
    deaths: Mapping[int, int] | None = None,
    most: int | None = None,
) -> Explored:
    """Run operations in every order of their calls, up to equivalence.

    Args:
        start: begins an execution.
        scheduler: runs them.
        deaths: by the number of an operation, that of the call before which its process dies.
        most: executions after which to stop; None for no end.
    """
    search, explored, began = _Search(), Explored(), time.process_time()
    while True:
        search.begin()
        execution = start()
        outcomes = _outcomes(scheduler, execution, search, deaths)
        explored.executions += 1
        explored.calls += len(search.steps)
        counts = tuple(outcome.calls for outcome in outcomes)
        explored.longest = tuple(map(max, counts, explored.longest or counts))
        if not search.blocked:
            explored.classes += 1
            _look(execution, outcomes, search.steps, explored, deaths)
        if not search.forth() or explored.executions == most:
            break
    explored.seconds = time.process_time() - began
    return explored


def _outcomes(
    scheduler: Scheduler,
    execution: Execution,
    search: _Search,
    deaths: Mapping[int, int] | None,
) -> Sequence[Outcome]:
    wrong: list[BaseException] = []

    def choose(pending: Mapping[int, Call], enabled: frozenset[int]) -> int | None:
        try:
            return search.choose(pending, enabled)
        except AssertionError as e:
            # Not into the operation, which might take it for a fault of its own.
            wrong.append(e)
            return None

    outcomes = scheduler.run(execution.operations, choose, deaths)
    if wrong:
        raise wrong[0]
    return outcomes


def _look(
    execution: Execution,
    outcomes: Sequence[Outcome],
    steps: Sequence[Step],
    explored: Explored,
    deaths: Mapping[int, int] | None,
) -> None:
    faults = execution.check(outcomes)
    if faults:
        died = tuple((deaths or {}).items())
        explored.failures.append(Failure(tuple(steps), tuple(faults), died))


class Drawn:
    """Choices by a seed: long stretches of one operation are as likely as constant changes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._staying = seed % 4 / 4
        self.steps: list[Step] = []

    def choose(self, pending: Mapping[int, Call], enabled: frozenset[int]) -> int:
        """See ``Choose``."""
        last = self.steps[-1][0] if self.steps else -1
        stays = last in enabled and self._random.random() < self._staying
        chosen = last if stays else self._random.choice(sorted(enabled))
        self.steps.append((chosen, pending[chosen].text))
        return chosen


def sample(
    start: Start,
    scheduler: Scheduler,
    seeds: Sequence[int],
    deaths: Mapping[int, int] | None = None,
) -> Explored:
    """Run operations in drawn orders, one a seed; see ``explore``."""
    explored, began = Explored(), time.process_time()
    for seed in seeds:
        drawn, execution = Drawn(seed), start()
        outcomes = scheduler.run(execution.operations, drawn.choose, deaths)
        explored.executions += 1
        explored.calls += len(drawn.steps)
        _look(execution, outcomes, drawn.steps, explored, deaths)
    explored.seconds = time.process_time() - began
    return explored
