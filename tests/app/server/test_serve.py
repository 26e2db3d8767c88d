"""Processes that start, drain and end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.server.drain import Drain
from tests.app.server.harness import Answer, head, rest

ROOT = Path(__file__).parents[3]

APP = """
import asyncio, os, sys
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from app.server.drain import drain_of
from app.server.responses import ExchangeResponse
from app.server.board import Board
from app.server.limits import ServerLimits
from app.server.serve import serve

app = FastAPI()

@app.get("/ready")
async def ready(request: Request):
    return JSONResponse({}, 503 if drain_of(request.scope).draining else 200)

@app.get("/sleep")
async def sleep(seconds: float):
    await asyncio.sleep(seconds)
    return {"slept": seconds}

@app.get("/stream")
async def stream(request: Request):
    drain = drain_of(request.scope)
    async def handler(exchange):
        await exchange.start(200)
        await exchange.write(b"begun,")
        await drain.begun.wait()
        await exchange.write(b"draining,")
        await drain.hard.wait()
        await exchange.end(b"drained")
    return ExchangeResponse(handler)

turns = 0

def turn():
    global turns
    turns += 1
    asyncio.get_running_loop().call_soon(turn)

@app.get("/hold")
async def hold(fifo: str):
    # Keeps the event loop until the test writes, and counts its turns from then on.
    open(fifo, "rb").read()
    asyncio.get_running_loop().call_soon(turn)
    return {}

@app.get("/turn")
async def turn_number():
    return turns

def create(slot):
    # One write: two processes print to the same pipe.
    slot.on_drain = lambda: os.write(2, b"told\\n")
    return app

if __name__ == "__main__":
    workers, seconds, delay = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    sys.exit(serve(create, port=0, board=Board([""] * workers), limits=ServerLimits(),
                   drain_seconds=seconds, drain_delay=delay))
"""


class Command:
    """The server in a process."""

    def __init__(self, directory: Path, *args: object) -> None:
        script = directory / "thalweg_test_app.py"
        script.write_text(APP)
        self.process = subprocess.Popen(
            [sys.executable, str(script), *map(str, args)],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}"},
        )
        assert self.process.stderr
        self.first = self.process.stderr.readline().decode()
        match = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", self.first)
        self.port = int(match[1]) if match else 0

    @contextlib.contextmanager
    def get(self, path: str, *headers: str) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=15) as client:
            client.sendall(head(path, *headers, method="GET"))
            yield client

    def status(self, path: str) -> int:
        with self.get(path) as client:
            return Answer(client).status

    def term(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=20)
        return self.process.returncode, err.decode()


@contextlib.contextmanager
def command(directory: Path, *args: object) -> Iterator[Command]:
    server = Command(directory, *args)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


def test_drain_of_one_process(tmp_path: Path) -> None:
    with command(tmp_path, 1, 8, 0.6) as server:
        assert server.status("/ready") == 200
        with server.get("/sleep?seconds=1.2") as slow, server.get("/hello") as idle:
            assert Answer(idle).status == 404
            server.term()
            time.sleep(0.2)
            assert server.status("/ready") == 503
            assert Answer(slow).json() == {"slept": 1.2}
            assert rest(idle) == b""
        with pytest.raises(ConnectionRefusedError):
            server.status("/ready")
        code, err = server.end()
    assert code == 0
    assert "told" in err


def test_streams_learn_of_the_beginning_and_the_end_of_a_drain(tmp_path: Path) -> None:
    with command(tmp_path, 1, 1, 0) as server, server.get("/stream") as client:
        assert client.recv(100)
        server.term()
        answer = rest(client)
        assert 0 < answer.find(b"draining,") < answer.find(b"drained")
        assert server.end()[0] == 0


def test_what_takes_too_long_is_cut(tmp_path: Path) -> None:
    with command(tmp_path, 1, 0.4, 0) as server, server.get("/sleep?seconds=60") as client:
        time.sleep(0.2)
        start = time.monotonic()
        server.term()
        assert Answer(client).status == 503
        assert server.end()[0] == 0
        assert time.monotonic() - start < 30


def test_workers(tmp_path: Path) -> None:
    with command(tmp_path, 2, 5, 0.2) as server:
        statuses: list[int] = []
        threads = [
            threading.Thread(target=lambda: statuses.append(server.status("/sleep?seconds=1")))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.4)
        server.term()
        for thread in threads:
            thread.join()
        assert statuses == [200] * 6
        code, err = server.end()
    assert code == 0
    assert err.count("told") == 2


def test_clients_that_connect_during_a_long_turn_are_accepted_in_the_next(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with command(tmp_path, 1, 8, 0) as server, contextlib.ExitStack() as stack:
        held = stack.enter_context(server.get(f"/hold?fifo={fifo}"))
        with fifo.open("wb"):
            # The loop reads from now on until this block ends.
            clients = [stack.enter_context(server.get("/turn")) for _ in range(40)]
        assert Answer(held).status == 200
        turns = sorted(Answer(client).json() for client in clients)
    assert turns[-1] - turns[0] < len(clients) // 2


def test_drain() -> None:
    drain = Drain()
    assert drain.left() is None
    drain.begin(5)
    drain.begin(50)
    assert 4 < (drain.left() or 0) <= 5
