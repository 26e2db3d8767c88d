"""A Dask scheduler and workers in processes of their own, on loopback."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from distributed import Client

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


class DaskProcesses:
    """A scheduler, and the command ``worker``.

    Args:
        directory: for logs and what workers keep beside them.
        settings: variables of the workers, without their prefix and in lower case.
    """

    def __init__(self, directory: Path, **settings: object) -> None:
        self.directory = directory
        self.address = f"tcp://127.0.0.1:{free_port()}"
        inherited = {n: v for n, v in os.environ.items() if not n.startswith("THALWEG_")}
        given = {f"THALWEG_{name.upper()}": str(value) for name, value in settings.items()}
        # A poisoned task takes as many workers as it may, and each takes seconds to start.
        given["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = "1"
        self._environment = inherited | given | {"PYTHONPATH": str(ROOT)}
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
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
