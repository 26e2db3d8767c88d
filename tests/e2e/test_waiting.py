"""What a connection takes while its client waits: no buffer, whatever its body goes into."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.app.harness import Service, compress, head
from tests.app.runs.requests import BYTES, PART, Uploader, stream
from tests.scale import SOAK

COUNT = 1000 if SOAK else 100
KB = 1024
DATA = stream(500)
SENT = 4096
SIZE = ("Content-Length", str(len(DATA)))

Open = Callable[[Uploader, socket.socket], None]


def upload(fields: dict[str, str]) -> Open:
    def send(up: Uploader, client: socket.socket) -> None:
        pairs = [*fields.items(), ("Upload-Offset", "0"), SIZE]
        client.sendall(head("PATCH", up.create(len(DATA)), pairs) + DATA[:SENT])

    return send


def post(_: Uploader, client: socket.socket) -> None:
    client.sendall(head("POST", "/v1/losses/melt", [SIZE]) + DATA[:SENT])


def compressed(coding: str) -> Open:
    pieces = compress(coding, [DATA[:SENT], DATA[SENT:]])
    fields = [("Content-Length", str(sum(map(len, pieces)))), ("Content-Encoding", coding)]

    def send(_: Uploader, client: socket.socket) -> None:
        client.sendall(head("POST", "/v1/losses/melt", fields) + pieces[0])

    return send


def file(_: Uploader, client: socket.socket) -> None:
    client.sendall(head("PUT", "/v1/inputs/occurrence", [SIZE]) + DATA[:SENT])


def document(_: Uploader, client: socket.socket) -> None:
    client.sendall(head("POST", "/v1/runs", [SIZE]) + b'{"a":"' + b"b" * SENT)


def half_a_head(_: Uploader, client: socket.socket) -> None:
    client.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * SENT)


def idle(_: Uploader, client: socket.socket) -> None:
    client.sendall(head("GET", "/healthz"))
    assert client.recv(1 << 16)


KINDS: dict[str, tuple[Open, int]] = {
    "tus": (upload(BYTES), 64),
    "ietf": (upload({**PART, "Upload-Complete": "?1"}), 64),
    # Sixteen of them are the rows of what was sent, charged as rows.
    "post": (post, 64),
    # With what a decoder has to remember, charged as part of the post.
    # And the frame so far; what decoders left of the heap is not given back.
    "gzip": (compressed("gzip"), 64),
    "zstd": (compressed("zstd"), 64),
    "file": (file, 52),
    "json": (document, 52),
    "head": (half_a_head, 24),
    "idle": (idle, 24),
}
"""How a client begins, and the kilobytes of private memory that it may take."""


def private(service: Service) -> int:
    """Private memory of its processes in bytes, once it no longer changes."""
    seen = -1
    for _ in range(40):
        time.sleep(0.1)
        now = service.private()
        if abs(now - seen) < COUNT * KB:
            break
        seen = now
    return now


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    patience = dict.fromkeys(("idle_seconds", "keep_alive_seconds", "header_seconds"), 600)
    made = Service(tmp_path, max_requests=4096, owner_share=1.0, memory_limit=1 << 32, **patience)
    yield made
    made.kill()


@pytest.mark.parametrize("kind", KINDS if SOAK else ("tus", "post", "zstd", "file"))
def test_who_waits_holds_no_buffer(service: Service, kind: str) -> None:
    begin, kilobytes = KINDS[kind]
    up = Uploader(service)

    def wait(stack: ExitStack, count: int) -> int:
        for _ in range(count):
            begin(up, stack.enter_context(service.connect()))
        return private(service)

    with ExitStack() as stack:
        # Whatever a process makes but once.
        before = wait(stack, 10)
        each = (wait(stack, COUNT) - before) / COUNT
    # A few connections bear more of what a process has anyway.
    assert each < kilobytes * KB * (1.0 if SOAK else 1.2)
