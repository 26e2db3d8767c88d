"""A server to be left, and the moments at which it is."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.cancellation.leaving import Rest, Work, leave, run
from tests.cancellation.place import Kind, Place
from tests.dask_cluster import DaskProcesses
from tests.e2e.service import Service

BOUND = 0.15
"""CPU seconds that a thread may use for a client that has left."""
LONGEST = 20.0
"""Seconds within which all moments lie, however long the work takes."""


class Found(NamedTuple):
    """What was computed after each of the moments."""

    rests: Sequence[tuple[Rest, float]]
    """Each with the seconds after the beginning of the request."""
    takes: float
    """Seconds that the whole work takes, or within which all moments lie."""
    ended: bool
    """Whether it ends by itself within these."""

    @property
    def worst(self) -> tuple[Rest, float]:
        """The moment after which most was computed."""
        return max(self.rests)

    @property
    def median(self) -> float:
        """CPU seconds after half of the moments at most."""
        return statistics.median(rest.seconds for rest, _ in self.rests)


@contextlib.contextmanager
def serving(directory: Path, *, on_cluster: bool = False) -> Iterator[Place]:
    """A server that ends no work by itself.

    Args:
        directory: for all that it stores.
        on_cluster: whether a worker of a cluster reduces for it, which counts as well.
    """
    root = directory / "root"
    root.mkdir(parents=True)
    with contextlib.ExitStack() as undo:
        endless = {"request_cpu_seconds": 3600, "request_items": 1 << 60, "dataset_roots": root}
        if on_cluster:
            dask = undo.enter_context(
                DaskProcesses(directory, data_dir=directory / "data", dataset_roots=root)
            )
            endless |= {"engine": dask.engine, "shared_roots": root}
        server = Service(directory, "--threads=2", **endless)
        undo.callback(server.kill)
        if on_cluster:
            server.beside = [dask.start_worker().pid]
            dask.wait_for_workers(1)
        yield Place(server, root)
        assert server.stop() == 0
        assert not server.failures()


def measure(
    place: Place, kind: Kind, part: float = 1.0, moments: int = 20, longest: float = LONGEST
) -> Found:
    """Leave work at moments that are uniform over all of it.

    Args:
        place: has the server.
        kind: of the work.
        part: of its largest size.
        moments: how many.
        longest: seconds after which none of them lies.
    """
    prepared = kind.prepare(place, part)

    def work() -> Work:
        return prepared if isinstance(prepared, Work) else prepared()

    takes, ended = run(place.server, work(), longest)
    rests = []
    for k in range(moments):
        at = (k + 0.5) / moments * takes
        rests.append((leave(place.server, work(), at, reset=k % 2 == 0), at))
    return Found(rests, takes, ended)
