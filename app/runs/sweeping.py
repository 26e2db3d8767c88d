"""Removing runs that have expired, and what crashes and lost races left of streams and files.

A run that is uploaded to is kept by its appends, at least once an hour by a monotonic clock. So a
run is removed once it has been expired and unchanged for longer than that: a clock that jumps
forth costs no run that is alive, and a restart of the server delays a removal.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from app.http.identity import Identity
from app.losses.input_store import input_id
from app.state.base import (
    Record,
    RecordConflictError,
    RecordMissingError,
    StateStore,
    StoreBusyError,
    StoreDamagedError,
)
from app.state.blobs import BlobInfo, BlobStore
from app.state.ownership import Namespaces, OwnedRecord
from app.state.sweeper import Chore, Lasting, each

from .records import REPORT, RUN, SEGMENT, STREAM, RunRecord, StreamRecord, stream_key
from .results.files import Published
from .sealing.jobs import KIND as JOB
from .sealing.jobs import MAX_DEATHS, Jobs, job_of
from .streams import Streams


class Removal:
    """Deletes runs.

    Args:
        streams: of the runs.
        records: of their jobs and published files.
    """

    def __init__(self, streams: Streams, records: StateStore) -> None:
        self.runs = streams.runs
        self.streams = streams
        self.jobs = Jobs(records)
        self._computed = {kind: Namespaces(records, kind) for kind in (SEGMENT, REPORT)}

    def delete(self, caller: Identity, ident: str) -> None:
        """Delete a run of the caller.

        Raises:
            NotFoundError: the caller has no such run.
        """
        while True:
            with contextlib.suppress(RecordConflictError):
                try:
                    run = self.runs.find(caller, ident)
                except StoreDamagedError:
                    # What belonged to it is the sweeper's.
                    self.runs.discard(caller, ident)
                else:
                    self.remove(run)
                return

    def remove(self, record: RunRecord) -> None:
        """Delete this version of a run.

        The record of the run goes first: nobody finds the rest then, and the sweeper removes
        what a crash leaves of it.

        Raises:
            RecordConflictError: the run has changed.
        """
        self.runs.delete(record)
        self.streams.delete_all(record)
        self.jobs.delete_all(record.owner, record.id)
        for kind, things in self._computed.items():
            Published(things, self.streams.blobs, kind, record.owner, record.id).delete_all()


EXPIRED_SECONDS = 7200.0
"""Time for which a run must have been expired and unchanged; appends keep theirs every hour."""
_GRACE = 600.0
"""Age in seconds that spares what a request may be about to make part of a stream or run."""
_FILE_GRACE = 86400.0
"""Age in seconds that spares a file which a worker may still be writing."""
WRITING_SECONDS = 7200.0
"""Time without a byte after which nobody is writing, even if the age is that of a clock that
jumped."""


def chores(
    removal: Removal,
    records: StateStore,
    blobs: BlobStore,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, Chore]:
    """Return the chores of runs, by name.

    Args:
        removal: deletes runs.
        records: the store of their records.
        blobs: the store of their bytes.
        clock: seconds since 1970.
        monotonic: seconds of a clock that never jumps.
    """
    return {
        "expired runs": expired_runs(removal, records, Lasting(EXPIRED_SECONDS, monotonic)),
        "runs without jobs": runs_without_jobs(removal, records),
        "poisoned jobs without runs": poison_without_runs(records),
        "streams without runs": streams_without_runs(removal.streams, records, clock),
        "bytes without streams": blobs_without_streams(records, blobs, clock),
        **file_chores(records, blobs, clock, monotonic),
    }


def file_chores(
    records: StateStore,
    blobs: BlobStore,
    clock: Callable[[], float],
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, Chore]:
    """Return the chores of files that were computed of runs, by name; see :func:`chores`."""
    found = {}
    for kind in (SEGMENT, REPORT):
        found[f"{kind}s without runs"] = files_without_runs(records, kind, clock)
        found[f"unpublished {kind}s"] = unpublished_blobs(
            records, blobs, kind, clock, Lasting(WRITING_SECONDS, monotonic)
        )
    return found


def expired_runs(removal: Removal, records: StateStore, expired: Lasting) -> Chore:
    """Return the chore that deletes runs that have expired, with all of their streams.

    Args:
        removal: deletes runs.
        records: the store of their records.
        expired: tells which have been expired for long.
    """

    def look(record: Record) -> None:
        run = RunRecord.decode(OwnedRecord.of(record))
        if not removal.runs.is_expired(run):
            expired.forget(record.id)
        elif expired.has_lasted(record.id, run.generation):
            removal.remove(run)
            expired.forget(record.id)

    return each(records, RUN, look)


def runs_without_jobs(removal: Removal, records: StateStore) -> Chore:
    """Return the chore that has runs computed that are sealed and have lost their job.

    So does one whose job was given up before it was sealed again by somebody who died at that.
    """

    def look(record: Record) -> None:
        run = RunRecord.decode(OwnedRecord.of(record))
        if run.state in {"sealed", "computing"}:
            known = removal.jobs.find(job_of(run))
            if known is None or known.is_poisoned:
                removal.jobs.create(job_of(run))

    return each(records, RUN, look)


def named_inputs(records: StateStore) -> Iterator[tuple[str, str]]:
    """Yield owner and id of the inputs of all runs, and of what is computed of them.

    A run has its inputs until it is gone, whether it is being uploaded to or asked for more
    reports.
    """
    # A job becomes a result of its run, so that one of the two is seen.
    for job in Namespaces(records, JOB).of_all():
        yield from _input_ids(job.owner, job.value["inputs"])
    for owned in Namespaces(records, RUN).of_all():
        with contextlib.suppress(StoreDamagedError):
            run = RunRecord.decode(owned)
            for inputs in (run.inputs, *(result["inputs"] for result in run.results.values())):
                yield from _input_ids(run.owner, inputs)


def _input_ids(owner: str, inputs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((owner, input_id(kind, digest)) for kind, digest in inputs.items())


def poison_without_runs(records: StateStore) -> Chore:
    """Return the chore that deletes poisoned jobs whose run is gone; workers drop all others.

    Whoever deleted such a run died before it came to the jobs.
    """
    runs = Namespaces(records, RUN)

    def look(record: Record) -> None:
        job = OwnedRecord.of(record)
        is_poisoned = job.value.get("deaths", 0) >= MAX_DEATHS
        if is_poisoned and not any(_runs_of(runs, job.owner, job.value["run"])):
            records.delete(JOB, record.id, record)

    return each(records, JOB, look)


def streams_without_runs(
    streams: Streams, records: StateStore, clock: Callable[[], float] = time.time
) -> Chore:
    """Return the chore that removes streams that are none of their run, as a crash leaves them.

    It finishes deletions that have begun, too.
    """
    runs = Namespaces(records, RUN)

    def look(record: Record) -> None:
        stream = StreamRecord.decode(OwnedRecord.of(record))
        if stream.touched >= clock() - _GRACE:
            return
        if any(run.has(stream) for run in _runs_of(runs, stream.owner, stream.run)):
            streams.settle(stream)
        else:
            records.delete(STREAM, record.id, record)

    return each(records, STREAM, look)


def _runs_of(runs: Namespaces, owner: str, ident: str) -> list[RunRecord]:
    """Return the run of an owner; else those of this id that others own.

    What belongs to a run may be on its way to another owner, a moment later than the run.
    """
    try:
        found = [runs.get(owner, ident)]
    except RecordMissingError:
        found = runs.of_anyone(ident)
    return [RunRecord.decode(owned) for owned in found]


def blobs_without_streams(
    records: StateStore, blobs: BlobStore, clock: Callable[[], float] = time.time
) -> Chore:
    """Return the chore that deletes bytes that are part of no stream.

    Those whose process died, and those of streams that were deleted while they were in use.
    """
    streams = Namespaces(records, STREAM)

    def look(blob: BlobInfo) -> None:
        if blob.modified >= clock() - _GRACE:
            return
        # Whoever appends to a blob keeps it busy.
        with contextlib.suppress(StoreBusyError):
            length = _length(streams, blob)
            if not length:
                blobs.delete(STREAM, blob.id)
            elif length < blob.size:
                blobs.trim(STREAM, blob.id, length)

    return each(blobs, STREAM, look)


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


def files_without_runs(records: StateStore, kind: str, clock: Callable[[], float]) -> Chore:
    """Return the chore that takes back files of runs that are gone, or were sealed again."""
    runs = Namespaces(records, RUN)

    def look(record: Record) -> None:
        file = OwnedRecord.of(record)
        if record.used < clock() - _GRACE and not any(
            # A segment stays when its run is sealed again, a report does not.
            kind == SEGMENT or file.ident.startswith(f"{run.files}.")
            for run in _runs_of(runs, file.owner, file.ident.partition(".")[0])
        ):
            records.delete(kind, record.id, record)

    return each(records, kind, look)


def unpublished_blobs(
    records: StateStore, blobs: BlobStore, kind: str, clock: Callable[[], float], left: Lasting
) -> Chore:
    """Return the chore that deletes what crashed writers left, and files taken back.

    Args:
        records: the store of the records of files.
        blobs: the store of their content.
        kind: of both.
        clock: seconds since 1970.
        left: tells which have been as they are for long.
    """
    files = Namespaces(records, kind)

    def look(blob: BlobInfo) -> None:
        if blob.modified >= clock() - _FILE_GRACE:
            return
        name, _, _ = blob.id.rpartition(".")
        if any(file.value["blob"] == blob.id for file in files.of_anyone(name)):
            left.forget(blob.id)
        elif left.has_lasted(blob.id, (blob.modified, blob.size)):
            blobs.delete(kind, blob.id)
            left.forget(blob.id)

    return each(blobs, kind, look)
