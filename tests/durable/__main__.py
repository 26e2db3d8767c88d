"""Durable runs on a server that is killed, over connections that are cut.

``python -m tests.durable --kills 100 --cuts 1000`` starts a server with two workers and uploads
runs of several partitions with three clients, while the server is killed (-9) and connections
are cut at random instants, until there were as many of both as asked for. Every run is followed
and sealed. Its rows and reports must be those of the first run, which nothing disturbs. One of
the clients is a process, ``thalweg run upload``, which is killed too and begins again from its
state files. With ``--lanes`` one process of a lane is killed instead, after 0.05 to 5 seconds each
time, and answers to reads of every kind are compared beside. With
``--replicas 3`` there are three nodes, which share a database and an object store: each connection
goes to any of them, and nodes and stores are killed; with ``--beside CHECKOUT`` one of them runs
another revision, and whoever is restarted in an orderly way changes to the other one. An interrupt
(^C) prints what was seen by then.

``--peer PYTHON`` names an interpreter with tuspyserver: the same loop runs on that, and what it
has stored at the end is compared with what was sent. Prints what was seen; the exit code is 1 if
a run of ours differs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.durable.faults import Faults
from tests.durable.ours import OurLoop
from tests.durable.peer import PeerLoop
from tests.object_server import environment_python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--mib", type=float, default=6.0, help="of a partition")
    parser.add_argument("--lanes", action="store_true", help="kill single processes of lanes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, help="nodes, which share Postgres and S3")
    parser.add_argument(
        "--beside", type=Path, metavar="CHECKOUT", help="of another revision, which nodes run too"
    )
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with tuspyserver")
    parser.add_argument("--only-peer", action="store_true")
    args = parser.parse_args()
    right = True
    with tempfile.TemporaryDirectory() as name:
        if not args.only_peer:
            loop = _loop(args, Path(name) / "ours")
            loop.kills_lanes = args.lanes
            _report_at_interrupt(loop, Path(name))
            right = loop.run(Faults(args.kills, args.cuts, args.seed))
        if args.peer:
            peer = PeerLoop(Path(name) / "peer", args.peer, args.partitions, args.mib)
            peer.run(Faults(args.kills, args.cuts, args.seed))
    return 0 if right else 1


def _loop(args: argparse.Namespace, directory: Path) -> OurLoop:
    if args.replicas is None:
        return OurLoop(directory, args.partitions, args.mib, args.seed)
    # Others need neither library.
    from tests.durable.replicas import ReplicaLoop

    objects = environment_python()
    if objects is None:
        raise SystemExit("THALWEG_OBJECTS_PYTHON must name an interpreter with object stores")
    return ReplicaLoop(
        directory,
        args.partitions,
        args.mib,
        args.seed,
        replicas=args.replicas,
        objects=objects,
        other=args.beside,
    )


def _report_at_interrupt(loop: OurLoop, directory: Path) -> None:
    def stop(_number: int, _frame: object) -> None:
        print(f"interrupted; {loop.describe()}", flush=True)
        loop.kill()
        shutil.rmtree(directory, ignore_errors=True)
        # Its threads wait for a server that does not come back.
        os._exit(int(loop.wrong > 0))

    signal.signal(signal.SIGINT, stop)


if __name__ == "__main__":
    sys.exit(main())
