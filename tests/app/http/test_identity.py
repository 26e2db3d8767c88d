"""What scopes permit: what needs no identity, and what needs which scope."""

from __future__ import annotations

import pytest

from app.errors import ForbiddenError, NotFoundError
from app.http.identity import (
    _RULES,
    SINGLE_USER,
    USER_SCOPES,
    Identity,
    authorise,
    check_scopes,
    identify,
    identity_of,
    is_open,
    outlives_drain,
    require,
)


def identity(*scopes: str) -> Identity:
    return Identity("alice", frozenset(scopes), "0" * 12)


def test_reading_takes_a_pattern_that_matches() -> None:
    who = identity("read:public-*", "read:one")
    assert who.may_read("public-a")
    assert who.may_read("one")
    for dataset in ("public", "one-more", "PUBLIC-a", "secret", ""):
        assert not who.may_read(dataset)
    assert not identity("register:*", "losses").may_read("one")
    assert identity("admin").may_read("anything")


def test_registering_takes_a_pattern_that_matches_one_name() -> None:
    who = identity("register:alice/*")
    assert who.may_register("/data/alice/a.raw", "alice/a.raw")
    assert who.may_register("alice/deep/a.raw")
    assert not who.may_register("/data/bob/a.raw", "bob/a.raw")
    assert not who.may_register("/data/alice2/a.raw", "alice2/a.raw")
    assert not identity("admin", "read:*").may_register("alice/a.raw")


def test_scopes_of_a_family() -> None:
    assert identity("register:a").has("register:")
    assert not identity("losses").has("register:")
    require(identity("runs"), "losses", "runs")
    with pytest.raises(ForbiddenError, match="losses or register:PATTERN"):
        require(identity("admin"), "losses", "register:")


def test_admin_implies_no_other_scope() -> None:
    who = identity("admin")
    assert who.is_admin
    assert not any(who.has(scope) for scope in USER_SCOPES)
    assert not Identity("admin", USER_SCOPES).is_admin
    assert SINGLE_USER.scopes == USER_SCOPES | {"admin"}


def test_acting_for_another_keeps_the_scopes() -> None:
    who = identity("admin")
    other = who.acting_for("bob")
    assert (other.owner, other.scopes, other.key_id) == ("bob", who.scopes, who.key_id)
    assert who.acting_for("alice") is who


@pytest.mark.parametrize(
    "scopes", [[], ["everything"], ["read:"], ["read"], ["register"], ["losses:x"], ["a:b"], [""]]
)
def test_scopes_that_do_not_exist(scopes: list[str]) -> None:
    with pytest.raises(ValueError, match="scope"):
        check_scopes(scopes)


def test_scopes_that_exist() -> None:
    scopes = {"losses", "pipelines", "runs", "admin", "read:a*", "register:/data/*"}
    assert check_scopes(scopes) == scopes


def test_a_request_that_passed_no_guard_has_no_identity() -> None:
    scope: dict[str, object] = {}
    with pytest.raises(RuntimeError, match="without passing the guard"):
        identity_of(scope)
    identify(scope, SINGLE_USER)
    assert identity_of(scope) is SINGLE_USER


OPEN = [
    "/",
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/docs",
    "/docs/",
    "/docs/a/b.html",
    "/problems/busy",
]
CLOSED = ["", "/v1", "/zarr/a/b", "/docsx", "/healthz/x", "/problems", "/openapi.yaml", "/Docs"]


@pytest.mark.parametrize("path", OPEN)
def test_few_paths_are_open(path: str) -> None:
    assert is_open(path)
    assert outlives_drain(path)


@pytest.mark.parametrize("path", CLOSED)
def test_all_others_are_not(path: str) -> None:
    assert not is_open(path)
    assert not outlives_drain(path)


def test_metrics_are_open_if_so_set() -> None:
    assert not is_open("/metrics")
    assert is_open("/metrics", open_metrics=True)
    assert outlives_drain("/metrics")


def test_a_path_without_a_rule_is_for_admin_alone() -> None:
    for path in ("/v2/things", "/v1", "/v1/lossesx", "/consoles"):
        assert not any(rule.covers(path) for rule in _RULES)
        authorise(SINGLE_USER, "GET", path)
        with pytest.raises(NotFoundError):
            authorise(identity("losses", "pipelines", "read:*"), "GET", path)


@pytest.mark.parametrize(
    ("scope", "method", "path"),
    [
        ("losses", "POST", "/v1/losses"),
        ("losses", "PUT", "/v1/losses/melt"),
        ("losses", "PUT", "/v1/inputs/quantiles"),
        ("runs", "PUT", "/v1/inputs/quantiles"),
        ("runs", "POST", "/v1/runs"),
        ("runs", "PATCH", "/v1/runs/x/streams/y"),
        ("runs", "GET", "/v1/runs/x/streams/y"),
        ("pipelines", "POST", "/v1/pipelines"),
        ("pipelines", "GET", "/v1/pipelines/x/batches"),
        ("register:a", "POST", "/v1/datasets"),
        ("runs", "POST", "/v1/runs/x/reports"),
        ("runs", "POST", "/v1/runs/x/streams/seal"),
        ("runs", "POST", "/v1/runs/seal"),
    ],
)
def test_what_takes_a_scope(scope: str, method: str, path: str) -> None:
    authorise(identity(scope), method, path)
    for other in ("admin", "read:*"):
        with pytest.raises(ForbiddenError):
            authorise(identity(other), method, path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/pipelines"),
        ("HEAD", "/v1/pipelines/x"),
        ("DELETE", "/v1/pipelines/x"),
        ("GET", "/v1/runs/x"),
        ("GET", "/v1/runs/x/streams"),
        ("DELETE", "/v1/runs/x/streams/y"),
        ("DELETE", "/v1/inputs/quantiles/x"),
        # Of a run that failed: see the use case.
        ("POST", "/v1/runs/x/seal"),
    ],
)
def test_admin_looks_and_deletes(method: str, path: str) -> None:
    authorise(identity("admin"), method, path)
    with pytest.raises(ForbiddenError):
        authorise(identity("read:*"), method, path)


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/v1/inputs/quantiles/x", "/v1/inputs/quantiles/x/y"),
        ("/v1/pipelines/x", "/v1/pipelines/x/batches"),
        ("/v1/runs/x/streams", "/v1/runs/x/streams/y"),
    ],
)
def test_admin_does_not_look_inside(path: str, inside: str) -> None:
    authorise(identity("admin"), "GET", path)
    with pytest.raises(ForbiddenError):
        authorise(identity("admin"), "GET", inside)


@pytest.mark.parametrize(
    "path", ["/v1/datasets", "/v1/datasets/x/reduce", "/zarr/x/y", "/v1/tokens/inspect", "/metrics"]
)
def test_what_every_identity_may_use(path: str) -> None:
    authorise(identity("runs"), "GET", path)
