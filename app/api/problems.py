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

from app.errors import Problem, ProblemError, ServiceError, problem, problem_of
from app.wire import PROBLEM
from core.errors import CoreError

_CODE_OF_STATUS = {404: "not-found", 405: "method-not-allowed"}


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
    return ProblemResponse(_identified(request, problem_of(error)))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    code = _CODE_OF_STATUS.get(error.status_code, "bad-request")
    found = problem(code, str(error.detail))
    found.status = error.status_code
    return ProblemResponse(_identified(request, found), error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    first: dict[str, Any] = error.errors()[0]
    where, *path = (str(part) for part in first["loc"])
    name = ".".join(path)
    if first["type"] == "extra_forbidden":
        detail, hint = f"there is no option {name!r}", "See /docs for the options of this route"
    elif first["type"] == "missing":
        detail, hint = f"{name!r} is missing from the {where}", None
    else:
        detail, hint = f"{name or where}: {first['msg']}", None
    kind = "option" if where in {"query", "path"} else "unprocessable"
    found = problem(kind, detail, hint=hint, option=name or None)
    return ProblemResponse(_identified(request, found))


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error with a problem document."""
    app.add_exception_handler(CoreError, _expected)
    app.add_exception_handler(ServiceError, _expected)
    app.add_exception_handler(ProblemError, _expected)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unexpected)
