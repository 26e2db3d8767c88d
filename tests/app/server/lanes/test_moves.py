"""Requests of one connection that belong to different lanes, from the socket to the answer."""

from __future__ import annotations

import hashlib
import random
import re
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.server.lanes.table import FRONT, LONG, QUICK
from app.server.limits import ServerLimits
from tests.app.server.harness import LOG, Answer, chunked, content, head, rest, wait_until
from tests.app.server.lanes.moving import Client, Moving, moving

KINDS = {
    FRONT: head("/where/front/1", method="GET"),
    QUICK: head("/where/quick/2", method="GET"),
    LONG: head("/where/long/3", method="GET"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Moving]:
    with moving() as made:
        yield made
        wait_until(made.quiet)


@pytest.fixture(scope="module")
def alone() -> Iterator[Moving]:
    with moving(()) as made:
        yield made


def posted(body: bytes, *headers: str) -> bytes:
    return head("/sum?room=65536", f"Content-Length: {len(body)}", *headers) + body


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_each_request_of_a_connection_runs_in_its_lane(server: Moving) -> None:
    with Client(server) as client:
        for _ in range(30):
            for lane, request in KINDS.items():
                assert client.ask(request).json()["lane"] == lane
        assert server.connections == 1


def test_pipelined_requests_are_answered_in_order(server: Moving) -> None:
    draw = random.Random(7)  # noqa: S311 - no secret
    asked = [(draw.choice(list(KINDS)), number) for number in range(300)]
    requests = [head(f"/where/{lane}/{n}", method="GET") for lane, n in asked]
    with Client(server) as client, client.sending(*requests):
        for lane, number in asked:
            answer = client.answer().json()
            assert (answer["lane"], answer["name"].split("/")[-1]) == (lane, str(number))


def test_bodies_follow_wherever_their_head_was_read(server: Moving) -> None:
    bodies = [content(size) for size in (3, 300_000, 70_000, 1, 3_000_000)]
    requests = [KINDS[FRONT] + posted(body) + KINDS[QUICK] for body in bodies]
    with Client(server) as client, client.sending(*requests):
        for body in bodies:
            assert client.answer().json()["lane"] == FRONT
            assert client.answer().json()["sha"] == digest(body)
            assert client.answer().json()["lane"] == QUICK


def test_a_chunked_body_with_trailers_after_a_move(server: Moving) -> None:
    body = content(200_000)
    with Client(server) as client:
        first = client.ask(
            KINDS[QUICK],
            head("/sum", "Transfer-Encoding: chunked"),
            chunked(body, 7000),
            head("/whole", "Transfer-Encoding: chunked"),
            b"2\r\nab\r\n0\r\nX-Sum: 1\r\n\r\n",
            KINDS[FRONT],
        )
        assert first.json()["lane"] == QUICK
        assert client.answer().json()["sha"] == digest(body)
        assert client.answer().json()["body"] == "ab"
        assert client.answer().json()["lane"] == FRONT


def test_a_large_upload_after_a_move(server: Moving) -> None:
    body = content(50 << 20)
    with Client(server) as client:
        assert client.ask(KINDS[FRONT]).json()["lane"] == FRONT
        assert client.ask(posted(body)).json()["sha"] == digest(body)


def test_a_client_that_waits_for_continue_is_told_to(server: Moving) -> None:
    with Client(server) as client:
        for _ in range(2):
            assert client.ask(KINDS[QUICK]).json()["lane"] == QUICK
            client.socket.sendall(head("/sum", "Content-Length: 5", "Expect: 100-continue"))
            assert client.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            assert client.ask(b"12345").json()["bytes"] == 5


def test_a_large_answer_is_sent_before_its_connection_moves(server: Moving) -> None:
    with Client(server) as client:
        client.socket.sendall(head("/flood?size=9000000&known=1", method="GET") + KINDS[FRONT])
        time.sleep(0.1)
        assert len(client.answer().body) == 9_000_000
        assert client.answer().json()["lane"] == FRONT


def test_an_answer_that_nobody_takes_keeps_its_connection_until_it_is_cut() -> None:
    with moving(limits=ServerLimits(write_idle_seconds=0.4)) as server:
        # So that most of the answer waits in the process, which is done with it.
        server.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        with server.connect() as client:
            client.sendall(head("/flood?size=900000&known=1", method="GET") + KINDS[FRONT])
            wait_until(lambda: server.connections == 1)
            wait_until(server.quiet)
            with pytest.raises(ConnectionResetError):
                rest(client)


def test_headers_of_trusted_proxies_count_in_every_lane(server: Moving) -> None:
    extra = ("X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https")
    with Client(server) as client:
        for lane in (FRONT, LONG, QUICK, LONG):
            answer = client.ask(head(f"/where/{lane}/x", *extra, method="GET")).json()
            assert answer["lane"] == lane
            assert (answer["client"], answer["scheme"]) == ("192.0.2.7", "https")
            answer = client.ask(head(f"/where/{lane}/x", method="GET")).json()
            assert (answer["client"], answer["scheme"]) == ("127.0.0.1", "http")


def test_connections_of_unix_sockets_move(tmp_path: Path) -> None:
    with moving(path=tmp_path / "socket") as server, Client(server) as client:
        for lane, request in KINDS.items():
            answer = client.ask(request, posted(b"abc")).json()
            assert (answer["lane"], answer["client"]) == (lane, None)
            assert client.answer().json()["bytes"] == 3


AS_EVER = {
    "version 1.0": head("/where/long/x", version="1.0", method="GET"),
    "version 1.0, kept": head(
        "/where/front/x", "Connection: keep-alive", version="1.0", method="GET"
    ),
    "asks to close": head("/where/quick/x", "Connection: close", method="GET") + KINDS[LONG],
    "no such path": head("/none", "Connection: close"),
    "no such method": head("/sum", "Connection: close", method="DELETE"),
    "lower case": head("/sum", method="post"),
    "no version": b"GET /where/front/x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "nonsense": b"hello world, this is no request at all\r\n\r\n",
    "a space": b" / HTTP/1.1\r\n\r\n",
    "lone line feeds": b"POST /sum HTTP/1.1\nHost: x\n\n",
    "empty lines": b"\r\n\r\n" + head("/where/long/x", "Connection: close", method="GET"),
    "a colon missing": b"POST /sum HTTP/1.1\r\nHost x\r\n\r\n",
    "two lengths": head("/sum", "Content-Length: 1", "Content-Length: 2") + b"ab",
    "a coding": head("/sum", "Transfer-Encoding: gzip"),
    "too long a line": b"POST /sum?" + b"a" * 70_000,
    "too long a header": head("/sum", "X: " + "a" * 70_000),
    "not ASCII": "GET /where/long/ä HTTP/1.1\r\nConnection: close\r\n\r\n".encode(),
    "absolute": head("http://test/where/long/x", "Connection: close", method="GET"),
    "an upgrade": head("/where/long/x", "Connection: Upgrade, close", "Upgrade: x", method="GET"),
    "then nonsense": KINDS[FRONT] + b"nonsense nonsense nonsense nonsense\r\n\r\n",
    "moved, then nonsense": KINDS[LONG] + b"nonsense nonsense nonsense nonsense\r\n\r\n",
    "framing": KINDS[FRONT] + head("/sum", "Transfer-Encoding: chunked") + b"x\r\n\r\n",
}


@pytest.mark.parametrize("name", AS_EVER)
def test_what_is_sent_is_answered_as_without_lanes(
    server: Moving, alone: Moving, name: str
) -> None:
    answers = []
    for one in (alone, server):
        with one.connect() as client:
            client.sendall(AS_EVER[name])
            if "kept" not in name:
                client.settimeout(5)
                answers.append(re.sub(rb"[0-9a-f]{16}", b"", rest(client)))
            else:
                answers.append(Answer(client, "GET").body)
    assert answers[0] == answers[1]


def test_a_client_that_has_finished_sending_is_gone_as_without_lanes(
    server: Moving, alone: Moving
) -> None:
    for one in (alone, server):
        for first in ([], [FRONT], [QUICK]):
            with one.connect() as client:
                client.sendall(b"".join(KINDS[lane] for lane in first) + posted(b"abc"))
                client.shutdown(socket.SHUT_WR)
                # Whether it is answered depends on which is noticed first.
                assert rest(client).count(b"HTTP/1.1") <= len(first) + 1
        wait_until(one.quiet)


def test_clients_that_leave_while_they_move_are_not_counted(server: Moving) -> None:
    draw = random.Random(3)  # noqa: S311 - no secret
    for number in range(60):
        with server.connect() as client:
            client.sendall(b"".join(draw.choices(list(KINDS.values()), k=6)) + posted(b"abc"))
            time.sleep(draw.random() * 0.004)
            if number % 2:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(server.quiet)
    with Client(server) as again:
        assert again.ask(KINDS[LONG]).json()["lane"] == LONG


def test_a_slow_head_has_its_time_once_wherever_it_is_read() -> None:
    took: list[float] = []
    with moving(limits=ServerLimits(header_seconds=1.0)) as server:
        # A busy machine may be late, but not each time.
        while min(took, default=1.8) >= 1.8:
            assert len(took) < 5, took
            with Client(server) as client:
                begun = time.monotonic()
                client.socket.sendall(b"GE")
                time.sleep(0.8)
                # Now its lane has it, and waits for the rest of the time.
                assert client.ask(b"T /where/long/x HTTP/1.1\r\n").status == 408
                took.append(time.monotonic() - begun)
    assert min(took) >= 1.0


def test_those_refused_are_told_why_and_counted() -> None:
    limits = ServerLimits(connections=3, address_connections=2)
    with moving(limits=limits) as server, Client(server) as one, Client(server) as other:
        for _ in range(10):
            for client in (one, other):
                for lane, request in KINDS.items():
                    assert client.ask(request).json()["lane"] == lane
        with Client(server) as third:
            answer = third.answer()
            assert (answer.status, answer.json()["code"]) == (429, "share-exceeded")
        assert server.board.workers[0].refusals == {"share-exceeded": 1}


def test_a_load_is_known_from_the_offer_to_the_end(server: Moving) -> None:
    long = server.board.workers[2]
    with Client(server) as client:
        held = head("/hold", "Content-Length: 5") + b"a"
        assert client.ask(KINDS[FRONT], held).json()["lane"] == FRONT
        wait_until(lambda: (long.running, long.expected) == (1, 0))
        with server.connect() as slow:
            # What has not begun is expected.
            slow.sendall(b"POST /hold HTTP/1.1\r\n")
            wait_until(lambda: (long.running, long.expected) == (2, 1))
        wait_until(lambda: long.running == 1)
    wait_until(lambda: "hold ended" in LOG)
    wait_until(lambda: long.running == 0)


def test_without_an_acceptor_lanes_serve_what_they_have_and_close_what_would_move() -> None:
    with moving() as server, Client(server) as stays, Client(server) as moves:
        for client in (stays, moves):
            assert client.ask(KINDS[FRONT]).json()["lane"] == FRONT
        server.end_acceptor()
        assert stays.ask(KINDS[FRONT]).json()["lane"] == FRONT
        moves.socket.sendall(KINDS[LONG])
        server.drain()
        assert moves.socket.recv(1) == b""
