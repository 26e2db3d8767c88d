"""Requests that pages of other sites might make."""

from __future__ import annotations

import pytest

from app.errors import OriginRefusedError
from app.http.origins import Origins
from tests.app.conftest import ORIGIN
from tests.app.harness import Service, is_problem
from tests.server_process import HOST

OWN = Origins(["named.example"], "https://public.example/thalweg", [ORIGIN])


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:8000", "127.0.0.1:80", "[::1]:8000", "[::1]", "10.0.0.7"),
        *("thalweg:8000", "NAMED.example", "named.example:1", "public.example"),
    ],
)
def test_names_of_the_service(host: str) -> None:
    OWN.check_host({"host": host})


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "localhost.", "127.0.0.1.evil.example", "127.1"),
        *("sub.named.example", "[1.2.3]", "[::1.evil]", "a.b", "0x7f.1"),
    ],
)
def test_names_that_may_be_anybodys(host: str) -> None:
    with pytest.raises(OriginRefusedError, match="is not known to be a name"):
        OWN.check_host({"host": host})
    Origins(["*"]).check_host({"host": host})


SENT: list[tuple[bool, dict[str, str]]] = [
    # Programs say nothing.
    (True, {}),
    (True, {"sec-fetch-site": "same-origin", "origin": "http://here:8000"}),
    (True, {"sec-fetch-site": "none"}),
    (True, {"origin": "http://here:8000"}),
    (True, {"origin": "https://public.example"}),
    (True, {"origin": ORIGIN, "sec-fetch-site": "cross-site"}),
    (True, {"origin": ORIGIN}),
    (True, {"origin": "http://evil.example", "authorization": "Bearer x"}),
    (False, {"origin": "http://evil.example"}),
    (False, {"origin": "null"}),
    (False, {"origin": ""}),
    (False, {"origin": "http://here"}),
    (False, {"origin": "http://here:8001"}),
    (False, {"origin": "http://["}),
    (False, {"sec-fetch-site": "cross-site"}),
    (False, {"sec-fetch-site": "same-site"}),
    (False, {"sec-fetch-site": "anything"}),
    (False, {"origin": "http://here:8000", "sec-fetch-site": "cross-site"}),
]


@pytest.mark.parametrize(("allowed", "headers"), SENT)
def test_what_changes_something_comes_from_here(allowed: bool, headers: dict[str, str]) -> None:
    given = {"host": "here:8000", **headers}
    for method in ("GET", "HEAD", "OPTIONS"):
        OWN.check_sender(method, given)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        if allowed:
            OWN.check_sender(method, given)
            continue
        with pytest.raises(OriginRefusedError, match="page of another site"):
            OWN.check_sender(method, given)
        Origins(allowed=["*"]).check_sender(method, given)


def test_a_public_address_that_is_not_set_is_no_origin() -> None:
    with pytest.raises(OriginRefusedError):
        Origins().check_sender("POST", {"host": "here", "origin": "null"})


def test_the_service_refuses_them(service: Service) -> None:
    refused = service.get("/v1/runs", [("Origin", "http://evil.example")], "DELETE")
    is_problem(refused, "origin-refused", 403)
    assert service.get("/v1/runs", [("Origin", "http://evil.example")]).status == 200
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        site = [("Sec-Fetch-Site", "cross-site")]
        is_problem(service.get("/v1/nothing", site, method), "origin-refused", 403)
        is_problem(
            service.get("/v1/nothing", [("Origin", f"http://{HOST}")], method), "not-found", 404
        )
    with service.connect() as client:
        client.sendall(b"GET /v1/runs HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 403"
    with service.connect() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: probe.example\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"


def test_with_keys_any_name_will_do(guarded: Service) -> None:
    with guarded.connect() as client:
        client.sendall(b"GET /v1/runs HTTP/1.1\r\nHost: any.example\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 401"
