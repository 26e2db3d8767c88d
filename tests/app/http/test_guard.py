"""Who is let in, and the headers that every request and answer may have."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from starlette.datastructures import Headers as HeadersOf
from starlette.routing import BaseRoute

from app.audit import AuditLog
from app.errors import ForbiddenError, NotFoundError
from app.http import trail
from app.http.cookies import Cookies
from app.http.guard import Guard, private
from app.http.identity import _RULES, Identity, authorise, is_open
from app.http.keys import Keys
from app.http.origins import Origins
from app.http.throttle import Rate, Throttle
from app.main import create_app
from app.server.body import ClientDisconnected
from app.server.drain import DRAIN_EXTENSION, Drain
from app.server.flow import Flag
from app.server.responses import DISCONNECTED_EXTENSION
from app.settings import Settings
from app.state.api_keys import ApiKeys, digest_key
from app.telemetry import Metrics
from app.tokens import KeyRing, new_key
from core.errors import CancelledError, OptionError
from tests.app.conftest import KEY, ORIGIN
from tests.app.harness import (
    MIB,
    Answer,
    Contract,
    Headers,
    Post,
    Service,
    Unbounded,
    ask,
    chunked,
    head,
    is_problem,
    wait_until,
)
from tests.app.losses.posts import good
from tests.app.state.memory import MemoryStateStore
from tests.serverless import serverless

BAD_KEYS: list[Headers] = [
    [],
    [("Authorization", "")],
    [("Authorization", "Bearer")],
    [("Authorization", "Bearer ")],
    [("Authorization", KEY)],
    [("Authorization", f"Basic {KEY}")],
    [("Authorization", "Bearer another key")],
    [("Authorization", f"Bearer {KEY}x")],
    [("Authorization", "Bearer \xff\xfe")],
    [("X-Authorization", f"Bearer {KEY}")],
]


@pytest.mark.parametrize("headers", BAD_KEYS)
def test_nobody_comes_in_without_a_key(guarded: Service, headers: Headers) -> None:
    contract = Contract.of(guarded)
    for method, path in (
        ("POST", "/v1/losses/melt"),
        ("PUT", "/v1/losses/melt"),
        ("POST", "/v1/losses?reports=melt"),
        ("PUT", "/v1/inputs/quantiles"),
        ("POST", "/v1/tokens/inspect"),
        ("POST", "/v1/tokens/refresh"),
        ("GET", "/v1/nothing"),
        ("POST", "/%761/losses/melt"),
        ("GET", "/zarr/view/data/c/0"),
        ("GET", "/zarr/view"),
    ):
        answer = ask(guarded, Post(path, [good().encode()], headers, method=method))
        contract.check(method, path, answer)
        is_problem(answer, "unauthorized", 401)
    # A machine that is busy for seconds makes a service unready, but a key is never asked for.
    assert guarded.get("/readyz").status in {200, 503}
    for path in ("/healthz", "/metrics", "/docs", "/openapi.json", "/problems/busy"):
        assert guarded.get(path).status == 200


def test_the_right_key(guarded: Service) -> None:
    for text in (f"Bearer {KEY}", f"bearer  {KEY} "):
        answer = ask(guarded, Post("/v1/losses/melt", [good().encode()], [("Authorization", text)]))
        assert answer.status == 200


@pytest.mark.parametrize("sized", [True, False])
def test_a_body_is_not_read_without_a_key(guarded: Service, sized: bool) -> None:
    """Its client gets the whole answer nevertheless, though it reads only when all is sent."""
    before = guarded.metric("thalweg_body_bytes_total")
    guarded.reset_peak()
    memory = guarded.memory()
    answer = ask(guarded, Post("/v1/losses/melt", [bytes(24 * MIB)], sized=sized))
    is_problem(answer, "unauthorized", 401)
    assert answer.whole
    assert answer.getheader("Connection") == "close"
    assert guarded.metric("thalweg_body_bytes_total") == before
    assert guarded.memory("VmHWM") - memory < 16 * MIB


def test_nobody_is_told_to_go_on_without_a_key(guarded: Service) -> None:
    expect = [("Expect", "100-continue"), ("Content-Length", "100")]
    with guarded.connect() as client:
        client.sendall(head("POST", "/v1/losses/melt", expect))
        first = client.recv(12)
        assert first == b"HTTP/1.1 401"
    data = good().encode()
    expect = [("Expect", "100-continue"), ("Content-Length", str(len(data)))]
    with guarded.connect() as client:
        client.sendall(
            head("POST", "/v1/losses/melt", [*expect, ("Authorization", f"Bearer {KEY}")])
        )
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(data)
        assert Answer(client).status == 200


def test_nobody_is_told_to_go_on_with_a_bad_query(service: Service) -> None:
    expect = [("Expect", "100-continue"), ("Content-Length", "100")]
    for path in ("/v1/losses/melt?x=1", "/v1/losses/qelt", "/v1/losses/melt?after=x", "/nothing"):
        with service.connect() as client:
            client.sendall(head("POST", path, expect))
            assert client.recv(10) == b"HTTP/1.1 4"


def test_trailers_are_no_headers(service: Service, guarded: Service) -> None:
    data = good().encode()
    trailers = (
        f"Authorization: Bearer {KEY}\r\nX-Request-Id: from-a-trailer\r\nUpload-Complete: ?0\r\n"
        "Content-Encoding: gzip\r\nAccept: application/x-ndjson\r\nUpload-Length: 5\r\n"
    ).encode()
    wire = chunked([data], last=b"0\r\n" + trailers + b"\r\n")
    start = head("POST", "/v1/losses/melt", [("Transfer-Encoding", "chunked")])
    with guarded.connect() as client:
        client.sendall(start + wire)
        is_problem(Answer(client), "unauthorized", 401)
    with service.connect() as client:
        # Neither this request nor the next one on the connection takes them for headers.
        for _ in range(2):
            client.sendall(start + wire)
            answer = Answer(client)
            assert answer.status == 200
            assert answer.media_type == "text/csv"
            assert answer.getheader("Upload-Complete") == "?1"
            assert answer.getheader("Thalweg-Completeness") == "undeclared"
            assert answer.getheader("X-Request-Id") != "from-a-trailer"


@pytest.mark.parametrize("ident", ["a", "req-1:2/3+4=", "x" * 128, "~!@#$%^&*()"])
def test_the_id_of_a_request_comes_back(service: Service, ident: str) -> None:
    headers = [("X-Request-Id", ident)]
    for post in (
        Post("/v1/losses/melt", [good().encode()], headers),
        Post("/v1/losses/melt", [b"bad"], headers),
        Post("/nothing", [b""], headers),
    ):
        answer = ask(service, post)
        assert answer.getheader("X-Request-Id") == ident
        if answer.status != 200:
            assert answer.json()["request_id"] == ident


@pytest.mark.parametrize("ident", ["", "x" * 129, "a b", "\xe9", "a\tb"])
def test_what_is_no_id_is_replaced(service: Service, ident: str) -> None:
    answer = service.get("/healthz", [("X-Request-Id", ident)])
    assert answer.status == 200
    fresh = str(answer.getheader("X-Request-Id"))
    assert fresh != ident
    assert len(fresh) == 16
    assert answer.headers.get_all("X-Request-Id") == [fresh]


def test_a_trace_goes_on_in_the_log(service: Service) -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    ask(service, Post("/v1/losses/melt", [b"x"], [("traceparent", f"00-{trace}-{span}-01")]))
    wait_until(lambda: f'"trace_id": "{trace}"' in service.log())
    for text in ("", "nonsense", f"00-{trace}", f"00-{trace.upper()}-{span}-01", "0" * 1000):
        answer = ask(service, Post("/v1/losses/melt", [b"x"], [("traceparent", text)]))
        assert answer.status == 400
    assert trace.upper() not in service.log()


def lines_of(service: Service, ident: str) -> list[dict[str, Any]]:
    """Lines of the log about a request."""
    found = [line for line in service.log().splitlines() if f'"request_id": "{ident}"' in line]
    return [line for line in map(json.loads, found) if line["event"] == "request"]


def test_the_log_has_a_line_of_each_request(service: Service, guarded: Service) -> None:
    data = good().encode()
    key = ("Authorization", f"Bearer {KEY}")
    long = "x" * 2000
    for server, path, body, headers in (
        (service, "/v1/losses/melt?after=tw1.secret", data, []),
        (service, f"/{long}", b"", []),
        (guarded, "/v1/losses/melt", chunked([data]), [key, ("Transfer-Encoding", "chunked")]),
    ):
        told = [*headers, ("X-Request-Id", "line")]
        if body == data:
            told.append(("Content-Length", str(len(data))))
        with server.connect() as client:
            client.sendall(head("POST", path, told) + body)
            Answer(client)
    wait_until(lambda: len(lines_of(service, "line")) == 2 and bool(lines_of(guarded, "line")))
    (refused, missing), (posted,) = lines_of(service, "line"), lines_of(guarded, "line")
    assert (refused["route"], refused["code"]) == ("/v1/losses/{report}", "token-malformed")
    assert (refused["client"], refused["status"]) == ("127.0.0.1", 400)
    assert (missing["route"], missing["code"], len(missing["path"])) == ("none", "not-found", 500)
    assert (posted["received"], posted["owner"], posted["status"]) == (len(data), "alice", 200)
    assert posted["sent"] > 0
    assert posted["key_id"] == digest_key(KEY)[:12]
    assert KEY not in guarded.log()
    assert "secret" not in service.log()


def test_requests_can_be_left_out_of_the_log(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, access_log="off")
    app = create_app(settings)

    async def ask() -> int:
        transport = httpx.ASGITransport(serverless(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            return (await client.get("/v1/datasets")).status_code

    with structlog.testing.capture_logs() as lines:
        assert asyncio.run(ask()) == 200
    assert not [line for line in lines if line["event"] == "request"]


def test_pages_of_other_origins(service: Service, guarded: Service) -> None:
    asked = [
        ("Origin", ORIGIN),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,upload-complete,x-own"),
    ]
    for server in (service, guarded):
        answer = server.get("/v1/losses/melt", asked, method="OPTIONS")
        assert answer.status == 200
        assert answer.getheader("Access-Control-Allow-Origin") == ORIGIN
        assert "POST" in str(answer.getheader("Access-Control-Allow-Methods"))
        allowed = str(answer.getheader("Access-Control-Allow-Headers")).lower()
        assert "upload-complete" in allowed
    # Whatever the answer is, a page may read it.
    for server, path, status in (
        (service, "/v1/losses/melt", 200),
        (service, "/v1/losses/melt?x=1", 422),
        (service, "/nothing", 404),
        (guarded, "/v1/losses/melt", 401),
    ):
        answer = ask(server, Post(path, [good().encode()], [("Origin", ORIGIN)]))
        assert answer.status == status
        assert answer.getheader("Access-Control-Allow-Origin") == ORIGIN
        exposed = str(answer.getheader("Access-Control-Expose-Headers")).split(", ")
        for name in ("ETag", "Thalweg-Token", "Thalweg-Shape", "Upload-Complete", "X-Request-Id"):
            assert name in exposed
    stranger = [("Origin", "https://elsewhere.example")]
    answer = ask(service, Post("/v1/losses/melt", [good().encode()], stranger))
    assert answer.getheader("Access-Control-Allow-Origin") is None
    answer = service.get("/v1/losses/melt", [*stranger, *asked[1:]], method="OPTIONS")
    assert "elsewhere.example may not" in is_problem(answer, "origin-refused", 403)["detail"]
    assert answer.getheader("Access-Control-Allow-Origin") is None
    asked[1] = ("Access-Control-Request-Method", "TRACE")
    refused = service.get("/v1/losses/melt", asked, method="OPTIONS")
    assert is_problem(refused, "origin-refused", 403)["detail"].endswith("its method")
    assert refused.getheader("X-Content-Type-Options") == "nosniff"
    assert refused.getheader("Access-Control-Allow-Origin") == ORIGIN


# -- every route of the application --------------------------------------------------


def every_route(routes: Iterable[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(method, path) of all routes, those of mounts included, whether documented or not."""
    for route in routes:
        path = prefix + str(getattr(route, "path", ""))
        included = getattr(route, "original_router", None)
        if included is not None:
            path += route.include_context.prefix  # type: ignore[attr-defined]
        inner = getattr(included or route, "routes", None)
        if inner is not None:
            yield from every_route(inner, path)
            continue
        assert path, route
        for method in sorted(getattr(route, "methods", None) or {"GET"}):
            yield method, re.sub(r"{\w+(:\w+)?}", "0", path)


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("routes"))
    return sorted(set(every_route(create_app(settings).routes)))


