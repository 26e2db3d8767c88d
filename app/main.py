"""Assemble the application; the only module that knows every product."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware

from app import __version__
from app.datasets import routes as datasets_routes
from app.datasets.catalogue import Catalogue, read_catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.datasets.scanning import scan
from app.datasets.service import DatasetService
from app.decoding.limits import DecoderLimits
from app.decoding.pool import DecoderPool
from app.engine.buffers import Buffers
from app.engine.local import LocalEngine
from app.engine.warmup import WarmUp
from app.engine.workers import Workers, share_of_cores
from app.http import routes_operations, routes_tokens
from app.http.addresses import Addresses
from app.http.guard import Guard, Keys
from app.http.openapi import complete_document
from app.http.operations import Operations
from app.http.problems import add_problem_handlers
from app.http.token_inspection import TokenInspection
from app.losses import routes as losses_routes
from app.losses import routes_inputs
from app.losses import tokens as loss_tokens
from app.losses.input_store import InputStore
from app.losses.inputs import Inputs
from app.losses.service import LossService
from app.losses.spool import Spools
from app.pipelines import routes as pipelines_routes
from app.pipelines import tokens as batch_tokens
from app.pipelines.registry import Pipelines
from app.pipelines.service import PipelineService
from app.settings import Settings
from app.state.base import StateStore, StoreReadOnlyError
from app.state.memory import MemoryStateStore
from app.state.sqlite import SqliteStateStore
from app.state.token_keys import resolve_keys
from app.telemetry import Metrics, configure_logging
from app.tiles import routes as tiles_routes
from app.tiles import routes_reductions, routes_tile, routes_zarr
from app.tiles import tokens as tile_tokens
from app.tiles.partials import PartialStore
from app.tiles.service import TileService
from app.tiles.views import Views
from app.tokens import KIND_BATCHES, KIND_LOSSES, KIND_TILES, KeyRing

SPOOL = "spool"
INPUTS = "inputs"
PARTIALS = "partials"
STATE = "state.sqlite"

_DESCRIPTION = (
    "Streams of binary records in exact, verifiable, resumable steps: event reports from "
    "catastrophe model loss streams, tiles of detector datasets, and batches for training. "
    "A token resumes each of them after any interruption, on any server."
)
_EXPOSED = (
    "Thalweg-Completeness",
    "Thalweg-Token",
    "Thalweg-Batch",
    "Thalweg-Epoch",
    "Thalweg-Count",
    "Thalweg-Rows",
    "Thalweg-Offset",
    "Thalweg-Events",
    "Thalweg-Bytes",
    "Thalweg-Reopened-Check",
    "Upload-Complete",
    "X-Request-Id",
    "Retry-After",
)
_ROUTERS = (
    # Routes are matched in this order: those with many small answers come first.
    routes_tile.router,
    routes_zarr.router,
    pipelines_routes.router,
    losses_routes.router,
    routes_inputs.router,
    datasets_routes.router,
    tiles_routes.router,
    routes_reductions.router,
    routes_tokens.router,
    routes_operations.router,
)


def create_app(settings: Settings) -> FastAPI:
    """Build the service.

    Raises:
        ValueError: a token key is malformed.
    """
    resources = contextlib.ExitStack()
    warm_up = WarmUp()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        warm_up.start()
        with resources:
            yield

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
    _add_services(app, settings, warm_up, resources)
    for router in _ROUTERS:
        app.include_router(router)
    add_problem_handlers(app)
    _add_middleware(app, settings)
    _describe(app, settings)
    return app


def _add_services(
    app: FastAPI, settings: Settings, warm_up: WarmUp, resources: contextlib.ExitStack
) -> None:
    """Create the service of every product; ``resources`` closes their parts in reverse."""
    keys = KeyRing(resolve_keys(settings.token_keys, settings.data_dir))
    metrics = Metrics()
    addresses = Addresses(settings.public_url)
    buffers = Buffers(settings.buffers, settings.buffer_bytes)
    width = settings.threads or share_of_cores(settings.workers)
    store = _closing(resources, _store(settings))
    decoders = _closing(resources, _decoders(settings))
    catalogue = _closing(resources, _catalogue(settings, store, decoders))
    views = Views(catalogue, store, keys)
    pipelines = _closing(resources, Pipelines(catalogue, views, store, keys))
    threads = _closing(resources, Workers(width))
    engine = _closing(resources, LocalEngine(width))
    spools = Spools(settings.data_dir / SPOOL, settings.spool_memory, settings.spool_limit)

    state = app.state
    state.losses = LossService(
        keys=keys,
        inputs=Inputs(InputStore(settings.data_dir / INPUTS, settings.input_days)),
        spools=spools,
        threads=threads,
        buffers=buffers,
        metrics=metrics,
        max_body=settings.max_body,
        max_input=settings.max_input,
        max_samples=settings.max_samples,
        max_blocks=settings.max_blocks,
    )
    state.datasets = DatasetService(catalogue, threads, buffers, addresses)
    partials = PartialStore(settings.data_dir / PARTIALS, settings.input_days)
    state.tiles = TileService(views, engine, partials, threads, buffers, addresses)
    state.pipelines = PipelineService(pipelines, threads, buffers, metrics, addresses)
    kinds = {
        KIND_LOSSES: loss_tokens.describe,
        KIND_TILES: tile_tokens.describe,
        KIND_BATCHES: batch_tokens.describe,
    }
    state.tokens = TokenInspection(keys, kinds)
    state.operations = Operations(metrics, (warm_up.problem, spools.problem))


def _closing(resources: contextlib.ExitStack, resource: Any) -> Any:  # noqa: ANN401 - anything
    resources.callback(resource.close)
    return resource


def _store(settings: Settings) -> StateStore:
    """Return the store that workers share, or one in memory if the disk is read-only."""
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        return SqliteStateStore(settings.data_dir / STATE)
    except (OSError, StoreReadOnlyError) as e:
        structlog.get_logger().warning(
            "registered resources will be lost when this process ends",
            error=str(e),
            hint="Make THALWEG_DATA_DIR writable",
        )
        return MemoryStateStore()


def _decoders(settings: Settings) -> DecoderPool:
    return DecoderPool(
        DecoderLimits(
            workers=settings.decoders,
            memory=settings.decoder_memory,
            seconds=settings.decoder_seconds,
            idle_seconds=settings.decoder_idle_seconds,
            sandbox=settings.decoder_sandbox,
        )
    )


def _catalogue(settings: Settings, store: StateStore, decoders: DecoderPool) -> Catalogue:
    roots = Roots.parse(settings.dataset_roots)
    entries = scan(roots, decoders) if settings.scan else {}
    entries |= read_catalogue(settings.catalogue)
    return Catalogue(store, roots, entries, BufferPool(settings.read_buffers), decoders)


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    metrics = app.state.operations.metrics
    app.add_middleware(Guard, keys=Keys(settings.api_keys), metrics=metrics)
    if settings.cors_origins:
        # Outermost, so that browsers can read refusals too.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=list(_EXPOSED),
            max_age=600,
        )


def _describe(app: FastAPI, settings: Settings) -> None:
    """Replace FastAPI's OpenAPI document with the completed one."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            servers = None if settings.public_url is None else [{"url": settings.public_url}]
            document = get_openapi(
                title=app.title,
                version=app.version,
                description=_DESCRIPTION,
                routes=app.routes,
                servers=servers,
            )
            complete_document(document, keys=bool(settings.api_keys))
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI documents


def from_environment() -> FastAPI:
    """Build the service with settings from ``THALWEG_…`` variables, as workers start it."""
    settings = Settings()
    configure_logging(settings.log_level)
    return create_app(settings)
