"""The outer layer of every request: identity, metrics, logs, and headers of all answers.

A plain ASGI middleware, so that it costs next to nothing per message of a long answer.
Nothing passes it unidentified but the paths that :mod:`.identity` lists; a request that is
refused here has not had a byte of its body read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.audit import AuditLog
from app.errors import BadRequestError, DrainingError, ServiceError, new_request_id, problem_of
from app.server.body import BODY_EXTENSION, ClientDisconnected
from app.server.drain import drain_of
from app.server.flow import Flag
from app.server.responses import DISCONNECTED_EXTENSION, run_then_exchange
from app.telemetry import Metrics
from app.tracing import NO_TRACE, NO_TRACING, Trace, Tracing, Value
from core.errors import CancelledError

from . import trail
from .addresses import client_address
from .cookies import Cookies
from .identity import METRICS, Identity, authorise, identify, is_open, outlives_drain
from .keys import Keys
from .problems import ProblemResponse
from .throttle import Throttle

_ID = re.compile(r"[\x21-\x7e]{1,128}")
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]+)(:[0-9]{0,5})?")
_QUIET = {"/healthz", "/readyz", "/metrics"}
_PATH = 500
"""Characters of a path that the log shows."""
_FAILED, _CLIENT_LEFT = 500, 499


class Budgets(Protocol):
    """Bounds what a request may use while it runs."""

    def of_request(self, owner: str, gone: Flag, trace: Trace) -> AbstractContextManager[object]:
        """Give a request a budget, and cancel its threads at the end.

        Args:
            owner: pays for it.
            gone: set when the client left.
            trace: its span.
        """


@dataclass(slots=True, eq=False)
class Guard:
    """The middleware.

    Args:
        app: the application inside.
        keys: identify requests.
        metrics: of this process.
        audit: gets a line for each change of state.
        throttle: admits requests by owner.
        cookies: identify requests of browsers.
        open_metrics: whether ``/metrics`` needs no key.
        budgets: bound what requests may use.
        tracing: begins a trace for each.
        lane: of this process.
        logs: whether the log has a line for each.
    """

    app: ASGIApp
    keys: Keys
    metrics: Metrics
    audit: AuditLog
    throttle: Throttle
    cookies: Cookies
    _: KW_ONLY
    open_metrics: bool = False
    budgets: Budgets
    tracing: Tracing = NO_TRACING
    lane: str = ""
    logs: bool = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            # There are no other routes, and one that came would not be guarded.
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        visit = _Visit(scope, send, self.audit, self.tracing)
        with structlog.contextvars.bound_contextvars(**visit.context):
            await self._visit(visit, scope, receive)

    async def _visit(self, visit: _Visit, scope: Scope, receive: Receive) -> None:
        metrics = self.metrics
        metrics.requests_running.inc()
        start = time.perf_counter()
        try:
            try:
                await self._admit(visit, scope)
            except ServiceError as e:
                problem = problem_of(e)
                problem.members["request_id"] = visit.ident
                await ProblemResponse(problem)(scope, receive, visit.send)
            else:
                owner = "" if visit.identity is None else visit.identity.payer
                gone = scope["extensions"][DISCONNECTED_EXTENSION]
                bounding = self.keys.bounding(visit.identity, scope)
                with self.budgets.of_request(owner, gone, visit.trace), bounding:
                    await run_then_exchange(self.app, scope, receive, visit.send)
        except ClientDisconnected:
            # Not a failure of the service, so neither logged as one nor answered.
            structlog.get_logger().debug("client left")
        except Exception as e:
            if visit.status and isinstance(e.__cause__, CancelledError):
                # The answer had begun and was cut, since nobody waits for it any more.
                structlog.get_logger().debug("answer cut", reason=str(e.__cause__))
            else:
                # The framework answers it with a 500 outside all middleware.
                visit.status = visit.status or _FAILED
                trail.note_problem(scope, "internal")
                raise
        finally:
            if visit.admitted is not None:
                self.throttle.leave(visit.admitted)
            seconds = time.perf_counter() - start
            metrics.requests_running.dec()
            route = _route(scope)
            status = visit.status or _CLIENT_LEFT
            metrics.requests.labels(scope["method"], route, status).inc()
            metrics.request_seconds.labels(route).observe(seconds)
            metrics.answer_bytes.inc(visit.sent)
            code = trail.problem_noted(scope)
            if code is not None and status != _CLIENT_LEFT:
                metrics.problems.labels(code).inc()
            if not visit.recorded:
                trail.record(self.audit, scope, route, status, visit.identity)
            self._tell(visit, scope, route, status, seconds)

    def _tell(self, visit: _Visit, scope: Scope, route: str, status: int, seconds: float) -> None:
        """Log a request, and end its span."""
        facts = visit.facts(self.lane)
        visit.trace.end_request(scope["method"], route, status, **facts)
        if self.logs:
            logger = structlog.get_logger()
            log = logger.debug if scope["path"] in _QUIET else logger.info
            log(
                "request",
                method=scope["method"],
                path=scope["path"][:_PATH],
                route=route,
                status=status,
                seconds=round(seconds, 4),
                **{name: value for name, value in facts.items() if value is not None},
            )

    async def _admit(self, visit: _Visit, scope: Scope) -> None:
        """Identify a request and check what it may do at all.

        Raises:
            ServiceError: it is refused.
        """
        _check_host(scope)
        path: str = scope["path"]
        if drain_of(scope).draining and not outlives_drain(path):
            raise DrainingError(
                "the server is shutting down",
                hint="Try again: another server will answer",
                retry_after=1,
            )
        self.cookies.origins.check_sender(scope["method"], visit.headers)
        if is_open(path, open_metrics=self.open_metrics):
            return
        identity = await self._identify(visit, scope)
        if identity.key_id is None:
            self.cookies.origins.check_host(visit.headers)
        visit.identity = identity
        identify(scope, identity)
        if path == METRICS:
            # Whoever watches the service has to see it when it is full.
            return
        payer = identity.payer
        try:
            self.throttle.enter(payer)
            visit.admitted = payer
            authorise(identity, scope["method"], path)
        finally:
            visit.limits = self.throttle.headers(payer)

    async def _identify(self, visit: _Visit, scope: Scope) -> Identity:
        values = visit.headers.getlist("authorization")
        if len(values) > 1:
            # Which of them counts, another server on the way may see otherwise.
            raise BadRequestError(
                "the request has several Authorization headers",
                hint="Send one Authorization header with your key",
            )
        cookies, scheme = self.cookies, scope.get("scheme", "http")
        digest = None if values else cookies.digest(scope["method"], scheme, visit.headers)
        return await self.keys.identify(next(iter(values), None), client_address(scope), digest)


def _check_host(scope: Scope) -> None:
    """Check that the request names one host (RFC 9112, section 3.2).

    Raises:
        BadRequestError: it names none, several, or no host.
    """
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if not hosts and scope["http_version"] == "1.0":
        return
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        found = {0: "no Host header", 1: "a malformed Host header"}
        raise BadRequestError(
            f"the request has {found.get(len(hosts), 'several Host headers')}",
            hint="Send one Host header with the name of the server",
        )


class _Visit:
    """One request and its answer, as the middleware observes them."""

    def __init__(self, scope: Scope, send: Send, audit: AuditLog, tracing: Tracing) -> None:
        self._scope = scope
        self._audit = audit
        self.recorded = False
        self.headers = Headers(scope=scope)
        requested = self.headers.get("x-request-id", "")
        self.ident = requested if _ID.fullmatch(requested) else new_request_id()
        scope["thalweg.request_id"] = self.ident
        header = self.headers.get("traceparent", "")
        known = _TRACE.fullmatch(header)
        quiet = scope["path"] in _QUIET
        self.trace = NO_TRACE if quiet else tracing.begin("request", header, served=True)
        self.context = {"request_id": self.ident}
        if trace_id := self.trace.ident or (known and known[1]):
            self.context["trace_id"] = trace_id
        self._send = send
        self.status = 0
        """Status of the answer, once the client can be sent it."""
        self.sent = 0
        self.identity: Identity | None = None
        self.admitted: str | None = None
        """Owner as one of whose requests it counts."""
        self.limits: Mapping[str, str] = {}
        """Headers that tell the owner what it may still send."""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            status: int = message["status"]
            self.recorded = True
            # Before the client knows: what it was told can be looked up from then on. What failed
            # because it left may or may not be done.
            left = status >= _FAILED and self._scope["extensions"][DISCONNECTED_EXTENSION].is_set()
            known = _CLIENT_LEFT if left else status
            trail.record(self._audit, self._scope, _route(self._scope), known, self.identity)
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.ident
            headers["X-Content-Type-Options"] = "nosniff"
            if drain_of(self._scope).draining:
                # Over the same connection the client would come back to this server.
                headers["Connection"] = "close"
            for name, value in self.limits.items():
                headers[name] = value
            if self.identity is not None and self.identity.key_id is not None:
                headers["Cache-Control"] = private(headers.get("cache-control", ""))
        elif message["type"] == "http.response.body":
            self.sent += len(message.get("body", b""))
        await self._send(message)
        if message["type"] == "http.response.start":
            self.status = message["status"]

    def facts(self, lane: str) -> dict[str, Value]:
        """Return what the log and the span tell; None stands for what a request has not."""
        scope, identity = self._scope, self.identity
        known = identity is not None and identity.key_id is not None
        client = scope.get("client")
        # Nobody but our server counts the bytes of a body.
        body = scope["extensions"].get(BODY_EXTENSION)
        return {
            "code": trail.problem_noted(scope),
            "received": getattr(body, "taken", 0) or None,
            "sent": self.sent,
            "owner": identity.owner if identity is not None and known else None,
            "key_id": identity.key_id if identity is not None and known else None,
            "lane": lane or None,
            "client": client[0] if client else None,
        }


def _route(scope: Scope) -> str:
    """Return the route's pattern: paths as metric labels would be without number."""
    route = scope.get("route")
    return getattr(route, "path", "none")


def private(directives: str) -> str:
    """Return Cache-Control directives that keep an answer out of shared caches."""
    others = [part.strip() for part in directives.split(",") if part.strip()]
    shared = ("public", "private", "s-maxage", "proxy-revalidate")
    own = [part for part in others if part.partition("=")[0].lower() not in shared]
    return ", ".join(["private", *own])
