"""A server in which some runs kill the process that computes them, and deaths come often.

The directory of this file's copy is on the path of the server's processes, all of which import
it when they start.
"""

from __future__ import annotations

import os
import signal
import time
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

POISON = 0.666
"""Quantile of a run that is poisoned."""
SECONDS = 0.3
"""Time that any other run takes at least, so that kills meet it."""


def _poison(module: Any) -> None:  # noqa: ANN401 - a module
    run = module.SealingWork.run

    def poisoned(work: Any) -> None:  # noqa: ANN401 - SealingWork
        if POISON in (work._run.spec["options"].get("quantiles") or ()):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(SECONDS)
        run(work)

    module.SealingWork.run = poisoned


def _hurry(module: Any) -> None:  # noqa: ANN401 - a module
    module._LASTING = 0.0


_CHANGES = {"app.runs.sealing.work": _poison, "app.server.supervisor": _hurry}
_exec_module = SourceFileLoader.exec_module


def _changed(loader: SourceFileLoader, module: ModuleType) -> None:
    _exec_module(loader, module)
    change = _CHANGES.get(module.__name__)
    if change is not None:
        change(module)


if __name__ == "sitecustomize":
    SourceFileLoader.exec_module = _changed  # type: ignore[assignment, method-assign]
