"""A server to be left, and the moments at which it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cancellation.kinds import Kind, Place
from tests.cancellation.leaving import Rest, leave, run
from tests.e2e.service import Service

BOUND = 0.15
"""CPU seconds that a thread may use for a client that has left."""
LONGEST = 20.0
"""Seconds within which all moments lie, however long the work takes."""


class Worst(NamedTuple):
    """The moment after which most was computed."""

    rest: Rest
    at: float
    """Seconds after the beginning of the request."""
    takes: float
    """Seconds that the whole work takes; at most ``LONGEST``."""


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[Place]:
    """A server that ends no work by itself."""
    root = directory / "root"
    root.mkdir(parents=True)
    endless = {"request_cpu_seconds": 3600, "request_items": 1 << 60}
    server = Service(directory, "--threads=2", dataset_roots=root, **endless)
    try:
        yield Place(server, root)
        assert server.stop() == 0
        assert not server.failures()
    finally:
        server.kill()


def measure(place: Place, kind: Kind, part: float = 1.0, moments: int = 20) -> Worst:
    """Leave work at uniform moments; the worst of them.

    Args:
        place: has the server.
        kind: of the work.
        part: of its largest size.
        moments: how many.
    """
    work = kind(place, part)
    takes = run(place.server, work, LONGEST)
    found = []
    for k in range(moments):
        at = (k + 0.5) / moments * takes
        found.append(Worst(leave(place.server, work, at, reset=k % 2 == 0), at, takes))
    return max(found, key=lambda worst: worst.rest.seconds)
