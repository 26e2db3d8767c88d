"""The interface of a store of small records: one per view, dataset, pipeline and the like.

A *record* is what the store keeps of one thing: a few bytes under a (kind, id). A product parses
the value of one into a class that is named after the thing (a run, a stream, a key). A record is
replaced as a whole, and only by a caller that saw its current version, which is a generation and
a nonce. The nonce is drawn when the record is created, so that a record that was deleted and
created again is not mistaken for the old one.

Errors:

* StoreError ``store``: base; the store failed for another reason than these
    * StoreBusyError: others locked it for too long; try again
    * StoreDamagedError: the stored data cannot be read, or was removed
    * StoreForeignError: it is of a newer version, or of another program
    * StoreReadOnlyError: it cannot be written
    * StoreFullError: the disk is full
* RecordExistsError ``head-exists``, RecordMissingError ``not-found``,
  RecordConflictError ``head-conflict``: the record is not in the state that the call requires
* RecordInvalidError ``bad-request``: a kind, id or value that no store accepts

Every value is stored with a checksum of itself, its kind, id and version, and compared with
it whenever it is read: a store gives the right bytes, or StoreDamagedError.

A store counts records and their sizes by kind and *space*, the beginning of an id up to its
first dot, and counts in the very transaction that creates or swaps a record. A caller's
``admit`` sees the usage that would result, and refuses it by raising: nothing is stored then.
So a limit holds exactly, however many threads and processes store at once.
"""

from __future__ import annotations

import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from xxhash import xxh3_64_intdigest

from app.errors import BadRequestError, NotFoundError, ServiceError

T_co = TypeVar("T_co", covariant=True)
MAX_VALUE = 1 << 20
"""Maximum size of a value in bytes."""
MAX_PAGE = 1000
"""Maximum number of records per page."""
_SIGN = 1 << 63
"""The integers of databases are signed: checksums are stored less by this."""
_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)
_PREFIX = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,199})?", re.ASCII)


class StoreError(ServiceError, code="store"):
    """The store of the service's state failed.

    Attributes:
        path: the file at fault, for the operator; the message does not name it.
    """

    def __init__(
        self,
        detail: str,
        *,
        path: Path | None = None,
        hint: str | None = None,
        retry_after: int | None = 30,
    ) -> None:
        super().__init__(detail, hint=hint, retry_after=retry_after)
        self.path = path


class StorageError(StoreError):
    """The service cannot start, because it could not store anything."""


class StoreBusyError(StoreError):
    """Others locked the store for too long."""


class StoreDamagedError(StoreError):
    """The stored data cannot be read, or was removed."""


class StoreForeignError(StoreError):
    """The store belongs to a newer version, or to another program."""


class StoreReadOnlyError(StoreError):
    """The store cannot be written."""


class StoreFullError(StoreError):
    """The disk of the store is full."""


class RecordExistsError(ServiceError, code="head-exists"):
    """A record of this kind and id already exists."""


class RecordConflictError(ServiceError, code="head-conflict"):
    """The record has changed since the caller saw it."""


class RecordMissingError(NotFoundError):
    """There is no record of this kind and id."""


class RecordInvalidError(BadRequestError):
    """A kind, id, prefix or value that no store accepts."""


@dataclass(frozen=True, slots=True)
class Record:
    """One version of a record."""

    kind: str
    id: str
    value: bytes
    generation: int
    """1 on creation, one more with each swap."""
    nonce: str
    """Random hexadecimal digits drawn on creation and preserved by swaps."""
    used: float = field(default=0.0, compare=False)
    """When it was created or last touched, in seconds since 1970."""
    size: int = field(default=0, compare=False)
    """Bytes that it adds to the usage of its space."""

    def same_version(self, generation: int, nonce: str) -> bool:
        """Whether a generation and nonce are those of this version."""
        return self.generation == generation and self.nonce == nonce

    def checksum(self) -> int:
        """Compute what is stored with this version, to be compared whenever it is read."""
        return checksum_of(self.kind, self.id, self.value, self.generation, self.nonce)


class DamagedRecord(Record):
    """A version of a record that is not as it was stored: it can be listed and deleted.

    Whoever reads its value gets a StoreDamagedError.
    """

    __slots__ = ("_path",)

    def __init__(self, damaged: Record, path: Path | None) -> None:
        for each in fields(Record):
            if each.name != "value":
                object.__setattr__(self, each.name, getattr(damaged, each.name))
        object.__setattr__(self, "_path", path)

    @property
    def value(self) -> bytes:
        """Raises StoreDamagedError."""
        path: Path | None = object.__getattribute__(self, "_path")
        raise damaged(str(self.kind), str(self.id), path)


