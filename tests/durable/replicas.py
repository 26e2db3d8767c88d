"""The loop on several nodes of one service: any of them answers any request, and any may die.

Nodes die at random instants, and at two that matter most: an append writes its bytes to the object
store, then commits the head of its stream in the database::

    object written ──▶ commit waits ──────▶ committed ──────▶ reply
                         │                    │
                         killed: the object   killed: the bytes are stored,
                         is nobody's          and the client does not know

For these the loop locks the heads of all streams, waits until a node waits for them and objects
have been added since, and kills the node. Then it ends the commits that wait, or lets them through.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import obstore
import psycopg

from tests.durable.faults import Faults
from tests.durable.ours import OurLoop
from tests.e2e.service import KEY
from tests.object_server import ObjectServer, running_objects
from tests.postgres_server import PostgresServer, running_server
from tests.server_process import ROOT, ServerProcess, children_of

_LEASE_SECONDS = 17.0
"""A little more than jobs wait for a worker that gives no sign of life."""
_PATIENCE, _LOCKED = 30.0, 3.0
"""Seconds to wait for a commit, and with the same lock. Nodes wait ten for one."""
_LOCK = "SELECT id FROM thalweg_head WHERE kind = 'stream' FOR UPDATE"
_WAITING = """
SELECT pid, usename FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND usename LIKE 'node%'
"""


class ReplicaLoop(OurLoop):
    """Uploads, follows and seals runs through several nodes, which are killed, as are their stores.

    Args:
        directory: for the nodes' data and the files to upload.
        partitions: of each run.
        mib: of each partition.
        seed: of the instants of faults.
        replicas: number of nodes.
        objects: interpreter of an environment with object stores.
        other: checkout of another revision, which the first node runs, and others after a restart.
    """

    def __init__(
        self,
        directory: Path,
        partitions: int,
        mib: float,
        seed: int,
        *,
        replicas: int,
        objects: Path,
        other: Path | None = None,
    ) -> None:
        self._replicas = replicas
        self._other = other
        self._kills: Counter[str] = Counter()
        self._stack = contextlib.ExitStack()
        self._database: PostgresServer = self._stack.enter_context(running_server())
        self._objects: ObjectServer = self._stack.enter_context(
            running_objects("seaweedfs", objects)
        )
        super().__init__(directory, partitions, mib, seed)

    def _start_servers(self) -> list[ServerProcess]:
        self._state = self._database.new_database()
        # Servers inherit it.
        os.environ.update(self._objects.environment)
        return [self._start_server(f"node{number}") for number in range(self._replicas)]

    def _start_server(self, name: str) -> ServerProcess:
        # A role of its own, by which the database tells whose commits wait.
        self._database.execute(f"CREATE ROLE {name} SUPERUSER LOGIN")
        server = ServerProcess(
            self._directory / name,
            "--workers=2",
            token_keys=KEY,
            dataset_roots=self._directory / "root",
            state=f"{self._state}&user={name}",
            blobs="s3://tests/durable",
        )
        if self._other is not None and name == "node0":
            self._renew(server)
        return server

    def _renew(self, server: ServerProcess) -> None:
        """Restart a node; where there is another revision, with the one that it did not run."""
        server.stop()
        if self._other is not None:
            server.run_from(self._other if server.root == ROOT else ROOT)
        server.start()

    def _restart(self) -> None:
        """Have one of the faults, in turn: of twelve eight kill, four of them before a commit."""
        faults: tuple[Callable[[], str], ...] = (
            self._kill_any,
            lambda: self._kill_at_commit(lost=True),
            self._stop_any,
            lambda: self._kill_at_commit(lost=False),
            lambda: self._kill_at_commit(lost=True),
            self._restart_objects,
            lambda: self._kill_at_commit(lost=True),
            self._kill_any,
            lambda: self._kill_at_commit(lost=False),
            self._restart_database,
            lambda: self._kill_at_commit(lost=True),
            self._freeze_any,
        )
        self._kills[faults[self._kills.total() % len(faults)]()] += 1

    def _kill_any(self) -> str:
        super()._restart()
        return "at random"

    def _stop_any(self) -> str:
        self._renew(self._draw.choice(self._servers))
        return "stopped, as in a rolling restart"

    def _freeze_any(self) -> str:
        """Have a node sleep until others have its jobs, and wake to leases that it lost."""
        server = self._draw.choice(self._servers)
        pids = [server.process.pid, *server.worker_pids()]
        pids += [child for pid in server.worker_pids() for child in children_of(pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(_LEASE_SECONDS)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        return "frozen beyond its leases"

    def _restart_objects(self) -> str:
        self._objects.kill()
        self._objects.start()
        return "of the object store"

    def _restart_database(self) -> str:
        self._database.stop("immediate")
        self._database.start()
        return "of the database"

    def _kill_at_commit(self, *, lost: bool) -> str:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            # Streams that are created meanwhile are locked the next time.
            with psycopg.connect(self._state) as connection:
                connection.execute(_LOCK)
                pids, server = self._wait_for_commit(connection, self._count_objects())
                if server is None:
                    connection.rollback()
                    continue
                server.kill()
                if lost:
                    for pid in pids:
                        connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
            server.start()
            return "between object and commit" if lost else "between commit and reply"
        return self._kill_any()

    def _wait_for_commit(
        self, connection: psycopg.Connection, objects: int
    ) -> tuple[list[int], ServerProcess | None]:
        """Wait until a node that has written an object waits to commit a head."""
        end = time.monotonic() + _LOCKED
        while time.monotonic() < end:
            waiting = connection.execute(_WAITING).fetchall()
            if waiting and self._count_objects() > objects:
                name = self._draw.choice(waiting)[1]
                server = self._servers[int(name.removeprefix("node"))]
                return [pid for pid, whose in waiting if whose == name], server
            time.sleep(0.01)
        return [], None

    def _count_objects(self) -> int:
        return sum(len(batch) for batch in obstore.list(self._objects.bucket("durable")))

    def describe(self) -> str:
        """See OurLoop."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self._kills.items())
        return f"{super().describe()}; kills: {kinds or 'none'}"

    def run(self, faults: Faults) -> bool:
        """See OurLoop."""
        with self._stack:
            return super().run(faults)
