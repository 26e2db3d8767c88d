"""Compiles every kernel by using it on a few bytes, and publishes the build.

The work is a list of tasks, most of which come from the tables of formats and stages: a new
format or stage is warmed up because its row says how. Compiling takes some 55 seconds of one
core, so where another process can be had it takes its share::

    this process    |-- losses --------------------|-- stage scan --|-- load all, publish
    another process |-- ledgers --|-- summaries --|-- tiles --| ... |

Each takes the next task when it has done one, the longest first. Two threads would not do:
compilers hold a lock. Kernels that two tasks call at the same time are compiled twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from ._jit import is_build_published, publish
from .losses.warm import use_all_losses, use_all_summaries, use_ledgers, use_tables
from .pipelines.operations import OPERATIONS
from .pipelines.warm import use_operation
from .rng.warm import use_random_numbers
from .tiles.formats import FORMATS
from .tiles.warm import use_format, use_reading, use_reductions

Claim = Callable[[int], Iterable[int]]
"""Given a number of tasks, yields those that this process is to do, and ends when all are done."""


@dataclass(frozen=True, slots=True)
class Task:
    """A part of the work."""

    name: str
    use: Callable[[], None]


def tasks() -> list[Task]:
    """All parts of the work, the longest first."""
    listed = [
        # Of both widths by one process, as they share kernels.
        Task("losses", use_all_losses),
        Task("ledgers", use_ledgers),
        Task("summaries", use_all_summaries),
        Task("tiles", use_reading),
        Task("reductions", use_reductions),
        Task("random numbers", use_random_numbers),
        Task("tables", use_tables),
    ]
    listed += [
        Task(f"format {form.name}", partial(use_format, form))
        for form in FORMATS.values()
        if form.decoders
    ]
    listed += [
        Task(f"stage {row.name}", partial(use_operation, row))
        for row in OPERATIONS.values()
        if row.samples
    ]
    return listed


def warm_up(claim: Claim | None = None) -> dict[str, float]:
    """Compile or load every kernel; return the seconds each task took here.

    After a first call on a machine the kernels are cached, where that is possible, and later
    processes load them in less than a second.

    Args:
        claim: shares the work with another process, where it has to be done.
    """
    listed = tasks()
    seconds = {task.name: 0.0 for task in listed}
    if claim is not None and not is_build_published():
        for number in claim(len(listed)):
            seconds[listed[number].name] += _timed(listed[number])
    for task in listed:
        seconds[task.name] += _timed(task)
    publish()
    return seconds


def _timed(task: Task) -> float:
    begin = time.perf_counter()
    task.use()
    return time.perf_counter() - begin
