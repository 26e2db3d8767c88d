"""The bytes of one append: checked, written, and made durable while more of them come.

Two threads work on an append. One feeds it: each piece is checked and written to the blob of the
append's fence, and what it leads to is published as a *snapshot*. The other commits: it takes the
last snapshot, has the blob made durable, and swaps the record of the stream.

    feed      | check, write 1 | check, write 2 | check, write 3 | ...
    snapshot                   1                2                3
    commit                      | sync 1, swap 1 |    | sync 3, swap 3 |

A commit acknowledges what its snapshot says, no more: what was written since is durable perhaps,
and not part of the stream. Only one commit runs at a time, and the next takes all that has come
meanwhile; so a store that needs half a second for each delays what is acknowledged, and costs no
throughput.

*Faults.* The offset stops at the end of the last event that is right, or at what was
acknowledged before if that is more. The swap that says so also says that the stream failed.

*Late bytes.* An append takes the next fence before its first byte. If another one takes the fence
from it, its next commit finds the record changed and fails: it has lost, whatever it wrote.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import xxhash

from app.errors import NotFoundError, ServiceError, problem_of
from app.losses.sums_room import Followed
from app.run_errors import DigestError, UploadExcessError, UploadLengthError, UploadTakenError
from app.state.base import RecordConflictError
from app.state.blobs import BlobWriter
from core.budget import current
from core.errors import CoreError, EmptyStreamError, UnsupportedStreamError, WorkStoppedError
from core.losses.analysis import StreamCheck
from core.losses.events import Position
from core.losses.format import Kind
from core.losses.policy import Policy

from ..records import STREAM, ContentDigest, Extent, StreamRecord
from ..streams import Streams
from .checksums import Checksum, check_digest

COMMIT_BYTES = 8 << 20
"""Bytes that are committed at once, without waiting for more."""
_STRETCH = 1 << 20
"""Bytes that are checked between two looks at the budget."""
GROUP = 4 << 20
"""Bytes of a group."""
_START = bytes(16)


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """What a request wants to append, in whichever protocol."""

    offset: int
    """Offset that the client believes the stream to have."""
    last: bool = False
    """Whether the stream ends with it."""
    length: int | None = None
    """Length of the whole stream, if the request declares it."""
    content_length: int | None = None
    """Bytes of the body, if known."""
    checksums: tuple[Checksum, ...] = ()
    """Checksums of the body, which must be verified first."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is written, and what the stream is with it."""

    offset: int
    cursor: Position
    digest: ContentDigest | None
    complete: bool = False
    fault: Exception | None = None


Bound = tuple[int, str]
"""A number of bytes, and the setting that has it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What an append may send."""

    length: int | None
    """Length of the whole stream, if it is known by now."""
    last: bool
    """Whether the stream is to end with this append, wherever that is."""
    most: int
    """Maximum length of the stream."""
    setting: str
    """The setting that says so."""

    @property
    def end(self) -> int:
        """Offset that the append may not exceed."""
        return self.most if self.length is None else self.length


