"""The outer layer of every request: request id, API key, metrics and access log.

A plain ASGI middleware, so that it costs next to nothing per message of a long answer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import DrainingError, ServiceError, UnauthorizedError, problem_of
from app.server.body import ClientDisconnected
from app.server.drain import drain_of
from app.telemetry import Metrics

from .problems import ProblemResponse

_GUARDED = "/v1/"
_ID = re.compile(r"[\x21-\x7e]{1,128}")
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_QUIET = {"/healthz", "/readyz", "/metrics"}


def digest_key(key: str) -> str:
    """Return the digest of an API key, as settings store it."""
    return hashlib.sha256(key.encode()).hexdigest()


class Keys:
    """The API keys of the service, by digest.

    Args:
        entries: ``name:digest`` or ``digest`` of each, as in ``THALWEG_API_KEYS``.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._names: dict[str, str] = {}
        for number, entry in enumerate(entries, 1):
            name, _, digest = entry.rpartition(":")
            self._names[digest.lower()] = name or f"key {number}"

    def __bool__(self) -> bool:
        return bool(self._names)

    def check(self, authorization: str | None) -> str:
        """Return the name of the key in an Authorization header.

        Raises:
            UnauthorizedError: the header has no known key.
        """
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise UnauthorizedError(
                "this server requires an API key", hint="Send Authorization: Bearer KEY"
            )
        digest = digest_key(key.strip())
        match = None
        for known, name in self._names.items():
            # No early exit: the time taken must not depend on which key matches.
            if hmac.compare_digest(known.encode(), digest.encode()):
                match = name
        if match is None:
            raise UnauthorizedError("the API key is unknown")
        return match


class Guard:
    """The middleware.

    Args:
        app: the application inside.
        keys: required below ``/v1/``; if there are none, access is open.
        metrics: of this process.
    """

    def __init__(self, app: ASGIApp, keys: Keys, metrics: Metrics) -> None:
        self._app = app
        self._keys = keys
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = _Visit(scope, send)
        with structlog.contextvars.bound_contextvars(**visit.context):
            await self._visit(visit, scope, receive)

    async def _visit(self, visit: _Visit, scope: Scope, receive: Receive) -> None:
        metrics = self._metrics
        metrics.running.inc()
        start = time.perf_counter()
        try:
            refusal = self._refusal(visit, scope)
            if refusal is None:
                await self._app(scope, receive, visit.send)
            else:
                problem = problem_of(refusal)
                problem.members["request_id"] = visit.ident
                await ProblemResponse(problem)(scope, receive, visit.send)
        except ClientDisconnected:
            # Not a failure of the service, so neither logged as one nor answered.
            structlog.get_logger().debug("client left")
        except Exception:
            # The framework answers it with a 500 outside all middleware.
            visit.status = visit.status or 500
            raise
        finally:
            seconds = time.perf_counter() - start
            metrics.running.dec()
            route = _route(scope)
            status = visit.status or 499
            metrics.requests.labels(scope["method"], route, status).inc()
            metrics.seconds.labels(route).observe(seconds)
            metrics.answer_bytes.inc(visit.sent)
            visit.log(scope, status, seconds)

    def _refusal(self, visit: _Visit, scope: Scope) -> ServiceError | None:
        if not scope["path"].startswith(_GUARDED) or scope["method"] == "OPTIONS":
            return None
        if drain_of(scope).draining:
            return DrainingError(
                "the server is shutting down",
                hint="Try again: another server will answer",
                retry_after=1,
            )
        if self._keys:
            try:
                visit.key = self._keys.check(visit.headers.get("authorization"))
            except UnauthorizedError as e:
                return e
        return None


class _Visit:
    """One request and its answer, as the middleware observes them."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.headers = Headers(scope=scope)
        requested = self.headers.get("x-request-id", "")
        self.ident = requested if _ID.fullmatch(requested) else secrets.token_hex(8)
        scope["thalweg.request_id"] = self.ident
        trace = _TRACE.fullmatch(self.headers.get("traceparent", ""))
        self.context = {"request_id": self.ident}
        if trace:
            self.context["trace_id"] = trace[1]
        self._send = send
        self.status = 0
        self.sent = 0
        self.key: str | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)["X-Request-Id"] = self.ident
        elif message["type"] == "http.response.body":
            self.sent += len(message.get("body", b""))
        await self._send(message)

    def log(self, scope: Scope, status: int, seconds: float) -> None:
        logger = structlog.get_logger()
        log = logger.debug if scope["path"] in _QUIET else logger.info
        key: dict[str, Any] = {} if self.key is None else {"key": self.key}
        log(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            seconds=round(seconds, 4),
            sent=self.sent,
            **key,
        )


def _route(scope: Scope) -> str:
    """Return the route's pattern: paths as metric labels would be without number."""
    route = scope.get("route")
    return getattr(route, "path", "none")
