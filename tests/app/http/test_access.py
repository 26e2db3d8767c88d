"""Rules of paths: what needs no identity, and what needs which scope."""

from __future__ import annotations

import pytest

from app.errors import ForbiddenError, NotFoundError
from app.http.access import authorise, has_rule, is_open, outlives_drain
from app.http.identity import SINGLE_USER, Identity

OPEN = ["/", "/healthz", "/readyz", "/openapi.json", "/docs", "/problems/busy"]
CLOSED = ["", "/v1", "/zarr/a/b", "/docs/", "/healthz/x", "/problems", "/openapi.yaml", "/Docs"]


def identity(*scopes: str) -> Identity:
    return Identity("alice", frozenset(scopes), "0" * 12)


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
        assert not has_rule(path)
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
