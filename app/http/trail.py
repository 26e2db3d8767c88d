"""Which requests change state, and the audit line of each."""

from __future__ import annotations

from typing import Any, NamedTuple

from app.audit import AuditLog

from .identity import Identity

_NAMED = "thalweg.resource"
_PROBLEM = "thalweg.problem"
_CREATED, _ERRORS, _CLIENT_LEFT = 201, 400, 499
_REFUSALS = {401, 403}
_PATH = 200
"""Characters of a path that a line shows."""


class Change(NamedTuple):
    """What a request to a route does, if it is not refused."""

    action: str
    resource: str
    ident: str | None = None
    """Path parameter with the id; None if the route names the resource itself."""


CHANGES = {
    ("POST", "/v1/datasets"): Change("create", "dataset"),
    ("DELETE", "/v1/datasets/{ident}"): Change("delete", "dataset", "ident"),
    ("POST", "/v1/datasets/{ident}/views"): Change("create", "view"),
    ("DELETE", "/v1/datasets/{ident}/views/{name}"): Change("delete", "view", "name"),
    ("PUT", "/v1/inputs/{name}"): Change("create", "input"),
    ("DELETE", "/v1/inputs/{name}/{digest}"): Change("delete", "input", "digest"),
    ("POST", "/v1/pipelines"): Change("create", "pipeline"),
    ("POST", "/v1/runs"): Change("create", "run"),
    ("PATCH", "/v1/runs/{run}"): Change("label", "run", "run"),
    ("DELETE", "/v1/runs/{run}"): Change("delete", "run", "run"),
    ("PUT", "/v1/runs/{run}/inputs/{name}"): Change("create", "input"),
    ("POST", "/v1/runs/{run}/seal"): Change("seal", "run", "run"),
    ("POST", "/v1/runs/{run}/reports"): Change("compute", "run", "run"),
    ("POST", "/v1/runs/{run}/streams"): Change("create", "stream"),
    ("PATCH", "/v1/runs/{run}/streams/{stream}"): Change("append", "stream", "stream"),
    ("POST", "/v1/runs/{run}/streams/{stream}"): Change("append", "stream", "stream"),
    ("DELETE", "/v1/runs/{run}/streams/{stream}"): Change("delete", "stream", "stream"),
    ("POST", "/v1/portfolios/loss-sets"): Change("create", "loss_set"),
    ("PUT", "/v1/portfolios/loss-sets/{ident}"): Change("create", "loss_set"),
    ("DELETE", "/v1/portfolios/loss-sets/{ident}"): Change("delete", "loss_set", "ident"),
    ("POST", "/console/samples/scan"): Change("create", "sample"),
    ("DELETE", "/v1/pipelines/{ident}"): Change("delete", "pipeline", "ident"),
}
"""Requests that change state, by method and route."""


def name_resource(scope: Any, ident: str) -> None:  # noqa: ANN401 - an ASGI scope
    """Note the id of the resource that a request has created or found."""
    scope[_NAMED] = ident


def note_problem(scope: Any, code: str) -> None:  # noqa: ANN401 - as above
    """Note the code of the problem document in the answer to a request."""
    scope[_PROBLEM] = code


def problem_noted(scope: Any) -> str | None:  # noqa: ANN401 - as above
    """Return the code of the problem document in the answer to a request; None if it had none."""
    code: str | None = scope.get(_PROBLEM)
    return code


def record(
    audit: AuditLog,
    scope: Any,  # noqa: ANN401 - as above
    route: str,
    status: int,
    identity: Identity | None,
) -> None:
    """Write the audit line of a request, if it is to have one.

    Args:
        audit: where to.
        scope: that of the request.
        route: its route.
        status: that of its answer; 499 if there was none.
        identity: who made it; None if nobody was identified.
    """
    change = CHANGES.get((scope["method"], route))
    code, request_id = problem_noted(scope), scope["thalweg.request_id"]
    names = {} if identity is None else {"owner": identity.owner, "key_id": identity.key_id}
    if change is not None:
        params = dict(scope.get("path_params") or {})
        ident = scope.get(_NAMED) if change.ident is None else params.pop(change.ident)
        member = _FURTHER.get(change.resource)
        further = {} if member is None else {member[0]: params.get(member[1])}
        refused = status >= _ERRORS and status != _CLIENT_LEFT
        refusal = {"status": status, "code": code} if refused else {}
        audit.write(
            action=change.action,
            resource=change.resource,
            id=ident,
            **further,
            result=_result(change, status),
            **names,
            **refusal,
            request_id=request_id,
        )
    elif status in _REFUSALS:
        client = scope.get("client")
        audit.write_refusal(
            **names,
            status=status,
            code=code,
            method=scope["method"],
            path=scope["path"][:_PATH],
            address=client[0] if client else None,
            request_id=request_id,
        )


_FURTHER = {"view": ("dataset", "ident"), "input": ("name", "name"), "stream": ("run", "run")}
"""A further member of the line of a resource, and the path parameter that it shows."""


_MADE = {_CREATED: "created", 202: "accepted"}
"""What became of it, by status: what is accepted is computed later."""
_DONE = {"delete": "deleted", "append": "appended", "label": "labelled"}


def _result(change: Change, status: int) -> str:
    if status == _CLIENT_LEFT:
        return "unknown"
    if status >= _ERRORS:
        return "refused"
    if change.action in _DONE:
        return _DONE[change.action]
    return _MADE.get(status, "existed")
