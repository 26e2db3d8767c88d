"""Who is let in, and the headers that every request and answer may have."""

from __future__ import annotations

import pytest

from tests.app.conftest import KEY, ORIGIN
from tests.app.harness import (
    MIB,
    Answer,
    Contract,
    Headers,
    Post,
    Service,
    ask,
    chunked,
    head,
    is_problem,
    wait_until,
)
from tests.app.losses.posts import good

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
    ):
        answer = ask(guarded, Post(path, [good().encode()], headers, method=method))
        contract.check(method, path, answer)
        is_problem(answer, "unauthorized", 401)
    for path in ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/problems/busy"):
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
        for name in ("Thalweg-Token", "Thalweg-Offset", "Upload-Complete", "X-Request-Id"):
            assert name in exposed
    stranger = [("Origin", "https://elsewhere.example")]
    answer = ask(service, Post("/v1/losses/melt", [good().encode()], stranger))
    assert answer.getheader("Access-Control-Allow-Origin") is None
    answer = service.get("/v1/losses/melt", [*stranger, *asked[1:]], method="OPTIONS")
    assert answer.status == 400
