"""The explorer: it tries all orders that differ, each once, and finds what is known to fail."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tests.scale import examples

from .calls import Call, LockStep, reads, writes
from .exploring import Explored, explore, sample
from .scheduler import DeadlockError, Operation, Outcome, Scheduler

Program = Sequence[Sequence[tuple[str, str]]]
"""For each operation, what it does to which variable."""


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler()
    yield made
    made.close()


@dataclass
class Toy:
    """Operations on variables that remember who did what to them."""

    scheduler: Scheduler
    program: Program
    seen: set[object] = field(default_factory=set)
    history: dict[str, list[object]] = field(default_factory=dict)

    @property
    def operations(self) -> list[Operation]:
        return [self._operation(n, steps) for n, steps in enumerate(self.program)]

    def _operation(self, number: int, steps: Sequence[tuple[str, str]]) -> Operation:
        def run() -> None:
            for at, (mode, name) in enumerate(steps):
                if mode in {"acquire", "release"}:
                    step: LockStep = "acquire" if mode == "acquire" else "release"
                    self.scheduler.point(Call(f"{mode} {name}", lock=name, step=step))
                    history = self.history.setdefault(f"lock {name}", [])
                    history.append((number, mode))
                    continue
                made = writes if mode == "write" else reads
                self.scheduler.point(made(f"{mode} {name}", "toy", name))
                history = self.history.setdefault(name, [])
                if mode == "write":
                    history.append((number, at))
                else:
                    # Reads commute: they are a set after the write that they saw.
                    if not history or not isinstance(history[-1], frozenset):
                        history.append(frozenset())
                    last = history.pop()
                    assert isinstance(last, frozenset)
                    history.append(last | {(number, at)})

        return run

    def trace(self) -> object:
        """What is the same in equivalent orders, and in no others."""
        return tuple((name, tuple(log)) for name, log in sorted(self.history.items()))

    def check(self, _outcomes: Sequence[Outcome]) -> list[str]:
        assert self.trace() not in self.seen, "an order was tried twice"
        self.seen.add(self.trace())
        return []


class Plan:
    """Choices from a list, then the first each time; notes what else could have been chosen."""

    def __init__(self, choices: list[int]) -> None:
        self._choices = choices
        self._at = 0
        self.others: list[list[int]] = []

    def choose(self, _pending: Mapping[int, Call], enabled: frozenset[int]) -> int:
        if self._at == len(self._choices):
            first, *others = sorted(enabled)
            self.others += [[*self._choices, other] for other in others]
            self._choices.append(first)
        self._at += 1
        return self._choices[self._at - 1]


def by_force(scheduler: Scheduler, program: Program) -> set[object]:
    """What all orders lead to, each tried."""
    seen: set[object] = set()
    plans = [Plan([])]
    while plans:
        plan = plans.pop()
        toy = Toy(scheduler, program)
        scheduler.run(toy.operations, plan.choose)
        plans += map(Plan, plan.others)
        seen.add(toy.trace())
    return seen


def drawn_program(rng: random.Random) -> Program:
    """Two or three operations on two variables and a lock."""
    program = []
    count = rng.choice([2, 2, 3])
    for _ in range(count):
        steps = [
            (rng.choice(["read", "write"]), rng.choice("xyz")) for _ in range(rng.randint(1, 3))
        ]
        if rng.random() < 0.4:
            at = rng.randint(0, len(steps))
            steps = [*steps[:at], ("acquire", "lock"), *steps[at:], ("release", "lock")]
        program.append(steps)
    return program


def test_every_order_is_tried_up_to_equivalence_and_once(scheduler: Scheduler) -> None:
    for seed in range(examples(20)):
        program = drawn_program(random.Random(seed))  # noqa: S311 - no secret
        seen: set[object] = set()
        explored = explore(lambda: Toy(scheduler, program, seen), scheduler)  # noqa: B023
        assert explored.classes == len(seen)
        assert seen == by_force(scheduler, program), program


@pytest.mark.parametrize(
    ("program", "classes"),
    [
        ([[("write", "x")] * 2, [("write", "y")] * 2], 1),
        ([[("read", "x")] * 3, [("read", "x")] * 3], 1),
        ([[("write", "x")], [("write", "x")]], 2),
        ([[("write", "x")] * 2, [("write", "x")] * 2], 6),
        ([[("write", "x")]] * 3, 6),
        ([[("write", "x")] * 4, [("read", "x")]], 5),
        ([[("acquire", "l"), ("write", "x"), ("write", "x"), ("release", "l")]] * 2, 2),
    ],
)
def test_programs_have_as_many_classes_as_they_should(
    scheduler: Scheduler, program: Program, classes: int
) -> None:
    seen: set[object] = set()
    assert explore(lambda: Toy(scheduler, program, seen), scheduler).classes == classes


@dataclass
class Counter:
    """Two operations that add one each to a number, by reading and then writing it."""

    scheduler: Scheduler
    value: int = 0

    @property
    def operations(self) -> list[Operation]:
        return [self._add, self._add]

    def _add(self) -> None:
        self.scheduler.point(reads("read n", "toy", "n"))
        seen = self.value
        self.scheduler.point(writes("write n", "toy", "n"))
        self.value = seen + 1

    def check(self, outcomes: Sequence[Outcome]) -> list[str]:
        ended = sum(not outcome.killed for outcome in outcomes)
        return [f"{self.value} is not {ended}"] if self.value != ended else []


def test_a_lost_update_is_found_and_told_in_few_words(scheduler: Scheduler) -> None:
    explored = explore(lambda: Counter(scheduler), scheduler)
    shortest = explored.shortest
    assert shortest is not None
    assert str(shortest).splitlines() == [
        "* 1 is not 2",
        "after",
        *("  A  read n", "  B  read n", "  B  write n", "  A  write n"),
    ]


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_an_operation_whose_process_dies_makes_no_further_call(
    scheduler: Scheduler, calls: int
) -> None:
    explored = explore(lambda: Counter(scheduler), scheduler, {0: calls})
    assert bool(explored.failures) == (calls == 2)
    assert all(f.deaths == ((0, calls),) for f in explored.failures)


@dataclass
class Locked:
    """Operations that hold locks, and clean up after themselves."""

    scheduler: Scheduler
    orders: Sequence[str]
    cleaned: list[str] = field(default_factory=list)

    @property
    def operations(self) -> list[Operation]:
        return [self._operation(order) for order in self.orders]

    def _operation(self, order: str) -> Callable[[], None]:
        def run() -> None:
            for name in order:
                self.scheduler.point(Call(f"acquire {name}", lock=name, step="acquire"))
            try:
                for name in order:
                    self.scheduler.point(Call(f"release {name}", lock=name, step="release"))
            except BaseException:
                self.scheduler.point(writes("clean", "toy", "n"))
                self.cleaned.append(order)
                raise

        return run

    def check(self, outcomes: Sequence[Outcome]) -> list[str]:
        return [repr(o.error) for o in outcomes if o.error is not None]


def test_a_death_frees_locks_and_cleans_nothing(scheduler: Scheduler) -> None:
    made = Locked(scheduler, ["l", "l"])
    explored = explore(lambda: made, scheduler, {0: 1})
    assert explored.classes == 2
    assert (explored.failures, made.cleaned) == ([], [])


def test_a_deadlock_is_found(scheduler: Scheduler) -> None:
    with pytest.raises(DeadlockError):
        explore(lambda: Locked(scheduler, ["ab", "ba"]), scheduler)
    assert explore(lambda: Locked(scheduler, ["ab", "ab"]), scheduler).classes == 2


def test_a_sample_repeats_itself(scheduler: Scheduler) -> None:
    def failing() -> list[str]:
        found: Explored = sample(lambda: Counter(scheduler), scheduler, range(20))
        assert found.executions == 20
        return [str(failure) for failure in found.failures]

    assert failing() == failing() != []


def test_tokens_are_drawn_alike_in_every_execution(scheduler: Scheduler) -> None:
    def drawn() -> list[list[str]]:
        def operation() -> list[str]:
            scheduler.point(reads("read n", "toy", "n"))
            return [scheduler.token(), scheduler.token(4)]

        outcomes = scheduler.run([operation, operation], lambda _calls, enabled: min(enabled))
        return [outcome.value for outcome in outcomes]

    first = drawn()
    assert first == drawn()
    assert len({*itertools.chain(*first)}) == 4
