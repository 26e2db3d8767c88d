"""Runs and their streams in the stores, in the namespaces of their owners."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from app.errors import NotFoundError
from app.http.identity import Identity
from app.run_errors import (
    IdempotencyError,
    PartitionTakenError,
    RunExpiredError,
    RunSealedError,
    StreamLimitError,
)
from app.state.base import (
    HeadConflictError,
    HeadExistsError,
    HeadMissingError,
    StateStore,
    StoreBusyError,
)
from app.state.blobs import BlobMissingError, BlobStore
from app.state.ownership import Namespaces, Owned

from .published import Published
from .records import (
    MAX_PARTITION,
    REPORT,
    RUN,
    SEGMENT,
    STREAM,
    RunRecord,
    StreamRecord,
    stream_key,
)
from .sealing_jobs import Jobs
from .stored import StoredStream
from .watching import Watch

MAX_STREAMS = 10_000
"""Maximum streams of a run: the head of the run lists them."""
_DAY = 86400.0
_KEPT_SECONDS = 3600.0
"""Time by which an expiry is put off at a time: each time is a write."""
_ID_BYTES = 16

Change = Callable[[RunRecord], RunRecord]
"""Returns a changed run; called again where another request changed it first."""


class Runs:
    """The runs of all owners.

    Args:
        heads: the store of the heads.
        blobs: the store of the bytes.
        days: lifetime of a run after its last change; None for no end.
        watch: is told of each change.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        heads: StateStore,
        blobs: BlobStore,
        days: float | None,
        watch: Watch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runs = Namespaces(heads, RUN)
        self._streams = Namespaces(heads, STREAM)
        self._jobs = Jobs(heads)
        self._computed = {kind: Namespaces(heads, kind) for kind in (SEGMENT, REPORT)}
        self.blobs = blobs
        self._days = days
        self.watch = watch
        self.grown: Callable[[StreamRecord, StreamRecord], None] | None = None
        """Called with a stream before and after it was changed here."""
        self._clock = clock

    # -- runs -----------------------------------------------------------------------

    def create(
        self,
        who: Identity,
        spec: Mapping[str, Any],
        inputs: Mapping[str, str],
        days: float | None = None,
        key: str | None = None,
    ) -> tuple[RunRecord, bool]:
        """Create a run; return it, and whether it is new.

        Args:
            who: its owner.
            spec: in canonical form.
            inputs: digests of inputs, by name.
            days: its lifetime after the last change, at most that of all runs.
            key: two requests of an owner with the same key create one run.

        Raises:
            IdempotencyError: the key was used for another run.
            QuotaExceededError: the owner has too many.
        """
        ident = secrets.token_hex(_ID_BYTES)
        if key is not None:
            named = f"{who.owner}\0{key}".encode()
            ident = hashlib.blake2b(named, digest_size=_ID_BYTES).hexdigest()
        if self._days is not None:
            days = self._days if days is None else min(days, self._days)
        now = self._clock()
        expires = None if days is None else now + days * _DAY
        record = RunRecord(
            ident, who.owner, spec, inputs, "created", now, expires, days, streams={}
        )
        try:
            created = self._runs.create(who.owner, ident, record.encode())
        except HeadExistsError:
            known = self.get(who, ident)
            if (known.spec, known.days) != (spec, days):
                raise IdempotencyError(
                    "the Idempotency-Key was used for a run with another spec",
                    hint="Use a new key for each run",
                ) from None
            return known, False
        return self.get(who, ident), created

    def get(self, who: Identity, ident: str) -> RunRecord:
        """Return a run of the caller; ``admin`` gets those of others.

        Raises:
            NotFoundError: the caller has no such run.
            RunExpiredError: it has expired.
        """
        record = self._find(who, ident)
        if self.is_expired(record):
            raise RunExpiredError(f"the run {ident} has expired", hint="Create another")
        return record

    def own(self, who: Identity, ident: str) -> RunRecord:
        """Return a run to change, which is the caller's own; see ``get``."""
        record = self.get(who, ident)
        if record.owner != who.owner:
            raise NotFoundError(f"there is no run {ident[:80]!r}")
        return record

    def _find(self, who: Identity, ident: str) -> RunRecord:
        try:
            return RunRecord.decode(self._runs.get(who.owner, ident))
        except HeadMissingError as e:
            others = self._runs.of_anyone(ident) if who.is_admin else []
            if not others:
                raise NotFoundError(f"there is no run {ident[:80]!r}") from e
            return RunRecord.decode(others[0])

    def again(self, run: RunRecord) -> RunRecord:
        """Return the present version of a run.

        Raises:
            NotFoundError: it was deleted.
        """
        return RunRecord.decode(self._runs.get(run.owner, run.id))

    def is_expired(self, record: RunRecord) -> bool:
        """Whether a run is to be removed."""
        return record.expires is not None and record.expires < self._clock()

    def page(self, who: Identity, after: str, limit: int) -> list[RunRecord]:
        """List up to ``limit`` runs of the caller after an id, in order of their ids.

        ``admin`` gets those of everybody.
        """
        found = self._runs.page(who.owner, "", after, limit)
        if who.is_admin:
            ids = self._runs.all_ids(after, limit)
            found = [owned for ident in ids for owned in self._runs.of_anyone(ident)]
        return [RunRecord.decode(owned) for owned in found]

    def change(self, record: RunRecord, change: Change) -> RunRecord:
        """Change a run, again and again until nobody was first.

        Args:
            record: a version of it.
            change: is called with the present version, and returns the new one.

        Raises:
            NotFoundError: it was deleted.
            Exception: what ``change`` raises.
        """
        while True:
            new = self._put_off(change(record))
            if new == record:
                return record
            try:
                owned = self._runs.replace(_owned(record.owned), new.encode())
            except HeadConflictError:
                record = RunRecord.decode(self._runs.get(record.owner, record.id))
                continue
            self.watch.announce(record.id)
            return RunRecord.decode(owned)

    def _put_off(self, record: RunRecord) -> RunRecord:
        """Put off the expiry of a run that is being used."""
        if record.days is None or record.expires is None:
            return record
        expires = self._clock() + record.days * _DAY
        put_off = abs(expires - record.expires) >= min(_KEPT_SECONDS, record.days * _DAY / 10)
        return replace(record, expires=expires) if put_off else record

    def keep(self, owner: str, ident: str) -> None:
        """Put off the expiry of a run whose streams grow."""
        with contextlib.suppress(HeadMissingError, StoreBusyError):
            record = RunRecord.decode(self._runs.get(owner, ident))
            self.change(record, lambda run: run)

    def delete(self, who: Identity, ident: str) -> None:
        """Delete a run with its streams.

        Raises:
            NotFoundError: the caller has no such run.
        """
        self.remove(self._find(who, ident))

    def remove(self, record: RunRecord) -> None:
        """Delete a run with its streams; goes on where a crash ended it.

        The head of the run goes first: nobody finds the rest then, and the sweeper removes
        what is left of it.
        """
        with contextlib.suppress(HeadMissingError):
            self._runs.delete(record.owner, record.id)
        self.watch.announce(record.id)
        for stream in list(self._all_streams(record.owner, record.id)):
            self._remove_stream(stream)
        self._jobs.delete_all(record.owner, record.id)
        for kind, things in self._computed.items():
            Published(things, self.blobs, kind, record.owner, record.id).delete_all()

    # -- streams --------------------------------------------------------------------

    def add_stream(
        self, run: RunRecord, template: StreamRecord, partition: int | None
    ) -> StreamRecord:
        """Create a stream of a run.

        Args:
            run: the run.
            template: the stream; its id and partition are chosen here.
            partition: which it is; None for the lowest that is free. One that has a stream
                without bytes is uploaded anew.

        Raises:
            RunSealedError: the run takes no more streams.
            PartitionTakenError: another stream has the partition.
            StreamLimitError: the run has too many, or fewer partitions were declared.
            QuotaExceededError: the owner has too many.
        """
        suffix = secrets.token_hex(4)
        replaced: str | None = None
        chosen = 0

        def claim(run: RunRecord) -> RunRecord:
            nonlocal replaced, chosen
            self.check_open(run)
            chosen = _free(run) if partition is None else partition
            _check_partition(run, chosen)
            replaced = run.streams.get(chosen)
            if replaced is not None:
                self._check_untouched(run, chosen, replaced)
            streams = {**run.streams, chosen: f"{chosen:06d}-{suffix}"}
            return replace(
                run, state="uploading", problem=None, streams=dict(sorted(streams.items()))
            )

        run = self.change(run, claim)
        stream = replace(template, run=run.id, id=run.streams[chosen], partition=chosen)
        stream = replace(stream, created=self._clock(), touched=self._clock())
        if replaced is not None:
            with contextlib.suppress(HeadMissingError):
                self._streams.delete(run.owner, stream_key(run.id, replaced))
        try:
            self._streams.create(run.owner, stream.key, stream.encode(), size=0)
        except BaseException:
            self._forget(run, chosen, stream.id)
            raise
        self.watch.announce(run.id)
        return StreamRecord.decode(self._streams.get(run.owner, stream.key))

    def check_open(self, run: RunRecord) -> None:
        """Check that a run takes streams.

        Raises:
            RunSealedError: it does not.
        """
        if not run.is_open:
            raise RunSealedError(
                f"the run is {run.state} and takes no more streams",
                hint="Create another run",
                state=run.state,
            )

    def _check_untouched(self, run: RunRecord, partition: int, stream: str) -> None:
        """Check that a stream has no bytes: its creator never learned of it, perhaps.

        Raises:
            PartitionTakenError: it has some.
        """
        try:
            known = StreamRecord.decode(self._streams.get(run.owner, stream_key(run.id, stream)))
        except HeadMissingError:
            return
        if known.offset or known.complete or known.fault is not None or known.appending:
            raise PartitionTakenError(
                f"partition {partition} is being uploaded, or has been, as {stream}",
                hint="Continue that upload, or delete it first",
                stream=stream,
                partition=partition,
                address=f"/v1/runs/{run.id}/streams/{stream}",
            )

    def _forget(self, run: RunRecord, partition: int, stream: str) -> None:
        """Take a stream out of the list of its run."""

        def without(run: RunRecord) -> RunRecord:
            if run.streams.get(partition) != stream:
                return run
            left = {k: v for k, v in run.streams.items() if k != partition}
            return replace(run, streams=left)

        with contextlib.suppress(HeadMissingError):
            self.change(run, without)

    def stream(self, run: RunRecord, ident: str) -> StreamRecord:
        """Return a stream of a run.

        Raises:
            NotFoundError: the run has no such stream.
        """
        try:
            found = StreamRecord.decode(self._streams.get(run.owner, stream_key(run.id, ident)))
        except HeadMissingError as e:
            raise NotFoundError(f"the run has no stream {ident[:80]!r}") from e
        if run.streams.get(found.partition) != found.id:
            # The stream may be newer than this version of the run, or have been replaced.
            run = RunRecord.decode(self._runs.get(run.owner, run.id))
            if run.streams.get(found.partition) != found.id:
                raise NotFoundError(f"the run has no stream {ident[:80]!r}")
        return found

    def streams(self, run: RunRecord) -> list[StreamRecord]:
        """Return all streams of a run, in the order of their partitions."""
        listed = set(run.streams.values())
        return [s for s in self._all_streams(run.owner, run.id) if s.id in listed]

    def page_streams(self, run: RunRecord, after: str, limit: int) -> list[StreamRecord]:
        """List up to ``limit`` streams of a run after an id, in the order of partitions."""
        start = stream_key(run.id, after)
        found = self._streams.page(run.owner, f"{run.id}.", start, limit)
        return [StreamRecord.decode(owned) for owned in found]

    def _all_streams(self, owner: str, run: str) -> Iterator[StreamRecord]:
        after = f"{run}."
        while page := self._streams.page(owner, f"{run}.", after, 1000):
            yield from map(StreamRecord.decode, page)
            after = page[-1].ident

    def swap_stream(self, seen: StreamRecord, new: StreamRecord) -> StreamRecord:
        """Replace a stream that is unchanged since ``seen``; return the new version.

        Raises:
            NotFoundError: it was deleted.
            HeadConflictError: it has changed.
            QuotaExceededError: the owner stores too many bytes.
        """
        new = replace(new, touched=self._clock())
        owned = self._streams.replace(_owned(seen.owned), new.encode(), size=new.offset)
        self.watch.announce(seen.run)
        if self.grown is not None:
            self.grown(seen, new)
        return StreamRecord.decode(owned)

    def delete_stream(self, run: RunRecord, ident: str) -> None:
        """Delete a stream of a run that is not sealed; its partition can be uploaded again.

        Raises:
            NotFoundError: the run has no such stream.
            RunSealedError: the run is sealed.
        """
        stream = self.stream(run, ident)

        def without(run: RunRecord) -> RunRecord:
            self.check_open(run)
            left = {k: v for k, v in run.streams.items() if v != ident}
            return replace(run, state="uploading", problem=None, streams=left)

        self.change(run, without)
        self._remove_stream(stream)
        self.watch.announce(run.id)

    def _remove_stream(self, stream: StreamRecord) -> None:
        """Delete a head, then the bytes; the sweeper deletes those that are in use."""
        with contextlib.suppress(HeadMissingError):
            self._streams.delete(stream.owner, stream.key)
        fences = {extent.fence for extent in stream.extents}
        if stream.appending:
            # Its writer may have it open, elsewhere.
            fences.discard(stream.fence)
        for fence in fences:
            with contextlib.suppress(BlobMissingError, StoreBusyError):
                self.blobs.delete(STREAM, stream.blob(fence))

    def stored(self, stream: StreamRecord) -> StoredStream:
        """Return the durable bytes of a version of a stream."""
        return StoredStream(self.blobs, stream)


def _owned(owned: Owned | None) -> Owned:
    assert owned is not None  # noqa: S101 - what is changed was read
    return owned


def _free(run: RunRecord) -> int:
    """Return the lowest partition without a stream."""
    partition = 1
    while partition in run.streams:
        partition += 1
    return partition


def _check_partition(run: RunRecord, partition: int) -> None:
    """Check that a run can have a stream of this partition.

    Raises:
        StreamLimitError: it has too many, or fewer were declared.
    """
    declared = run.spec.get("options", {}).get("partitions")
    last = MAX_PARTITION if declared is None else declared
    if not 1 <= partition <= last:
        raise StreamLimitError(
            f"partition {partition} is not one of 1 to {last}",
            hint="The option partitions of the run says how many there are",
        )
    if partition not in run.streams and len(run.streams) >= MAX_STREAMS:
        raise StreamLimitError(f"a run has at most {MAX_STREAMS} streams")
