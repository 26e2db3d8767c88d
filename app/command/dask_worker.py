"""What makes a worker of Dask one of ours: its process loads this module when it starts."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import threading
import time
from importlib import import_module
from typing import Any

import structlog
from distributed import Worker, WorkerPlugin

from app.engine.cluster import PLUGIN, TRACE
from app.engine.request_budget import BudgetLimits, RequestBudget
from app.engine.warmup import load_kernels
from app.errors import ServiceError
from app.logs import configure_logging
from app.parts import Parts
from app.settings import Settings
from app.tasks import REGISTRY
from core.errors import CoreError

_ENDLESS = BudgetLimits(sys.maxsize, math.inf, sys.maxsize)
"""What a task needs is declared, and a resource of the worker."""
_PASSING = CoreError, ServiceError, OSError, MemoryError, ImportError
"""What input, disk, memory or installation are to blame for, rather than the code."""


class Tasks(WorkerPlugin):
    """Does tasks in the threads of the worker.

    Args:
        settings: those of the services; their stores are opened when the first task needs them.
    """

    def __init__(self, settings: Settings) -> None:
        # Tasks do not spread others, and the worker changes nothing that is to be audited.
        self._settings = settings.model_copy(update={"engine": "local", "audit_log": "none"})
        self._lock = threading.Lock()
        self._parts: Parts | None = None
        self._address = ""
        self._stopped = threading.Event()
        self._gone: dict[str, threading.Event] = {}
        self.about = {
            "tasks": {name: kind.version for name, kind in REGISTRY.items()},
            "state": f"THALWEG_STATE={settings.state.partition('@')[2] or settings.state}"
            f" and THALWEG_BLOBS={settings.blobs} with {settings.data_dir.absolute()}",
        }

    def transition(self, key: Any, start: str, finish: str, **_kwargs: Any) -> None:  # noqa: ANN401 - as in WorkerPlugin
        """See WorkerPlugin: a task that runs and is released was cancelled."""
        gone = self._gone.get(key)
        if gone is not None and (start, finish) == ("executing", "released"):
            gone.set()

    def setup(self, worker: Worker) -> None:
        """See WorkerPlugin."""
        self._address = worker.address

    def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - as in WorkerPlugin
        """See WorkerPlugin."""
        self._stopped.set()
        if self._parts is not None:
            self._parts.tracing.close()

    def run(self, key: str, kind: str, text: str) -> str:
        """Do a task; return its seconds or why it failed, as JSON."""
        task, begun = json.loads(text), time.monotonic()
        gone = self._gone[key] = threading.Event()
        try:
            budget = RequestBudget(_ENDLESS, gone, self._stopped, task.get("owner", ""))
            with budget.in_thread():
                self._do(kind, task, budget)
        except Exception as e:  # noqa: BLE001 - whoever sent it looks what is missing
            return self._failed(kind, e)
        finally:
            del self._gone[key]
        return json.dumps({"seconds": time.monotonic() - begun})

    def _failed(self, kind: str, error: Exception) -> str:
        reason, is_fault = f"{type(error).__name__}: {error}", not isinstance(error, _PASSING)
        log = structlog.get_logger().bind(kind=kind, reason=reason)
        log.warning("a task failed", exc_info=error if is_fault else None)
        return json.dumps({"failed": reason, "fault": is_fault, "worker": self._address})

    def _do(self, kind: str, task: dict[str, Any], budget: RequestBudget) -> None:
        known = REGISTRY[kind]
        module, _, name = known.function.partition(":")
        function = getattr(import_module(module), name)
        if not known.service:
            function(task)
            return
        parts = self._service()
        with parts.tracing.job(f"task {kind}", task.get(TRACE)) as budget.trace:
            function(getattr(parts, known.service), task)

    def _service(self) -> Parts:
        with self._lock:
            if self._parts is None:
                self._parts = Parts(self._settings)
            return self._parts


async def dask_setup(worker: Worker) -> None:
    """Prepare a worker, before the scheduler knows it; Dask calls this."""
    settings = Settings()
    configure_logging(settings.log_level)
    await asyncio.to_thread(load_kernels)
    await worker.plugin_add(Tasks(settings), name=PLUGIN)