def test_every_route_has_a_rule(routes: list[tuple[str, str]]) -> None:
    assert len(routes) >= 49
    assert {("HEAD", "/zarr/0/0"), ("HEAD", "/v1/datasets/0/views/0/raw")} <= set(routes)
    assert [
        path for _, path in routes if not is_open(path) and not any(r.covers(path) for r in _RULES)
    ] == []


def test_every_route_but_these_takes_a_scope(routes: list[tuple[str, str]]) -> None:
    """The others check what they name: see test_owners.py."""
    who = Identity("alice", frozenset({"read:nothing"}), "0" * 12)
    free = set()
    for method, path in routes:
        try:
            authorise(who, method, path)
        except ForbiddenError:
            continue
        except NotFoundError:
            assert is_open(path)
            continue
        if not path.startswith("/console") or not is_open(path):
            free.add("/".join(path.split("/")[:3]))
    api = {"/v1/datasets", "/v1/stages", "/v1/tokens", "/zarr/0", "/metrics"}
    pages = {"datasets", "samples", "operations", ""}
    assert free == api | {"/console", *(f"/console/{page}" for page in pages)}


def test_every_route_needs_a_key(guarded: Service, routes: list[tuple[str, str]]) -> None:
    wrong: list[Headers] = [[], [("Authorization", "Bearer another key")]]
    for method, path in routes:
        for headers in wrong:
            answer = ask(guarded, Post(path, [b"{}"], headers, method=method))
            if is_open(path, open_metrics=True):
                signs_in = (method, path) == ("POST", "/console/sign-in")
                assert answer.status in ({401} if signs_in else {200, 303, 307, 404}), path
            else:
                assert answer.status == 401, (method, path)
            assert answer.getheader("X-Content-Type-Options") == "nosniff"


