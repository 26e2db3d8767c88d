"""Sealing: a run is checked, and its reports computed in the background.

::

    POST seal ──checks──▶ job (a record) + state sealed ──▶ a worker claims the job
                                                          state computing, beats
                                                          segments, rows, reports published
                                                          state done | failed, job deleted

The job comes before the state, so that a sealed run always has one: a crash between the two
leaves a job of a run that is still open, which is dropped after a while; who is refused takes the
job back. After the state the job is asked for anew: a worker that has failed the run ends the job a
moment later, but only as it knew it. Whatever a worker has published when it is killed is there for
the one that takes the job over. Two workers that both believe to have a job publish the same bytes;
only one of them may say how the run ended.

A fault of the streams, or of what the client stored, ends the run as *failed* and is named; the
client repairs it and seals again. Where a store, the disk or the memory fails, the job is given
back and tried again. Where a worker dies that had a job, the job is computed in a process of its
own; if three of these die, the run has failed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from app.engine.ledger import Ledger
from app.engine.request_budget import current_trace
from app.errors import (
    BusyError,
    EngineUnavailableError,
    NotFoundError,
    ServiceError,
    ShareExceededError,
    StorageFullError,
    TooLargeError,
    problem_of,
)
from app.http.identity import USER_SCOPES, Identity
from app.run_errors import ProcessDiedError
from app.state.base import StoreDamagedError, StoreError, StoreFullError
from app.state.notices import Notices
from app.tracing import Trace
from core.errors import CancelledError, CoreError

from ..records import RunRecord, RunState
from ..store import always
from ..streams import Change
from ..watching import News
from .ahead import SegmentsAhead
from .alone import Alone, Death
from .checks import check_sealable
from .jobs import ATTEMPTS, Job, Jobs, Variant, job_of
from .lease import Lease, StoppedError
from .work import SealingContext, SealingWork

_UNDER_WAY = {"sealed", "computing"}
"""States of runs that have a job."""
INTERVAL = 3.0
"""Seconds between two looks for jobs of other workers."""
_FAILURES = (BusyError, EngineUnavailableError, ShareExceededError, StorageFullError, StoreError)
"""Failures of the server, which pass."""
_FULL = (StorageFullError, StoreFullError)


def _unchanged(run: RunRecord) -> RunRecord:
    return run


class _NotSealedError(Exception):
    """The run of a job is not sealed, or not yet."""


class Sealer:
    """Seals runs, and computes their reports in a thread.

    Args:
        sealing: what to work with.
        jobs: those of all workers.
        interval: seconds between two looks for jobs.
        alone: computes suspects; None in a process that is to compute them itself.
        notices: by which processes tell each other of jobs.
    """

    def __init__(
        self,
        sealing: SealingContext,
        jobs: Jobs,
        interval: float = INTERVAL,
        alone: Alone | None = None,
        notices: Notices | None = None,
    ) -> None:
        self.sealing = sealing
        self.jobs = jobs
        self._alone = alone
        self._interval = interval
        self._news = News("jobs", notices)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.ahead = SegmentsAhead(sealing, jobs, self._news, self._stopped)
        self.on_ended: Callable[[str, float], None] = lambda _state, _seconds: None
        """Is told the state and the seconds of each run that was computed, or cannot be."""

    def start(self) -> None:
        """Start the thread."""
        self._news.listen()
        self._thread = threading.Thread(target=self._run, name="sealing", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Have the present job given back, and begin no other."""
        self._stopped.set()
        self._news.set()
        if self._alone is not None:
            self._alone.stop()

    def close(self) -> None:
        """Stop, and wait until the present job was given back; may be called twice."""
        self.stop()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    # -- requests ----------------------------------------------------------------

    def seal(self, run: RunRecord, change: Change = _unchanged) -> RunRecord:
        """Seal a run: check it, and have its reports computed. Again, it changes nothing.

        Args:
            run: the run.
            change: gives it the options that it is sealed with, and refuses others of one that is
                sealed. They are stored with the seal: one that is refused leaves the run as it was.

        Raises:
            SealRefusedError: naming each stream at fault.
            CoreError, ServiceError: an input is missing, or does not fit the reports.
        """
        changed = change(run)
        if run.state == "done":
            return run
        job = job_of(run)
        if run.state in _UNDER_WAY:
            # A job that is dropped, such as by a restored backup, is made again.
            self.jobs.create(job)
            self._take_back(job, run)
            return run
        sealing = self.sealing
        check_sealable(run, sealing.streams.of(run), sealing.spec(changed, Variant()).missing)
        sealing.request(changed, Variant(), job.reports)
        self.jobs.create(job)
        try:
            check = partial(check_sealable, changed, missing=())
            sealed = sealing.streams.seal(run, check, change)
        except ServiceError:
            with contextlib.suppress(ServiceError):
                self._take_back(job, run)
            raise
        if sealed.state in _UNDER_WAY:
            self.jobs.create(job, anew=True)
        self._news.tell()
        return sealed

    def _take_back(self, job: Job, run: RunRecord) -> None:
        """Delete a job if its run is not sealed, or not any more, or is gone."""
        known = self.jobs.find(job)
        while known is not None and not known.suspect and not self._is_for(job, run):
            if self.jobs.delete(known):
                if self._is_for(job, run):
                    # Another request has sealed it in the meantime.
                    self.jobs.create(job)
                return
            known = self.jobs.find(job)

    def _is_for(self, job: Job, run: RunRecord) -> bool:
        """Whether a run, as it is now, has use for a job."""
        try:
            now = self.sealing.runs.again(run)
        except NotFoundError:
            return False
        return now.state in _UNDER_WAY if job.seals else now.created == run.created

    def compute(self, run: RunRecord, reports: tuple[str, ...], variant: Variant) -> Job:
        """Have further reports of a sealed run computed, from what is stored of it.

        Raises:
            CoreError, ServiceError: an input is missing, or does not fit the reports.
        """
        self.sealing.request(run, variant, reports)
        trace = current_trace().header or ""
        job = Job(run.owner, run.id, reports, variant, seals=False, trace=trace)
        self.jobs.create(job)
        self._take_back(job, run)
        self._news.tell()
        return job

    # -- the thread --------------------------------------------------------------

    def _run(self) -> None:
        log = structlog.get_logger()
        while not self._stopped.is_set():
            # Before looking, so that no death is missed between looking and waiting.
            with self._news.watching(self.jobs.presence.pids()):
                try:
                    self.look()
                    # One stream at a time: jobs come first.
                    if self.ahead.work():
                        continue
                except ServiceError as e:
                    log.warning("jobs of sealing cannot be read", reason=str(e))
                except Exception:
                    log.exception("sealing failed")
                self._news.wait(self._interval)

    def look(self) -> None:
        """Do the jobs that are to be had, one of each owner in turn."""
        tried: set[tuple[str, str]] = set()
        while True:
            firsts: dict[str, Job] = {}
            for job in self.jobs.claimable():
                if (job.owner, job.ident) not in tried:
                    firsts.setdefault(job.owner, job)
            if not firsts:
                return
            for job in firsts.values():
                if self._stopped.is_set():
                    return
                tried.add((job.owner, job.ident))
                try:
                    self._do(job)
                except ServiceError as e:
                    # It is to be had again once its lease is over; others are not to wait for that.
                    log = structlog.get_logger().bind(run=job.run)
                    log.warning("a job of sealing cannot be ended", reason=str(e))

    def _do(self, job: Job) -> None:
        """Do a job, unless another worker is first."""
        claimed = self.jobs.claim(job)
        if claimed is None:
            return
        if claimed.is_poisoned:
            # Whoever counted its last death did not come to say so.
            self._fail(claimed, _poison(claimed))
        elif claimed.suspect and self._alone is not None:
            self._isolate(claimed, self._alone)
        else:
            self.perform(claimed)

    def _isolate(self, claimed: Job, alone: Alone) -> None:
        """Have a suspect computed alone, and count its death if it was its own."""
        try:
            run, begun = self._begin(claimed), time.monotonic()
            if run is None:
                self.jobs.delete(claimed)
                return
            death = alone.run(claimed)
            if death is None and claimed.seals:
                self._count_alone(run, begun)
        except _NotSealedError:
            self._leave(claimed)
            return
        except OSError as e:
            death = Death(own=False, reason=e.strerror or str(e))
        job = None if death is None else self.jobs.find(claimed)
        if death is None or job is None or job.worker != claimed.worker:
            return
        log = structlog.get_logger().bind(run=job.run, reason=death.reason)
        if self._stopped.is_set():
            self.jobs.change(job, worker="")
        elif not death.own:
            self._try_again(job, BusyError(f"no process computes the run: {death.reason}"))
        else:
            log.error("a process died that computed one job alone", deaths=job.deaths + 1)
            job = replace(job, deaths=job.deaths + 1, death=death.reason)
            worker = job.worker if job.is_poisoned else ""
            changed = self.jobs.change(job, worker=worker)
            if changed is not None and changed.is_poisoned:
                self._fail(changed, _poison(changed))
            self._news.set()

    def perform(self, job: Job) -> None:
        """Compute a job that was claimed, in this process."""
        begun = time.monotonic()
        with self.sealing.tracing.job("seal", job.trace, run=job.run, owner=job.owner) as trace:
            ended = self._perform(job, trace)
            trace.set(ended=ended or "given back")
        if ended:
            self.on_ended(ended, time.monotonic() - begun)

    def _perform(self, job: Job, trace: Trace) -> str:
        """Compute a job; return the state that its run came into, if it is over."""
        lease = Lease(self.jobs, job, self._stopped, self.sealing)
        ended = ""
        try:
            with lease.kept(trace):
                run = self._begin(job)
                if run is not None:
                    work = SealingWork(self.sealing, run, job, lease.proceed)
                    work.run()
                    lease.check()
                    self._finish(run, job, None, work.remarks())
                    ended = "done"
            self.jobs.delete(lease.job)
        except (StoppedError, CancelledError):
            lease.release()
        except _NotSealedError:
            self._leave(lease.job)
        except _FAILURES as e:
            self._try_again(lease.job, e)
        except (CoreError, ServiceError, MemoryError) as e:
            ended = "failed"
            too_large = isinstance(e, MemoryError)
            self._fail(lease.job, _too_large(self.sealing.losses.ledger) if too_large else e)
        except Exception as e:
            ended = "failed"
            log = structlog.get_logger().bind(run=job.run)
            log.exception("sealing failed")
            self._fail(lease.job, e)
        return ended

    def _count_alone(self, run: RunRecord, begun: float) -> None:
        """Count a run that another process computed: its metrics end with it."""
        with contextlib.suppress(NotFoundError):
            state = self.sealing.runs.again(run).state
            if state in {"done", "failed"}:
                self.sealing.runs.on_state(state)
                self.on_ended(state, time.monotonic() - begun)

    def _leave(self, job: Job) -> None:
        """Leave a job whose run is open: its request is about to seal the run, or has died."""
        if job.attempts + 1 >= ATTEMPTS:
            self.jobs.delete(job)
        else:
            self.jobs.change(job, worker="", attempts=job.attempts + 1)

    def _try_again(self, job: Job, error: ServiceError) -> None:
        """Give a job back because the server failed, unless it has done so too often."""
        # For room on the disk it waits, however long.
        tired = job.attempts + 1 >= ATTEMPTS and not isinstance(error, _FULL)
        if isinstance(error, StoreDamagedError) or tired:
            self._fail(job, error)
            return
        structlog.get_logger().warning("sealing is tried again", run=job.run, reason=str(error))
        self.jobs.change(job, worker="", attempts=job.attempts + 1, delay=str(error))
        # Other jobs come first.
        self._stopped.wait(min(1.0, self._interval))

    def _begin(self, job: Job) -> RunRecord | None:
        """Return the run of a job, which is computing now; None if the job is over."""
        runs = self.sealing.runs
        try:
            run = runs.get(Identity(job.owner, USER_SCOPES), job.run)
        except ServiceError as e:
            if isinstance(e, StoreError):
                raise
            # It was deleted, or has expired.
            return None
        if not job.seals:
            return run
        if run.is_open:
            raise _NotSealedError

        def computing(run: RunRecord) -> RunRecord:
            return replace(run, state="computing") if run.state == "sealed" else run

        run = runs.change(run, computing, admit=always)
        return run if run.state == "computing" else None

    def _finish(
        self,
        run: RunRecord,
        job: Job,
        problem: Mapping[str, Any] | None,
        remarks: Mapping[str, Any] | None = None,
    ) -> None:
        """Write into the run how a job ended."""
        name, term = job.variant.name, run.term
        # A poisoned job is not begun again to say how it ended, so that its run may be sealed.
        endable = _UNDER_WAY if job.is_poisoned else {"computing"}

        def ended(run: RunRecord) -> RunRecord:
            if run.term != term:
                # It was repaired and sealed again since.
                return run
            known = run.results.get(name, {})
            reports = list(known.get("reports", []))
            result = {
                "options": dict(job.variant.options),
                "inputs": dict(job.variant.inputs),
                "reports": reports,
                "problem": problem,
                **({"told": {**known.get("told", {}), **remarks}} if remarks else {}),
            }
            if problem is None:
                result["reports"] = reports + [r for r in job.reports if r not in reports]
            if job.seals and run.state in endable:
                state: RunState = "done" if problem is None else "failed"
                run = replace(run, state=state, problem=problem)
            if job.seals and problem is not None:
                return run
            return replace(run, results={**run.results, name: result})

        self.sealing.runs.change(run, ended, admit=always)

    def _fail(self, job: Job, error: Exception) -> None:
        """Say in the run why a job failed; the job is over, unless it is another worker's now."""
        held = self.jobs.change(job, beat=job.beat + 1)
        if held is None:
            return
        job = held
        problem = problem_of(error.with_traceback(None)).to_json()
        try:
            run = self.sealing.runs.get(Identity(job.owner, USER_SCOPES), job.run)
            self._finish(run, job, problem)
        except NotFoundError:
            structlog.get_logger().info("a run was deleted while it was sealed", run=job.run)
        else:
            if job.is_poisoned:
                self.jobs.change(job, worker="")
                return
        self.jobs.delete(job)


def _too_large(ledger: Ledger) -> TooLargeError:
    return TooLargeError(
        "to compute the run takes more memory than there is for it",
        hint="Have the operator raise THALWEG_MEMORY_LIMIT, then seal the run again",
        limit="memory",
        allowed=ledger.limit,
        setting="THALWEG_MEMORY_LIMIT",
    )


def _poison(job: Job) -> ProcessDiedError:
    return ProcessDiedError(
        f"computing the run has ended {job.deaths} processes that did nothing else, the last by"
        f" {job.death}",
        hint="Check the inputs and streams of the run, and have the operator read the log. Seal the"
        " run again to try it again",
        deaths=job.deaths,
    )
