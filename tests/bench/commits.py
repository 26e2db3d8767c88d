"""Uploads to a store that takes long for each commit, as object stores do.

    python -m tests.bench.commits [MIB]

For 0, 60 and 600 ms more for each commit: MiB/s of one stream, the best of some rounds that
alternate, as a part of the undelayed; and how long after it was sent a byte of a stream of 16 MiB/s
is acknowledged.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import app.state.blob_pieces
from app.command.main import main as serve
from tests.app.harness import Answer, Service, head
from tests.app.runs.requests import BYTES, TUS, Uploader
from tests.bench.uploads import MIB, send, summaries

DELAYS = (0.0, 0.06, 0.6)
ROUNDS = 3
_VARIABLE = "BENCH_COMMIT_SECONDS"
_RATE = 16 * MIB
_STEP = 0.02
"""Seconds between two pieces of a paced stream, and between two looks at it."""


def serve_slowly(arguments: Sequence[str]) -> int:
    """The service, with a store that waits before it says that bytes are durable."""
    seconds = float(os.environ[_VARIABLE])
    commit = app.state.blob_pieces.FileBlobWriter.commit

    def slow(self: app.state.blob_pieces.FileBlobWriter) -> int:
        size = commit(self)
        time.sleep(seconds)
        return size

    app.state.blob_pieces.FileBlobWriter.commit = slow  # type: ignore[method-assign]
    return serve(arguments)


class SlowService(Service):
    """A server whose commits take longer."""

    command = staticmethod(serve_slowly)

    def __init__(self, directory: Path, seconds: float) -> None:
        os.environ[_VARIABLE] = str(seconds)
        super().__init__(directory)


def latencies(up: Uploader, data: bytes) -> list[float]:
    """Seconds from when bytes of a paced upload were sent to when they were acknowledged."""
    address = up.create(len(data))
    ident = address.rpartition("/")[2]
    piece = int(_RATE * _STEP)
    sent: list[float] = []

    def send_paced() -> None:
        fields = [*BYTES.items(), ("Upload-Offset", "0"), ("Content-Length", str(len(data)))]
        with up.service.connect(600) as client:
            client.sendall(head("PATCH", address, fields))
            for start in range(0, len(data), piece):
                sent.append(time.monotonic())
                client.sendall(data[start : start + piece])
                time.sleep(_STEP)
            assert Answer(client, "PATCH").status == 204

    thread = threading.Thread(target=send_paced)
    thread.start()
    found: list[float] = []
    known = 0
    while known < len(data):
        time.sleep(_STEP)
        (offset,) = (s["offset"] for s in up.streams() if s["id"] == ident)
        now = time.monotonic()
        found += [now - sent[at // piece] for at in range(known, offset, piece)]
        known = offset
    thread.join()
    up.ask("DELETE", address, **TUS)
    return sorted(found)


def main() -> None:
    """Measure, and print a line for each delay."""
    data = summaries(int(sys.argv[1] if len(sys.argv) > 1 else 1024) * MIB)
    paced = data[: len(summaries(5 * _RATE))]
    seconds: dict[float, list[float]] = {delay: [] for delay in DELAYS}
    with ExitStack() as stack:
        ups = {}
        for delay in DELAYS:
            place = stack.enter_context(tempfile.TemporaryDirectory())
            service = SlowService(Path(place), delay)
            stack.callback(service.kill)
            ups[delay] = Uploader(service)
        for _ in range(ROUNDS):
            for delay, up in ups.items():
                address = up.create(len(data))
                fields = [*BYTES.items(), ("Upload-Offset", "0")]
                seconds[delay].append(send(up.service, "PATCH", address, fields, data).seconds)
                up.ask("DELETE", address, **TUS)
        best = {delay: min(found) for delay, found in seconds.items()}
        for delay, up in ups.items():
            acknowledged = latencies(up, paced)
            print(
                f"{delay * 1000:4.0f} ms a commit: {len(data) / MIB / best[delay]:6.0f} MiB/s,"
                f" {best[0.0] / best[delay]:.2f} of undelayed; acknowledged after"
                f" {median(acknowledged) * 1000:.0f} ms, {acknowledged[-1] * 1000:.0f} at most",
                flush=True,
            )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
