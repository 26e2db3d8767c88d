"""Tasks that wait, fail and die, and the command ``worker`` that can do them, too."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from app import tasks
from app.command import worker
from app.engine.base import Kind, Registry
from app.errors import StorageFullError
from core.budget import current
from core.errors import CancelledError

KINDS = {"test": Kind("1", "tests.dask_tasks:act")}
REGISTRY: Registry = {**tasks.REGISTRY, **KINDS}
PROGRAM = (sys.executable, "-m", "tests.dask_tasks")


@dataclass(frozen=True)
class Acts:
    """Units of work that leave a file each, by name; what they do is in it."""

    directory: Path
    acts: Mapping[str, str]
    nbytes: int = 1 << 20
    kind: str = "test"

    def label(self, unit: str) -> str:
        return f"the unit {unit}"

    def task(self, unit: str) -> dict[str, Any]:
        return {"path": str(self.directory / unit), "act": self.acts[unit]}

    def is_done(self, unit: str) -> bool:
        return (self.directory / unit).exists()

    def starts(self, unit: str) -> list[int]:
        """The processes that have begun a unit."""
        found = self.directory.glob(f"{unit}.started.*")
        return [int(path.read_text() or 0) for path in found]


def act(task: Mapping[str, Any]) -> None:
    path = Path(task["path"])
    if path.exists():
        # Dask begins what a worker had done again when it dies, to have its answer.
        return
    path.with_name(f"{path.name}.started.{token_hex(4)}").write_text(str(os.getpid()))
    match task["act"]:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            raise StorageFullError("the disk of the worker is full")
        case "fault":
            raise TypeError("a fault of ours")
        case "eat":
            _eat(path)
        case "wait":
            _wait(path)
        case "seconds":
            time.sleep(float(task["seconds"]))
    path.touch()


def _eat(path: Path) -> None:
    """Take memory until somebody ends this process."""
    eaten, end = [], time.monotonic() + 60
    while time.monotonic() < end and not (path.parent / "go").exists():
        eaten.append(b"1" * (32 << 20))
        # The nanny looks ten times in a second.
        time.sleep(0.05)


def _wait(path: Path) -> None:
    """Wait until the test says go."""
    end = time.monotonic() + 60
    while not (path.parent / "go").exists() and time.monotonic() < end:
        try:
            current().check("test")
        except CancelledError:
            path.with_name(f"{path.name}.cancelled").touch()
            raise
        time.sleep(0.01)


WORKERS = "TEST_DASK_WORKERS"
"""Variable with the number of workers that a process starts."""
FORKING = {"DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver"}
"""Variables with which a worker that is killed is replaced in a moment."""


def main() -> int:
    from distributed import utils

    from app.command.main import main as command

    # Dask would name what it wants itself.
    utils._forkserver_preload_set = True
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["app.command.dask_worker", "app.command.worker"])
    serve = worker._serve

    async def serve_all(*args: Any) -> None:  # noqa: ANN401 - as of the command
        count = int(os.environ.get(WORKERS, "1"))
        serving = [asyncio.ensure_future(serve(*args)) for _ in range(count)]
        # Only the last has the signals.
        await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)

    vars(worker).update(PRELOAD="tests.dask_tasks", REGISTRY=REGISTRY, _serve=serve_all)
    return command()


async def dask_setup(dask_worker: Any) -> None:  # noqa: ANN401 - a Worker of distributed
    """As of the command, with the tasks of this module."""
    from app.command import dask_worker as module

    # Kernels are loaded when they are used: a process that is killed here has used none.
    vars(module).update(REGISTRY=REGISTRY, load_kernels=lambda: None)
    await module.dask_setup(dask_worker)


if __name__ == "__main__":
    sys.exit(main())
