"""The interface of a store of blobs: bytes by kind and id, for what is too large for a record.

A blob is written in one of two ways. One that is named by its content is *put*: it appears
whole, and putting it again changes nothing. One that grows, such as an uploaded stream, is
*appended to*: each call states the offset it continues at, so that of two writers that
believe to be the only one, one is refused. Bytes that come fast are appended by a
*writer*, which is the only one of its blob for as long as it is open: it takes them without
waiting for the disk, and makes all it has taken durable when it is asked to.

What a method acknowledged by returning is there after any crash. What it did not
acknowledge is there whole or not at all: a put, an append, never a part of one. Every byte
is stored with a checksum that also covers its position and the name of the blob, and is
compared with it whenever it is read: a store gives the right bytes, or StoreDamagedError.

Errors, besides those of ``app.state.base``:

* BlobMissingError ``not-found``, BlobConflictError ``head-conflict``: the blob is not in the
  state that the call requires
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from app.errors import NotFoundError

from .base import RecordConflictError, RecordInvalidError, StoreDamagedError, check_key

Octets: TypeAlias = bytes | bytearray | memoryview
"""Bytes to be stored; a memoryview must be contiguous."""
Note: TypeAlias = Callable[[str, float, bool], None]
"""Is told the kind of a request, its seconds, and whether it failed."""


def no_note(_operation: str, _seconds: float, _failed: bool) -> None:
    """Take no note of a request."""


@contextmanager
def timed(note: Note, expected: tuple[type[Exception], ...], operation: str) -> Iterator[None]:
    """Note how long a request takes; what is expected of it is an answer rather than a failure."""
    begun, failed = time.perf_counter(), True
    try:
        yield
        failed = False
    except expected:
        failed = False
        raise
    finally:
        note(operation, time.perf_counter() - begun, failed)


_COMPARED = 8 << 20
"""Bytes that are compared at a time."""


class BlobMissingError(NotFoundError):
    """There is no blob of this kind and id."""


class BlobConflictError(RecordConflictError):
    """The blob has other content, or ends at another offset, than the caller expects.

    Attributes:
        size: bytes that it has.
    """

    def __init__(self, detail: str, size: int) -> None:
        super().__init__(detail)
        self.size = size


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """What a store knows of a blob."""

    kind: str
    id: str
    size: int
    """Bytes of its content."""
    modified: float
    """When it was last written to, in seconds since 1970."""
    used: float
    """When it was created or last touched, in seconds since 1970."""


class BlobPage(NamedTuple):
    """Part of a list."""

    blobs: tuple[BlobInfo, ...]
    after: str | None
    """Value of ``after`` for the next page; None if this is the last."""


class BlobPieces(NamedTuple):
    """Where the bytes of a blob lie in the file that it is."""

    descriptor: int
    """The open file, which the caller closes."""
    size: int
    """Bytes of the file that belong to the blob."""
    places: tuple[tuple[int, int], ...]
    """Offset in the file and length of each piece, in the order of the blob."""


class BlobWriter(Protocol):
    """Appends to a blob that nobody else appends to or deletes meanwhile.

    One thread may write while another commits. Readers see what is committed.
    """

    def write(self, data: Octets) -> int:
        """Append bytes, not durably; return the size of the blob with them.

        Raises:
            StoreFullError, StorageFullError: there is no space; what was written before stays.
        """

    def commit(self) -> int:
        """Make durable what was written before the call; return the size of the blob.

        Raises:
            StoreError: the store failed; nothing more is durable than before.
        """

    def close(self) -> None:
        """End the writer and drop what is not committed; may be called twice."""


class BlobStore(Protocol):
    """Blobs by kind and id; several threads and processes may call any method at once.

    Kinds and ids are those of records. Besides the errors listed, every method raises
    RecordInvalidError for arguments that no store accepts, StorageFullError or StoreFullError
    where there is no space for more, and StoreError if the store fails.
    """

    def put(self, kind: str, blob_id: str, data: Octets) -> bool:
        """Store a blob whole; return whether it is new.

        A blob with the same content is left as it is; one that is damaged is replaced.

        Raises:
            BlobConflictError: there is one with other content.
        """

    def append(self, kind: str, blob_id: str, offset: int, data: Octets) -> int:
        """Append to a blob, and return its new size; offset 0 creates it.

        Raises:
            BlobMissingError: there is no such blob, and the offset is not 0.
            BlobConflictError: the blob does not end at the offset.
            StoreDamagedError: the blob is damaged.
        """

    def writer(self, kind: str, blob_id: str, offset: int) -> BlobWriter:
        """Open a writer that appends to a blob; offset 0 creates it. The caller closes it.

        Raises:
            BlobMissingError: there is no such blob, and the offset is not 0.
            BlobConflictError: the blob does not end at the offset.
            StoreBusyError: somebody else appends to it for too long.
            StoreDamagedError: the blob is damaged.
        """

    def trim(self, kind: str, blob_id: str, size: int) -> None:
        """Delete what was appended to a blob after its first ``size`` bytes.

        They end where an append did, or some of the bytes of that append stay as well.

        Raises:
            BlobMissingError: there is no such blob.
            StoreBusyError: somebody appends to it.
            StoreDamagedError: the blob is damaged.
        """

    def range(self, kind: str, blob_id: str, start: int = 0, stop: int | None = None) -> bytes:
        """Return the bytes from ``start`` to ``stop``, cut at the end of the blob.

        Raises:
            BlobMissingError: there is no such blob.
            StoreDamagedError: the bytes are not those that were stored.
        """

    def info(self, kind: str, blob_id: str) -> BlobInfo:
        """Return the size and times of a blob.

        Raises:
            BlobMissingError: there is no such blob.
            StoreDamagedError: the blob is damaged, as far as looking at it shows.
        """

    def touch(self, kind: str, blob_id: str, moment: float | None = None) -> None:
        """Note that a blob is being used; the note may be lost if the machine fails.

        Args:
            kind: its kind.
            blob_id: its id.
            moment: time of the use, in seconds since 1970; None for now.

        Raises:
            BlobMissingError: there is no such blob.
        """

    def list(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> BlobPage:
        """List blobs whose id begins with a prefix, in the byte order of their ids.

        A blob that exists throughout the listing of all pages is listed exactly once; one
        that is created or deleted meanwhile may or may not be. A damaged one is listed with
        the size of what is left of it.

        Args:
            kind: kind of the blobs.
            prefix: prefix of their ids.
            after: list only ids after this one, which need not exist.
            limit: maximum number of blobs in the page, up to ``MAX_PAGE``.
        """

    def delete(self, kind: str, blob_id: str, *, unused_since: float | None = None) -> None:
        """Delete a blob, damaged or not; works on a full disk.

        Args:
            kind: its kind.
            blob_id: its id.
            unused_since: delete it only if it was neither created nor touched since this
                time, in seconds since 1970.

        Raises:
            BlobMissingError: there is no such blob.
            RecordConflictError: it was used since.
        """

    def clean(self) -> int:
        """Remove what crashed writers left; return the number of files removed."""

    def close(self) -> None:
        """Close the store; may be called twice. Other methods then raise StoreError."""


class GrowingBlobs(BlobStore, ABC):
    """Stores in which a blob is created by what is first appended to it."""

    @abstractmethod
    def check(self) -> None:
        """Check that it can be written.

        Raises:
            StoreError: it cannot.
        """

    @abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of all blobs."""

    def pieces(self, kind: str, blob_id: str) -> BlobPieces | None:
        """Open the file of a blob, to map it; None where blobs are no files.

        Its bytes are not checked: whoever maps them reads them by ``range`` once.

        Raises:
            BlobMissingError: there is no such blob.
            StoreDamagedError: a header of a piece is damaged.
        """
        check_blob(kind, blob_id)
        return None

    @abstractmethod
    def _using(self, kind: str, blob_id: str) -> AbstractContextManager[object]:
        """Raise only errors of a store."""

    @abstractmethod
    def _writer(self, kind: str, blob_id: str, offset: int) -> BlobWriter:
        """Open a writer of a blob that exists."""

    @abstractmethod
    def _create(self, kind: str, blob_id: str, view: memoryview) -> bool:
        """Create a blob whole; return False if another has its name."""

    @abstractmethod
    def _replace(self, kind: str, blob_id: str, view: memoryview) -> bool:
        """Put a blob in the place of a damaged one; return False if that is only gone now."""

    def put(self, kind: str, blob_id: str, data: Octets) -> bool:
        """See BlobStore."""
        check_blob(kind, blob_id)
        view = memoryview(data).cast("B")
        with self._using(kind, blob_id):
            while True:
                try:
                    self._compare(kind, blob_id, view)
                except BlobMissingError:
                    if self._create(kind, blob_id, view):
                        return True
                except StoreDamagedError:
                    if self._replace(kind, blob_id, view):
                        return True
                else:
                    return False

    def _compare(self, kind: str, blob_id: str, view: memoryview) -> None:
        size = self.info(kind, blob_id).size
        equal = size == len(view)
        for at in range(0, size, _COMPARED):
            # All is read: if its other bytes are damaged, it must be replaced.
            equal &= self.range(kind, blob_id, at, at + _COMPARED) == view[at : at + _COMPARED]
        if not equal:
            raise BlobConflictError(f"the {kind} {blob_id} has other content", size)

    def append(self, kind: str, blob_id: str, offset: int, data: Octets) -> int:
        """See BlobStore."""
        check_blob(kind, blob_id, offset)
        view = memoryview(data).cast("B")
        with self._using(kind, blob_id):
            while True:
                try:
                    with closing(self._writer(kind, blob_id, offset)) as writer:
                        writer.write(view)
                        return writer.commit()
                except BlobMissingError:
                    if offset:
                        raise
                    # Whole or not at all: not created empty, and then appended to.
                    if self._create(kind, blob_id, view):
                        return len(view)

    def writer(self, kind: str, blob_id: str, offset: int) -> BlobWriter:
        """See BlobStore."""
        check_blob(kind, blob_id, offset)
        with self._using(kind, blob_id):
            while True:
                try:
                    return self._writer(kind, blob_id, offset)
                except BlobMissingError:
                    if offset:
                        raise
                    self._create(kind, blob_id, memoryview(b""))


def check_blob(kind: str, blob_id: str, offset: int = 0) -> None:
    """Check a kind, an id and an offset.

    Raises:
        RecordInvalidError: one is invalid.
    """
    check_key(kind, blob_id)
    if offset < 0:
        raise RecordInvalidError(f"an offset is not negative, as {offset} is")


def no_blob(kind: str, blob_id: str) -> BlobMissingError:
    """Build the error for a blob that does not exist."""
    return BlobMissingError(f"there is no {kind} {blob_id}")


def other_offset(kind: str, blob_id: str, offset: int, size: int) -> BlobConflictError:
    """Build the error for a blob that does not end at an offset."""
    return BlobConflictError(f"the {kind} {blob_id} ends at byte {size}, not at {offset}", size)
