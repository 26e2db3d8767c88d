"""A Dask scheduler and workers in processes of their own, on loopback."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from distributed import Client, LocalCluster

from app.engine.base import Registry, resource_of
from app.engine.cluster import MEMORY, PLUGIN, DaskCluster
from app.settings import Settings
from core.errors import CancelledError
from tests.dask_tasks import Acts
from tests.server_process import PROGRAM, ROOT

_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def until(is_so: Callable[[], object], seconds: float = _SECONDS) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it does not become so"
        time.sleep(0.02)


class Spreading:
    """Units that are spread in a thread.

    Args:
        cluster: does them.
        work: all of them.
        first: how many are done before the others are submitted, as Dask may begin those of one
            moment in any order.
    """

    def __init__(self, cluster: DaskCluster, work: Acts, first: int = 0) -> None:
        self.done: list[str] = []
        self.error: Exception | None = None
        self.gone = threading.Event()
        self._cluster, self._work, self._begin = cluster, work, first
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        def check() -> None:
            if self.gone.is_set():
                raise CancelledError("nobody waits")

        try:
            for unit in self._cluster.spread(self._work, self._units(), check):
                self.done.append(unit)
        except Exception as e:  # noqa: BLE001 - which the test looks at
            self.error = e

    def _units(self) -> Iterator[str]:
        units = list(self._work.acts)
        yield from units[: self._begin]
        until(lambda: all(self._work.is_done(unit) for unit in units[: self._begin]))
        yield from units[self._begin :]

    def end(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Have Dask log nothing: the stream that it found when it was imported may be closed."""
    with pytest.MonkeyPatch.context() as patch:
        logger = logging.getLogger("distributed")
        patch.setattr(logger, "handlers", [logging.NullHandler()])
        patch.setattr(logger, "propagate", False)
        yield


@contextlib.contextmanager
def threads_of_dask(registry: Registry, **options: Any) -> Iterator[LocalCluster]:  # noqa: ANN401
    """A scheduler and two workers in threads of this process, which do the tasks of a registry.

    Args:
        registry: all tasks.
        options: of LocalCluster.
    """
    from app.command import dask_worker

    resources = {MEMORY: 1 << 30, resource_of(registry): 2, "store-here": 2}
    options = {
        "protocol": "tcp://",
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
    } | options
    with (
        pytest.MonkeyPatch.context() as patch,
        _quiet(),
        LocalCluster(
            n_workers=2, threads_per_worker=2, processes=False, resources=resources, **options
        ) as cluster,
    ):
        patch.setattr(dask_worker, "REGISTRY", registry)
        for worker in cluster.workers.values():
            cluster.sync(worker.plugin_add, dask_worker.Tasks(Settings()), name=PLUGIN)
        yield cluster


class DaskProcesses:
    """A scheduler, and the command ``worker``.

    Args:
        directory: for logs and what workers keep beside them.
        variables: of the workers.
        settings: further ones, without their prefix and in lower case.
    """

    def __init__(
        self, directory: Path, variables: Mapping[str, str] | None = None, **settings: object
    ) -> None:
        self.directory = directory
        self.address = f"tcp://127.0.0.1:{free_port()}"
        inherited = {n: v for n, v in os.environ.items() if not n.startswith("THALWEG_")}
        given = {f"THALWEG_{name.upper()}": str(value) for name, value in settings.items()}
        # A poisoned task takes as many workers as it may, and each takes seconds to start.
        given["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = "1"
        given["PYTHONPATH"] = str(ROOT)
        self._environment = inherited | given | dict(variables or {})
        self._log = (directory / "dask.log").open("ab")
        self.processes: list[subprocess.Popen[bytes]] = []
        self.scheduler = self.start_scheduler()

    @property
    def engine(self) -> str:
        """As in THALWEG_ENGINE."""
        return f"dask:{self.address}"

    @property
    def log(self) -> str:
        """What all have logged."""
        return (self.directory / "dask.log").read_text()

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        port = self.address.rpartition(":")[2]
        options = ["--host", "127.0.0.1", "--port", port, "--no-dashboard", "--no-show"]
        self.scheduler = self._start(
            [sys.executable, "-m", "distributed.cli.dask_scheduler"], *options
        )
        return self.scheduler

    def start_worker(self, *program: str, **more: object) -> subprocess.Popen[bytes]:
        """Start the command ``worker``, by default as users run it."""
        given = {f"THALWEG_{name.upper()}": str(value) for name, value in more.items()}
        options = ["worker", "--scheduler", self.address, "--host", "127.0.0.1"]
        return self._start(list(program or PROGRAM), *options, **given)

    def _start(self, program: list[str], *options: str, **given: str) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(
            [*program, *options],
            env=self._environment | given | {"DASK_TEMPORARY_DIRECTORY": str(self.directory)},
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        self.processes.append(started)
        return started

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        with Client(self.address, set_as_default=False, timeout=20) as client:
            yield client

    def wait_for_workers(self, count: int) -> None:
        with self.client() as client:
            until(lambda: len(client.scheduler_info()["workers"]) == count)

    def close(self) -> None:
        # What they have started ends with them.
        for process in reversed(self.processes):
            process.kill()
        for process in reversed(self.processes):
            process.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
