"""Errors of every origin as problem documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.errors import Problem, ProblemError, ServiceError, problem, problem_of
from core.errors import CoreError

from .media_types import PROBLEM

_CODE_OF_STATUS = {
    404: "not-found",
    405: "method-not-allowed",
    408: "stalled",
    413: "too-large",
}
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class ProblemResponse(Response):
    """A problem document."""

    media_type = PROBLEM

    def __init__(self, found: Problem, headers: Mapping[str, str] | None = None) -> None:
        more = dict(headers or {})
        if found.retry_after is not None:
            more["Retry-After"] = str(found.retry_after)
        if found.status == 401:  # noqa: PLR2004
            more["WWW-Authenticate"] = "Bearer"
        more.setdefault("Cache-Control", "no-store")
        super().__init__(orjson.dumps(found.to_json()), found.status, more)


def _identified(request: Request, found: Problem) -> Problem:
    found.members.setdefault("request_id", request.scope.get("thalweg.request_id"))
    return found


async def _expected(request: Request, error: Exception) -> Response:
    return ProblemResponse(_identified(request, problem_of(error)))


async def _unexpected(request: Request, error: Exception) -> Response:
    structlog.get_logger().error("request failed", path=request.url.path, exc_info=error)
    found = _identified(request, problem_of(error))
    # This one is sent outside of all middleware.
    return ProblemResponse(found, {"X-Request-Id": str(found.members["request_id"])})


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    code = _CODE_OF_STATUS.get(error.status_code, "bad-request")
    found = problem(code, str(error.detail))
    found.status = error.status_code
    headers = dict(error.headers or {})
    if error.status_code == 405:  # noqa: PLR2004
        headers["Allow"] = ", ".join(_methods(request))
        found.members["hint"] = f"Use {headers['Allow']}"
    return ProblemResponse(_identified(request, found), headers)


def _methods(request: Request) -> list[str]:
    """What the path can be asked for, by all of its routes; the framework names one's."""
    return [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    first: dict[str, Any] = error.errors()[0]
    where, *path = (str(part) for part in first["loc"])
    name = ".".join(path)
    if first["type"] == "json_invalid":
        detail, hint = f"the body is not JSON: {first['ctx']['error']} at character {name}", None
    elif first["type"] == "extra_forbidden" and where == "query":
        detail, hint = f"there is no option {name!r}", "See /docs for the options of this route"
    elif first["type"] == "missing":
        detail, hint = f"{name or 'JSON'!r} is missing from the {where}", None
    else:
        detail, hint = f"{name or where}: {first['msg']}", None
    if where in {"query", "path"}:
        found = problem("option", detail, hint=hint, option=name)
    else:
        found = problem("unprocessable", detail, hint=hint)
    return ProblemResponse(_identified(request, found))


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error with a problem document."""
    app.add_exception_handler(CoreError, _expected)
    app.add_exception_handler(ServiceError, _expected)
    app.add_exception_handler(ProblemError, _expected)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unexpected)