class Appending:
    """One append; see the module.

    Args:
        streams: where the stream is.
        record: the stream, with the fence of this append.
        policy: what is accepted.
        takes_items: whether the stream must be one of items, or of summaries; None for either.
        terms: what it may send.
        tell: called in the feeding thread when something is to be committed, with whether it
            is enough not to wait for more.
    """

    def __init__(  # noqa: PLR0913 - what an append consists of
        self,
        streams: Streams,
        record: StreamRecord,
        policy: Policy,
        *,
        takes_items: bool | None,
        terms: Terms,
        tell: Callable[[bool], None],
    ) -> None:
        self.record = record
        """The last committed version."""
        self._streams = streams
        self._takes_items = takes_items
        self._terms = terms
        self._tell = tell
        self._start = record.offset
        self._check = StreamCheck(policy)
        self._hasher = ContentHasher(record.digest, record.offset)
        self._writer: BlobWriter | None = None
        self._ready = False
        self._stored = 0
        self._snapshot = Snapshot(record.offset, record.cursor, record.digest)
        self._unpaid = 0
        self._urgency = 0
        self._memory = Followed()

    # -- the feeding thread -----------------------------------------------------------

    def feed(self, data: memoryview) -> None:
        """Take the next bytes.

        Raises:
            CoreError: the stream is faulty.
            UploadExcessError: these are more bytes than the append may send.
            ServiceError: they cannot be stored.
        """
        self._unpaid += len(data)
        if self._unpaid >= _STRETCH:
            current().renew()
            self._unpaid = 0
        if self._snapshot.offset + len(data) > self._terms.end:
            raise self._excess()
        self._prepare()
        for start in range(0, len(data), _STRETCH):
            current().check("losses")
            self._take(data[start : start + _STRETCH])

    def _excess(self) -> UploadExcessError:
        end = self._terms.end
        hint, setting = "Delete the upload, and create one of the right length", None
        if self._terms.length is None:
            hint, setting = "Divide the stream into partitions", self._terms.setting
        return UploadExcessError(
            f"the upload may have {end} bytes, and more came",
            hint=hint,
            limit="upload",
            allowed=end,
            setting=setting,
        )

    def _prepare(self) -> None:
        """Bring check and digest to where the stream ended, once bytes come."""
        if self._ready:
            return
        record = self.record
        self._check.resume(record.cursor)
        begin = min(record.cursor.offset, self._hasher.start)
        for piece in self._streams.stored(record).pieces(begin):
            stop = begin + len(piece)
            if stop > record.cursor.offset:
                self._check.receive(piece[max(record.cursor.offset - begin, 0) :])
            if stop > self._hasher.start:
                self._hasher.update(piece[max(self._hasher.start - begin, 0) :])
            begin = stop
        self._ready = True

    def _take(self, piece: memoryview) -> None:
        try:
            self._check.receive(piece)
            self._memory.follow(self._check.nbytes)
            self._check_kind()
        except WorkStoppedError:
            raise
        except CoreError as e:
            self._fail(e, piece)
            raise
        self._write(piece)
        offset = self._snapshot.offset + len(piece)
        self._publish(Snapshot(offset, self._check.position, self._hasher.digest()))

    def _check_kind(self) -> None:
        header, takes_items = self._check.header, self._takes_items
        if header is None or takes_items in {None, header.kind is not Kind.SUMMARY}:
            return
        if takes_items:
            raise UnsupportedStreamError(
                "this is a stream of summaries, but the run has a summary xref of items",
                offset=0,
                hint="Upload the stream of items, or create a run without summary_xref",
            )
        raise UnsupportedStreamError(
            f"this is a {header.kind.value} stream, but the reports of the run are of summaries",
            offset=0,
            hint="Give the run a summary_xref, which says what to add up, and upload it again",
        )

    def _write(self, piece: memoryview) -> None:
        if not piece:
            return
        if self._writer is None:
            name = self.record.blob(self.record.fence)
            self._writer = self._streams.blobs.writer(STREAM, name, 0)
        self._writer.write(piece)
        self._hasher.update(piece)

    def _fail(self, fault: CoreError, piece: memoryview) -> None:
        """Keep what is right of the stream, and of the piece with the fault."""
        good = self._check.good_until(fault)
        if isinstance(fault, UnsupportedStreamError):
            good = Position()
        written = self._snapshot.offset
        with contextlib.suppress(OSError):
            self._write(piece[: max(good.offset - written, 0)])
        self._publish(Snapshot(good.offset, good, None, fault=fault))

    def _publish(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        pending = snapshot.offset - self.record.offset
        urgency = 2 if pending >= COMMIT_BYTES else int(pending > 0)
        if urgency > self._urgency:
            self._urgency = urgency
            self._tell(urgency > 1)

    def finish(self) -> bool:
        """End the append after the last byte of its body; return True.

        Raises:
            UploadLengthError: the stream was to end with it, at another length.
            CoreError: the stream ended, and is faulty.
        """
        offset, length = self._snapshot.offset, self._terms.length
        if self._terms.last and length not in {None, offset}:
            raise UploadLengthError(
                f"the upload is complete with {offset} bytes, but {length} were declared",
                hint="Continue it, or delete it and declare the right length",
            )
        if not self._terms.last and offset != length:
            return True
        try:
            self._prepare()
            if not offset:
                raise EmptyStreamError("the stream is empty", offset=0)
            end = self._check.close()
        except WorkStoppedError:
            raise
        except CoreError as e:
            self._fail(e, memoryview(b""))
            raise
        cursor = replace(self._check.position, events=end.events)
        self._publish(Snapshot(offset, cursor, self._hasher.digest(), complete=True))
        return True

    def suspend(self) -> bool:
        """End the append because the server stops, and keep what came; return False."""
        return False

    # -- the committing thread ----------------------------------------------------------

    def commit(self, *, final: bool = False) -> bool:
        """Make durable what has come; return whether the stream has changed.

        Args:
            final: whether the append has ended.

        Raises:
            UploadTakenError: another request took the stream.
            QuotaExceededError: the owner stores too much.
            StoreError: the store failed.
        """
        self._urgency = 0
        if final and self._is_last(self._snapshot) and self._snapshot.fault is None:
            # All of its bytes have come, and the request ended before it did.
            with contextlib.suppress(CoreError):
                self.finish()
        snapshot = self._snapshot
        if not final and (snapshot.offset <= self.record.offset or self._is_last(snapshot)):
            return False
        if self._writer is not None:
            self._stored = self._writer.commit()
            if final:
                # Whoever deletes the stream from then on can delete its bytes.
                self._writer.close()
        new = self._with(snapshot)
        if final:
            fault = None if snapshot.fault is None else problem_of(snapshot.fault).to_json()
            new = replace(new, complete=snapshot.complete, fault=fault, appending=False)
        if new == self.record:
            return False
        self._swap(new)
        return True

    def _is_last(self, snapshot: Snapshot) -> bool:
        """Whether it has all bytes of a stream that is not known to be complete yet.

        To acknowledge them says that the upload is complete, so they wait for its end.
        """
        return snapshot.offset == self._terms.length and not snapshot.complete

    def _with(self, snapshot: Snapshot) -> StreamRecord:
        record = self.record
        offset = max(snapshot.offset, record.offset)
        before = tuple(e for e in record.extents if e.fence != record.fence)
        extents = before
        if offset > self._start:
            extents = (*before, Extent(record.fence, self._start, offset - self._start))
        length = offset if snapshot.complete else self._terms.length
        return replace(
            record,
            offset=offset,
            extents=extents,
            cursor=snapshot.cursor,
            digest=snapshot.digest,
            events=snapshot.cursor.events,
            length=length,
        )

    def _swap(self, new: StreamRecord) -> None:
        try:
            self.record = self._streams.swap(self.record, new)
        except RecordConflictError as e:
            raise UploadTakenError(
                "another request has continued this upload",
                hint="Ask for its offset, and continue there",
            ) from e
        except NotFoundError as e:
            raise UploadTakenError(
                "another request has deleted this upload, or its run",
                hint="Create it anew if that was a mistake",
            ) from e

    def verify(self) -> None:
        """Compare the digest of a complete stream with that of its creation, if it had one.

        Raises:
            DigestError: they differ; the stream has failed.
            UploadTakenError, ServiceError: see ``commit``.
        """
        expected = self.record.expected_digest
        if expected is None or not self._snapshot.complete:
            return
        self.commit()
        try:
            check_digest(expected, self._streams.stored(self.record).pieces())
        except DigestError as e:
            self._snapshot = replace(self._snapshot, complete=False, fault=e)
            raise

    def abandon(self) -> None:
        """Close the blob, say that the append has ended, and acknowledge nothing more."""
        self.close()
        with contextlib.suppress(UploadTakenError):
            if self.record.appending:
                self._swap(replace(self.record, appending=False))

    def drop(self) -> None:
        """Close the blob, and delete what of it is no part of the stream; the append has ended."""
        self.close()
        if self._writer is None:
            return
        blobs, blob = self._streams.blobs, self.record.blob(self.record.fence)
        with contextlib.suppress(ServiceError):
            # How many bytes of the blob are part of the stream.
            found: StreamRecord | None = self.record
            if self.record.appending:
                # Another request has continued or deleted it, perhaps.
                found = self._streams.again(self.record)
                found = None if found is None else self._streams.settle(found)
            length = 0 if found is None else found.length_of(self.record.fence)
            if not length:
                blobs.delete(STREAM, blob)
            elif length < self._stored:
                # To acknowledge its last bytes was refused.
                blobs.trim(STREAM, blob, length)

    def close(self) -> None:
        """Close the blob; no thread may use the append any more."""
        if self._writer is not None:
            self._writer.close()


class ContentHasher:
    """Digests the bytes of one stream.

    A stream comes in many requests, to many processes, and hash functions do not give their
    state away. So the digest is a chain over groups of a fixed size, whatever the requests were:

        chain k = xxh3(chain k-1 | group k)          total = xxh3(chain of whole groups | the rest)

    To go on after a cut, the bytes since the last whole group are read again.

    Args:
        digest: of the bytes before; None at the beginning.
        offset: number of these bytes. The first bytes to be added are those from
            :attr:`start` on.
    """

    def __init__(self, digest: ContentDigest | None = None, offset: int = 0) -> None:
        self.start = offset - offset % GROUP
        """Offset of the first byte of the unfinished group."""
        self._chain = _START if digest is None else bytes.fromhex(digest.chain)
        self._hash = xxhash.xxh3_128(self._chain)
        self._left = GROUP

    def update(self, data: memoryview) -> None:
        """Add the next bytes."""
        at = 0
        while at < len(data):
            part = data[at : at + self._left]
            self._hash.update(part)
            at += len(part)
            self._left -= len(part)
            if not self._left:
                self._chain = self._hash.digest()
                self._hash = xxhash.xxh3_128(self._chain)
                self._left = GROUP

    def digest(self) -> ContentDigest:
        """Return the digest of all bytes so far."""
        return ContentDigest(self._chain.hex(), self._hash.hexdigest())
