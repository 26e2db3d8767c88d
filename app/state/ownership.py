"""Ownership: every owner has a namespace of heads, and nobody sees into another's.

The heads of an owner begin with a digest of the owner's name:

    dataset    0f3a…c1.scan1                  b41d…77.scan1
               └ alice ┘└ id                  └ bob ─┘└ id

So ids that clients choose cannot collide, listing what one owner has is listing a prefix,
and a lookup in the wrong namespace finds nothing, however well the id is guessed. What is
named by its content (a view, a pipeline) has the same id in every namespace: its *set* of
owners are those that have a head of this id. A POST adds the caller, a DELETE removes the
caller, and with the last one the thing is gone, without a list that two requests could
change at once.

A head's value names its owner, for the administrator and for ``adopt``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .base import (
    MAX_PAGE,
    Admit,
    Head,
    HeadConflictError,
    HeadExistsError,
    HeadInvalidError,
    HeadMissingError,
    StateStore,
    every,
)
from .turns import Turn

ADMIN = "admin"
"""Owner of what has no other: everything, in a service without keys."""
OWNED_KINDS = (
    *("dataset", "view", "pipeline", "input"),
    *("run", "stream", "segment", "report", "sealing", "ahead"),
)
_PREFIX_SIZE = 8
_DIGITS = 2 * _PREFIX_SIZE
_LAST_ID = "z" * 150
"""Sorts after every id of a namespace."""


def namespace(owner: str) -> str:
    """Return the prefix of an owner's heads: 16 hexadecimal digits."""
    return hashlib.blake2b(owner.encode(), digest_size=_PREFIX_SIZE).hexdigest()


@dataclass(frozen=True, slots=True)
class Owned:
    """A thing of an owner."""

    owner: str
    ident: str
    value: Any
    """JSON values."""
    head: Head

    @classmethod
    def of(cls, head: Head) -> Owned:
        """Return the thing in a head."""
        values = json.loads(head.value)
        return cls(values["owner"], head.id[_DIGITS + 1 :], values["value"], head)


def _encoded(owner: str, value: Any) -> bytes:  # noqa: ANN401 - JSON
    # Sorted, so that equal values have equal bytes.
    return json.dumps(
        {"owner": owner, "value": value}, sort_keys=True, separators=(",", ":")
    ).encode()