# -- the guard alone -----------------------------------------------------------------


class Inner:
    """An application that should often not be reached."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:  # noqa: ANN401
        self.reached.append(scope["type"])
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})


class Caller:
    """Requests to a guard with one key."""

    def __init__(
        self,
        *,
        inner: Inner | None = None,
        open_metrics: bool = False,
        throttle: Throttle | None = None,
    ) -> None:
        self.inner = inner or Inner()
        self.drain, self.gone = Drain(), Flag()
        keys = Keys([f"alice:{digest_key(KEY)}"], ApiKeys(MemoryStateStore()), digest_key)
        self.guard = Guard(
            self.inner,
            keys,
            METRICS,
            AuditLog("none"),
            throttle or Throttle(9, 9),
            Cookies(KeyRing([new_key()]), Origins()),
            open_metrics=open_metrics,
            budgets=Unbounded(),
        )

    def call(
        self, path: str, headers: Sequence[tuple[bytes, bytes]] | None = None, **more: object
    ) -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:  # noqa: ANN401
            if self.gone.is_set():
                raise ClientDisconnected("the client left")
            sent.append(message)

        if headers is None:
            headers = [(b"host", b"here"), (b"authorization", f"Bearer {KEY}".encode())]
        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "path": path,
            "query_string": b"",
            "headers": list(headers),
            "extensions": {DRAIN_EXTENSION: self.drain, DISCONNECTED_EXTENSION: self.gone},
            **more,
        }
        asyncio.run(self.guard(scope, receive, send))
        return sent

    def status(self, path: str, **more: Any) -> int:  # noqa: ANN401
        status: int = self.call(path, **more)[0]["status"]
        return status


METRICS = Metrics()


@pytest.mark.parametrize("status", [200, 503])
def test_an_answer_to_a_client_that_has_left_is_no_failure(status: int) -> None:
    class Leaving(Inner):
        async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:  # noqa: ANN401
            caller.gone.set()
            trail.note_problem(scope, "cancelled")
            await send({"type": "http.response.start", "status": status, "headers": []})

    caller = Caller(inner=Leaving())
    with structlog.testing.capture_logs() as lines:
        caller.call("/v1/datasets")
    assert [line["status"] for line in lines if line["event"] == "request"] == [499]
    page = METRICS.text().decode()
    assert 'thalweg_requests_total{method="GET",route="none",status="499"}' in page
    assert 'code="cancelled"' not in page


@pytest.mark.parametrize("second", [f"Bearer {KEY}", "Bearer wrong", ""])
def test_two_keys_are_refused_even_if_one_is_right(second: str) -> None:
    lines = [(b"authorization", f"Bearer {KEY}".encode()), (b"authorization", second.encode())]
    for order in (lines, lines[::-1]):
        assert Caller().status("/v1/datasets", headers=[(b"host", b"here"), *order]) == 400


class _Failing(Inner):
    """Fails in the middle of its answer, as the framework tells of errors that it handles."""

    def __init__(self, cause: Exception) -> None:
        self._cause = cause

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:  # noqa: ANN401
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("response already started") from self._cause


def test_work_that_is_stopped_in_the_middle_of_its_answer_is_no_failure() -> None:
    Caller(inner=_Failing(CancelledError("the client left"))).call("/v1/datasets")
    with pytest.raises(RuntimeError):
        Caller(inner=_Failing(OptionError("cut"))).call("/v1/datasets")


def test_everything_but_operations_is_refused_while_draining() -> None:
    caller = Caller()
    caller.drain.begin(10)
    for path in ("/v1/datasets", "/zarr/view/zarr.json", "/v2/new", "/zarr/view"):
        assert caller.status(path) == 503
    for path in ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/problems/busy"):
        assert caller.status(path) == 200


def test_a_draining_server_closes_the_connections_that_it_answers_on() -> None:
    caller = Caller()
    close = (b"connection", b"close")
    assert close not in caller.call("/v1/datasets")[0]["headers"]
    caller.drain.begin(10)
    for path in ("/v1/datasets", "/readyz"):
        assert close in caller.call(path)[0]["headers"]


def test_metrics_need_a_key_unless_they_are_open() -> None:
    host = [(b"host", b"here")]
    assert Caller().status("/metrics", headers=host) == 401
    assert Caller(open_metrics=True).status("/metrics", headers=host) == 200


@pytest.mark.parametrize(
    "hosts",
    [[], [b"here", b"here"], [b"here", b"there"], [b""], [b"a b"], [b"a/b"], [b"a,b:x"], [b"[::1"]],
)
def test_a_request_names_one_host(hosts: list[bytes]) -> None:
    caller = Caller()
    headers = [(b"host", host) for host in hosts]
    assert caller.status("/healthz", headers=headers) == 400
    assert not caller.inner.reached
    old = caller.status("/healthz", headers=headers, http_version="1.0")
    assert old == (400 if hosts else 200)


@pytest.mark.parametrize("host", [b"here", b"here:80", b"127.0.0.1:", b"[::1]:8000", b"a_b.c"])
def test_hosts_that_are_some(host: bytes) -> None:
    assert Caller().status("/healthz", headers=[(b"host", host)]) == 200


def test_other_protocols_do_not_pass() -> None:
    caller = Caller()
    assert caller.call("/v1/datasets", type="websocket") == [
        {"type": "websocket.close", "code": 1008}
    ]
    assert not caller.inner.reached
    caller.call("", type="lifespan")
    assert caller.inner.reached == ["lifespan"]


@pytest.mark.parametrize(
    ("directives", "expected"),
    [
        ("", "private"),
        ("no-store", "private, no-store"),
        ("public, max-age=31536000, immutable", "private, max-age=31536000, immutable"),
        ("Private,s-maxage=5 , no-cache", "private, no-cache"),
    ],
)
def test_cache_control_is_merged(directives: str, expected: str) -> None:
    assert private(directives) == expected


def test_hosts_on_the_wire(service: Service) -> None:
    for hosts in ("", "Host: a\r\nHost: b\r\n"):
        with service.connect() as client:
            client.sendall(f"GET /v1/datasets HTTP/1.1\r\n{hosts}\r\n".encode())
            is_problem(Answer(client, "GET"), "bad-request", 400)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def test_pages_load_nothing(service: Service) -> None:
    for path in ("/docs", "/problems/busy"):
        answer = service.get(path)
        policy = str(answer.getheader("Content-Security-Policy"))
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        text = answer.body.decode()
        (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
        assert html.unescape(style) == style
        assert f"style-src '{_hash(style)}'" in policy
        scripts = re.findall("<script[^>]*>(.*?)</script>", text, re.DOTALL)
        assert len(scripts) == text.count("<script") == (path == "/docs")
        assert ("script-src" in policy) == bool(scripts)
        assert all(f"script-src '{_hash(script)}'" in policy for script in scripts)
        assert " style=" not in text


def test_requests_of_an_owner_are_limited_and_told_where_they_stand() -> None:
    throttle = Throttle(9, 9, rate=Rate(0.001, 2))
    caller = Caller(throttle=throttle)
    for left in (1, 0):
        start = caller.call("/v1/datasets")[0]
        headers = HeadersOf(raw=start["headers"])
        assert start["status"] == 200
        assert headers["ratelimit-policy"] == '"default";q=2;w=2000'
        assert headers["ratelimit"].startswith(f'"default";r={left};t=')
    start, body = caller.call("/v1/datasets")[:2]
    headers = HeadersOf(raw=start["headers"])
    assert start["status"] == 429
    assert json.loads(body["body"])["code"] == "rate-limited"
    assert int(headers["retry-after"]) > 0
    assert headers["ratelimit"].startswith('"default";r=0;t=')
    assert caller.status("/metrics") == 200
    assert throttle.running == 0


def test_no_more_requests_are_in_progress_than_an_owner_may_have() -> None:
    throttle = Throttle(9, 1)
    throttle.enter("alice")
    caller = Caller(throttle=throttle)
    assert caller.status("/v1/datasets") == 429
    assert caller.inner.reached == []
    throttle.leave("alice")
    assert caller.status("/v1/datasets") == 200
    assert caller.status("/no/such/path") == 404
    assert throttle.running == 0
