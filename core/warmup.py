"""Compiles every kernel by using it on a few bytes, and publishes the build.

The work is a list of tasks, most of which come from the tables of formats and stages: a new
format or stage is warmed up because its row says how. Compiling takes some 45 seconds of one
core, so where another process can be had it takes half of the tasks::

    this process    |-- tasks of its half --|-- absorb the other's build --|-- publish
    another process |-- tasks of its half --|

Two threads would not do: compilers hold a lock. Kernels that tasks of both halves call are
compiled twice; the halves are chosen so that there are few.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ._jit import absorb, hand_over, is_build_published, publish
from .losses.warm import use_all_losses, use_all_summaries, use_ledgers, use_tables
from .pipelines.operations import OPERATIONS
from .pipelines.warm import use_operation
from .rng.warm import use_random_numbers
from .tiles.formats import FORMATS
from .tiles.warm import use_format, use_reading, use_reductions

Wait = Callable[[], str | None]
"""Waits for another process; gives the directory of its build, or None if it failed."""
_START_WEIGHT = 7.0
"""How long another process takes to start, and to import what this one has, as a weight."""
Start = Callable[[Sequence[str]], Wait]
"""Calls :func:`compile_apart` with names of tasks in another process."""


@dataclass(frozen=True, slots=True)
class Task:
    """A part of the work."""

    name: str
    weight: float
    """How long compiling takes, about, in seconds of one core."""
    use: Callable[[], None]


def tasks() -> list[Task]:
    """All parts of the work, in the order they are done by one process."""
    listed = [
        # Of both widths by one process, as they share kernels.
        Task("losses", 25, use_all_losses),
        Task("summaries", 7.5, use_all_summaries),
        Task("ledgers", 12, use_ledgers),
        Task("tables", 1, use_tables),
        Task("tiles", 3, use_reading),
        Task("reductions", 2.5, use_reductions),
        Task("random numbers", 1.5, use_random_numbers),
    ]
    listed += [
        Task(f"format {form.name}", 0.3 * len(form.decoders), partial(use_format, form))
        for form in FORMATS.values()
        if form.decoders
    ]
    listed += [
        Task(f"stage {row.name}", 0.3 * len(row.samples), partial(use_operation, row))
        for row in OPERATIONS.values()
        if row.samples
    ]
    return listed


def halves(listed: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """The tasks in two lists that take about as long: the heaviest first, to the lighter list."""
    mine: list[Task] = []
    theirs: list[Task] = []
    for task in sorted(listed, key=lambda task: -task.weight):
        weights = [sum(each.weight for each in half) for half in (mine, theirs)]
        (mine if weights[0] <= weights[1] + _START_WEIGHT else theirs).append(task)
    return mine, theirs


def warm_up(start: Start | None = None) -> dict[str, float]:
    """Compile or load every kernel; return the seconds each task took here.

    After a first call on a machine the kernels are cached, where that is possible, and later
    processes load them in less than a second.

    Args:
        start: starts another process to take half of the work, where it has to be done.
    """
    listed = tasks()
    seconds: dict[str, float] = {}
    if start is not None and not is_build_published():
        mine, theirs = halves(listed)
        wait = start([task.name for task in theirs])
        for task in mine:
            seconds[task.name] = _timed(task)
        build = wait()
        if build is not None:
            absorb(build)
    for task in listed:
        seconds[task.name] = seconds.get(task.name, 0.0) + _timed(task)
    publish()
    return seconds


def compile_apart(names: Sequence[str]) -> str | None:
    """Do the tasks of these names for another process.

    Returns:
        The directory of the build, which that process is to absorb; None if there is none.
    """
    for task in tasks():
        if task.name in names:
            task.use()
    return hand_over()


def _timed(task: Task) -> float:
    begin = time.perf_counter()
    task.use()
    return time.perf_counter() - begin
