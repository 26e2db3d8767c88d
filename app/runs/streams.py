"""Streams of runs in the stores, in the namespaces of their owners.

A partition has one record, so whoever creates or changes it first wins: two creations, an append
and the creation that would replace what it appends to, an append and a deletion. Which streams a
run is sealed with is decided by the run's record alone::

    create   stream: create it ─▶ run: uploading? ─ no ─▶ stream: remove it; refused
    repeat   stream: touch it ──▶ run: uploading? ─ no ─▶ stream: remove it; refused
    append   stream: take it   ─▶ run: uploading? ─ no ─▶ refused
    delete   stream: mark it   ─▶ run: uploading? ─ no ─▶ stream: take the mark away; refused
                                                  ─ yes ▶ stream: remove it
    seal     run: closing ─▶ streams: list and check them ─▶ run: sealed, with this list

To make the run *uploading* takes *closing* away, so that a seal which did not see the stream, or
saw it before its mark, finds the run changed and looks again. Whatever a crash leaves says what it
is: a stream that is none of its run (``RunRecord.has``) is found by nobody, and removed by the
next creation or the sweeper; a mark is settled by whoever meets it.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, takewhile

from app.errors import NotFoundError, ServiceError
from app.run_errors import PartitionTakenError, StreamLimitError
from app.state.base import (
    MAX_PAGE,
    Record,
    RecordConflictError,
    RecordExistsError,
    RecordMissingError,
    StateStore,
    StoreBusyError,
    StoreDamagedError,
)
from app.state.blobs import BlobMissingError, BlobStore
from app.state.ownership import Namespaces, OwnedRecord, ident_of, logged_damage

from .records import MAX_PARTITION, STREAM, RunRecord, StreamRecord, stream_id, stream_key
from .store import Runs, StoredStream, new_term

MAX_STREAMS = 10_000
"""Streams of a run: its record lists them once it is sealed. Creations at the same moment may
exceed it by their number, for which the record has room."""
Check = Callable[[list[StreamRecord]], object]
"""Raises if a run cannot be sealed with its streams."""
Change = Callable[[RunRecord], RunRecord]
"""Returns a version of a run with what it is sealed with, or raises."""


class Streams:
    """The streams of all runs.

    Args:
        records: the store of their records.
        blobs: the store of their bytes.
        runs: says which streams each run is sealed with.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        records: StateStore,
        blobs: BlobStore,
        runs: Runs,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._records = Namespaces(records, STREAM)
        self.blobs = blobs
        self.runs = runs
        self._clock = clock
        self.grown: Callable[[StreamRecord, StreamRecord], None] | None = None
        """Called with a stream before and after it was changed here."""

    # -- which there are ----------------------------------------------------------------

    def add(self, run: RunRecord, template: StreamRecord, partition: int | None) -> StreamRecord:
        """Create a stream of a run.

        Args:
            run: the run.
            template: the stream; its id and partition are chosen here.
            partition: which it is; None for the lowest that nobody has. Where it has a stream
                without bytes that was declared alike, this is it: its first creator may not
                have been answered, or may.

        Raises:
            NotFoundError: the run was deleted.
            RunSealedError: the run takes no more streams.
            PartitionTakenError: another stream has the partition.
            StreamLimitError: the run has too many, or fewer partitions were declared.
            QuotaExceededError: the owner has too many.
        """
        while True:
            self.runs.check_open(run)
            chosen = self._choose(run, partition)
            now = self._clock()
            new = replace(
                template,
                run=run.id,
                id=stream_id(chosen, secrets.token_hex(4)),
                partition=chosen,
                created=now,
                touched=now,
                term=run.term,
            )
            try:
                stream = self._create(run, new, repeats=partition is not None)
            except PartitionTakenError:
                if partition is not None:
                    raise
                # Another request has chosen it at the same time.
                run = self.runs.again(run)
                continue
            run = self._admit(stream)
            if run.is_open and run.has(stream):
                self.runs.watch.announce(run.id)
                return stream
            if not run.has(stream):
                self._remove(stream)

    def _admit(self, stream: StreamRecord) -> RunRecord:
        """Return the run of a stream that was just created; see the module.

        Raises:
            NotFoundError: the run was deleted.
        """
        try:
            return self.runs.uploading(stream.owner, stream.run)
        except NotFoundError:
            self._remove(stream)
            raise
        except BaseException:
            # Whoever has repeated the creation since, or was first, keeps the stream.
            with contextlib.suppress(ServiceError):
                if stream.generation == 1:
                    self._erase(stream)
                else:
                    self.swap(stream, replace(stream, appending=False))
            raise

    def _choose(self, run: RunRecord, partition: int | None) -> int:
        """Return the partition of a new stream.

        Raises:
            StreamLimitError: it is none of the run's, or the run has too many.
        """
        declared = run.spec.get("options", {}).get("partitions")
        last = MAX_PARTITION if declared is None else declared
        used = set()
        # So many partitions are too many only if there are some with higher numbers.
        if partition is None or max(partition, self._beyond(run, MAX_STREAMS)) > MAX_STREAMS:
            used = set(self._partitions(run))
        if partition is None:
            partition = next(number for number in range(1, len(used) + 2) if number not in used)
        if not 1 <= partition <= last:
            raise StreamLimitError(
                f"partition {partition} is not one of 1 to {last}",
                hint="The option partitions of the run says how many there are",
            )
        if partition not in used and len(used) >= MAX_STREAMS:
            raise StreamLimitError(f"a run has at most {MAX_STREAMS} streams")
        return partition

    def _beyond(self, run: RunRecord, partition: int) -> int:
        """Return the first partition after one that has a record; 0 if there is none."""
        after = stream_id(partition, "")
        return next((int(h.id.rpartition(".")[2]) for h in self._scan(run, after, 1)), 0)

    def _create(self, run: RunRecord, stream: StreamRecord, *, repeats: bool) -> StreamRecord:
        """Create the record of a partition; ``repeats`` may take an untouched stream that has it.

        Raises:
            PartitionTakenError: another stream has the partition.
        """
        while True:
            with contextlib.suppress(RecordExistsError):
                owned = self._records.insert(run.owner, stream.key, stream.encode(), size=0)
                return StreamRecord.decode(owned)
            known = self.find(run, stream.partition)
            if known is None:
                self._clear(run, stream.key)
                continue
            if not (repeats and known.is_untouched and known.is_declared_as(stream)):
                full = known.state == "complete"
                raise PartitionTakenError(
                    f"partition {known.partition} has a stream already: {known.id}, {known.state}",
                    hint=f"{'Name another one' if full else 'Continue it'}, or delete it first",
                    stream=known.id,
                    partition=known.partition,
                    address=f"/v1/runs/{run.id}/streams/{known.id}",
                )
            with contextlib.suppress(RecordConflictError, RecordMissingError):
                # A version of its own, even if nothing changes: see _admit.
                length = known.length if stream.length is None else stream.length
                fence = known.fence + stream.fence
                new = replace(known, length=length, fence=fence, appending=stream.appending)
                return self.swap(known, new)

    def _clear(self, run: RunRecord, key: str) -> None:
        """Remove the stream in a record, if it is none of the run.

        Raises:
            NotFoundError: the run was deleted.
        """
        run = self.runs.again(run)
        with contextlib.suppress(RecordMissingError):
            stream = StreamRecord.decode(self._records.get(run.owner, key))
            if not run.has(stream):
                self._remove(stream)

    def confirm(self, stream: StreamRecord) -> None:
        """Check that a run takes streams, and has one that was just changed; see the module.

        Raises:
            NotFoundError: the run or the stream was deleted.
            RunSealedError: the run was sealed without it.
        """
        run = self.runs.uploading(stream.owner, stream.run)
        self.runs.check_open(run)
        if not run.has(stream):
            raise _missing(stream.id)

    def seal(self, run: RunRecord, check: Check, change: Change) -> RunRecord:
        """Seal a run with the streams that it has; one that is sealed stays as it is.

        Args:
            run: the run.
            check: checks its streams.
            change: gives the run its options; is called for one that is sealed as well.

        Raises:
            NotFoundError: the run was deleted.
            Exception: what ``check`` and ``change`` raise.
        """

        def sealed(run: RunRecord) -> RunRecord:
            changed = change(run)
            if not run.is_open:
                return run
            if not run.closing:
                return replace(run, closing=True)
            streams = self.of(run)
            check(streams)
            listed = {stream.partition: stream.id for stream in streams}
            return replace(
                changed,
                state="sealed",
                problem=None,
                streams=listed,
                term=new_term(),
                closing=False,
            )

        while run.is_open:
            run = self.runs.change(run, sealed)
        return run

    # -- finding them -------------------------------------------------------------------

    def get(self, run: RunRecord, ident: str) -> StreamRecord:
        """Return a stream of a run.

        Raises:
            NotFoundError: the run has no such stream.
        """
        found = self._find(run, stream_key(run.id, ident))
        if found is None or found.id != ident:
            raise _missing(ident)
        return found

    def find(self, run: RunRecord, partition: int) -> StreamRecord | None:
        """Return the stream of a partition; None if the run has none."""
        return self._find(run, stream_key(run.id, stream_id(partition, "")))

    def _find(self, run: RunRecord, key: str) -> StreamRecord | None:
        try:
            found = StreamRecord.decode(self._records.get(run.owner, key))
            # The stream may be newer than this version of the run.
            if not (run.has(found) or self.runs.again(run).has(found)):
                return None
        except RecordMissingError:
            return None
        return self.settle(found)

    def of(self, run: RunRecord) -> list[StreamRecord]:
        """Return all streams of a run, in the order of their partitions."""
        return list(self._after(run, "", MAX_PAGE))

    def page(self, run: RunRecord, after: str, limit: int) -> list[StreamRecord]:
        """List up to ``limit`` streams of a run after an id, in the order of partitions."""
        return list(islice(self._after(run, after, limit), limit))

    def before(self, run: RunRecord, partition: int) -> Iterator[StreamRecord]:
        """Yield the streams of the partitions before one, in their order."""
        found = self._after(run, "", min(partition, MAX_PAGE))
        return takewhile(lambda stream: stream.partition < partition, found)

    def count(self, run: RunRecord) -> int:
        """Return how many streams a run has."""
        return sum(1 for _ in self._partitions(run)) if run.is_open else len(run.streams)

    def _after(self, run: RunRecord, after: str, limit: int) -> Iterator[StreamRecord]:
        for record in self._scan(run, after, limit):
            stream = StreamRecord.decode(OwnedRecord.of(record))
            settled = self.settle(stream) if run.has(stream) else None
            if settled is not None:
                yield settled

    def _partitions(self, run: RunRecord) -> Iterator[int]:
        """Yield the partitions that have a stream, mostly without decoding it."""
        term = f'"term":"{run.term}"'.encode()
        for record in self._scan(run):
            # One that is damaged is there, until it is deleted.
            with logged_damage():
                if not (term in record.value and b'"deleted":false' in record.value):
                    stream = StreamRecord.decode(OwnedRecord.of(record))
                    if stream.deleted or not run.has(stream):
                        continue
            yield int(record.id.rpartition(".")[2])

    def _scan(self, run: RunRecord, after: str = "", limit: int = MAX_PAGE) -> Iterator[Record]:
        """Yield all records of a run after a key, reading so many at a time."""
        ident = f"{run.id}.{after}"
        while True:
            page = self._records.records(run.owner, f"{run.id}.", ident, limit)
            yield from page
            if len(page) < limit:
                return
            ident = ident_of(page[-1])

    def stored(self, stream: StreamRecord) -> StoredStream:
        """Return the durable bytes of a version of a stream."""
        return StoredStream(self.blobs, stream)

    # -- changing and removing them -----------------------------------------------------

    def swap(self, seen: StreamRecord, new: StreamRecord) -> StreamRecord:
        """Replace a stream that is unchanged since ``seen``; return the new version.

        Raises:
            NotFoundError: it was deleted.
            RecordConflictError: it has changed.
            QuotaExceededError: the owner stores too many bytes.
        """
        new = replace(new, touched=self._clock())
        owned = self._records.replace(seen.version, new.encode(), size=new.offset)
        self.runs.watch.announce(seen.run)
        if self.grown is not None:
            self.grown(seen, new)
        return StreamRecord.decode(owned)

    def delete(self, run: RunRecord, ident: str) -> None:
        """Delete a stream of a run that is not sealed; its partition can be uploaded again.

        Raises:
            NotFoundError: the run has no such stream.
            RunSealedError: the run is sealed.
        """
        while True:
            stream = self.get(run, ident)
            run = self.runs.again(run)
            self.runs.check_open(run)
            try:
                marked = self.swap(stream, replace(stream, deleted=True))
            except (RecordConflictError, RecordMissingError):
                continue
            if self.settle(marked) is None:
                self.runs.watch.announce(run.id)
                return

    def settle(self, stream: StreamRecord) -> StreamRecord | None:
        """Return a stream whose deletion has not begun, or failed because its run was sealed.

        One that has begun is finished, whoever began it; then there is no stream.
        """
        current: StreamRecord | None = stream
        while current is not None and current.deleted:
            if self._is_sealed_with(current):
                with contextlib.suppress(RecordConflictError, RecordMissingError):
                    return self.swap(current, replace(current, deleted=False))
            elif self._erase(current):
                return None
            current = self.again(current)
        return current

    def _is_sealed_with(self, stream: StreamRecord) -> bool:
        try:
            run = self.runs.uploading(stream.owner, stream.run)
        except RecordMissingError:
            return False
        return not run.is_open and run.streams.get(stream.partition) == stream.id

    def delete_all(self, run: RunRecord) -> None:
        """Delete the streams of a run that is gone."""
        for record in list(self._scan(run)):
            try:
                stream = StreamRecord.decode(OwnedRecord.of(record))
            except StoreDamagedError:
                # Nothing is known of its bytes, which are the sweeper's.
                with contextlib.suppress(RecordMissingError):
                    self._records.delete(run.owner, ident_of(record))
                continue
            # Others are of a run that was created since by the same key, or the sweeper's.
            if run.has(stream):
                self._remove(stream)

    def _remove(self, stream: StreamRecord) -> None:
        """Delete a stream, whatever its version."""
        current: StreamRecord | None = stream
        while current is not None and not self._erase(current):
            current = self.again(current)

    def again(self, stream: StreamRecord) -> StreamRecord | None:
        """Return the present version of a stream; None if it was deleted."""
        try:
            found = StreamRecord.decode(self._records.get(stream.owner, stream.key))
        except RecordMissingError:
            return None
        return found if found.id == stream.id else None

    def _erase(self, stream: StreamRecord) -> bool:
        """Delete a version of a stream, then its bytes; return whether it is gone.

        The sweeper deletes bytes that are in use.
        """
        try:
            self._records.delete(stream.owner, stream.key, stream.version)
        except RecordConflictError:
            return False
        except RecordMissingError:
            return True
        fences = stream.fences
        if stream.appending:
            # Its writer may have it open, elsewhere, and drops it.
            fences.discard(stream.fence)
        for fence in fences:
            with contextlib.suppress(BlobMissingError, StoreBusyError):
                self.blobs.delete(STREAM, stream.blob(fence))
        return True


def _missing(ident: str) -> NotFoundError:
    return NotFoundError(f"the run has no stream {ident[:80]!r}")
