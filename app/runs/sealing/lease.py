"""The lease of a job: while its worker gives signs of life, no other takes it."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager

from app.errors import NotFoundError
from app.http.identity import USER_SCOPES, Identity

from .jobs import Job, Jobs
from .news import News
from .wanted import while_wanted
from .work import Workshop

_BEATS = 5
"""Beats in the time of a lease."""


class StoppedError(Exception):
    """The job is another worker's now, its run was deleted, or the server stops."""


class Lease:
    """Gives signs of life for a job until it ends."""

    def __init__(self, jobs: Jobs, job: Job, stopped: threading.Event, workshop: Workshop) -> None:
        self._jobs = jobs
        self.job = job
        self._stopped = stopped
        self._workshop = workshop
        self._lost = threading.Event()
        self._step = (0, 0)
        self._pause = jobs.lease / _BEATS
        self._due = time.monotonic() + self._pause

    def kept(self) -> AbstractContextManager[None]:
        """Give signs of life until a block ends; its work stops when the job is lost."""
        news = News(self.job.run, self._workshop.runs.watch.notices)
        owner = self.job.owner
        return while_wanted(owner, self._beat, self._lost, self._stopped, news, self._pause)

    def _beat(self) -> bool:
        """Give a sign of life if it is due; return whether the job is still to be done here."""
        try:
            self._workshop.runs.find(Identity(self.job.owner, USER_SCOPES), self.job.run)
        except NotFoundError:
            return False
        if time.monotonic() < self._due:
            return True
        self._due = time.monotonic() + self._pause
        return self.renew()

    def renew(self) -> bool:
        """Give a sign of life; return whether the job is still this worker's."""
        done, total = self._step
        job = self._jobs.change(self.job, beat=self.job.beat + 1, done=done, total=total)
        if job is None:
            self._lost.set()
            return False
        self.job = job
        self._workshop.runs.watch.announce(job.run)
        return True

    def proceed(self, done: int, total: int) -> None:
        """Note how far a step is.

        Raises:
            StoppedError: there is no use in going on.
        """
        self._step = (done, total)
        self.check()

    def check(self) -> None:
        """Check that the job is still this worker's.

        Raises:
            StoppedError: it is not, or the server stops.
        """
        if self._lost.is_set() or self._stopped.is_set():
            raise StoppedError

    def release(self) -> None:
        """Let any worker have the job."""
        self._jobs.change(self.job, worker="")
