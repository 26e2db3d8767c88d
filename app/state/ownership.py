"""Ownership: every owner has a namespace of records, and nobody sees into another's.

The records of an owner begin with a digest of the owner's name:

    dataset    0f3a…c1.scan1                  b41d…77.scan1
               └ alice ┘└ id                  └ bob ─┘└ id

So ids that clients choose cannot collide, listing what one owner has is listing a prefix,
and a lookup in the wrong namespace finds nothing, however well the id is guessed. What is
named by its content (a view, a pipeline) has the same id in every namespace: its *set* of
owners are those that have a record of this id. A POST adds the caller, a DELETE removes the
caller, and with the last one the thing is gone, without a list that two requests could
change at once.

A record names its owner, for the administrator and for ``adopt``. Its *value* is what the thing
means: who does not know a member of that refuses it. What is only known of the thing stands beside
it; nodes of an earlier version leave that where it is, and do without.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

import structlog

from . import base
from .base import (
    MAX_PAGE,
    Admit,
    Record,
    RecordExistsError,
    RecordMissingError,
    StateStore,
    StoreDamagedError,
)
from .turns import Turn

T = TypeVar("T")
Json: TypeAlias = Any
"""What JSON holds."""
ADMIN = "admin"
"""Owner of what has no other: everything, in a service without keys."""
OWNED_KINDS = (
    *("dataset", "view", "pipeline", "input", "loss_set"),
    *("run", "stream", "segment", "report", "sealing", "ahead"),
)
_PREFIX_SIZE = 8
_DIGITS = 2 * _PREFIX_SIZE
_LAST_ID = "z" * 150
"""Sorts after every id of a namespace."""


def namespace(owner: str) -> str:
    """Return the prefix of an owner's records: 16 hexadecimal digits."""
    return hashlib.blake2b(owner.encode(), digest_size=_PREFIX_SIZE).hexdigest()


@contextlib.contextmanager
def logged_damage() -> Iterator[None]:
    """Log what is damaged, and go on without it."""
    try:
        yield
    except StoreDamagedError as e:
        structlog.get_logger().error("passed over", reason=str(e))


@dataclass(frozen=True, slots=True)
class OwnedRecord:
    """A thing of an owner."""

    owner: str
    ident: str
    value: Json
    """JSON values."""
    record: Record
    beside: Mapping[str, Any] = field(default_factory=dict)
    """What is known of it, by name, whether or not by this version."""

    @classmethod
    def of(cls, record: Record) -> OwnedRecord:
        """Return the thing in a record."""
        beside = json.loads(record.value)
        owner, value = beside.pop("owner"), beside.pop("value")
        return cls(owner, ident_of(record), value, record, beside)


def _owner_of(record: Record) -> str:
    """Return the owner that a record names; nobody's name if it is damaged."""
    return "" if isinstance(record, base.DamagedRecord) else OwnedRecord.of(record).owner


def _owned(record: Record) -> list[OwnedRecord]:
    return [OwnedRecord.of(record)]


def ident_of(record: Record) -> str:
    """Return the id of the thing in a record."""
    return record.id[_DIGITS + 1 :]


def _encoded(**members: Json) -> bytes:
    # Sorted, so that equal values have equal bytes.
    return json.dumps(members, sort_keys=True, separators=(",", ":")).encode()


