"""Addresses of resources: from the operator, or a proxy it trusts, but from no client."""

from __future__ import annotations

from typing import Any

import pytest

from app.http.addresses import Addresses
from app.server.limits import PEER_EXTENSION


def request(*headers: tuple[str, str], peer: str | None = "10.0.0.7") -> dict[str, Any]:
    return {
        "scheme": "https",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "extensions": {} if peer is None else {PEER_EXTENSION: peer},
    }


def test_the_host_of_a_request_is_not_believed() -> None:
    scope = request(("host", "evil.example"), ("x-forwarded-host", "evil.example"))
    assert Addresses(None).of(scope, "/v1/x") == "/v1/x"
    assert Addresses(None, "10.0.0.8, proxy").of(scope, "/v1/x") == "/v1/x"


@pytest.mark.parametrize("public", ["https://there/api", "https://there/api/"])
def test_the_public_url_comes_first(public: str) -> None:
    scope = request(("x-forwarded-host", "other"))
    assert Addresses(public, "*").of(scope, "/v1/x") == "https://there/api/v1/x"


@pytest.mark.parametrize("trusted", ["10.0.0.7", "10.0.0.0/8", "127.0.0.1,10.0.0.7", "*"])
@pytest.mark.parametrize("host", ["there", "there:8443", "[::1]:1", "10.1.1.1"])
def test_a_trusted_proxy_is_believed(trusted: str, host: str) -> None:
    scope = request(("host", "inner"), ("x-forwarded-host", host))
    assert Addresses(None, trusted).of(scope, "/v1/x") == f"https://{host}/v1/x"


@pytest.mark.parametrize("host", ["", "a b", "a/b", "a, b", "user@there", "there:port", "a\nb"])
def test_a_host_that_is_none_is_not(host: str) -> None:
    assert Addresses(None, "*").of(request(("x-forwarded-host", host)), "/v1/x") == "/v1/x"


def test_two_hosts_are_none() -> None:
    scope = request(("x-forwarded-host", "a"), ("x-forwarded-host", "b"))
    assert Addresses(None, "*").of(scope, "/v1/x") == "/v1/x"


@pytest.mark.parametrize("peer", [None, "unix"])
def test_who_has_no_address_is_not_trusted(peer: str | None) -> None:
    scope = request(("x-forwarded-host", "there"), peer=peer)
    assert Addresses(None, "10.0.0.0/8").of(scope, "/v1/x") == "/v1/x"
