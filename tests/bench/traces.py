"""CPU time that traces add to posts: ``python -m tests.bench.traces``.

One server takes the same posts, some as if it had no traces, twice, and others whose
``traceparent`` says that they are not recorded, or that they are; each round in an order drawn
anew. Two servers that are the same differ by more than traces cost, and so do two places in a fixed
order: whatever is posted twice in a row finds its caches warm.

CPU time is what the scheduler counted for each thread, not the time that passed: other work on the
machine adds to it, but to all. So it is the part of the posts that took least that is compared, of
the threads that work for most posts. What the thread takes that sends spans is shared by the posts
that were recorded.
"""

from __future__ import annotations

import http.client
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.command.main import main as command
from app.settings import Settings
from app.tracing import NO_TRACE, Trace, Tracing
from tests.e2e.service import Service
from tests.server_process import children_of
from tests.streams import random_stream
from tests.trace_sink import Sink

POSTS = ((20, 600), (70, 500), (250, 400), (1200, 150))
"""Events of a stream, and how often it is posted in each way."""
WARM = 50
LEAST = 0.25
"""Part of the posts that is compared."""
SENT_SECONDS = 7
"""Time until what is recorded has been sent."""
RARELY = 0.2
"""Part of the posts that a thread works for at most, which works for none of them itself."""
FIRST, OFF = "first", "off"
TOLD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
WAYS = ((OFF, 1), (OFF, 2), (f"{TOLD}0", 1), (f"{TOLD}1", 1))
"""Values of ``traceparent``."""


def serve(arguments: Sequence[str]) -> int:
    """Run the command; it has no traces for requests that say so, and tells which thread sends."""
    begin = Tracing.begin

    def begin_some(
        tracing: Tracing, name: str, header: str | None = None, *, served: bool = False
    ) -> Trace:
        if header == OFF:
            return NO_TRACE
        if header == FIRST:
            (sender,) = (t for t in threading.enumerate() if t.name.startswith("OtelBatch"))
            Path("sender").write_text(f"{os.getpid()}/task/{sender.native_id}")
        return begin(tracing, name, header, served=served)

    Tracing.begin = begin_some  # type: ignore[assignment, method-assign]
    return command(arguments)


class Traced(Service):
    """A server whose requests are traced if they say so."""

    command = staticmethod(serve)


def used(thread: Path) -> int:
    """CPU microseconds of a thread so far."""
    return int((thread / "schedstat").read_text().split()[0]) // 1000


def usage(server: Service) -> Counter[str]:
    """CPU microseconds of each thread of a server so far."""
    processes = (server.pid, *children_of(server.pid))
    threads = (thread for pid in processes for thread in Path(f"/proc/{pid}/task").iterdir())
    return Counter({thread.name: used(thread) for thread in threads})


def connect(server: Service) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)


def post(connection: http.client.HTTPConnection, body: bytes, told: str) -> None:
    connection.request("POST", "/v1/losses/melt", body, {"traceparent": told})
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200


def measure(server: Service, body: bytes, count: int) -> list[float]:
    """Return CPU microseconds of a post in each way."""
    connection = connect(server)
    took: dict[tuple[str, int], list[Counter[str]]] = {way: [] for way in WAYS}
    rng = np.random.default_rng()
    for _ in range(WARM + count):
        for k in rng.permutation(len(WAYS)):
            before = usage(server)
            post(connection, body, WAYS[k][0])
            took[WAYS[k]].append(usage(server) - before)
    often = Counter(thread for posts in took.values() for each in posts for thread in each)
    most = RARELY * len(WAYS) * (WARM + count)
    own = {thread for thread, times in often.items() if times > most}
    found: list[float] = []
    for posts in took.values():
        each = sorted(sum(one[thread] for thread in own) for one in posts[WARM:])
        found.append(float(np.mean(each[: int(len(each) * LEAST)])))
    return found


def main() -> None:
    share = float(Settings.model_fields["traces_sample"].default)
    sink = Sink()
    with tempfile.TemporaryDirectory() as name:
        server = Traced(Path(name), traces=sink.url)
        try:
            body = random_stream(np.random.default_rng(0), events=5).encode()
            post(connect(server), body, FIRST)
            time.sleep(SENT_SECONDS)
            sender = Path("/proc") / (Path(name) / "sender").read_text()
            for events, count in POSTS:
                body = random_stream(np.random.default_rng(0), events=events).encode()
                before, spans = used(sender), len(sink.spans)
                off, again, told, recorded = measure(server, body, count)
                time.sleep(SENT_SECONDS)
                sent = (used(sender) - before) / (WARM + count)
                spans = len(sink.spans) - spans
                off, noise = (off + again) / 2, again - off
                cost, idle = recorded - told + sent, told - off
                print(
                    f"{len(body) / 1000:6.0f} kB: {off:6.0f} us (again {noise:+.0f}), not recorded"
                    f" {idle:+.0f}, recorded {recorded - told:+.0f}, {spans / (WARM + count):.1f}"
                    f" spans sent {sent:+.0f}: {(idle + cost) / off:+.1%} if all are recorded,"
                    f" {(idle + share * cost) / off:+.1%} at the default of {share:g}",
                    flush=True,
                )
        finally:
            server.kill()
            sink.close()


if __name__ == "__main__":
    main()