class Page(NamedTuple):
    """Part of a list."""

    records: tuple[Record, ...]
    after: str | None
    """Value of ``after`` for the next page; None if this is the last."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How many records of one kind a space has, and how many bytes they are."""

    count: int = 0
    nbytes: int = 0


Admit = Callable[[Usage], None]
"""Is called with the usage that a change would lead to; raises to prevent the change."""


class StateStore(ABC):
    """Records by kind and id; several threads may call any method at once.

    A method that returns has taken effect, durably if the store is durable at all. One that
    raises StoreError may or may not have taken effect; one that raises another error has
    not. Reads see every write that returned before them.

    Besides the errors listed, every method raises RecordInvalidError for arguments that no
    store accepts, and StoreError if the store fails.

    A store implements the abstract methods, which are called with arguments that are valid; its
    users call ``create``, ``get``, ``compare_and_swap``, ``list``, ``touch`` and ``delete``.
    """

    def create(
        self,
        kind: str,
        record_id: str,
        value: bytes,
        *,
        size: int | None = None,
        admit: Admit | None = None,
    ) -> Record:
        """Create a record, at generation 1.

        Args:
            kind: its kind.
            record_id: its id.
            value: its value.
            size: bytes that it adds to the usage of its space; default: those of the value.
            admit: admits the usage of the record's space.

        Raises:
            RecordExistsError: the record exists, with whatever value.
            Exception: what ``admit`` raises.
        """
        check_key(kind, record_id)
        nbytes = len(value) if size is None else size
        record = Record(
            kind, record_id, check_value(value), 1, secrets.token_hex(8), time.time(), nbytes
        )
        return self.insert(record, admit)

    @abstractmethod
    def insert(self, record: Record, admit: Admit | None) -> Record:
        """Store a new record, and return it as it is stored; see ``create``."""

    def get(self, kind: str, record_id: str) -> Record:
        """Return the current version of a record.

        Raises:
            RecordMissingError: there is no such record.
        """
        check_key(kind, record_id)
        record = self.find(kind, record_id)
        if record is None:
            raise missing(kind, record_id)
        return record

    @abstractmethod
    def find(self, kind: str, record_id: str) -> Record | None:
        """Return the current version of a record, None if there is none."""

    def compare_and_swap(
        self, seen: Record, value: bytes, *, size: int | None = None, admit: Admit | None = None
    ) -> Record:
        """Replace the value of a record that is unchanged since ``seen``; return the new version.

        Of several callers that saw the same version, exactly one succeeds. Replacing a value
        by an equal one is a change.

        Args:
            seen: the version to replace.
            value: the new value.
            size: bytes that it adds to the usage of its space; default: those of the value.
            admit: admits the usage of the record's space.

        Raises:
            RecordMissingError: the record was deleted.
            RecordConflictError: it was swapped, or deleted and created again.
            Exception: what ``admit`` raises.
        """
        check_key(seen.kind, seen.id)
        nbytes = len(value) if size is None else size
        version = seen.generation + 1, seen.nonce
        new = Record(seen.kind, seen.id, check_value(value), *version, seen.used, nbytes)
        return self.swap(seen, new, admit)

    @abstractmethod
    def swap(self, seen: Record, new: Record, admit: Admit | None) -> Record:
        """Store the version after ``seen``, and return it as it is stored."""

    def list(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> Page:
        """List records whose id begins with a prefix, in the byte order of their ids.

        A record that exists throughout the listing of all pages is listed exactly once; one
        that is created or deleted meanwhile may or may not be.

        Args:
            kind: kind of the records.
            prefix: prefix of their ids.
            after: list only ids after this one, which need not exist.
            limit: maximum number of records in the page, up to ``MAX_PAGE``.
        """
        check_page(kind, prefix, after, limit)
        records = self.scan(kind, prefix, after, limit + 1)
        page = tuple(records[:limit])
        return Page(page, page[-1].id if len(records) > limit else None)

    @abstractmethod
    def scan(self, kind: str, prefix: str, after: str, limit: int) -> Sequence[Record]:
        """Return the first records of a list."""

    @abstractmethod
    def touch(self, kind: str, record_id: str) -> None:
        """Note that a record is being used; the note may be lost if the machine fails.

        Raises:
            RecordMissingError: there is no such record.
        """

    def delete(
        self,
        kind: str,
        record_id: str,
        seen: Record | None = None,
        *,
        unused_since: float | None = None,
    ) -> None:
        """Delete a record.

        Args:
            kind: its kind.
            record_id: its id.
            seen: delete it only if it is unchanged since.
            unused_since: delete it only if it was neither created nor touched since this
                time, in seconds since 1970.

        Raises:
            RecordMissingError: there is no such record.
            RecordConflictError: it has changed since it was seen, or was used since.
        """
        check_key(kind, record_id)
        self.remove(kind, record_id, seen, unused_since)

    @abstractmethod
    def remove(
        self, kind: str, record_id: str, seen: Record | None, unused_since: float | None
    ) -> None:
        """Delete a record; see ``delete``."""

    @abstractmethod
    def close(self) -> None:
        """Close the store; may be called twice. Other methods then raise StoreError."""


class Listing(Protocol[T_co]):
    """A store of records or of blobs, of which this lists either."""

    def list(
        self, kind: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> tuple[Sequence[T_co], str | None]:
        """Return a page, and the value of ``after`` for the next."""


def every(store: Listing[T_co], kind: str) -> Iterator[T_co]:
    """Yield all records or blobs of a kind, in the order of their ids."""
    after: str | None = ""
    while after is not None:
        page, after = store.list(kind, after=after, limit=MAX_PAGE)
        yield from page


def check_key(kind: str, record_id: str) -> None:
    """Check a kind and an id.

    Raises:
        RecordInvalidError: one has a form that not every store accepts.
    """
    if not _KIND.fullmatch(kind):
        raise RecordInvalidError(f"{kind[:50]!r} is not a kind")
    if not _ID.fullmatch(record_id):
        raise RecordInvalidError(
            f"{record_id[:50]!r} is not an id",
            hint="Use up to 200 characters of A-Z a-z 0-9 . _ -, the first a letter or digit",
        )


def space_of(record_id: str) -> str:
    """Return the beginning of an id up to its first dot, empty if it has none."""
    return record_id[: record_id.find(".") + 1]


def check_value(value: bytes) -> bytes:
    """Check a value, and return an immutable copy.

    Raises:
        RecordInvalidError: it is longer than ``MAX_VALUE``.
    """
    if len(value) > MAX_VALUE:
        raise RecordInvalidError(f"a value of {len(value)} bytes is longer than {MAX_VALUE}")
    return bytes(value)


def check_page(kind: str, prefix: str, after: str, limit: int) -> None:
    """Check the arguments of ``list``.

    Raises:
        RecordInvalidError: one is invalid.
    """
    check_key(kind, "any")
    if not (_PREFIX.fullmatch(prefix) and _PREFIX.fullmatch(after)):
        raise RecordInvalidError("no id can have this prefix, or be listed after this text")
    if not 1 <= limit <= MAX_PAGE:
        raise RecordInvalidError(f"a page has 1 to {MAX_PAGE} records, not {limit}")


def damaged(kind: str, ident: str, path: Path | None = None) -> StoreDamagedError:
    """Build the error for what is not as it was stored."""
    return StoreDamagedError(
        f"the stored {kind} {ident} is damaged",
        path=path,
        hint="Delete it and store it again, or restore the data directory from a backup",
        retry_after=None,
    )


def exists(kind: str, record_id: str) -> RecordExistsError:
    """Build the error for a record that already exists."""
    return RecordExistsError(f"the {kind} {record_id} already exists")


def missing(kind: str, record_id: str) -> RecordMissingError:
    """Build the error for a record that does not exist."""
    return RecordMissingError(f"there is no {kind} {record_id}")


def conflict(kind: str, record_id: str) -> RecordConflictError:
    """Build the error for a record that has changed since it was seen."""
    return RecordConflictError(
        f"the {kind} {record_id} has changed since it was read", hint="Read it again, then retry"
    )


def in_use(kind: str, ident: str) -> RecordConflictError:
    """Build the error for what would have been deleted had it not been used."""
    return RecordConflictError(f"the {kind} {ident} has been used in the meantime")


def checksum_of(kind: str, record_id: str, value: bytes, generation: int, nonce: str) -> int:
    """Compute the checksum of a version of a record."""
    try:
        name = f"{kind}\0{record_id}\0{generation}\0{nonce}\0".encode()
        return xxh3_64_intdigest(name + value) - _SIGN
    except (TypeError, UnicodeError):
        # A damaged row may hold values of other types.
        return 0
