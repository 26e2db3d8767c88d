"""Segments that are added up while their streams arrive, so that sealing has less to do."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import structlog

from app.engine.request_budget import current_trace
from app.errors import NotFoundError, ServiceError
from app.http.identity import USER_SCOPES, Identity
from app.run_errors import ProcessDiedError
from app.tracing import Trace
from core.errors import CoreError
from core.losses.reports import REPORTS

from ..records import RunRecord, StreamRecord
from ..results.segments import segments_of
from ..watching import LOOK_SECONDS, News
from .jobs import Jobs, Variant, job_of
from .lease import while_wanted
from .work import SealingContext


class SegmentsAhead:
    """Adds up the segments of streams that have grown; with no promise to.

    What is not done, because a worker ends or has no memory left, sealing does.

    Args:
        sealing: what to work with.
        jobs: those of all workers.
        news: set when there is something to do.
        stopped: set when the server stops.
    """

    def __init__(
        self, sealing: SealingContext, jobs: Jobs, news: News, stopped: threading.Event
    ) -> None:
        self._sealing = sealing
        self._jobs = jobs
        self._news = news
        self._stopped = stopped
        self._grown: dict[tuple[str, str, str], str | None] = {}
        """Streams, each with the ``traceparent`` of the request that made it grow."""
        self._lock = threading.Lock()
        self._left: set[str] = set()
        """Runs that have ended workers of the cluster: the next to try them is sealing."""
        sealing.streams.grown = self.note

    def note(self, before: StreamRecord, after: StreamRecord) -> None:
        """Note that a stream has grown, if that completes a segment."""
        size = self._sealing.segment
        ended = after.complete and not before.complete
        if ended or before.offset // size != after.offset // size:
            with self._lock:
                self._grown[after.owner, after.run, after.id] = current_trace().header
            self._news.set()

    def work(self) -> bool:
        """Add up the segments of one stream; return whether there was one."""
        with self._lock:
            if not self._grown:
                return False
            (owner, run, stream), traced = next(iter(self._grown.items()))
            del self._grown[owner, run, stream]
        try:
            record = self._sealing.runs.get(Identity(owner, USER_SCOPES), run)
            reports = [name for name in record.spec["reports"] if REPORTS[name].scope == "run"]
            # What killed a worker is tried again alone, once the run is sealed.
            if reports and run not in self._left and not self._jobs.died_ahead(owner, run):
                job = self._sealing.tracing.job("seal ahead", traced, run=run, owner=owner)
                with self._jobs.ahead(owner, run), job as trace:
                    grown = self._sealing.streams.get(record, stream)
                    self._add_up(record, grown, reports, trace)
        except (CoreError, ServiceError) as e:
            if isinstance(e, ProcessDiedError):
                self._left.add(run)
            structlog.get_logger().debug("segments are left to sealing", reason=str(e))
        return True

    def _add_up(
        self, run: RunRecord, stream: StreamRecord, reports: Sequence[str], trace: Trace
    ) -> None:
        sealing = self._sealing
        with sealing.sums(run, Variant(), reports) as (request, sums):
            stored = sealing.streams.stored(stream)
            is_there = partial(self._is_there, run, stream)
            news = News(run.id, sealing.runs.watch.notices)
            with while_wanted(
                run.owner, is_there, threading.Event(), self._stopped, news, LOOK_SECONDS, trace
            ):
                job = replace(job_of(run), reports=tuple(reports))
                segments = segments_of(stored, request.policy, sealing.segment)
                for segment in sealing.spread(job, sums, segments):
                    sealing.engine.submit(sums.publish, segment).result()

    def _is_there(self, run: RunRecord, stream: StreamRecord) -> bool:
        try:
            # The run goes first, and its streams may take a while.
            self._sealing.streams.get(self._sealing.runs.again(run), stream.id)
        except NotFoundError:
            return False
        return True
