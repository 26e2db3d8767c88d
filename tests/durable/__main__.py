"""Durable runs on a server that is killed, over connections that are cut.

``python -m tests.durable --kills 100 --cuts 1000`` starts a server with two workers and uploads
runs of several partitions with three clients, while the server is killed (-9) and connections
are cut at random instants, until there were as many of both as asked for. Every run is followed
and sealed. Its rows and reports must be those of the first run, which nothing disturbs.

``--peer PYTHON`` names an interpreter with tuspyserver: the same loop runs on that, and what it
has stored at the end is compared with what was sent. Prints what was seen; the exit code is 1 if
a run of ours differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.durable.faults import Faults
from tests.durable.ours import OurLoop
from tests.durable.peer import PeerLoop


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--mib", type=float, default=6.0, help="of a partition")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with tuspyserver")
    parser.add_argument("--only-peer", action="store_true")
    args = parser.parse_args()
    right = True
    with tempfile.TemporaryDirectory() as name:
        if not args.only_peer:
            loop = OurLoop(Path(name) / "ours", args.partitions, args.mib, args.seed)
            right = loop.run(Faults(args.kills, args.cuts, args.seed))
        if args.peer:
            peer = PeerLoop(Path(name) / "peer", args.peer, args.partitions, args.mib)
            peer.run(Faults(args.kills, args.cuts, args.seed))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
