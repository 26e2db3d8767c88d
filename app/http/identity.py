"""Who makes a request, and what they may do: owners and scopes.

A key names an *owner* and carries *scopes*. Owners own what they register; scopes say what
a request may do at all:

    losses               post loss streams, and store their auxiliary files
    read:<dataset>       read datasets of the operator's catalogue and scans, by id
    register:<path>      register files, by their path below the dataset roots or absolute
    pipelines            register pipelines and read their batches
    runs                 runs of several streams
    admin                see and delete what any owner has

The two with a colon take a pattern (``*``, ``?`` and ``[…]``, where ``*`` matches slashes
too). No scope opens what another owner registered but ``admin``, which in turn implies none
of the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from app.errors import ForbiddenError

ADMIN = "admin"
"""The scope that sees everything; and the owner of everything that has no other."""
LOSSES, PIPELINES, RUNS = "losses", "pipelines", "runs"
READ, REGISTER = "read:", "register:"
USER_SCOPES = frozenset({LOSSES, PIPELINES, RUNS, "read:*", "register:*"})
"""All scopes but ``admin``: those of keys in the settings."""
_SCOPE = "thalweg.identity"


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner and the scopes of a request."""

    owner: str
    scopes: frozenset[str]
    key_id: str | None = None
    """Leading hexadecimal digits of the key's digest; None where the service has no keys."""
    account: str | None = None
    """Who is charged for what the request uses; None for the owner."""
    stored_key: str | None = field(default=None, repr=False, compare=False)
    """Digest of the key if it is stored, and so may be revoked or expire."""

    @property
    def payer(self) -> str:
        """Who is charged for memory, threads and the like: the owner of the key, or an address."""
        return self.owner if self.account is None else self.account

    @property
    def is_admin(self) -> bool:
        """Whether the request may see and delete what others own."""
        return ADMIN in self.scopes

    def has(self, scope: str) -> bool:
        """Whether the request has a scope, or one of a family that ends with a colon."""
        if scope.endswith(":"):
            return any(own.startswith(scope) for own in self.scopes)
        return scope in self.scopes

    def may_read(self, dataset: str) -> bool:
        """Whether the request may read a dataset of the catalogue."""
        return self.is_admin or self._matches(READ, dataset)

    def may_register(self, *names: str) -> bool:
        """Whether the request may register a file, given all names of it."""
        return any(self._matches(REGISTER, name) for name in names)

    def _matches(self, family: str, name: str) -> bool:
        patterns = (own.removeprefix(family) for own in self.scopes if own.startswith(family))
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    def acting_for(self, owner: str) -> Identity:
        """Return the identity in the namespace of another owner, at the same expense."""
        return self if owner == self.owner else replace(self, owner=owner, account=self.payer)


SINGLE_USER = Identity(ADMIN, USER_SCOPES | {ADMIN})
"""Everybody, where the service has no keys."""


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Check the scopes of a new key.

    Raises:
        ValueError: one is unknown, or there is none.
    """
    checked = frozenset(scopes)
    for scope in sorted(checked):
        family, colon, pattern = scope.partition(":")
        if scope not in {LOSSES, PIPELINES, RUNS, ADMIN} and not (
            f"{family}{colon}" in {READ, REGISTER} and pattern
        ):
            raise ValueError(
                f"there is no scope {scope!r}: use losses, pipelines, runs, admin,"
                " read:PATTERN or register:PATTERN"
            )
    if not checked:
        raise ValueError("a key needs a scope")
    return checked


def require(identity: Identity, *scopes: str) -> None:
    """Check that a request has one of these scopes.

    Raises:
        ForbiddenError: it has none of them.
    """
    if not any(identity.has(scope) for scope in scopes):
        names = [f"{s}PATTERN" if s.endswith(":") else s for s in scopes]
        raise ForbiddenError(
            f"the API key lacks the scope {' or '.join(names)}",
            hint="Ask the operator for a key that has it",
        )


def identify(scope: Any, identity: Identity) -> None:  # noqa: ANN401 - an ASGI scope
    """Attach the identity to a request, for its route."""
    scope[_SCOPE] = identity


def identity_of(scope: Any) -> Identity:  # noqa: ANN401 - an ASGI scope
    """Return the identity of a request.

    Raises:
        RuntimeError: the request did not pass the guard.
    """
    identity = scope.get(_SCOPE)
    if not isinstance(identity, Identity):
        # Without an identity nothing may be answered: a fault of ours, not of the client.
        raise RuntimeError("a request reached a route without passing the guard")  # noqa: TRY004
    return identity
