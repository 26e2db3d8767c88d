"""Streams of runs in the stores, in the namespaces of their owners."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from app.errors import NotFoundError
from app.run_errors import PartitionTakenError, StreamLimitError
from app.state.base import HeadMissingError, StateStore, StoreBusyError
from app.state.blobs import BlobMissingError, BlobStore
from app.state.ownership import Namespaces

from .records import MAX_PARTITION, STREAM, RunRecord, StreamRecord, stream_key
from .store import Runs
from .stored import StoredStream

MAX_STREAMS = 10_000
"""Maximum streams of a run: the head of the run lists them."""


class Streams:
    """The streams of all runs.

    Args:
        heads: the store of their heads.
        blobs: the store of their bytes.
        runs: lists the streams of each run.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        heads: StateStore,
        blobs: BlobStore,
        runs: Runs,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._heads = Namespaces(heads, STREAM)
        self.blobs = blobs
        self.runs = runs
        self._clock = clock
        self.grown: Callable[[StreamRecord, StreamRecord], None] | None = None
        """Called with a stream before and after it was changed here."""

    def add(self, run: RunRecord, template: StreamRecord, partition: int | None) -> StreamRecord:
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
            self.runs.check_open(run)
            chosen = _free(run) if partition is None else partition
            _check_partition(run, chosen)
            replaced = run.streams.get(chosen)
            if replaced is not None:
                self._check_untouched(run, chosen, replaced)
            streams = {**run.streams, chosen: f"{chosen:06d}-{suffix}"}
            return replace(
                run, state="uploading", problem=None, streams=dict(sorted(streams.items()))
            )

        run = self.runs.change(run, claim)
        stream = replace(template, run=run.id, id=run.streams[chosen], partition=chosen)
        stream = replace(stream, created=self._clock(), touched=self._clock())
        if replaced is not None:
            with contextlib.suppress(HeadMissingError):
                self._heads.delete(run.owner, stream_key(run.id, replaced))
        try:
            self._heads.create(run.owner, stream.key, stream.encode(), size=0)
        except BaseException:
            self._forget(run, chosen, stream.id)
            raise
        self.runs.watch.announce(run.id)
        return StreamRecord.decode(self._heads.get(run.owner, stream.key))

    def _check_untouched(self, run: RunRecord, partition: int, stream: str) -> None:
        """Check that a stream has no bytes: its creator never learned of it, perhaps.

        Raises:
            PartitionTakenError: it has some.
        """
        try:
            known = StreamRecord.decode(self._heads.get(run.owner, stream_key(run.id, stream)))
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
            self.runs.change(run, without)

    def get(self, run: RunRecord, ident: str) -> StreamRecord:
        """Return a stream of a run.

        Raises:
            NotFoundError: the run has no such stream.
        """
        try:
            found = StreamRecord.decode(self._heads.get(run.owner, stream_key(run.id, ident)))
        except HeadMissingError as e:
            raise NotFoundError(f"the run has no stream {ident[:80]!r}") from e
        if run.streams.get(found.partition) != found.id:
            # The stream may be newer than this version of the run, or have been replaced.
            run = self.runs.again(run)
            if run.streams.get(found.partition) != found.id:
                raise NotFoundError(f"the run has no stream {ident[:80]!r}")
        return found

    def of(self, run: RunRecord) -> list[StreamRecord]:
        """Return all streams of a run, in the order of their partitions."""
        listed = set(run.streams.values())
        return [s for s in self._all(run.owner, run.id) if s.id in listed]

    def page(self, run: RunRecord, after: str, limit: int) -> list[StreamRecord]:
        """List up to ``limit`` streams of a run after an id, in the order of partitions."""
        start = stream_key(run.id, after)
        found = self._heads.page(run.owner, f"{run.id}.", start, limit)
        return [StreamRecord.decode(owned) for owned in found]

    def _all(self, owner: str, run: str) -> Iterator[StreamRecord]:
        after = f"{run}."
        while page := self._heads.page(owner, f"{run}.", after, 1000):
            yield from map(StreamRecord.decode, page)
            after = page[-1].ident

    def swap(self, seen: StreamRecord, new: StreamRecord) -> StreamRecord:
        """Replace a stream that is unchanged since ``seen``; return the new version.

        Raises:
            NotFoundError: it was deleted.
            HeadConflictError: it has changed.
            QuotaExceededError: the owner stores too many bytes.
        """
        assert seen.owned is not None  # noqa: S101 - what is changed was read
        new = replace(new, touched=self._clock())
        owned = self._heads.replace(seen.owned, new.encode(), size=new.offset)
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
        stream = self.get(run, ident)

        def without(run: RunRecord) -> RunRecord:
            self.runs.check_open(run)
            left = {k: v for k, v in run.streams.items() if v != ident}
            return replace(run, state="uploading", problem=None, streams=left)

        self.runs.change(run, without)
        self._remove(stream)
        self.runs.watch.announce(run.id)

    def delete_all(self, run: RunRecord) -> None:
        """Delete the streams of a run that is gone."""
        for stream in list(self._all(run.owner, run.id)):
            self._remove(stream)

    def _remove(self, stream: StreamRecord) -> None:
        """Delete a head, then the bytes; the sweeper deletes those that are in use."""
        with contextlib.suppress(HeadMissingError):
            self._heads.delete(stream.owner, stream.key)
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
