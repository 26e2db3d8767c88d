"""Connections by address."""

from __future__ import annotations

import pytest

from app.server.limits import Connections, Peers, ServerLimits
from tests.app.server.harness import Answer, head, serving, wait_until

HELLO = head("/hello", method="GET")


def test_an_address_has_its_share_of_connections() -> None:
    connections = Connections(4, 2, Peers("10.0.0.0/8"))
    assert [connections.add("192.0.2.1") for _ in range(3)] == [None, None, "share-exceeded"]
    assert connections.add("192.0.2.2") is None
    assert connections.add("192.0.2.2") == "busy"
    assert connections.may_linger
    for _ in range(3):
        connections.remove("192.0.2.1")
    assert [connections.add("10.0.0.9") for _ in range(2)] == [None, None]
    assert connections.add("10.0.0.9") == "busy"
    assert connections.count == 5


def test_connections_without_an_address_have_no_share() -> None:
    connections = Connections(3, 1, Peers(None))
    assert [connections.add(None) for _ in range(4)] == [None, None, None, "busy"]
    for _ in range(4):
        connections.remove(None)
    assert connections.count == 0


def test_refused_connections_linger_only_while_there_are_few() -> None:
    connections = Connections(1, 1, Peers("*"))
    for _ in range(65):
        connections.add("192.0.2.1")
    assert connections.may_linger
    connections.add("192.0.2.1")
    assert not connections.may_linger


@pytest.mark.parametrize(
    ("text", "peer", "covered"),
    [
        (None, "192.0.2.1", False),
        ("*", "192.0.2.1", True),
        ("*", None, False),
        ("192.0.2.1, 10.0.0.0/8", "10.1.2.3", True),
        ("192.0.2.1, 10.0.0.0/8", "192.0.2.2", False),
        ("nginx, 2001:db8::/32", "2001:db8::7", True),
        ("192.0.2.1", "no address", False),
    ],
)
def test_addresses_and_networks(text: str | None, peer: str | None, covered: bool) -> None:
    assert Peers(text).covers(peer) is covered


@pytest.mark.parametrize(
    ("limits", "status", "code", "setting"),
    [
        (ServerLimits(connections=2, linger_seconds=0.3), 503, "busy", "MAX_CONNECTIONS"),
        (
            ServerLimits(address_connections=2, linger_seconds=0.3),
            429,
            "share-exceeded",
            "OWNER_SHARE",
        ),
    ],
)
def test_a_connection_too_many_is_told_so(
    limits: ServerLimits, status: int, code: str, setting: str
) -> None:
    with serving("ours", limits) as server:
        with server.connect() as one, server.connect() as two, server.connect() as three:
            answer = Answer(three, "GET")
            assert (answer.status, answer.json()["code"]) == (status, code)
            assert answer.getheader("Retry-After") == "1"
            found = [answer.json()[name] for name in ("limit", "allowed", "setting")]
            assert found == ["connections", 2, f"THALWEG_{setting}"]
            for client in (one, two):
                client.sendall(HELLO)
                assert Answer(client, "GET").status == 200
        wait_until(server.quiet)
        with server.connect() as client:
            client.sendall(HELLO)
            assert Answer(client, "GET").status == 200
