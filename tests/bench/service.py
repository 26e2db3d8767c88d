"""The service under load: ``python -m tests.bench.service``.

Posts over loopback against the same analysis in process and, where there is one, the
peer's command on the same file; what an upload does to everybody else; memory.
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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from core.losses.analysis import aggregate
from core.losses.samples import SampleSpec
from tests.bench.__main__ import Setup, command, line, long_stream, medians, timed

MIB = 1 << 20
SLOW = 200
"""Uploads at once in the test of many slow ones."""


class Running:
    """A server process."""

    def __init__(self, directory: Path, **variables: str) -> None:
        start = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "--log-level", "warning", "serve", "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "THALWEG_DATA_DIR": str(directory), **variables},
        )
        assert self.process.stderr is not None
        for text in self.process.stderr:
            if found := re.search(r"listening on http://([\d.]+):(\d+)", text):
                self.address = (found[1], int(found[2]))
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        while self.get("/readyz")[0] != 200:
            time.sleep(0.002)
        self.ready = time.perf_counter() - start

    def get(self, path: str) -> tuple[int, float]:
        """(status, seconds) of a request on a connection of its own."""
        connection = http.client.HTTPConnection(*self.address, timeout=120)
        start = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, time.perf_counter() - start

    def memory(self, field: str = "VmRSS") -> float:
        """Resident memory in MiB, now or (VmHWM) at its highest since it was last reset."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split(f"{field}:")[1].split()[0]) / 1024

    def cpu(self) -> float:
        """Seconds of all cores that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


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
    server: Running, path: str, pieces: Iterable[memoryview], size: int | None
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
        }
        if setup.peer:
            where = setup.directory
            contests["peer"] = command(setup.theirs("melt", setup.stream), where)
            contests["peer start"] = command(setup.theirs("melt", setup.tiny), where)
        for run in contests.values():
            run()
        before = server.cpu()
        result = medians(contests, rounds)
        gib = 5 * rounds * len(data) / 2**30
        used = (server.cpu() - before) / gib
        print(f"posts of {len(data) / 1e6:.0f} MB: server {used:.2f} CPU s/GiB")
        for name in list(contests)[1:6]:
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


def others(setup: Setup, seconds: float) -> None:
    """How long others wait while one client sends as fast as it can."""
    data = memoryview(setup.stream.read_bytes())
    with running() as server:
        idle = sorted(server.get("/healthz")[1] for _ in range(300))
        stop = time.perf_counter() + seconds

        def upload() -> None:
            while time.perf_counter() < stop:
                post(server, "/v1/losses/melt?format=bin", cut(data, MIB), len(data))

        thread = threading.Thread(target=upload)
        thread.start()
        busy = []
        while time.perf_counter() < stop:
            busy.append(server.get("/healthz")[1])
            time.sleep(0.002)
        thread.join()
    busy.sort()

    def percentile(values: list[float], share: float) -> float:
        return 1e3 * values[int(share * (len(values) - 1))]

    print(
        f"/healthz while another uploads: median {percentile(busy, 0.5):.1f} ms,"
        f" p99 {percentile(busy, 0.99):.1f} ms of {len(busy)}"
        f" (idle: {percentile(idle, 0.5):.1f}, {percentile(idle, 0.99):.1f})"
    )


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
