"""What the tests against the real service share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import app.client
from tests.fault_proxy import GOOD, Cut, FaultProxy, Faults, How, Way
from tests.server_process import ServerProcess

ROOT = Path(app.client.__file__).parents[2]


def cutting(
    server: ServerProcess,
    seed: int,
    cuts: int,
    limit: int,
    ways: Sequence[Way] = ("up", "down"),
) -> FaultProxy:
    """A proxy that cuts the first connections.

    Args:
        server: behind it.
        seed: of the places.
        cuts: connections that are cut.
        limit: bytes of a connection, before which it is cut.
        ways: whose bytes are counted, of one connection after the other.
    """
    rng = np.random.default_rng(seed)
    places = [int(n) for n in rng.integers(0, limit, cuts)]

    def plan(number: int) -> Faults:
        if number >= cuts:
            return GOOD
        how: How = "close" if number // 2 % 2 else "reset"
        return Faults(cut=Cut(ways[number % len(ways)], places[number], how))

    return FaultProxy([server.port], plan, seed)
