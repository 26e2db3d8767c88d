"""Assemble the application; the only module that knows every product."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware

from app import __version__, parts
from app.audit import AuditLog
from app.datasets import routes as datasets_routes
from app.datasets.routes import DatasetService
from app.engine.budgets import Budgets
from app.engine.request_budget import BudgetLimits
from app.engine.warmup import WarmUp
from app.engine.workers import Workers, share_of_cores
from app.health.loop_lag import LoopLagProbe
from app.health.readiness import Readiness
from app.http import routes_operations, routes_tokens
from app.http.addresses import Addresses
from app.http.answers import EXPOSED
from app.http.bodies import MinimumRate
from app.http.guard import Guard
from app.http.json_bodies import JsonBodies
from app.http.keys import Keys
from app.http.openapi import complete_document
from app.http.problems import add_problem_handlers
from app.http.token_inspection import TokenInspection
from app.losses import routes as losses_routes
from app.losses import tokens as loss_tokens
from app.losses.input_store import InputStore
from app.losses.inputs import Inputs
from app.losses.service import LossService
from app.losses.spool import Spools
from app.losses.sums_room import Admission
from app.monitoring import (
    Watched,
    has_long_work,
    monitor,
    noted_operations,
)
from app.pipelines import routes as pipelines_routes
from app.pipelines import tokens as batch_tokens
from app.pipelines.registry import Pipelines
from app.pipelines.routes import PipelineService
from app.retention import make_quotas, make_sweeper
from app.runs.reports import RunReportsService
from app.runs.routes import reports as run_reports_routes
from app.runs.routes import runs as runs_routes
from app.runs.routes import uploads as run_uploads_routes
from app.runs.rows import tokens as row_tokens
from app.runs.sealing.alone import LentLedger
from app.runs.sealing.work import SealingContext
from app.runs.service import RunService
from app.runs.store import Runs
from app.runs.streams import Streams
from app.runs.sweeping import Removal
from app.runs.uploads.uploads import Uploads
from app.runs.watching import Watch
from app.server.board import Board, WorkerSlot
from app.settings import Settings
from app.state import token_keys
from app.state.admission import AdmittedHeads
from app.state.api_keys import ApiKeys, digest_key
from app.state.storage import SPOOL, open_storage
from app.tally import Column, Table
from app.tasks import make_cluster
from app.telemetry import Metrics
from app.tiles import routes as tiles_routes
from app.tiles import routes_reductions, routes_tile, routes_zarr
from app.tiles.encoding import describe_token
from app.tiles.reductions import PartialStore
from app.tiles.service import TileService
from app.tiles.views import Views
from app.tokens import KIND_BATCHES, KIND_LOSSES, KIND_ROWS, KIND_TILES, KeyRing

_WAITING_THREADS = 8
"""Threads that wait for the store to make uploads durable."""

_DESCRIPTION = (
    "Streams of binary records in exact, verifiable, resumable steps: event reports from "
    "catastrophe model loss streams, tiles of detector datasets, and batches for training. "
    "A token resumes each of them after any interruption, on any server."
)
_TOKENS = {
    KIND_LOSSES: loss_tokens.describe,
    KIND_TILES: describe_token,
    KIND_BATCHES: batch_tokens.describe,
    KIND_ROWS: row_tokens.describe,
}
ROUTERS = (
    # Routes are matched in this order, and each one tried takes 8 us: so routers with many small
    # requests come first.
    routes_tile.router,
    datasets_routes.router,
    tiles_routes.router,
    pipelines_routes.router,
    pipelines_routes.stages,
    routes_zarr.router,
    losses_routes.router,
    losses_routes.inputs_router,
    run_uploads_routes.router,
    runs_routes.router,
    run_reports_routes.router,
    runs_routes.rows_router,
    routes_reductions.router,
    routes_tokens.router,
    routes_operations.router,
)


def create_app(
    settings: Settings,
    board: Board | None = None,
    slot: WorkerSlot | None = None,
    ledger: LentLedger | None = None,
) -> FastAPI:
    """Build the service.

    Args:
        settings: its settings.
        board: where its workers see how the others are; default: there are no others.
        slot: that of this worker.
        ledger: that of a process which computes one job alone.

    Raises:
        ValueError: a token key is malformed, or a dataset root contains the data directory.
        StorageError: the data directory cannot be used.
    """
    resources = contextlib.ExitStack()
    warm_up = WarmUp()
    board = board or Board()
    slot = slot or board.workers[0]

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        warm_up.start()
        with resources:
            if has_long_work(slot):
                app.state.sweeper.start()
                app.state.sealer.start()
                app.state.notices.relay()
                # Another worker takes the job, which could not finish here.
                slot.on_drain = app.state.sealer.stop
            app.state.monitor.start()
            app.state.lag_probe.start()
            try:
                yield
            finally:
                await app.state.lag_probe.stop()

    app = FastAPI(
        title="Thalweg",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        # A redirect would answer before the body was read, and with an address that
        # proxies may not know.
        redirect_slashes=False,
    )
    app.state.lane = slot.lane
    app.state.column = slot.column or Column(Table())
    app.state.width = settings.threads or share_of_cores(board.count_like(slot))
    _add_services(app, settings, warm_up, resources, ledger)
    _add_operations(app, board, slot, resources)
    for router in ROUTERS:
        app.include_router(router)
    add_problem_handlers(app)
    _add_middleware(app, settings)
    _describe(app, settings)
    return app


def _add_services(
    app: FastAPI,
    settings: Settings,
    warm_up: WarmUp,
    resources: contextlib.ExitStack,
    lent: LentLedger | None,
) -> None:
    """Create the service of every product; ``resources`` closes their parts in reverse."""
    storage = _closing(
        resources,
        open_storage(settings.data_dir, settings.reserve_bytes, settings.state, settings.blobs),
    )
    keys = KeyRing(token_keys.resolve_keys(settings.token_keys, storage))
    metrics = Metrics()
    addresses = Addresses(settings.public_url, settings.trusted_proxies)
    ledger = lent or parts.make_ledger(settings, app.state.column)
    buffers = parts.make_buffers(settings, ledger, app.state.column)
    width = app.state.width
    input_files = InputStore(storage.blobs, settings.input_days)
    quotas = make_quotas(settings)
    heads = AdmittedHeads(storage.heads, quotas, note=noted_operations(metrics))
    column = app.state.column
    decoders = _closing(resources, parts.make_decoders(settings, column))
    catalogue = _closing(resources, parts.make_catalogue(settings, heads, decoders, ledger, column))
    known_views = Views(catalogue, heads, keys)
    pipelines = _closing(resources, Pipelines(catalogue, known_views, heads, keys))
    threads = _closing(resources, Workers(width))
    rate = MinimumRate(settings.min_rate)
    bodies = JsonBodies(ledger, threads, rate)
    reservations = _closing(resources, parts.make_reservations(settings, storage))

    state = app.state
    state.throttle = throttle = parts.make_throttle(settings, app.state.column)
    state.losses = LossService(
        keys=keys,
        inputs=Inputs(input_files, heads, storage.turn, ledger, decoders),
        spools=Spools(
            storage.directory / SPOOL,
            settings.spool_memory,
            settings.spool_limit,
            reservations,
            ledger,
        ),
        threads=threads,
        buffers=buffers,
        ledger=ledger,
        metrics=metrics,
        rate=rate,
        max_body=settings.max_body,
        max_input=settings.max_input,
        max_samples=settings.max_samples,
        max_blocks=settings.max_blocks,
        admission=Admission(settings.request_memory, settings.spool_limit),
        is_spent=lambda owner: throttle.is_spent(owner) or ledger.is_spent(owner),
    )
    state.notices = _closing(resources, storage.notices())
    streams = Streams(heads, storage.blobs, Runs(heads, settings.run_days, Watch(state.notices)))
    streams.runs.on_state = metrics.on_run
    disk = _closing(resources, Workers(_WAITING_THREADS))
    state.sealing = sealing = SealingContext(
        streams,
        heads,
        state.losses,
        threads,
        sums_bytes=settings.request_memory,
        cluster=make_cluster(settings, storage.heads, resources),
    )
    state.sealer = _closing(resources, parts.make_sealer(settings, storage, sealing, lent))
    state.sealer.on_ended = metrics.on_sealed
    state.runs = RunService(
        runs=streams.runs,
        streams=streams,
        removal=Removal(streams, heads),
        reports=RunReportsService(state.sealer),
        losses=state.losses,
        uploads=Uploads(streams, state.losses, disk, settings.max_upload),
        without_version=settings.uploads_without_version,
        threads=threads,
        bodies=bodies,
        addresses=addresses,
    )
    state.datasets = DatasetService(catalogue, threads, bodies, addresses)
    kept = PartialStore(storage.blobs)
    reducing = _closing(resources, Workers(_WAITING_THREADS))
    state.tiles = TileService(
        *(known_views, kept, threads, reducing, bodies, addresses),
        *(sealing.cluster, parts.shared_roots(settings)),
    )
    state.pipelines = PipelineService(pipelines, threads, bodies, metrics, addresses)
    removal = state.runs.removal
    state.sweeper = _closing(resources, make_sweeper(settings, storage, quotas, metrics, removal))
    state.tokens = TokenInspection(keys, _TOKENS)
    state.api_keys = _closing(
        resources, Keys(settings.api_keys, ApiKeys(storage.heads), digest_key)
    )
    state.metrics = metrics
    limits = BudgetLimits(
        settings.request_memory, settings.request_cpu_seconds, settings.request_items
    )
    state.budgets = Budgets(limits, ledger)
    state.budgets.on_exceeded = metrics.on_exceeded
    state.budgets.on_cancelled = metrics.on_cancelled
    # Closed before the pools of threads, which wait for what runs.
    resources.callback(state.budgets.stop)
    state.audit = _closing(resources, AuditLog(settings.audit_log))
    state.lag_probe = LoopLagProbe(threads.start)
    state.watched = Watched(
        storage=storage,
        warm_up=warm_up,
        lag_probe=state.lag_probe,
        buffers=buffers,
        decoders=decoders,
        spools=state.losses.spools,
        reservations=reservations,
        ledger=ledger,
        throttle=throttle,
        jobs=state.sealer.jobs,
        threads=threads,
        width=width,
    )


def _add_operations(
    app: FastAPI, board: Board, slot: WorkerSlot, resources: contextlib.ExitStack
) -> None:
    state = app.state
    state.monitor = _closing(resources, monitor(state.watched, board, slot, state.metrics))
    state.readiness = Readiness(state.monitor, board, slot, lambda: state.watched.jobs.poisoned)


def _closing(resources: contextlib.ExitStack, resource: Any) -> Any:  # noqa: ANN401 - anything
    resources.callback(resource.close)
    return resource


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    app.add_middleware(
        Guard,
        keys=app.state.api_keys,
        metrics=app.state.metrics,
        audit=app.state.audit,
        open_metrics=settings.open_metrics,
        throttle=app.state.throttle,
        budgets=app.state.budgets,
    )
    if settings.cors_origins:
        # Outermost, so that browsers can read refusals too.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=list(EXPOSED),
            max_age=600,
        )


def _describe(app: FastAPI, settings: Settings) -> None:
    """Replace FastAPI's OpenAPI document with the completed one."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            servers = None if settings.public_url is None else [{"url": settings.public_url}]
            with warnings.catch_warnings():
                # Of HEAD, which has the ids of GET and is not listed.
                warnings.filterwarnings("ignore", "Duplicate Operation ID")
                document = get_openapi(
                    title=app.title,
                    version=app.version,
                    description=_DESCRIPTION,
                    routes=app.routes,
                    servers=servers,
                )
            complete_document(
                document, keys=app.state.api_keys.required, open_metrics=settings.open_metrics
            )
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI documents
