"""What the service needs of a store of small heads: one per view, dataset, run and the like.

A head is a few bytes under a (kind, id). It is replaced whole, and only by whoever saw
what it replaces: every head has a generation, and a nonce from its creation that no
other head has, so that one deleted and made again is not taken for the old one.

Errors:

* StoreError ``store``: base; the store failed in a way that has no better name
    * StoreBusyError: others kept it locked for too long; try again
    * StoreDamagedError: what is stored cannot be read, or is gone
    * StoreForeignError: of a newer version, or of another program
    * StoreReadOnlyError: it cannot be written
    * StoreFullError: the disk is full
* HeadExistsError ``head-exists``, HeadMissingError ``not-found``,
  HeadConflictError ``head-conflict``: what a call found instead of what it needs
* HeadInvalidError ``bad-request``: a kind, id or value that no store takes
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.errors import BadRequestError, NotFoundError, ServiceError

MAX_VALUE = 1 << 20
"""Bytes of a head's value at most."""
MAX_PAGE = 1000
"""Heads in one page at most."""
_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)
_PREFIX = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,199})?", re.ASCII)


class StoreError(ServiceError):
    """The store of the service's state failed.

    Attributes:
        path: the file at fault, for the operator; the text does not name it.
    """

    code = "store"

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


class StoreBusyError(StoreError):
    """Others kept the store locked for too long."""


class StoreDamagedError(StoreError):
    """What is stored cannot be read, or is no longer there."""


class StoreForeignError(StoreError):
    """The store is of a newer version, or of another program."""


class StoreReadOnlyError(StoreError):
    """The store cannot be written."""


class StoreFullError(StoreError):
    """The disk of the store is full."""


class HeadExistsError(ServiceError):
    """There is a head of this kind and id already."""

    code = "head-exists"


class HeadConflictError(ServiceError):
    """The head is no longer what the caller saw."""

    code = "head-conflict"


class HeadMissingError(NotFoundError):
    """There is no head of this kind and id."""


class HeadInvalidError(BadRequestError):
    """A kind, id, prefix or value that no store takes."""


@dataclass(frozen=True, slots=True)
class Head:
    """A head as it was seen."""

    kind: str
    id: str
    value: bytes
    generation: int
    """1 when created, one more with each swap."""
    nonce: str
    """Hexadecimal digits made at random when created; swaps keep them."""

    def same_version(self, generation: int, nonce: str) -> bool:
        """Whether a head with these is this one, not replaced since."""
        return self.generation == generation and self.nonce == nonce


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list."""

    heads: tuple[Head, ...]
    after: str | None
    """What to ask the next page with; None if this is the last."""


class StateStore(Protocol):
    """Heads by kind and id. Every method may be called by any thread.

    A method that returns has done what it says durably, as far as the store is durable
    at all; one that raises StoreError may or may not have done it, one that raises
    another error has changed nothing. Reads see every write that returned before them.

    Beside what is listed, every method raises HeadInvalidError for arguments that no
    store takes, and StoreError if the store fails.
    """

    def create(self, kind: str, head_id: str, value: bytes) -> Head:
        """Make a head, at generation 1.

        Raises:
            HeadExistsError: there is one already, whatever its value.
        """

    def get(self, kind: str, head_id: str) -> Head:
        """The head as it is.

        Raises:
            HeadMissingError: there is none.
        """

    def compare_and_swap(self, seen: Head, value: bytes) -> Head:
        """Replace the value of a head that is still as it was seen; returns the new one.

        Of several callers that saw the same, exactly one succeeds. Equal values count as
        a change.

        Raises:
            HeadMissingError: there is none any more.
            HeadConflictError: it was swapped since, or deleted and made again.
        """

    def list(self, kind: str, prefix: str = "", after: str = "", limit: int = 100) -> Page:
        """Heads whose id begins with a prefix, in the order of their ids' bytes.

        Args:
            kind: which heads.
            prefix: what their ids begin with.
            after: an id, there or not; the list begins behind it.
            limit: heads in the page at most, up to MAX_PAGE.

        A head that is there from the first page to the last is listed exactly once;
        one that is made or deleted meanwhile may be.
        """

    def delete(self, kind: str, head_id: str, seen: Head | None = None) -> None:
        """Remove a head; if ``seen`` is given, only if it is still as it was seen.

        Raises:
            HeadMissingError: there is none.
            HeadConflictError: it is not as it was seen.
        """

    def close(self) -> None:
        """Let go of everything; may be called twice. Other methods then raise StoreError."""


def check_key(kind: str, head_id: str) -> None:
    """Accept a kind and an id.

    Raises:
        HeadInvalidError: one of them is not of the form every store takes.
    """
    if not _KIND.fullmatch(kind):
        raise HeadInvalidError(f"{kind[:50]!r} is not a kind of head")
    if not _ID.fullmatch(head_id):
        raise HeadInvalidError(
            f"{head_id[:50]!r} is not an id",
            hint="Up to 200 of A-Z a-z 0-9 . _ -, the first a letter or digit",
        )


def check_value(value: bytes) -> bytes:
    """A value as bytes of its own.

    Raises:
        HeadInvalidError: it is too long.
    """
    if len(value) > MAX_VALUE:
        raise HeadInvalidError(f"a head of {len(value)} bytes; it may have {MAX_VALUE}")
    return bytes(value)


def check_page(kind: str, prefix: str, after: str, limit: int) -> None:
    """Accept the arguments of a list.

    Raises:
        HeadInvalidError: one of them makes no sense.
    """
    check_key(kind, "any")
    if not (_PREFIX.fullmatch(prefix) and _PREFIX.fullmatch(after)):
        raise HeadInvalidError("a prefix, or the id to go on after, that no id can have")
    if not 1 <= limit <= MAX_PAGE:
        raise HeadInvalidError(f"a page has 1 to {MAX_PAGE} heads, not {limit}")


def new_nonce() -> str:
    """A nonce no other head has."""
    return secrets.token_hex(8)


def exists(kind: str, head_id: str) -> HeadExistsError:
    """The error of a head that is there already."""
    return HeadExistsError(f"there is a {kind} {head_id} already")


def missing(kind: str, head_id: str) -> HeadMissingError:
    """The error of a head that is not there."""
    return HeadMissingError(f"there is no {kind} {head_id}")


def conflict(kind: str, head_id: str) -> HeadConflictError:
    """The error of a head that is not as it was seen."""
    return HeadConflictError(
        f"the {kind} {head_id} was changed meanwhile", hint="Read it again, and try again"
    )
