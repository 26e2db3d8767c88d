"""Around every request: its id, whether it may come in, and what is counted and logged.

A plain ASGI middleware: it costs nothing on a data path.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable, MutableMapping
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
    """What is stored of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


class Keys:
    """The keys that are let in, by their digests."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._names: dict[str, str] = {}
        for number, entry in enumerate(entries, 1):
            name, _, digest = entry.rpartition(":")
            self._names[digest.lower()] = name or f"key {number}"

    def __bool__(self) -> bool:
        return bool(self._names)

    def check(self, authorization: str | None) -> str:
        """The name of a key that may come in.

        Raises:
            UnauthorizedError: it may not.
        """
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise UnauthorizedError(
                "this server lets in known keys only", hint="Send Authorization: Bearer KEY"
            )
        digest = digest_key(key.strip())
        found = None
        for known, name in self._names.items():
            # Every one is compared, whichever fits.
            if hmac.compare_digest(known.encode(), digest.encode()):
                found = name
        if found is None:
            raise UnauthorizedError("the key is not known")
        return found


class Guard:
    """Middleware; see the module.

    Args:
        app: what it stands before.
        keys: who may come in to /v1; everybody if there are none.
        metrics: of the process.
    """

    def __init__(self, app: ASGIApp, keys: Keys, metrics: Metrics) -> None:
        self._app = app
        self._keys = keys
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; an ASGI application."""
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
                found = problem_of(refusal)
                found.members["request_id"] = visit.ident
                await ProblemResponse(found)(scope, receive, visit.send)
        except ClientDisconnected:
            # Who left before its answer, a problem perhaps, is no failure of ours.
            structlog.get_logger().debug("client left")
        except Exception:
            # It is answered outside of this.
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
                "the server is about to stop", hint="Try again: another one answers", retry_after=1
            )
        if self._keys:
            try:
                visit.key = self._keys.check(visit.headers.get("authorization"))
            except UnauthorizedError as e:
                return e
        return None


class _Visit:
    """One request as it is seen from outside."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.headers = Headers(scope=scope)
        given = self.headers.get("x-request-id", "")
        self.ident = given if _ID.fullmatch(given) else secrets.token_hex(8)
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
        note = logger.debug if scope["path"] in _QUIET else logger.info
        more: MutableMapping[str, Any] = {} if self.key is None else {"key": self.key}
        note(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            seconds=round(seconds, 4),
            sent=self.sent,
            **more,
        )


def _route(scope: Scope) -> str:
    """The route's pattern, so that names in paths do not become labels."""
    route = scope.get("route")
    return getattr(route, "path", "none")
