"""Content that is stored once, however many owners have it.

The owners of a content are those that have a record of its id; the content itself is elsewhere.
No transaction spans the two, so their order decides what a crash leaves:

    put      content, unless it is there
             ┌ in a turn ─────────────────────────────────┐
             │ content again, if it was deleted meanwhile │
             │ record of the caller, within the quota       │
             └────────────────────────────────────────────┘
    delete   ┌ in a turn ─────────────────────────────────┐
             │ record of the caller                         │
             │ nobody left? content                       │
             └────────────────────────────────────────────┘

A record exists only while its content does. Whatever step a process is killed at, at most content
without an owner is left: nobody can use it, no quota counts it, and :meth:`Shares.sweep` removes
it. The reverse, a record before its content, would charge an owner for what is not there.

Turns exclude all threads and processes, and end with the process that has one. Storing large
content takes long, so it comes before the turn, which then lasts as long as a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.errors import ServiceError

from .base import StateStore
from .ownership import Namespaces
from .turns import Turn

T = TypeVar("T")


class Shares:
    """The owners of content of one kind.

    Args:
        store: holds a record per content and owner.
        kind: kind of the records.
        turn: a turn among all that change owners or content of this kind.
    """

    def __init__(self, store: StateStore, kind: str, turn: Turn) -> None:
        self._things = Namespaces(store, kind)
        self._turn = turn

    def put(  # noqa: PLR0913 - the last three are acts on the content
        self,
        owner: str,
        ident: str,
        size: int,
        *,
        store: Callable[[], T],
        is_stored: Callable[[], bool],
        remove: Callable[[], None],
    ) -> tuple[T, bool]:
        """Store content and add an owner; return what storing it returned, and whether he is new.

        Args:
            owner: the new owner, who may be one already.
            ident: id of the content.
            size: bytes of the content.
            store: stores the content durably unless it is there.
            is_stored: tells whether it is there.
            remove: deletes it, if it is there.
        """
        result = store()
        with self._turn():
            if not is_stored():
                result = store()
            try:
                new = self._things.create(owner, ident, {}, size)
            except ServiceError:
                if not self.owners(ident):
                    remove()
                raise
        return result, new

    def has(self, owner: str, ident: str) -> bool:
        """Whether an owner has the content."""
        return self._things.has(owner, ident)

    def owners(self, ident: str) -> list[str]:
        """Return all owners of the content."""
        return [owned.owner for owned in self._things.of_anyone(ident)]

    def delete(
        self, owner: str, ident: str, remove: Callable[[], None], *, everyone: bool = False
    ) -> None:
        """Remove an owner, and the content with the last one.

        Args:
            owner: the owner to remove.
            ident: id of the content.
            remove: deletes the content.
            everyone: whether to remove all owners if ``owner`` is none of them.

        Raises:
            RecordMissingError: the owner does not have the content.
        """
        with self._turn():
            self._things.remove(owner, ident, everyone=everyone)
            if not self.owners(ident):
                remove()

    def sweep(self, ident: str, remove: Callable[[], None]) -> None:
        """Delete content that has no owner."""
        # Most has one, so that the first look needs no turn.
        if self.owners(ident):
            return
        with self._turn():
            if not self.owners(ident):
                remove()
