"""What a request needs before its route is reached: deny by default.

Every path falls under the first rule whose prefix it has. A path without a rule is open to
``admin`` alone, and does not exist for anybody else, so a route that is added without a
rule is closed rather than open.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.errors import NotFoundError

from .identity import LOSSES, PIPELINES, REGISTER, RUNS, Identity, require

METRICS = "/metrics"
_OPEN = frozenset(
    {"/", "/healthz", "/readyz", "/openapi.json", "/docs", "/console/sign-in", "/console/sign-out"}
)
_OPEN_BELOW = ("/problems/", "/console/assets/")
_LEVEL_OF_ACTIONS = 2
_READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class _Rule:
    """The scopes of a path and all below it, one of which a request needs."""

    path: str
    scopes: tuple[str, ...] = ()
    """Empty if every identity will do."""
    looks: int | None = None
    """Levels below the path that ``admin`` may look at; None if it may not even delete."""
    again: str | None = None
    """Action on a thing by which ``admin`` may have it tried again."""

    def covers(self, path: str) -> bool:
        return path == self.path or path.startswith(f"{self.path}/")

    def is_for_admin(self, method: str, path: str) -> bool:
        """Whether ``admin`` suffices: to look at what there is or delete it, not to run it."""
        if self.looks is None:
            return False
        levels = path.removeprefix(self.path).count("/")
        if method == "POST":
            return levels == _LEVEL_OF_ACTIONS and path.rpartition("/")[2] == self.again
        return method == "DELETE" or (method in _READS and levels <= self.looks)


_RULES = (
    _Rule("/v1/losses", (LOSSES,)),
    _Rule("/v1/inputs", (LOSSES, RUNS), looks=2),
    _Rule("/v1/pipelines", (PIPELINES,), looks=1),
    _Rule("/v1/runs", (RUNS,), looks=2, again="seal"),
    _Rule("/v1/datasets"),
    _Rule("/v1/stages"),
    _Rule("/v1/tokens"),
    _Rule("/zarr"),
    _Rule("/console/samples/scan", (REGISTER,)),
    _Rule("/console/runs", (RUNS,), looks=1),
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


def has_rule(path: str) -> bool:
    """Whether a path is open, or has a rule of its own."""
    return is_open(path) or any(rule.covers(path) for rule in _RULES)
