"""The registry of tasks, which this machine and the workers of a cluster share; and the cluster.

The code of a task stands beside what it computes, and the same code runs on both. A version says
what a result depends on besides its parameters; it changes with the parameters, too.
"""

from __future__ import annotations

import contextlib
import hashlib
from importlib.util import find_spec
from secrets import token_bytes
from urllib.parse import urlsplit

import structlog

from app.engine.base import Kind, Registry
from app.engine.cluster import DaskCluster
from app.engine.scheduler import Scheduler
from app.losses.request import ALGORITHM
from app.runs.results import segments
from app.settings import Settings
from app.state.base import RecordExistsError, StateStore
from app.tiles import reductions
from core.losses.ledger import partials

_LOSSES = ALGORITHM.decode()
REGISTRY: Registry = {
    "aggregate": Kind(f"{_LOSSES}, {partials.VERSION}", "app.command.spread:add_up"),
    "reduce": Kind(reductions.VERSION, "app.tiles.service:reduce_segment", "tiles"),
    "seal": Kind(f"{_LOSSES}, 1", "app.runs.sealing.work:seal", "sealing"),
    "segment": Kind(
        f"{_LOSSES}, {segments.VERSION.decode()}", "app.runs.sealing.work:add_up", "sealing"
    ),
}
"""All tasks, by name."""
_RECORD = "cluster", "mark"
"""Kind and id of the record that tells stores apart."""


def store_resource(records: StateStore, settings: Settings) -> str:
    """Return the resource of workers that use the store of these records.

    Raises:
        StoreError: it failed.
    """
    with contextlib.suppress(RecordExistsError):
        records.create(*_RECORD, token_bytes(16))
    parts = records.get(*_RECORD).value, settings.state.partition(":")[0], settings.blobs
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8)
    return f"store-{digest.hexdigest()}"


def scheduler_of(settings: Settings, address: str | None = None) -> Scheduler:
    """Return the scheduler that settings name, or another one that is reached in the same way.

    Raises:
        ValueError: Dask is not installed.
    """
    if find_spec("distributed") is None:
        raise ValueError("Dask is not installed here: install thalweg-server[dask]")
    address = address or settings.engine.removeprefix("dask:")
    if urlsplit(address).scheme not in {"tcp", "tls"}:
        raise ValueError("name a scheduler, as tcp://host:port, by --scheduler or THALWEG_ENGINE")
    tls = settings.engine_tls_ca, settings.engine_tls_cert, settings.engine_tls_key
    if address.startswith("tls:") and None in tls:
        raise ValueError(f"{address} needs THALWEG_ENGINE_TLS_CA, ..._TLS_CERT and ..._TLS_KEY")
    return Scheduler(address, *tls)


def check_scheduler(scheduler: Scheduler) -> None:
    """Check that waiting for a scheduler is of use: one that is away may come back.

    Raises:
        ValueError: one side does not believe the certificate of the other.
    """
    try:
        scheduler.reach()
    except OSError as e:
        log = structlog.get_logger().bind(scheduler=scheduler.address, reason=str(e))
        log.warning("the scheduler of the cluster cannot be reached yet")


def make_cluster(
    settings: Settings, records: StateStore, resources: contextlib.ExitStack
) -> DaskCluster | None:
    """Return the cluster that does the work of a service; None if this machine does it.

    Args:
        settings: those of the service.
        records: its store.
        resources: leaves the cluster at its end.

    Raises:
        ValueError: Dask is not installed.
        StoreError: the store failed.
    """
    if settings.engine == "local":
        return None
    cluster = DaskCluster(
        scheduler_of(settings),
        REGISTRY,
        store_resource(records, settings),
        settings.engine_wait_seconds,
    )
    resources.callback(cluster.close)
    return cluster