class Namespaces:
    """The things of one kind, by owner and id.

    Args:
        store: holds the heads.
        kind: kind of the heads.
    """

    def __init__(self, store: StateStore, kind: str) -> None:
        self._store = store
        self._kind = kind

    def create(
        self,
        owner: str,
        ident: str,
        value: Any,  # noqa: ANN401 - JSON
        size: int | None = None,
    ) -> bool:
        """Create a thing; return whether it is new.

        Args:
            owner: who owns it.
            ident: its id.
            value: its value.
            size: bytes that it takes; default: those of the value.

        Raises:
            HeadExistsError: the owner has another one of this id.
        """
        while True:
            with contextlib.suppress(HeadExistsError):
                self.insert(owner, ident, value, size)
                return True
            # Unless it was deleted in the meantime:
            with contextlib.suppress(HeadMissingError):
                if self.head(owner, ident).value == _encoded(owner, value):
                    return False
                raise HeadExistsError(
                    f"the {self._kind} {ident} already exists",
                    hint=f"Delete the {self._kind} first, or give another id",
                )

    def insert(
        self,
        owner: str,
        ident: str,
        value: Any,  # noqa: ANN401 - JSON
        size: int | None = None,
    ) -> Owned:
        """Create a thing; see ``create``.

        Raises:
            HeadExistsError: the owner has one of this id, even an equal one.
        """
        text = _encoded(owner, value)
        head = self._store.create(self._kind, head_id(owner, ident), text, size=size)
        return Owned(owner, ident, value, head)

    def head(self, owner: str, ident: str) -> Head:
        """Return the head of a thing.

        Raises:
            HeadMissingError: the owner has no such thing.
        """
        try:
            return self._store.get(self._kind, head_id(owner, ident))
        except (HeadInvalidError, HeadMissingError) as e:
            # The store names its head, whose id holds more than that of the thing.
            raise self._missing(ident) from e

    def get(self, owner: str, ident: str) -> Owned:
        """Return a thing.

        Raises:
            HeadMissingError: the owner has no such thing.
        """
        return Owned.of(self.head(owner, ident))

    def has(self, owner: str, ident: str) -> bool:
        """Whether an owner has a thing."""
        try:
            self.head(owner, ident)
        except HeadMissingError:
            return False
        return True

    def replace(
        self,
        seen: Owned,
        value: Any,  # noqa: ANN401 - JSON
        size: int | None = None,
        admit: Admit | None = None,
    ) -> Owned:
        """Replace the value of a thing that is unchanged since ``seen``; return the new version.

        Args:
            seen: the version to replace.
            value: the new value.
            size: bytes that it takes; default: those of the value.
            admit: admits that it grows; default: the quota of its owner.

        Raises:
            HeadMissingError, HeadConflictError: it was deleted or changed.
        """
        text = _encoded(seen.owner, value)
        try:
            head = self._store.compare_and_swap(seen.head, text, size=size, admit=admit)
        except HeadMissingError as e:
            raise self._missing(seen.ident) from e
        return Owned(seen.owner, seen.ident, value, head)

    def delete(self, owner: str, ident: str, seen: Owned | None = None) -> None:
        """Delete a thing of one owner.

        Args:
            owner: the owner.
            ident: id of the thing.
            seen: delete it only if it is unchanged since.

        Raises:
            HeadMissingError: the owner has no such thing.
            HeadConflictError: it has changed since it was seen.
        """
        try:
            head = None if seen is None else seen.head
            self._store.delete(self._kind, head_id(owner, ident), head)
        except (HeadInvalidError, HeadMissingError) as e:
            raise self._missing(ident) from e

    def remove(self, owner: str, ident: str, *, everyone: bool = False) -> list[str]:
        """Delete a thing of one owner; return whose it was.

        Args:
            owner: the owner.
            ident: id of the thing.
            everyone: whether to delete those of all owners if ``owner`` has none.

        Raises:
            HeadMissingError: there is none to delete.
        """
        owners = [owner]
        if everyone and not self.has(owner, ident):
            owners = [owned.owner for owned in self.of_anyone(ident)]
        removed = []
        for each in owners:
            # Its owner may have been first.
            with contextlib.suppress(HeadMissingError):
                self.delete(each, ident)
                removed.append(each)
        if not removed:
            raise self._missing(ident)
        return removed

    def _missing(self, ident: str) -> HeadMissingError:
        return HeadMissingError(f"there is no {self._kind} {ident[:80]!r}")

    def ids(self, owner: str, after: str = "", limit: int = 1000, *, prefix: str = "") -> list[str]:
        """List up to ``limit`` ids of an owner that begin so, after ``after``, in order."""
        return [owned.ident for owned in self.page(owner, prefix, after, limit)]

    def page(self, owner: str, prefix: str = "", after: str = "", limit: int = 100) -> list[Owned]:
        """List up to ``limit`` things of an owner whose ids begin so, after ``after``, in order."""
        return [Owned.of(head) for head in self.heads(owner, prefix, after, limit)]

    def heads(
        self, owner: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> Sequence[Head]:
        """List the heads of things as ``page`` does: to look at many takes a third of the time."""
        return self._heads(namespace(owner), prefix, after, limit)

    def all_ids(self, after: str = "", limit: int = 1000, *, prefix: str = "") -> list[str]:
        """List up to ``limit`` ids of all owners that begin so, after ``after``, each once."""
        found: set[str] = set()
        for space in self._prefixes():
            heads = self._heads(space, prefix, after, limit)
            found |= {Owned.of(head).ident for head in heads}
        return sorted(found)[:limit]

    def of_all(self) -> Iterator[Owned]:
        """Yield the things of all owners."""
        return map(Owned.of, every(self._store, self._kind))

    def of_anyone(self, ident: str) -> list[Owned]:
        """Return the things of this id, of all owners."""
        found = []
        for prefix in self._prefixes():
            try:
                found.append(Owned.of(self._store.get(self._kind, f"{prefix}.{ident}")))
            except (HeadMissingError, HeadInvalidError):
                continue
        return found

    def all(self, owner: str) -> Iterator[Owned]:
        """Yield all things of an owner."""
        after = ""
        while page := self.page(owner, "", after, MAX_PAGE):
            yield from page
            after = page[-1].ident

    def _heads(self, space: str, prefix: str, after: str, limit: int) -> Sequence[Head]:
        start = f"{space}.{after}" if after else ""
        return self._store.list(self._kind, f"{space}.{prefix}", start, limit).heads

    def _prefixes(self) -> Iterator[str]:
        """Yield the namespaces that hold anything, by jumping from one to the next."""
        after = ""
        while heads := self._store.list(self._kind, after=after, limit=1).heads:
            prefix = heads[0].id[:_DIGITS]
            yield prefix
            after = f"{prefix}.{_LAST_ID}"


def head_id(owner: str, ident: str) -> str:
    """Return the id of the head of a thing."""
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
        The number of things handed over, and those that stay with the old owner because
        the new one has another of the same id, as ``kind id``.
    """
    moved, left = 0, []
    for kind in OWNED_KINDS:
        things = Namespaces(store, kind)
        for owned in list(things.all(old)):
            with turn():
                try:
                    moved += _hand_over(things, old, new, owned.ident)
                except HeadExistsError:
                    left.append(f"{kind} {owned.ident}")
    return moved, left


def _hand_over(things: Namespaces, old: str, new: str, ident: str) -> bool:
    """Hand a thing to another owner, with all that was changed until then; whether it was there.

    Raises:
        HeadExistsError: the new owner has another one of this id.
    """
    while True:
        with contextlib.suppress(HeadMissingError):
            owned = things.get(old, ident)
            created = things.create(new, ident, owned.value, owned.head.size)
            try:
                things.delete(old, ident, owned)
            except (HeadConflictError, HeadMissingError):
                # It was changed or deleted meanwhile, and so is what was handed over, unless
                # the new owner had it before.
                if created:
                    things.delete(new, ident)
                continue
            return True
        return False
