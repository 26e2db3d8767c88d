"""Durable uploads against stateless posts, and against tuspyserver.

    python -m tests.bench.uploads [MIB]

Rounds alternate, and the best of each counts: MiB/s, and CPU seconds of the server per GiB.
``THALWEG_TUS_PYTHON`` names an interpreter with ``tuspyserver``. The run has all row reports; both
only store and check while bytes come.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.app.harness import Answer, Headers, Service, head
from tests.app.runs.requests import BYTES, TUS, Uploader
from tests.bench.service import Listening, store, storing
from tests.streams import Block, Stream

ROUNDS = 5
SAMPLES = 100
MIB = 1 << 20
QUANTILES = {"quantiles": [0.5, 0.99]}


class Figure(NamedTuple):
    """What one request took."""

    seconds: float
    cpu: float


def summaries(nbytes: int) -> bytes:
    """A stream of events with ten summaries of a hundred samples."""
    pairs = ((-1, 1.5), *((sidx, float(sidx)) for sidx in range(1, SAMPLES + 1)))
    blocks = tuple(Block(1, ident, pairs) for ident in range(1, 11))
    whole = Stream("summary", SAMPLES, 4, blocks)
    event = np.frombuffer(whole.encode()[len(whole.header) :], "<i4")
    events = max(nbytes // event.nbytes, 1)
    words = np.tile(event, (events, 1)).reshape(events, len(blocks), -1)
    words[:, :, 0] = np.arange(1, events + 1)[:, None]
    return whole.header + words.tobytes()


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def send(service: Service, method: str, path: str, headers: Headers, data: bytes) -> Figure:
    """Make one request, and measure it."""
    with service.connect(600) as client:
        cpu, begin = cpu_of(service.pid), time.monotonic()
        client.sendall(head(method, path, [*headers, ("Content-Length", str(len(data)))]))
        client.sendall(data)
        answer = Answer(client, method)
        assert answer.status in {200, 204}, answer.body[:500]
        return Figure(time.monotonic() - begin, cpu_of(service.pid) - cpu)


def store_at(peer: Listening, data: bytes) -> Figure:
    """Upload to tuspyserver, and measure it."""
    cpu, begin = cpu_of(peer.process.pid), time.monotonic()
    store(peer, memoryview(data))
    return Figure(time.monotonic() - begin, cpu_of(peer.process.pid) - cpu)


def shown(name: str, figures: Sequence[Figure], nbytes: int) -> str:
    """A line with the best of some figures."""
    seconds = min(figure.seconds for figure in figures)
    cpu = min(figure.cpu for figure in figures) * (1 << 30) / nbytes
    return f"{name:16} {nbytes / MIB / seconds:8.0f} MiB/s {cpu:8.2f} CPU s/GiB"


def main() -> None:
    """Measure, and print a line for each way."""
    data = summaries(int(sys.argv[1] if len(sys.argv) > 1 else 1024) * MIB)
    posts: list[Figure] = []
    uploads: list[Figure] = []
    peers: list[Figure] = []
    python = os.environ.get("THALWEG_TUS_PYTHON")
    with ExitStack() as stack:
        peer = stack.enter_context(storing(python)) if python else None
        place = stack.enter_context(tempfile.TemporaryDirectory())
        service = Service(Path(place))
        try:
            up = Uploader(service, reports=["melt", "qelt", "selt", "events"], options=QUANTILES)
            for _ in range(ROUNDS):
                posts.append(send(service, "POST", "/v1/losses/melt?format=bin", [], data))
                address = up.create(len(data))
                fields = [*BYTES.items(), ("Upload-Offset", "0")]
                uploads.append(send(service, "PATCH", address, fields, data))
                up.ask("DELETE", address, **TUS)
                if peer is not None:
                    peers.append(store_at(peer, data))
            assert service.stop() == 0
        finally:
            service.kill()
    print(shown("post (melt)", posts, len(data)))
    print(shown("durable upload", uploads, len(data)))
    if peers:
        print(shown("tuspyserver", peers, len(data)))
        ratio = min(f.seconds for f in peers) / min(f.seconds for f in uploads)
        print(f"upload ÷ tuspyserver: {ratio:.2f} of the speed")
    ratio = min(f.seconds for f in posts) / min(f.seconds for f in uploads)
    print(f"upload ÷ post: {ratio:.2f} of the speed")


if __name__ == "__main__":
    main()
