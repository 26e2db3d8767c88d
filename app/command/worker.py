"""The command ``worker``: does tasks of a Dask scheduler in a process that is watched.

A nanny of Dask starts the process that does the tasks, with as many threads as there are cores, and
starts another one when it dies or takes more memory than it may. This process, which holds nothing
itself, looks after the nanny: when the scheduler is lost, it waits for the next one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from contextlib import closing
from functools import partial
from typing import Any

import structlog

from app.cores import count_cores
from app.engine.base import resource_of
from app.engine.cluster import MEMORY
from app.engine.scheduler import Scheduler
from app.engine.warmup import compiling
from app.logs import configure_logging
from app.runs.sealing.alone import BESIDE_BYTES
from app.server.forking import in_child
from app.settings import Settings
from app.state.storage import SQLITE, STATE, open_storage
from app.tasks import REGISTRY, check_scheduler, scheduler_of, store_resource

from .serving import as_option_errors

_DEATH_SECONDS = 60
"""Time in which a process has to find the scheduler; after that the next nanny begins."""
_CLOSE_SECONDS = 5
"""Time to leave the scheduler; what is not done by then, another worker begins again."""
PRELOAD = "app.command.dask_worker"
"""Module that prepares the process."""
_PAUSE = 0.5
"""Seconds between two nannies."""


@as_option_errors()
def worker(args: argparse.Namespace) -> int:
    """Do tasks until a signal; return the exit code."""
    if args.data_dir is not None:
        # The process that the nanny starts takes its settings from its variables.
        os.environ["THALWEG_DATA_DIR"] = str(args.data_dir)
    settings = Settings()
    configure_logging(settings.log_level)
    scheduler = scheduler_of(settings, args.scheduler)
    options = {"resources": in_child(partial(_resources, settings)), "host": args.host}
    in_child(partial(check_scheduler, scheduler))
    if (compile_all := compiling()) is not None:
        in_child(compile_all)
    asyncio.run(_serve(scheduler, settings, options))
    return 0


def _resources(settings: Settings) -> dict[str, float]:
    """Return what the worker has, and what names the tasks that it can do.

    Raises:
        StorageError, StoreError: its store cannot be used.
    """
    # One owner's tasks fit into the share of an owner.
    places, memory = count_cores(), int(settings.memory_limit * settings.owner_share)
    resources: dict[str, float] = {MEMORY: memory, resource_of(REGISTRY): places}
    log = structlog.get_logger().bind(directory=str(settings.data_dir.absolute()))
    if settings.state == SQLITE:
        if not (settings.data_dir / STATE).exists():
            log.warning("there is no state here: only tasks of aggregate --engine are done")
            return resources
        log.warning(
            "the state is in the data directory: only tasks of services on this machine that use"
            " the same one are done, and of aggregate --engine"
        )
    stores = settings.reserve_bytes, settings.state, settings.blobs
    with closing(open_storage(settings.data_dir, *stores)) as storage:
        resources[store_resource(storage.records, settings)] = places
    return resources


async def _serve(scheduler: Scheduler, settings: Settings, options: dict[str, Any]) -> None:
    from distributed import Nanny  # noqa: PLC0415 - an extra

    log, stop, loop = structlog.get_logger(), asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopping = asyncio.ensure_future(stop.wait())
    # A nanny cannot stop a process that is just starting; it ends with this one.
    stopping.add_done_callback(lambda _: loop.call_later(_CLOSE_SECONDS, os._exit, 0))
    while not stop.is_set():
        try:
            async with Nanny(
                scheduler.address,
                nthreads=count_cores(),
                memory_limit=settings.memory_limit + BESIDE_BYTES,
                preload=[PRELOAD],
                death_timeout=_DEATH_SECONDS,
                security=scheduler.security(),
                dashboard=False,
                **options,
            ) as nanny:
                log.info("a worker of the cluster is ready", scheduler=scheduler.address)
                over = asyncio.ensure_future(nanny.finished())
                await asyncio.wait([over, stopping], return_when=asyncio.FIRST_COMPLETED)
        except Exception as e:  # noqa: BLE001 - Dask fails in many ways, but a worker has to stay
            reason = f"{type(e).__name__}: {e}"
            log.warning("the worker begins again", scheduler=scheduler.address, reason=reason)
        if not stop.is_set():
            await asyncio.wait([stopping], timeout=_PAUSE)
