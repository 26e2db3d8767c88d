"""nginx with the configuration that is deployed, in front of two nodes."""

from __future__ import annotations

import contextlib
import http.client
import io
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

CONFIG = (Path(__file__).parents[2] / "deploy" / "nginx.conf").read_text()
HOST = "127.0.0.1"
_SECONDS = 30.0


class Node(ThreadingHTTPServer):
    """Answers with its name and the headers it got, and notes each piece of a body."""

    # nginx keeps connections.
    daemon_threads = True
    block_on_close = False

    def __init__(self, name: str) -> None:
        super().__init__((HOST, 0), Handler)
        self.name = name
        self.gone = False
        self.pieces: list[bytes] = []
        self.came = threading.Condition()

    def wait_for(self, content: bytes) -> None:
        with self.came:
            assert self.came.wait_for(lambda: b"".join(self.pieces) == content, _SECONDS)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Node

    def do_GET(self) -> None:
        if self.server.gone:
            # Connections that nginx has kept end without an answer.
            self.close_connection = True
            return
        answer = f"{self.server.name}\n{self.headers}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        left = int(self.headers["Content-Length"])
        while left:
            assert isinstance(self.rfile, io.BufferedReader)
            piece = self.rfile.read1(left)
            left -= len(piece)
            with self.server.came:
                self.server.pieces.append(piece)
                self.server.came.notify_all()
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def running_node(name: str) -> Iterator[Node]:
    with Node(name) as node:
        thread = threading.Thread(target=node.serve_forever, args=(0.05,))
        thread.start()
        yield node
        node.shutdown()
        thread.join()


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    with running_node("node-1") as first, running_node("node-2") as second:
        yield first, second


@pytest.fixture
def port(tmp_path: Path, nodes: tuple[Node, Node]) -> Iterator[int]:
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if nginx is None:
        pytest.skip("no nginx on this machine (apt-get install nginx-light)")
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        free: int = probe.getsockname()[1]
    # A name with two addresses means the same.
    servers = "".join(f"server {HOST}:{node.server_port};" for node in nodes)
    config = CONFIG.replace("server thalweg:8000;", servers)
    config = config.replace("worker_processes auto", "worker_processes 1")
    config = config.replace("listen 8080", f"listen {HOST}:{free}")
    config = config.replace("/tmp/", f"{tmp_path}/")  # noqa: S108 - replaced, not used
    config = config.replace("/dev/stdout", f"{tmp_path}/access.log")
    path = tmp_path / "nginx.conf"
    path.write_text(config)
    command: list[str | Path] = [nginx, "-p", tmp_path, "-c", path, "-g", "daemon off;"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(free)
        yield free
    finally:
        process.terminate()
        process.wait()


def wait_for_port(port: int) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection((HOST, port)):
            return
        assert time.monotonic() < end
        time.sleep(0.05)


def ask(port: int, path: str = "/", **headers: str) -> tuple[int, list[str]]:
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=_SECONDS)) as asking:
        asking.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = asking.getresponse()
        return answer.status, answer.read().decode().splitlines()


def test_both_nodes_get_requests_and_one_that_is_gone_gets_none(
    port: int, nodes: tuple[Node, Node]
) -> None:
    assert {ask(port)[1][0] for _ in range(4)} == {"node-1", "node-2"}
    nodes[0].gone = True
    nodes[0].shutdown()
    nodes[0].server_close()
    assert [ask(port)[1][0] for _ in range(4)] == ["node-2"] * 4


def test_a_body_is_passed_on_as_it_arrives(port: int, nodes: tuple[Node, Node]) -> None:
    first, second = b"begin" * 1000, b"end" * 1000
    with socket.create_connection((HOST, port), timeout=_SECONDS) as client:
        head = f"POST /v1/losses/melt HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n"
        head += f"Content-Length: {len(first) + len(second)}\r\n\r\n"
        client.sendall(head.encode() + first)
        nodes[0].wait_for(first)
        client.sendall(second)
        nodes[0].wait_for(first + second)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_nodes_are_told_who_asks_and_metrics_are_not_published(port: int) -> None:
    _, (_, *lines) = ask(port, Host="losses.example", X_Forwarded_Host="rebound.example")
    headers = dict(line.split(": ", 1) for line in lines if line)
    assert headers["Host"] == "losses.example"
    assert headers["X-Forwarded-For"] == HOST
    assert "X-Forwarded-Host" not in headers
    assert headers["X-Request-Id"]
    assert ask(port, "/metrics")[0] == 403
