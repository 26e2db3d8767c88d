"""Memory of a server with many slow uploads, and small reads beside fast ones.

    python -m tests.bench.slow_uploads [UPLOADS]

Resident memory beyond that of the idle server, while all uploads send 4 KiB a second each; then
the time of small reads alone, and while four clients upload as fast as they can.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from tests.app.harness import Service, head
from tests.app.runs.requests import BYTES, TUS, Uploader
from tests.bench.uploads import MIB, send, summaries

_SECONDS = 10
_READS = 500
_CLIENTS = 4


def memory(service: Service, count: int) -> None:
    """Measure the memory of slow uploads."""
    up = Uploader(service)
    data = summaries(MIB)
    up.upload(data)
    idle = service.memory() / 1e6
    fields = [*BYTES.items(), ("Upload-Offset", "0"), ("Content-Length", str(len(data)))]
    with ExitStack() as stack:
        clients = []
        for _ in range(count):
            address = up.create(len(data))
            client = stack.enter_context(service.connect(600))
            client.sendall(head("PATCH", address, fields))
            clients.append(client)
        most = 0.0
        for step in range(_SECONDS):
            for client in clients:
                client.sendall(data[step * 4096 : (step + 1) * 4096])
            most = max(most, service.memory() / 1e6)
            time.sleep(1.0)
        most = max(most, service.memory() / 1e6)
    each = (most - idle) * 1e3 / count
    print(f"{count} slow uploads: {most - idle:.0f} MB above idle, {each:.0f} kB each", flush=True)


def reads(service: Service) -> None:
    """Measure small reads alone, and under uploads."""
    up = Uploader(service)
    data = summaries(256 * MIB)
    ended = threading.Event()
    sending = threading.Semaphore(0)
    moved: list[int] = []

    def saturate() -> None:
        own = Uploader(service)
        while not ended.is_set():
            address = own.create(len(data))
            sending.release()
            send(service, "PATCH", address, [*BYTES.items(), ("Upload-Offset", "0")], data)
            moved.append(len(data))
            own.ask("DELETE", address, **TUS)

    for name, clients in (("alone", 0), (f"under {_CLIENTS} uploads", _CLIENTS)):
        threads = [threading.Thread(target=saturate) for _ in range(clients)]
        ended.clear()
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for _ in threads:
            sending.acquire()
        found = []
        for _ in range(_READS):
            begin = time.monotonic()
            up.describe()
            found.append((time.monotonic() - begin) * 1000)
        ended.set()
        for thread in threads:
            thread.join()
        speed = sum(moved) / MIB / (time.monotonic() - begun)
        found.sort()
        middle, late = found[_READS // 2], found[_READS * 99 // 100]
        print(f"reads {name}: p50 {middle:.1f} ms, p99 {late:.1f} ms; uploads {speed:.0f} MiB/s")


def main() -> None:
    """Measure, and print a line for each."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as place:
        service = Service(Path(place))
        try:
            memory(service, count)
            reads(service)
        finally:
            service.kill()
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
