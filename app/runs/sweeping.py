"""Removing runs that have expired, and what crashes and lost races left of streams.

A run that is uploaded to is kept by its appends, at least once an hour by a monotonic clock. So a
run is removed once it has been expired and unchanged for longer than that: a clock that jumps
forth costs no run that is alive, and a restart of the server delays a removal.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from app.errors import NotFoundError
from app.losses.input_store import input_id
from app.state.base import HeadConflictError, StateStore, StoreBusyError, StoreDamagedError
from app.state.blobs import BlobInfo, BlobStore
from app.state.ownership import Namespaces, Owned
from app.state.sweeper import PAGE, Chore, Lasting, page_by_page

from .records import RUN, STREAM, RunRecord, StreamRecord, stream_key
from .removal import Removal
from .results import sweeping as results_sweeping
from .sealing.jobs import KIND as JOB
from .sealing.jobs import MAX_DEATHS, job_of
from .streams import Streams

EXPIRED_SECONDS = 7200.0
"""Time for which a run must have been expired and unchanged; appends keep theirs every hour."""
_GRACE = 600.0
"""Age in seconds that spares what a request may be about to make part of a stream."""


def chores(
    removal: Removal,
    heads: StateStore,
    blobs: BlobStore,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, Chore]:
    """Return the chores of runs, by name.

    Args:
        removal: deletes runs.
        heads: the store of their heads.
        blobs: the store of their bytes.
        clock: seconds since 1970.
        monotonic: seconds of a clock that never jumps.
    """
    return {
        "expired runs": expired_runs(removal, heads, Lasting(EXPIRED_SECONDS, monotonic)),
        "runs without jobs": runs_without_jobs(removal, heads),
        "poisoned jobs without runs": poison_without_runs(heads),
        "streams without runs": streams_without_runs(removal.streams, heads, clock),
        "bytes without streams": blobs_without_streams(heads, blobs, clock),
        **results_sweeping.chores(heads, blobs, clock, monotonic),
    }


def expired_runs(removal: Removal, heads: StateStore, expired: Lasting) -> Chore:
    """Return the chore that deletes runs that have expired, with all of their streams.

    Args:
        removal: deletes runs.
        heads: the store of their heads.
        expired: tells which have been expired for long.
    """

    def look(after: str) -> str | None:
        page = heads.list(RUN, after=after, limit=PAGE)
        for head in page.heads:
            with contextlib.suppress(StoreDamagedError, NotFoundError, HeadConflictError):
                run = RunRecord.decode(Owned.of(head))
                if not removal.runs.is_expired(run):
                    expired.forget(head.id)
                elif expired.has_lasted(head.id, run.generation):
                    removal.remove(run)
                    expired.forget(head.id)
        return page.after

    return page_by_page(look)


def runs_without_jobs(removal: Removal, heads: StateStore) -> Chore:
    """Return the chore that has runs computed that are sealed and have lost their job.

    So does one whose job was given up before it was sealed again by somebody who died at that.
    """

    def look(after: str) -> str | None:
        page = heads.list(RUN, after=after, limit=PAGE)
        for head in page.heads:
            with contextlib.suppress(StoreDamagedError):
                run = RunRecord.decode(Owned.of(head))
                if run.state in {"sealed", "computing"}:
                    known = removal.jobs.find(job_of(run))
                    if known is None or known.is_poisoned:
                        removal.jobs.create(job_of(run))
        return page.after

    return page_by_page(look)


def named_inputs(heads: StateStore) -> Iterator[tuple[str, str]]:
    """Yield owner and id of the inputs of all runs, and of what is computed of them.

    A run has its inputs until it is gone, whether it is being uploaded to or asked for more
    reports.
    """
    # A job becomes a result of its run, so that one of the two is seen.
    for job in Namespaces(heads, JOB).of_all():
        yield from _input_ids(job.owner, job.value["inputs"])
    for owned in Namespaces(heads, RUN).of_all():
        with contextlib.suppress(StoreDamagedError):
            run = RunRecord.decode(owned)
            for inputs in (run.inputs, *(result["inputs"] for result in run.results.values())):
                yield from _input_ids(run.owner, inputs)


def _input_ids(owner: str, inputs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((owner, input_id(kind, digest)) for kind, digest in inputs.items())


def poison_without_runs(heads: StateStore) -> Chore:
    """Return the chore that deletes poisoned jobs whose run is gone; workers drop all others.

    Whoever deleted such a run died before it came to the jobs.
    """
    runs = Namespaces(heads, RUN)

    def look(after: str) -> str | None:
        page = heads.list(JOB, after=after, limit=PAGE)
        for head in page.heads:
            with contextlib.suppress(StoreDamagedError, NotFoundError, HeadConflictError):
                job = Owned.of(head)
                is_poisoned = job.value.get("deaths", 0) >= MAX_DEATHS
                run = job.value["run"]
                if is_poisoned and not any(results_sweeping.runs_of(runs, job.owner, run)):
                    heads.delete(JOB, head.id, head)
        return page.after

    return page_by_page(look)


def streams_without_runs(
    streams: Streams, heads: StateStore, clock: Callable[[], float] = time.time
) -> Chore:
    """Return the chore that removes streams that are none of their run, as a crash leaves them.

    It finishes deletions that have begun, too.
    """
    runs = Namespaces(heads, RUN)

    def look(after: str) -> str | None:
        page = heads.list(STREAM, after=after, limit=PAGE)
        for head in page.heads:
            with contextlib.suppress(StoreDamagedError, NotFoundError, HeadConflictError):
                stream = StreamRecord.decode(Owned.of(head))
                if stream.touched >= clock() - _GRACE:
                    continue
                if _is_of_a_run(runs, stream):
                    streams.settle(stream)
                else:
                    heads.delete(STREAM, head.id, head)
        return page.after

    return page_by_page(look)


def _is_of_a_run(runs: Namespaces, stream: StreamRecord) -> bool:
    return any(
        run.has(stream.partition, stream.id, stream.term)
        for run in results_sweeping.runs_of(runs, stream.owner, stream.run)
    )


def blobs_without_streams(
    heads: StateStore, blobs: BlobStore, clock: Callable[[], float] = time.time
) -> Chore:
    """Return the chore that deletes bytes that are part of no stream.

    Those whose process died, and those of streams that were deleted while they were in use.
    """
    streams = Namespaces(heads, STREAM)

    def look(after: str) -> str | None:
        page = blobs.list(STREAM, after=after, limit=PAGE)
        for blob in page.blobs:
            if blob.modified >= clock() - _GRACE:
                continue
            with contextlib.suppress(
                NotFoundError, HeadConflictError, StoreDamagedError, StoreBusyError
            ):
                length = _length(streams, blob)
                if not length:
                    blobs.delete(STREAM, blob.id)
                elif length < blob.size:
                    blobs.trim(STREAM, blob.id, length)
        return page.after

    return page_by_page(look)


def _length(streams: Namespaces, blob: BlobInfo) -> int:
    """Return how many bytes of a blob are part of a stream, or may become it."""
    name, _, fence = blob.id.rpartition(".")
    run, _, ident = name.partition(".")
    for stream in map(StreamRecord.decode, streams.of_anyone(stream_key(run, ident))):
        if stream.id != ident or not fence.isdigit():
            continue
        if int(fence) >= stream.fence + (not stream.appending):
            # Its append may be running.
            return max(blob.size, 1)
        return stream.length_of(int(fence))
    return 0
