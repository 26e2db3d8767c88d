"""When the head of an answer leaves: with the first bytes that follow, if something will."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from starlette.types import Receive, Scope, Send

from tests.app.server.harness import Harness, head, rest, serving


class Steps:
    """An application that sends the parts of an answer one by one, when told to."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.bodies: list[bytes] = []
        self.fails = False

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await asyncio.sleep(0.2)
        if self.fails:
            raise RuntimeError("as the test wants")
        for number, body in enumerate(self.bodies):
            more = number < len(self.bodies) - 1
            await send({"type": "http.response.body", "body": body, "more_body": more})


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture(params=["ours", "ours-asyncio"])
def server(request: pytest.FixtureRequest, steps: Steps) -> Iterator[Harness]:
    with serving(request.param, app=steps) as harness:
        yield harness


def test_of_known_length_with_the_body(server: Harness, steps: Steps) -> None:
    steps.headers = [(b"content-length", b"6")]
    steps.bodies = [b"abc", b"def"]
    with server.connect() as client:
        client.sendall(head("/", "Connection: close", method="GET"))
        first = client.recv(65536)
        assert first.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\n\r\nabc" in first
        assert (first + rest(client)).endswith(b"\r\n\r\nabcdef")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_of_unknown_length_at_once(server: Harness, steps: Steps, version: str) -> None:
    steps.bodies = [b"abc"]
    with server.connect() as client:
        client.sendall(head("/", "Connection: close", method="GET", version=version))
        first = client.recv(65536)
        assert first.endswith(b"\r\n\r\n")
        assert rest(client) == (b"3\r\nabc\r\n0\r\n\r\n" if version == "1.1" else b"abc")


@pytest.mark.parametrize("length", [b"0", b"5"])
def test_without_a_body(server: Harness, steps: Steps, length: bytes) -> None:
    steps.headers = [(b"content-length", length)]
    steps.bodies = [b"" if length == b"0" else b"abcde"]
    with server.connect() as client:
        client.sendall(head("/", "Connection: close", method="HEAD"))
        answer = rest(client)
        assert answer.endswith(b"\r\n\r\n")
        assert b"content-length: " + length in answer


def test_of_an_answer_that_fails(server: Harness, steps: Steps) -> None:
    steps.headers = [(b"content-length", b"6")]
    steps.fails = True
    with server.connect() as client:
        client.sendall(head("/", method="GET"))
        answer = rest(client)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")
