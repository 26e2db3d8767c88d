"""Who makes a request, and what they may do: owners and scopes.

A key names an *owner* and carries *scopes*. Owners own what they register; scopes say what
a request may do at all:

    losses               post loss streams, and store their auxiliary files
    read:<dataset>       read datasets of the operator's catalogue and scans, by id
    register:<path>      register files, by their path below the dataset roots or absolute
    pipelines            register pipelines and read their batches
    runs                 runs of several streams, and loss sets of them
    admin                see and delete what any owner has

The two with a colon take a pattern (``*``, ``?`` and ``[…]``, where ``*`` matches slashes
too). No scope opens what another owner registered but ``admin``, which in turn implies none
of the others.

What a request needs before its route is reached is denied by default. Every path falls under the
first rule whose prefix it has. A path without a rule is open to ``admin`` alone, and does not exist
for anybody else, so a route that is added without a rule is closed rather than open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from app.errors import ForbiddenError, NotFoundError

ADMIN = "admin"
"""The scope that sees everything; and the owner of everything that has no other."""
LOSSES, PIPELINES, RUNS = "losses", "pipelines", "runs"
READ, REGISTER = "read:", "register:"
USER_SCOPES = frozenset({LOSSES, PIPELINES, RUNS, "read:*", "register:*"})
"""All scopes but ``admin``: those of keys in the settings."""
_SCOPE = "thalweg.identity"
METRICS = "/metrics"
_OPEN = frozenset(
    {"/", "/healthz", "/readyz", "/openapi.json", "/docs", "/console/sign-in", "/console/sign-out"}
)
_OPEN_BELOW = ("/problems/", "/console/assets/", "/docs/")
_LEVEL_OF_ACTIONS = 2
_READS = frozenset({"GET", "HEAD"})


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


@dataclass(frozen=True, slots=True)
class _Rule:
    """The scopes of a path and all below it, one of which a request needs."""

    path: str
    scopes: tuple[str, ...] = ()
    """Empty if every identity will do."""
    looks: int | None = None
    """Levels below the path that ``admin`` may look at; None if it may not even delete."""
    retry: str | None = None
    """Action on a thing by which ``admin`` may have it tried again."""

    def covers(self, path: str) -> bool:
        return path == self.path or path.startswith(f"{self.path}/")

    def is_for_admin(self, method: str, path: str) -> bool:
        """Whether ``admin`` suffices: to look at what there is or delete it, not to run it."""
        if self.looks is None:
            return False
        levels = path.removeprefix(self.path).count("/")
        if method == "POST":
            return levels == _LEVEL_OF_ACTIONS and path.rpartition("/")[2] == self.retry
        return method == "DELETE" or (method in _READS and levels <= self.looks)


_RULES = (
    _Rule("/v1/losses", (LOSSES,)),
    _Rule("/v1/inputs", (LOSSES, RUNS), looks=2),
    _Rule("/v1/pipelines", (PIPELINES,), looks=1),
    _Rule("/v1/runs", (RUNS,), looks=2, retry="seal"),
    _Rule("/v1/portfolios", (RUNS,), looks=2),
    _Rule("/v1/datasets"),
    _Rule("/v1/stages"),
    _Rule("/v1/tokens"),
    _Rule("/zarr"),
    _Rule("/console/samples/scan", (REGISTER,)),
    _Rule("/console/files", (REGISTER,)),
    _Rule("/console/runs", (RUNS,), looks=1),
    _Rule("/console/portfolio", (RUNS,), looks=1),
    _Rule("/console/pipelines", (PIPELINES,), looks=1),
    _Rule("/console"),
    _Rule(METRICS),
)


def is_open(path: str, *, open_metrics: bool = False) -> bool:
    """Whether a path needs no identity."""
    if path == METRICS:
        return open_metrics
    return path in _OPEN or path.startswith(_OPEN_BELOW)


def outlives_drain(path: str) -> bool:
    """Whether a path is answered while the server is draining."""
    return is_open(path, open_metrics=True)


def authorise(identity: Identity, method: str, path: str) -> None:
    """Check that an identity may use a path at all; use cases check what it names.

    Raises:
        ForbiddenError: it lacks the scope.
        NotFoundError: the path has no rule, and the identity is not ``admin``.
    """
    rule = next((rule for rule in _RULES if rule.covers(path)), None)
    if rule is None:
        if not identity.is_admin:
            raise NotFoundError("Not Found")
        return
    scopes = rule.scopes
    if path == "/v1/datasets" and method not in _READS:
        scopes = (REGISTER,)
    if scopes and not (identity.is_admin and rule.is_for_admin(method, path)):
        require(identity, *scopes)
