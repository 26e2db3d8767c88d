"""The lease of a job: while its worker gives signs of life, no other takes it.

Work in the background ends when nobody wants it any more.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from app.engine.request_budget import BudgetLimits, RequestBudget
from app.errors import NotFoundError, ServiceError
from app.http.identity import USER_SCOPES, Identity
from app.tracing import NO_TRACE, Trace

from ..watching import News
from .jobs import Job, Jobs
from .work import SealingContext

LOOK_SECONDS = 0.05
"""Seconds between two looks whether work is still wanted, where no news of its run are heard or the
store does not answer."""


@contextlib.contextmanager
def while_wanted(  # noqa: PLR0913, PLR0917 - of one piece of work
    owner: str,
    is_wanted: Callable[[], bool],
    gone: threading.Event,
    stopped: threading.Event,
    news: News,
    pause: float,
    trace: Trace = NO_TRACE,
) -> Iterator[None]:
    """Have the work in a block stop when it is no longer wanted; it has no other bounds.

    Args:
        owner: for whom the work is.
        is_wanted: asked again and again, in a thread of its own.
        gone: set once it has said no.
        stopped: set when the server stops.
        news: after which to ask again; used by nobody else.
        pause: seconds after which to ask again without news, if they are heard.
        trace: its span.

    Raises:
        CancelledError: from any look at the budget.
    """
    ended = threading.Event()
    longest = pause if news.listen() else min(pause, LOOK_SECONDS)

    def watch() -> None:
        while not ended.is_set():
            wait = longest
            try:
                if not is_wanted():
                    gone.set()
                    return
            except ServiceError:
                # The store may answer the next time.
                wait = min(pause, LOOK_SECONDS)
            news.wait(wait)

    endless = BudgetLimits(sys.maxsize, math.inf, sys.maxsize)
    watching = threading.Thread(target=watch, name="wanted", daemon=True)
    watching.start()
    budget = RequestBudget(endless, gone, stopped, owner)
    budget.trace = trace
    try:
        with budget.in_thread():
            yield
    finally:
        ended.set()
        news.set()
        watching.join()


_BEATS = 5
"""Beats in the time of a lease."""


class StoppedError(Exception):
    """The job is another worker's now, its run was deleted, or the server stops."""


class Lease:
    """Gives signs of life for a job until it ends."""

    def __init__(
        self, jobs: Jobs, job: Job, stopped: threading.Event, sealing: SealingContext
    ) -> None:
        self._jobs = jobs
        self.job = job
        self._stopped = stopped
        self._sealing = sealing
        self._lost = threading.Event()
        self._step = (0, 0)
        self._pause = jobs.lease / _BEATS
        self._due = time.monotonic() + self._pause

    def kept(self, trace: Trace = NO_TRACE) -> AbstractContextManager[None]:
        """Give signs of life until a block ends; its work stops when the job is lost."""
        news = News(self.job.run, self._sealing.runs.watch.notices)
        owner = self.job.owner
        return while_wanted(owner, self._beat, self._lost, self._stopped, news, self._pause, trace)

    def _beat(self) -> bool:
        """Give a sign of life if it is due; return whether the job is still to be done here."""
        try:
            self._sealing.runs.find(Identity(self.job.owner, USER_SCOPES), self.job.run)
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
        self._sealing.runs.watch.announce(job.run)
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
