"""The service under load: ``python -m tests.bench.service``.

Posts over loopback against the same analysis in process and, where there is one, the
peer's command on the same file; what an upload does to everybody else; memory; the same
engine behind a plain FastAPI endpoint. ``THALWEG_TUS_PYTHON`` names an interpreter with
``tuspyserver``, which then takes the same bytes, and only stores them.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from core.losses.analysis import aggregate
from core.losses.samples import SampleSpec
from tests.bench.__main__ import ROOT, Setup, command, line, long_stream, medians, timed
from tests.server_process import children_of

MIB = 1 << 20
SLOW = 200
"""Uploads at once in the test of many slow ones."""


PLAIN = """
import socket, sys
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response
from app.losses.tables import table_encoder
from core.losses.analysis import Analysis
from core.losses.reports import REPORTS
from core.warmup import warm_up

app = FastAPI()

@app.get("/healthz")
async def healthz():
    return {}

@app.post("/melt")
async def melt(request: Request):
    encoder = table_encoder("csv", REPORTS["melt"], 4)
    made = [encoder.begin()]
    analysis = Analysis(["melt"], lambda _, rows: made.append(bytes(encoder.encode(rows))))
    async for piece in request.stream():
        analysis.receive(piece)
    analysis.close()
    return Response(b"".join(made), media_type="text/csv")

