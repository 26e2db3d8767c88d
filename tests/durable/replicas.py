"""The loop on several nodes of one service: any of them answers any request, and any may die."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.durable.faults import Faults
from tests.durable.ours import OurLoop
from tests.e2e.service import KEY
from tests.object_server import ObjectServer, running_objects
from tests.postgres_server import PostgresServer, running_server
from tests.server_process import ServerProcess

_STORE_EVERY = 7
"""Of so many faults one is that a store restarts."""


class ReplicaLoop(OurLoop):
    """Uploads, follows and seals runs through several nodes, which are killed, as are their stores.

    Args:
        directory: for the nodes' data and the files to upload.
        partitions: of each run.
        mib: of each partition.
        seed: of the instants of faults.
        replicas: number of nodes.
        objects: interpreter of an environment with object stores.
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
    ) -> None:
        self._replicas = replicas
        self._kills = 0
        self._stack = contextlib.ExitStack()
        self._database: PostgresServer = self._stack.enter_context(running_server())
        self._objects: ObjectServer = self._stack.enter_context(
            running_objects("seaweedfs", objects)
        )
        super().__init__(directory, partitions, mib, seed)

    def _start_servers(self) -> list[ServerProcess]:
        state = self._database.new_database()
        # Servers inherit it.
        os.environ.update(self._objects.environment)
        return [
            ServerProcess(
                self._directory / f"node{number}",
                "--workers=2",
                token_keys=KEY,
                dataset_roots=self._directory / "root",
                state=state,
                blobs="s3://tests/durable",
            )
            for number in range(self._replicas)
        ]

    def _restart(self) -> None:
        self._kills += 1
        if self._kills % (2 * _STORE_EVERY) == 0:
            self._database.stop("immediate")
            self._database.start()
        elif self._kills % _STORE_EVERY == 0:
            self._objects.kill()
            self._objects.start()
        else:
            super()._restart()

    def run(self, faults: Faults) -> bool:
        """See OurLoop."""
        with self._stack:
            return super().run(faults)