class Namespaces:
    """The things of one kind, by owner and id.

    Args:
        store: holds the records.
        kind: kind of the records.
    """

    def __init__(self, store: StateStore, kind: str) -> None:
        self._store = store
        self._kind = kind

    def create(
        self,
        owner: str,
        ident: str,
        value: Json,
        size: int | None = None,
        beside: Mapping[str, Any] = {},
    ) -> bool:
        """Create a thing; return whether it is new.

        Args:
            owner: who owns it.
            ident: its id.
            value: its value.
            size: bytes that it takes; default: those of the record.
            beside: what is known of it.

        Raises:
            RecordExistsError: the owner has another one of this id.
        """
        while True:
            with contextlib.suppress(RecordExistsError):
                self.insert(owner, ident, value, size, beside)
                return True
            # Unless it was deleted in the meantime:
            with contextlib.suppress(RecordMissingError):
                text = self.record(owner, ident).value
                # Of which more may be known.
                whole = json.loads(text) | {**beside, "owner": owner, "value": value}
                if _encoded(**whole) == text:
                    return False
                raise RecordExistsError(
                    f"the {self._kind} {ident} already exists",
                    hint=f"Delete the {self._kind} first, or give another id",
                    ids=[ident],
                )

    def insert(
        self,
        owner: str,
        ident: str,
        value: Json,
        size: int | None = None,
        beside: Mapping[str, Any] = {},
    ) -> OwnedRecord:
        """Create a thing; see ``create``.

        Raises:
            RecordExistsError: the owner has one of this id, even an equal one.
        """
        text = _encoded(**beside, owner=owner, value=value)
        record = self._store.create(self._kind, record_id(owner, ident), text, size=size)
        return OwnedRecord(owner, ident, value, record, beside)

    def record(self, owner: str, ident: str) -> Record:
        """Return the record of a thing.

        Raises:
            RecordMissingError: the owner has no such thing.
        """
        try:
            return self._store.get(self._kind, record_id(owner, ident))
        except (base.RecordInvalidError, RecordMissingError) as e:
            # The store names its record, whose id holds more than that of the thing.
            raise self._missing(ident) from e

    def get(self, owner: str, ident: str) -> OwnedRecord:
        """Return a thing.

        Raises:
            RecordMissingError: the owner has no such thing.
        """
        return OwnedRecord.of(self.record(owner, ident))

    def has(self, owner: str, ident: str) -> bool:
        """Whether an owner has a thing."""
        try:
            self.record(owner, ident)
        except RecordMissingError:
            return False
        except StoreDamagedError:
            return True
        return True

    def replace(
        self, seen: OwnedRecord, value: Json, size: int | None = None, admit: Admit | None = None
    ) -> OwnedRecord:
        """Replace the value of a thing that is unchanged since ``seen``; return the new version.

        Args:
            seen: the version to replace.
            value: the new value.
            size: bytes that it takes; default: those of the record.
            admit: admits that it grows; default: the quota of its owner.

        Raises:
            RecordMissingError, RecordConflictError: it was deleted or changed.
        """
        text = _encoded(**seen.beside, owner=seen.owner, value=value)
        try:
            record = self._store.compare_and_swap(seen.record, text, size=size, admit=admit)
        except RecordMissingError as e:
            raise self._missing(seen.ident) from e
        return OwnedRecord(seen.owner, seen.ident, value, record, seen.beside)

    def delete(self, owner: str, ident: str, seen: OwnedRecord | None = None) -> None:
        """Delete a thing of one owner.

        Args:
            owner: the owner.
            ident: id of the thing.
            seen: delete it only if it is unchanged since.

        Raises:
            RecordMissingError: the owner has no such thing.
            RecordConflictError: it has changed since it was seen.
        """
        try:
            record = None if seen is None else seen.record
            self._store.delete(self._kind, record_id(owner, ident), record)
        except (base.RecordInvalidError, RecordMissingError) as e:
            raise self._missing(ident) from e

    def remove(self, owner: str, ident: str, *, everyone: bool = False) -> list[str]:
        """Delete a thing of one owner; return whose it was.

        Args:
            owner: the owner.
            ident: id of the thing.
            everyone: whether to delete those of all owners if ``owner`` has none.

        Raises:
            RecordMissingError: there is none to delete.
        """
        found = {record_id(owner, ident): owner}
        if everyone and not self.has(owner, ident):
            found = {record.id: _owner_of(record) for record in self._of_ident(ident)}
        removed = []
        for each, whose in found.items():
            # Its owner may have been first.
            with contextlib.suppress(base.RecordInvalidError, RecordMissingError):
                self._store.delete(self._kind, each)
                removed.append(whose)
        if not removed:
            raise self._missing(ident)
        return removed

    def _of_ident(self, ident: str) -> Iterator[Record]:
        """Yield the records of this id, of all owners, damaged ones too."""
        with contextlib.suppress(base.RecordInvalidError):
            for space in self._prefixes():
                records = self._records(space, ident, "", 1)
                yield from (record for record in records if ident_of(record) == ident)

    def _missing(self, ident: str) -> RecordMissingError:
        return RecordMissingError(f"there is no {self._kind} {ident[:80]!r}")

    def ids(self, owner: str, after: str = "", limit: int = 1000, *, prefix: str = "") -> list[str]:
        """List up to ``limit`` ids of an owner that begin so, after ``after``, in order."""
        return [ident_of(record) for record in self.records(owner, prefix, after, limit)]

    def page(
        self, owner: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[OwnedRecord]:
        """List up to ``limit`` things of an owner whose ids begin so, after ``after``, in order."""
        return [OwnedRecord.of(record) for record in self.records(owner, prefix, after, limit)]

    def listed(
        self,
        owner: str,
        after: str,
        limit: int,
        decode: Callable[[OwnedRecord], T],
        *,
        everyone: bool = False,
    ) -> list[T]:
        """List things as ``page`` does, but for those that are damaged, which are logged.

        Args:
            owner: the owner.
            after: list only things whose ids are after this one.
            limit: maximum number of them, or a few more if several owners have the last one.
            decode: returns the thing in a record.
            everyone: whether to list those of all owners.
        """
        found: list[T] = []
        while len(found) < limit and (
            part := self._part(owner, after, limit - len(found), everyone)
        ):
            for read in part.values():
                with logged_damage():
                    found += map(decode, read())
            after = list(part)[-1]
        return found

    def _part(
        self, owner: str, after: str, limit: int, everyone: bool
    ) -> dict[str, Callable[[], list[OwnedRecord]]]:
        """Find the next ids of a list, each with what reads the things of this id."""
        if everyone:
            return {each: partial(self.of_anyone, each) for each in self.all_ids(after, limit)}
        records = self.records(owner, "", after, limit)
        return {ident_of(each): partial(_owned, each) for each in records}

    def records(
        self, owner: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """List the records as ``page`` lists things: to look at many takes a third of the time."""
        return self._records(namespace(owner), prefix, after, limit)

    def all_ids(self, after: str = "", limit: int = 1000, *, prefix: str = "") -> list[str]:
        """List up to ``limit`` ids of all owners that begin so, after ``after``, each once."""
        found: set[str] = set()
        for space in self._prefixes():
            records = self._records(space, prefix, after, limit)
            found |= {ident_of(record) for record in records}
        return sorted(found)[:limit]

    def of_all(self) -> Iterator[OwnedRecord]:
        """Yield the things of all owners."""
        return map(OwnedRecord.of, base.every(self._store, self._kind))

    def intact(self) -> Iterator[OwnedRecord]:
        """Yield the things of all owners, but for those that are damaged, which are logged."""
        for record in base.every(self._store, self._kind):
            with logged_damage():
                yield OwnedRecord.of(record)

    def of_anyone(self, ident: str) -> list[OwnedRecord]:
        """Return the things of this id, of all owners."""
        found = []
        for prefix in self._prefixes():
            try:
                found.append(OwnedRecord.of(self._store.get(self._kind, f"{prefix}.{ident}")))
            except (RecordMissingError, base.RecordInvalidError):
                continue
        return found

    def all_of(self, owner: str) -> Iterator[str]:
        """Yield all ids of an owner."""
        after = ""
        while page := self.ids(owner, after, MAX_PAGE):
            yield from page
            after = page[-1]

    def _records(self, space: str, prefix: str, after: str, limit: int) -> Sequence[Record]:
        start = f"{space}.{after}" if after else ""
        return self._store.list(self._kind, f"{space}.{prefix}", start, limit).records

    def _prefixes(self) -> Iterator[str]:
        """Yield the namespaces that hold anything, by jumping from one to the next."""
        after = ""
        while records := self._store.list(self._kind, after=after, limit=1).records:
            prefix = records[0].id[:_DIGITS]
            yield prefix
            after = f"{prefix}.{_LAST_ID}"


def record_id(owner: str, ident: str) -> str:
    """Return the id of the record of a thing."""
    return f"{namespace(owner)}.{ident}"


def adopt(
    store: StateStore, old: str, new: str, turn: Turn = contextlib.nullcontext
) -> tuple[int, list[str]]:
    """Hand everything of one owner to another.

    Args:
        store: the store.
        old: name of the present owner.
        new: name of the new owner.
        turn: keeps others from looking who owns something that is between the two.

    Returns:
        The number of things handed over, and a sentence about each that stays with the old owner:
        the new one has another of the same id, or it is damaged.
    """
    moved, left = 0, []
    for kind in OWNED_KINDS:
        things = Namespaces(store, kind)
        for ident in list(things.all_of(old)):
            with turn():
                try:
                    moved += _hand_over(things, old, new, ident)
                except RecordExistsError:
                    left.append(f"{new} has another {kind} {ident}: that of {old} stays")
                except StoreDamagedError:
                    left.append(f"{kind} {ident} is damaged: it stays with {old}")
    return moved, left


def _hand_over(things: Namespaces, old: str, new: str, ident: str) -> bool:
    """Hand a thing to another owner, with all that was changed until then; whether it was there.

    Raises:
        RecordExistsError: the new owner has another one of this id.
    """
    while True:
        with contextlib.suppress(RecordMissingError):
            owned = things.get(old, ident)
            created = things.create(new, ident, owned.value, owned.record.size, owned.beside)
            try:
                things.delete(old, ident, owned)
            except (base.RecordConflictError, RecordMissingError):
                # It was changed or deleted meanwhile, and so is what was handed over, unless
                # the new owner had it before.
                if created:
                    things.delete(new, ident)
                continue
            return True
        return False
