"""Answer every error with a problem document, whatever raised it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from itertools import zip_longest
from typing import Any

import orjson
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from app.errors import Problem, ProblemError, ServiceError, problem_of
from app.errors import problem as new_problem
from app.wording import wording
from core.errors import CoreError

from .media_types import PROBLEM
from .trail import note_problem

_CODE_OF_STATUS = {404: "not-found", 405: "method-not-allowed", 408: "stalled"}
_ALIKE = 0.6
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class ProblemResponse(Response):
    """A problem document as an answer."""

    media_type = PROBLEM

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        all_headers = {**problem.headers, **(headers or {})}
        if problem.retry_after is not None:
            all_headers["Retry-After"] = str(problem.retry_after)
        if problem.status == 401:  # noqa: PLR2004
            all_headers["WWW-Authenticate"] = "Bearer"
        all_headers.setdefault("Cache-Control", "no-store")
        self._code = problem.code
        super().__init__(orjson.dumps(problem.to_json()), problem.status, all_headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; an ASGI application."""
        note_problem(scope, self._code)
        await super().__call__(scope, receive, send)


def _identified(request: Request, problem: Problem) -> Problem:
    problem.members.setdefault("request_id", request.scope.get("thalweg.request_id"))
    return problem


async def _expected(request: Request, error: Exception) -> Response:
    return ProblemResponse(_identified(request, problem_of(error)))


async def _unexpected(request: Request, error: Exception) -> Response:
    structlog.get_logger().error("request failed", path=request.url.path, exc_info=error)
    problem = _identified(request, problem_of(error))
    # This answer bypasses the middleware that adds the headers.
    headers = {
        "X-Request-Id": str(problem.members["request_id"]),
        "X-Content-Type-Options": "nosniff",
    }
    return ProblemResponse(problem, headers)


async def _http(paths: Sequence[str], request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    if isinstance(error.__cause__, ServiceError):
        return await _expected(request, error.__cause__)
    code = _CODE_OF_STATUS.get(error.status_code, "bad-request")
    problem = new_problem(code, str(error.detail))
    problem.status = error.status_code
    headers = dict(error.headers or {})
    if error.status_code == 404 and (nearest := _nearest(paths, request.url.path)):  # noqa: PLR2004
        problem.members["hint"] = f"The nearest route is {nearest}"
    if error.status_code == 405:  # noqa: PLR2004
        headers["Allow"] = ", ".join(_methods(request))
        advice = ", as curl -T FILE does" if headers["Allow"] == "PUT" else ""
        if request.method == "PUT" and "POST" in headers["Allow"]:
            advice = "; to curl -T FILE, add -X POST"
        problem.members["hint"] = f"Use {headers['Allow']}{advice}"
    return ProblemResponse(_identified(request, problem), headers)


def _methods(request: Request) -> list[str]:
    """Return the methods of all routes of a path; the framework names those of one route."""
    return [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


def _nearest(paths: Sequence[str], path: str) -> str | None:
    """The path of a route that another one is most like; None if it is like none."""
    words = path[:200].strip("/").split("/")
    ways = [(way, known) for known in paths for way in (words, ["v1", *words])]
    like, nearest = max((_likeness(way, known.split("/")[1:]), known) for way, known in ways)
    return nearest if like > 0 else None


def _likeness(words: Sequence[str], names: Sequence[str]) -> float:
    """How like a route's names a path's words are, at most 1; 0 if one is another word."""
    like = [
        SequenceMatcher(None, word, name).ratio()
        for word, name in zip_longest(words, names, fillvalue="")
        if name and not name.startswith("{")
    ]
    left = abs(len(words) - len(names))
    if left > 1 or min(like, default=0) < _ALIKE:
        return 0
    return sum(like) / len(like) - left / len(names) / 2


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    first: dict[str, Any] = error.errors()[0]
    source, *path = (str(part) for part in first["loc"])
    name = ".".join(path)
    # Tokens are the only bodies that FastAPI parses.
    hint = 'Send {"token": "…"}' if source == "body" else None
    code = "unprocessable"
    if first["type"] == "json_invalid":
        code = "bad-request"
        detail = f"the body is not JSON: {first['ctx']['error']} at character {name}"
    elif first["type"] == "missing":
        code = "unprocessable" if name else "bad-request"
        detail = f"{name!r} is missing from the {source}" if name else "the body is empty"
    else:
        detail = f"{name or source}{wording(first)}"
    if source in {"query", "path"}:
        problem = new_problem("option", detail, hint=hint, option=name)
    else:
        problem = new_problem(code, detail, hint=hint)
    return ProblemResponse(_identified(request, problem))


def add_problem_handlers(app: FastAPI, paths: Sequence[str]) -> None:
    """Register the handlers on an application that has routes of these paths."""
    app.add_exception_handler(CoreError, _expected)
    app.add_exception_handler(ServiceError, _expected)
    app.add_exception_handler(ProblemError, _expected)
    app.add_exception_handler(HTTPException, partial(_http, paths))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unexpected)
