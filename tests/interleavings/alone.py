"""Processes that compute one job alone, of which each may die while its worker lives."""

from __future__ import annotations

import copy
from typing import cast

from app.runs.sealing.alone import Death
from app.runs.sealing.jobs import Job

from .calls import Call
from .points import Shared
from .runs_world import Process
from .scheduler import Scheduler


class _DeadError(BaseException):
    """The process of the job is dead, and that of its worker is not."""


class _Mortal:
    """Points of a process, before one of which it dies."""

    def __init__(self, scheduler: Scheduler, dies_before: int | None) -> None:
        self._scheduler = scheduler
        self._dies_before = dies_before
        self._calls = 0

    def point(self, call: Call) -> None:
        """See Scheduler; the dead make no call."""
        if self._calls == self._dies_before:
            raise _DeadError
        self._scheduler.point(call)
        self._calls += 1


class AloneInPlace:
    """In the place of Alone: the process is another one on paper, in the thread of its worker.

    Args:
        worker: whose jobs they are.
        dies_before: number of the call, from 0, that no process of a job lives to make.
    """

    def __init__(self, worker: Process, dies_before: int | None) -> None:
        self._worker = worker
        self._dies_before = dies_before
        self.deaths = 0

    def run(self, job: Job) -> Death | None:
        """See Alone."""
        shared = copy.copy(self._worker.shared)
        shared.scheduler = cast("Scheduler", _Mortal(shared.scheduler, self._dies_before))
        try:
            Process(shared, self._worker.later).sealer.perform(job)
        except _DeadError:
            self.deaths += 1
            return Death(own=True, reason="SIGKILL")
        return None

    def stop(self) -> None:
        """Nothing: it has ended."""


def work_alone(process: Process, dies_before: int | None = None) -> int:
    """Do the jobs that are to be had, suspects alone; return how many processes died at that."""
    alone = AloneInPlace(process, dies_before)
    process.sealer._alone = alone  # type: ignore[assignment]
    process.sealer.look()
    return alone.deaths


def dies_alone(shared: Shared, calls: int) -> bool:
    """Whether the process of a suspect makes more calls than so many."""
    return work_alone(Process(shared.copy()), calls) > 0
