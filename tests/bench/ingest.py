"""Bytes of request bodies a second: ``python -m tests.bench.ingest``.

A FastAPI endpoint on our protocol reads into 1 MiB of its own memory and discards; so
do a blocking socket, which is the most Python can do, FastAPI on default uvicorn, and
its ``UploadFile``. Each server is a process; the contests are run in turn in every
round. Speed is a ratio to the blocking socket in the same run.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.server_process import children_of

ROOT = Path(__file__).parents[2]
SIZE = 256 << 20
ROUNDS = 5
MIB = 1 << 20
BOUNDARY = b"thalweg-boundary"

OURS = """
import sys
from fastapi import FastAPI, Request
from app.server.board import Board
from app.server.limits import ServerLimits
from app.server.responses import Exchange, ExchangeResponse
from app.server.serve import serve

app = FastAPI()

@app.post("/sink")
async def sink(request: Request):
    async def handler(exchange: Exchange) -> None:
        room = memoryview(bytearray(1 << 20))
        total = 0
        while size := await exchange.body.read_into(room):
            total += size
        await exchange.start(200, content_length=len(str(total)))
        await exchange.end(str(total).encode())
    return ExchangeResponse(handler)

sys.exit(serve(lambda _slot: app, port=0, board=Board(), limits=ServerLimits()))
"""

DEFAULT = """
import socket, sys
import uvicorn
from fastapi import FastAPI, Request, UploadFile
from fastapi.responses import PlainTextResponse

app = FastAPI()

@app.post("/sink")
async def sink(request: Request):
    total = 0
    async for piece in request.stream():
        total += len(piece)
    return PlainTextResponse(str(total))

try:
    @app.post("/upload")
    async def upload(file: UploadFile):
        total = 0
        while piece := await file.read(1 << 20):
            total += len(piece)
        return PlainTextResponse(str(total))
except (ImportError, RuntimeError):
    pass  # without python-multipart

sock = socket.create_server(("127.0.0.1", 0))
print("listening on http://127.0.0.1:%d" % sock.getsockname()[1], file=sys.stderr, flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run([sock])
"""

RAW = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print("listening on http://127.0.0.1:%d" % listener.getsockname()[1], file=sys.stderr, flush=True)
room = memoryview(bytearray(1 << 20))
while True:
    client, _ = listener.accept()
    with client:
        size = client.recv_into(room)
        left = int(bytes(room[:size]).split(b"x-wire-bytes: ")[1].split(b"\\r\\n")[0])
        left -= size - (bytes(room[:size]).find(b"\\r\\n\\r\\n") + 4)
        while left > 0:
            left -= client.recv_into(room)
        client.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 0\\r\\nconnection: close\\r\\n\\r\\n")
"""


class Result(NamedTuple):
    """One contest: ratios to the raw socket of the same way of sending, and CPU."""

    name: str
    best: float
    median: float
    cpu_seconds_per_gib: float


class Server:
    """A server in a process of its own."""

    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.process.stderr
        for line in self.process.stderr:
            if b"listening on" in line:
                self.port = int(line.rsplit(b":", 1)[1])
                break
        else:
            raise RuntimeError("the server did not start")

    def cpu(self) -> float:
        """CPU seconds so far."""
        pid = next(iter(children_of(self.process.pid)), self.process.pid)
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr
        self.process.stderr.close()


def pieces(way: str, size: int) -> tuple[list[bytes], list[bytes], int]:
    """Headers, what to send repeatedly, and how often, for a body of ``size`` bytes."""
    if way == "multipart":
        # The part's own head and end are sent with the first and the last piece.
        size += 300
    if way in {"sized", "multipart"}:
        return [b"content-length: %d" % size], [bytes(MIB)], SIZE // MIB
    chunk = int(way)
    line = b"%x\r\n" % chunk + bytes(chunk) + b"\r\n"
    return [b"transfer-encoding: chunked"], [line * (MIB // chunk)], SIZE // MIB


def post(server: Server, path: str, way: str) -> float:
    """Seconds of one upload."""
    headers, repeated, times = pieces(way, SIZE)
    before, after = b"", b"" if way == "sized" else b"0\r\n\r\n"
    if way == "multipart":
        headers.append(b"content-type: multipart/form-data; boundary=" + BOUNDARY)
        before = b"--" + BOUNDARY + b'\r\ncontent-disposition: form-data; name="file"; filename="'
        end = b'"\r\n\r\n'
        after = b"\r\n--" + BOUNDARY + b"--\r\n"
        before += b"x" * (300 - len(before) - len(end) - len(after)) + end
    wire = len(before) + sum(map(len, repeated)) * times + len(after)
    head = [b"POST %s HTTP/1.1" % path.encode(), b"host: x", b"x-wire-bytes: %d" % wire, *headers]
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        start = time.perf_counter()
        client.sendall(b"\r\n".join(head) + b"\r\n\r\n" + before)
        for _ in range(times):
            client.sendall(repeated[0])
        client.sendall(after)
        answer = client.recv(65536)
        seconds = time.perf_counter() - start
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return seconds


def has_upload(server: Server) -> bool:
    """Whether the peer could make its UploadFile endpoint."""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET /upload HTTP/1.1\r\nhost: x\r\n\r\n")
        return client.recv(100).startswith(b"HTTP/1.1 405")


def run(rounds: int = ROUNDS) -> list[Result]:
    """All contests; the first round warms up and does not count."""
    servers = {"raw": Server(RAW), "ours": Server(OURS), "default uvicorn": Server(DEFAULT)}
    try:
        contests = [(way, name) for way in ("sized", "65536", "8192") for name in servers]
        if has_upload(servers["default uvicorn"]):
            contests.append(("multipart", "default uvicorn"))
        seconds: dict[tuple[str, str], list[float]] = {contest: [] for contest in contests}
        cpu: dict[tuple[str, str], list[float]] = {contest: [] for contest in contests}
        for number in range(rounds + 1):
            for way, name in contests:
                used = servers[name].cpu()
                path = "/upload" if way == "multipart" else "/sink"
                taken = post(servers[name], path, way)
                if number:
                    seconds[way, name].append(taken)
                    cpu[way, name].append(servers[name].cpu() - used)
    finally:
        for server in servers.values():
            server.stop()
    return [result(contest, seconds, cpu) for contest in contests]


def result(
    contest: tuple[str, str],
    seconds: dict[tuple[str, str], list[float]],
    cpu: dict[tuple[str, str], list[float]],
) -> Result:
    way, name = contest
    raw = seconds["sized" if way == "multipart" else way, "raw"]
    names = {"sized": "sized", "multipart": "UploadFile"}
    pick: Callable[[list[float]], float] = statistics.median
    return Result(
        f"{name}, {names.get(way, f'chunks of {way}')}",
        min(raw) / min(seconds[contest]),
        pick(raw) / pick(seconds[contest]),
        sum(cpu[contest]) / len(cpu[contest]) / (SIZE / (1 << 30)),
    )


def main() -> None:
    """Print what :func:`run` found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    print(f"{'':<32}{'best':>8}{'median':>8}{'CPU s/GiB':>11}   speed / blocking socket")
    for name, best, median, cpu in run(parser.parse_args().rounds):
        target = ""
        if name.startswith("ours") and "8192" not in name:
            target = "   (target 0.8x)"
        print(f"{name:<32}{best:>7.2f}x{median:>7.2f}x{cpu:>11.3f}{target}", flush=True)


if __name__ == "__main__":
    main()