warm_up()
sock = socket.create_server(("127.0.0.1", 0))
print("listening on http://127.0.0.1:%d" % sock.getsockname()[1], file=sys.stderr, flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run([sock])
"""
"""The engine as one would first put it behind FastAPI: in the endpoint, on the event loop."""

TUS = """
import socket, sys
import uvicorn
from fastapi import FastAPI
from tuspyserver import create_tus_router

app = FastAPI()
app.include_router(create_tus_router(files_dir=sys.argv[1], prefix="files"))
sock = socket.create_server(("127.0.0.1", 0))
print("listening on http://127.0.0.1:%d" % sock.getsockname()[1], file=sys.stderr, flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run([sock])
"""
"""A FastAPI service that others use for large uploads: it stores, and makes nothing."""


class Listening:
    """A process that says on stderr where it listens."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        assert self.process.stderr is not None
        for text in self.process.stderr:
            if found := re.search(r"listening on http://([\d.]+):(\d+)", text):
                self.address = (found[1], int(found[2]))
                break
        else:
            raise RuntimeError("the server did not start")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def get(self, path: str) -> tuple[int, float]:
        """(status, seconds) of a request on a connection of its own."""
        connection = http.client.HTTPConnection(*self.address, timeout=120)
        start = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, time.perf_counter() - start

    @property
    def _pid(self) -> int:
        """That of the process that serves, in services with a supervisor."""
        return next(iter(children_of(self.process.pid)), self.process.pid)

    def memory(self, field: str = "VmRSS") -> float:
        """Resident memory in MiB, now or (VmHWM) at its highest since it was last reset."""
        text = Path(f"/proc/{self._pid}/status").read_text()
        return int(text.split(f"{field}:")[1].split()[0]) / 1024

    def cpu(self) -> float:
        """Seconds of all cores that it has used."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self.process.terminate()
        self.process.wait(60)


class Running(Listening):
    """The service in a process, ready."""

    def __init__(self, directory: Path, **variables: str) -> None:
        start = time.perf_counter()
        command = [sys.executable, "-m", "app.command", "--log-level", "warning", "serve"]
        super().__init__(
            [*command, "--port", "0"], {"THALWEG_DATA_DIR": str(directory), **variables}
        )
        while self.get("/readyz")[0] != 200:
            time.sleep(0.002)
        self.ready = time.perf_counter() - start


@contextmanager
def running(**variables: str) -> Iterator[Running]:
    directory = Path(tempfile.mkdtemp())
    server = Running(directory, **variables)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


def post(
    server: Listening, path: str, pieces: Iterable[memoryview], size: int | None
) -> tuple[int, int]:
    """Post a body, reading the answer meanwhile; (status, bytes of the answer)."""
    with socket.create_connection(server.address) as connection:
        length = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\n{length}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        got: list[int] = []
        first = bytearray()

        def read() -> None:
            room = memoryview(bytearray(MIB))
            while count := connection.recv_into(room):
                if not first:
                    first[:] = room[:16]
                got.append(count)

        reader = threading.Thread(target=read)
        reader.start()
        for piece in pieces:
            if size is None:
                connection.sendall(b"%x\r\n" % len(piece))
            connection.sendall(piece)
            if size is None:
                connection.sendall(b"\r\n")
        if size is None:
            connection.sendall(b"0\r\n\r\n")
        reader.join()
    return int(first[9:12]), sum(got)


def post_plainly(server: Listening, path: str, data: memoryview) -> tuple[int, int]:
    """The same with the standard library's client, which reads when all is sent."""
    connection = http.client.HTTPConnection(*server.address, timeout=120, blocksize=MIB)
    connection.request("POST", path, cut(data, MIB), {"Content-Length": str(len(data))})
    answer = connection.getresponse()
    size = len(answer.read())
    connection.close()
    return answer.status, size


def cut(data: memoryview, step: int) -> Iterator[memoryview]:
    return (data[at : at + step] for at in range(0, len(data), step))


def posts(setup: Setup, rounds: int) -> None:
    """MELT of a whole stream, against the engine in process and the peer's command."""
    data = memoryview(setup.stream.read_bytes())

    def one(server: Running, query: str = "", step: int = MIB, *, chunked: bool = False) -> None:
        size = None if chunked else len(data)
        status, _ = post(server, f"/v1/losses/melt{query}", cut(data, step), size)
        assert status == 200

    with running() as server:
        contests = {
            "in process": timed(lambda: aggregate(data, ["melt"])),
            "sized, csv": timed(lambda: one(server)),
            "sized, bin": timed(lambda: one(server, "?format=bin")),
            "sized, frames": timed(lambda: one(server, "?format=frames")),
            "chunks of 64 KiB": timed(lambda: one(server, step=1 << 16, chunked=True)),
            "duplex, csv": timed(lambda: one(server, "?duplex=true")),
            "http.client, csv": timed(lambda: post_plainly(server, "/v1/losses/melt", data)),
        }
        if setup.peer:
            where = setup.directory
            contests["peer"] = command(setup.theirs("melt", setup.stream), where)
            contests["peer start"] = command(setup.theirs("melt", setup.tiny), where)
        for run in contests.values():
            run()
        before = server.cpu()
        result = medians(contests, rounds)
        gib = 6 * rounds * len(data) / 2**30
        used = (server.cpu() - before) / gib
        print(f"posts of {len(data) / 1e6:.0f} MB: server {used:.2f} CPU s/GiB")
        for name in list(contests)[1:7]:
            speed = len(data) / result[name] / 1e6
            text = f"POST MELT, {name}, {speed:.0f} MB/s, speed / in process"
            line(text, result["in process"] / result[name])
        if setup.peer:
            net = result["peer"] - result["peer start"]
            line(
                "POST MELT csv against eltpy on the file, net of start-up",
                net / result["sized, csv"],
                5,
            )


def store(server: Listening, data: memoryview) -> None:
    """Upload by the tus protocol: one request makes the file, one sends all of it."""
    connection = http.client.HTTPConnection(*server.address, timeout=120, blocksize=MIB)
    about = {"Tus-Resumable": "1.0.0", "Upload-Length": str(len(data))}
    connection.request("POST", "/files", None, {**about, "Upload-Metadata": "filename eA=="})
    made = connection.getresponse()
    made.read()
    assert made.status == 201
    place = "/" + str(made.getheader("Location")).split("/", 3)[-1]
    kind = {"Content-Type": "application/offset+octet-stream", "Content-Length": str(len(data))}
    connection.request("PATCH", place, cut(data, MIB), {**about, **kind, "Upload-Offset": "0"})
    stored = connection.getresponse()
    stored.read()
    assert stored.status == 204
    connection.close()


@contextmanager
def storing(python: str) -> Iterator[Listening]:
    directory = tempfile.mkdtemp()
    server = Listening([python, "-c", TUS, directory], {})
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


def others_fastapi(setup: Setup, rounds: int, seconds: float) -> None:
    """The same bytes to other services made with FastAPI."""
    data = memoryview(setup.stream.read_bytes())
    gib = len(data) / 2**30
    with ExitStack() as stack:
        ours = stack.enter_context(running())
        plain = Listening([sys.executable, "-c", PLAIN], {"PYTHONPATH": str(ROOT)})
        stack.callback(plain.stop)
        servers: dict[str, Listening] = {"ours": ours, "plain endpoint": plain}
        runs: dict[str, Callable[[], object]] = {
            "ours": lambda: post_plainly(ours, "/v1/losses/melt", data),
            "plain endpoint": lambda: post_plainly(plain, "/melt", data),
        }
        if python := os.environ.get("THALWEG_TUS_PYTHON"):
            tus = servers["tuspyserver"] = stack.enter_context(storing(python))
            runs["tuspyserver"] = partial(store, tus, data)
        for run in runs.values():
            run()
        before = {name: server.cpu() for name, server in servers.items()}
        result = medians({name: timed(run) for name, run in runs.items()}, rounds)
        used = {n: (s.cpu() - before[n]) / gib / rounds for n, s in servers.items()}
        print(f"ours, {gib / result['ours']:.2f} GiB/s: {used['ours']:.2f} CPU s/GiB")
        for name in list(runs)[1:]:
            text = f"POST MELT csv against {name}, which takes {used[name]:.2f} CPU s/GiB"
            line(text, result[name] / result["ours"])
        plainly = waits(plain, seconds, lambda: post_plainly(plain, "/melt", data))
        print(f"/healthz of the plain endpoint meanwhile: {plainly}")


def waits(server: Listening, seconds: float, upload: Callable[[], object]) -> str:
    """How long others wait while one client sends as fast as it can."""
    stop = time.perf_counter() + seconds

    def uploads() -> None:
        while time.perf_counter() < stop:
            upload()

    thread = threading.Thread(target=uploads)
    thread.start()
    busy = []
    while time.perf_counter() < stop:
        busy.append(server.get("/healthz")[1])
        time.sleep(0.002)
    thread.join()
    return describe(busy)


def describe(seconds: list[float]) -> str:
    known = sorted(seconds)
    median, late = (1e3 * known[int(share * (len(known) - 1))] for share in (0.5, 0.99))
    return f"median {median:.1f} ms, p99 {late:.1f} ms of {len(known)}"


def others(setup: Setup, seconds: float) -> None:
    """How long others wait while one client sends as fast as it can."""
    data = memoryview(setup.stream.read_bytes())
    path = "/v1/losses/melt?format=bin"
    with running() as server:
        idle = describe([server.get("/healthz")[1] for _ in range(300)])
        busy = waits(server, seconds, lambda: post(server, path, cut(data, MIB), len(data)))

    print(f"/healthz while another uploads: {busy} (idle: {idle})")


def memory(setup: Setup, size: int) -> None:
    """Resident memory above idle, at its highest."""
    octets = np.fromfile(setup.stream, np.uint8)
    for path, bytes_wanted in (
        ("/v1/losses/melt?format=bin", size),
        ("/v1/losses/selt?format=bin&duplex=true", size),
        ("/v1/losses/events?format=frames&duplex=true", size),
    ):
        with running() as server:
            idle = server.memory()
            pieces = (
                part
                for piece in long_stream(octets.copy(), bytes_wanted)
                for part in cut(piece, MIB)
            )
            status, got = post(server, path, pieces, None)
            print(
                f"{bytes_wanted / 1e9:.1f} GB to {path}: {status}, {got / 1e6:.0f} MB answered,"
                f" {server.memory('VmHWM') - idle:.0f} MiB above idle ({idle:.0f})"
            )


def many_slow(setup: Setup) -> None:
    """Memory while many clients send a little now and then."""
    data = setup.stream.read_bytes()[: 4 * MIB]
    with running() as server:
        idle = server.memory()
        connections = [socket.create_connection(server.address) for _ in range(SLOW)]
        head = f"POST /v1/losses/melt HTTP/1.1\r\nHost: b\r\nContent-Length: {len(data)}\r\n\r\n"
        for connection in connections:
            connection.sendall(head.encode())
        for at in range(0, 40 * 4096, 4096):
            for connection in connections:
                connection.sendall(data[at : at + 4096])
        time.sleep(0.5)
        wait = statistics.median(server.get("/healthz")[1] for _ in range(50))
        above = server.memory("VmHWM") - idle
        print(
            f"{SLOW} slow uploads of 160 KB each so far: {above:.0f} MiB above idle,"
            f" {above / SLOW:.2f} each; /healthz {1e3 * wait:.1f} ms"
        )
        for connection in connections:
            connection.close()


def starts(setup: Setup) -> None:
    """Until ready, and the first request after that."""
    body = setup.tiny.read_bytes()
    with tempfile.TemporaryDirectory() as cache:
        empty = {"THALWEG_KERNEL_CACHE": cache, "HOME": cache, "TMPDIR": cache}
        with running(**empty, XDG_CACHE_HOME=cache) as server:
            cold = server.ready
    ready, first = [], []
    for _ in range(5):
        with running() as server:
            ready.append(server.ready)
            start = time.perf_counter()
            post(server, "/v1/losses/melt", [memoryview(body)], len(body))
            first.append(time.perf_counter() - start)
    print(
        f"ready after {statistics.median(ready):.2f} s warm (target 2), {cold:.1f} s cold;"
        f" first request {1e3 * statistics.median(first):.0f} ms (target 100)"
    )


def run(setup: Setup, rounds: int, size: int) -> None:
    """Everything."""
    posts(setup, rounds)
    others(setup, 5.0)
    others_fastapi(setup, rounds, 5.0)
    many_slow(setup)
    starts(setup)
    memory(setup, size)


def main() -> None:
    """Run it on a stream of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--long", type=float, default=3.0, help="GB of the long stream")
    args = parser.parse_args()
    spec = SampleSpec(events=args.events, summaries=75, samples=1000)
    setup = Setup(spec, os.environ.get("THALWEG_PEER_PYTHON"))
    try:
        run(setup, args.rounds, int(args.long * 1e9))
    finally:
        shutil.rmtree(setup.directory)


if __name__ == "__main__":
    main()
