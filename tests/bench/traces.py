"""CPU time that traces add to posts: ``python -m tests.bench.traces``.

Three servers take the same posts in turn, one of which traces all of them; how much the other two
differ is what the figure is worth. CPU time is what the
scheduler counted for each of their threads, not the time that passed: other work on the machine
adds to it, but to both. So it is the tenth of the posts that took least that is compared, of the
threads that work for most posts; what others do, such as the one that sends spans, counts as the
mean of all posts.
"""

from __future__ import annotations

import http.client
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from tests.e2e.service import Service
from tests.server_process import children_of
from tests.streams import random_stream
from tests.trace_sink import Sink

POSTS = ((20, 2000), (70, 1500), (200, 800), (1200, 200))
"""Events of a stream, and how often it is posted."""
WARM = 50
RARELY = 0.2
"""Part of the posts that a thread works for at most, which works for none of them itself."""


def usage(server: Service) -> Counter[str]:
    """CPU microseconds of each thread of a server so far."""
    found = Counter[str]()
    for process in (server.pid, *children_of(server.pid)):
        for thread in Path(f"/proc/{process}/task").iterdir():
            found[thread.name] = int((thread / "schedstat").read_text().split()[0]) // 1000
    return found


class Poster:
    """Posts to a server, and what each of them took there, by thread."""

    def __init__(self, server: Service) -> None:
        self.server = server
        self.took: list[Counter[str]] = []
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def post(self, body: bytes) -> None:
        before = usage(self.server)
        self._connection.request("POST", "/v1/losses/melt", body)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 200
        self.took.append(usage(self.server) - before)

    def microseconds(self) -> tuple[float, float]:
        """CPU time of a post, and of what is done beside, on average."""
        took, self.took = self.took[WARM:], []
        often = Counter(thread for each in took for thread in each)
        own = {thread for thread, count in often.items() if count > RARELY * len(took)}
        each = [sum(used for thread, used in one.items() if thread in own) for one in took]
        beside = sum(one.total() for one in took) - sum(each)
        return float(np.percentile(each, 10)), beside / len(took)


def main() -> None:
    sink = Sink()
    with tempfile.TemporaryDirectory() as name:
        settings = {"plain": {}, "traced": {"traces": sink.url}, "again": {}}
        servers = [Service(Path(name) / each, **settings[each]) for each in settings]
        try:
            posters = [Poster(server) for server in servers]
            for events, count in POSTS:
                body = random_stream(np.random.default_rng(0), events=events).encode()
                for k in range(WARM + count):
                    for poster in posters[:: 1 if k % 2 else -1]:
                        poster.post(body)
                plain, traced, again = (np.array(each.microseconds()) for each in posters)
                before, beside = (plain + again) / 2
                added, sent = traced - (before, beside)
                print(
                    f"{len(body) / 1000:6.0f} kB: {before:6.0f} us, traced {added:+5.0f} us, and"
                    f" {sent:+4.0f} us to send: {(added + sent) / before:+.1%}"
                    f" (the others: {again[0] / plain[0] - 1:+.1%})",
                    flush=True,
                )
        finally:
            for server in servers:
                server.kill()
            sink.close()


if __name__ == "__main__":
    main()
