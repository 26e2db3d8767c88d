"""Assemble the application; the only module that knows every product."""

from __future__ import annotations

import warnings
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app import __version__
from app.console import routes as console_routes
from app.console import routes_runs as console_runs_routes
from app.console import routes_service as console_service_routes
from app.console.pages import PLACES, Pages
from app.console.problems import ProblemPages
from app.console.routes import Console
from app.datasets import routes as datasets_routes
from app.http import routes_operations, routes_tokens
from app.http.answers import EXPOSED
from app.http.dependencies import Routes
from app.http.guard import Guard
from app.http.openapi import complete_document
from app.http.origins import CrossOrigin
from app.http.problems import add_problem_handlers
from app.http.routes_operations import Operations, Site
from app.losses import routes as losses_routes
from app.parts import Parts
from app.pipelines import routes as pipelines_routes
from app.portfolio import routes as portfolio_routes
from app.runs.routes import reports as run_reports_routes
from app.runs.routes import runs as runs_routes
from app.runs.routes import uploads as run_uploads_routes
from app.server.board import Board, WorkerSlot
from app.settings import Settings
from app.tiles import routes as tiles_routes
from app.tiles import routes_reductions, routes_zarr

_DESCRIPTION = (
    "Streams of binary records in exact, verifiable, resumable steps: event reports from "
    "catastrophe model loss streams, tiles of detector datasets, and batches for training. "
    "A token resumes each of them after any interruption, on any server."
)
ROUTERS: tuple[Routes[Any], ...] = (
    # Routes are matched in this order, and each one tried takes 8 us: so routers with many small
    # requests come first.
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
    portfolio_routes.router,
    routes_reductions.router,
    routes_tokens.router,
    console_routes.router,
    console_runs_routes.router,
    console_service_routes.router,
    routes_operations.router,
)


class Application(FastAPI):
    """The service: the routes of all products, and the parts of the worker that they are for."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(
            title="Thalweg",
            version=__version__,
            description=_DESCRIPTION,
            lifespan=lambda _: parts.running(),
            docs_url=None,
            redoc_url=None,
            separate_input_output_schemas=False,
            # A redirect would answer before the body was read, and with an address that
            # proxies may not know.
            redirect_slashes=False,
            # Its spans would be others beside ours, and tell what errors say.
            telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        )
        self.parts = parts
        site = Site(parts.settings.docs_site)
        root = urlsplit(parts.settings.public_url or "").path.rstrip("/")
        has_console = parts.settings.console == "on"
        places = {"Thalweg": "/", **PLACES} if has_console else {}
        links = {name: f"{root}{path}" for name, path in places.items()}
        operations = Operations(parts.metrics, parts.readiness, site, links)
        pages = Pages(lambda: parts.api_keys.required, lambda: site.is_built, root)
        console = Console(pages, parts.runs, parts.datasets, parts)
        products = (parts.tiles, parts.datasets, parts.pipelines, parts.losses, parts.runs)
        others = (parts.portfolios, parts.tokens, operations, console)
        services = {type(service): service for service in (*products, *others)}
        routers = [each for each in ROUTERS if has_console or each.service is not Console]
        for routes in routers:
            self.include_router(routes.bound(services[routes.service]))
        add_problem_handlers(self, [route.path for each in routers for route in each.routes])
        self._add_middleware()
        if has_console:
            self.add_middleware(ProblemPages, pages=pages)

    def _add_middleware(self) -> None:
        parts, settings = self.parts, self.parts.settings
        self.add_middleware(
            Guard,
            keys=parts.api_keys,
            cookies=parts.cookies,
            metrics=parts.metrics,
            audit=parts.audit,
            open_metrics=settings.open_metrics,
            throttle=parts.throttle,
            budgets=parts.budgets,
            tracing=parts.tracing,
            lane=parts.slot.lane,
            logs=settings.access_log != "off",
        )
        if settings.cors_origins:
            # Outermost, so that browsers can read refusals too.
            self.add_middleware(
                CrossOrigin,
                allow_origins=list(settings.cors_origins),
                allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
                allow_headers=["*"],
                expose_headers=list(EXPOSED),
                max_age=600,
            )

    def openapi(self) -> dict[str, Any]:
        """Return FastAPI's OpenAPI document, completed."""
        if self.openapi_schema is None:
            settings, keys = self.parts.settings, self.parts.api_keys
            servers = None if settings.public_url is None else [{"url": settings.public_url}]
            with warnings.catch_warnings():
                # Of HEAD, which has the ids of GET and is not listed.
                warnings.filterwarnings("ignore", "Duplicate Operation ID")
                document = get_openapi(
                    title=self.title,
                    version=self.version,
                    description=_DESCRIPTION,
                    routes=self.routes,
                    servers=servers,
                )
            complete_document(document, keys=keys.required, open_metrics=settings.open_metrics)
            self.openapi_schema = document
        return self.openapi_schema


def create_app(
    settings: Settings, board: Board | None = None, slot: WorkerSlot | None = None
) -> Application:
    """Build the service of a worker; see :class:`Parts`."""
    return Application(Parts(settings, board, slot))
