"""The application, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware

from app import __version__
from app.context import Services
from app.datasets import routes as datasets
from app.http import routes_operations as ops
from app.http import routes_tokens as tokens
from app.http.guard import Guard, Keys
from app.http.problems import add_problem_handlers
from app.http.schemas import ProblemDocument
from app.losses import routes as losses
from app.losses import routes_inputs as inputs
from app.pipelines import routes as pipelines
from app.settings import Settings
from app.telemetry import configure_logging
from app.tiles import routes as tiles
from app.tiles import routes_reductions as reductions
from app.tiles import routes_tile as one_tile
from app.tiles import routes_zarr as zarr

_DESCRIPTION = (
    "Event reports from catastrophe model loss streams: post a stream, get its tables, "
    "go on from a token after any interruption."
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


def create_app(settings: Settings) -> FastAPI:
    """The service with these settings.

    Raises:
        ValueError: token keys are malformed.
    """
    services = Services.of(settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        services.start()
        yield
        services.close()

    app = FastAPI(
        title="Thalweg",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        # A redirect would come before a body was read, and name a place proxies do not know.
        redirect_slashes=False,
    )
    app.state.services = services
    # Routes are tried one after the other: those of many small answers come first.
    first = (one_tile, zarr, pipelines, losses, inputs)
    for routes in (*first, datasets, tiles, reductions, tokens, ops):
        app.include_router(routes.router)
    add_problem_handlers(app)
    _add_middleware(app, services)
    _describe(app, settings)
    return app


def _add_middleware(app: FastAPI, services: Services) -> None:
    settings = services.settings
    app.add_middleware(Guard, keys=Keys(settings.api_keys), metrics=services.metrics)
    if settings.cors_origins:
        # Outermost: a browser must be able to read refusals too.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=list(_EXPOSED),
            max_age=600,
        )


def _describe(app: FastAPI, settings: Settings) -> None:
    """Have the OpenAPI document say what FastAPI cannot know."""

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
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas["ProblemDocument"] = ProblemDocument.model_json_schema()
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            _correct_answers(document)
            _declare_keys(document, settings)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _correct_answers(document: dict[str, Any]) -> None:
    """Every answer has an id, and every error is a problem."""
    ident = {"description": "As the request had it, or a new one", "schema": {"type": "string"}}
    for operations in document["paths"].values():
        for operation in operations.values():
            answers = operation["responses"]
            if "HTTPValidationError" in str(answers.get("422")):
                del answers["422"]
            for answer in answers.values():
                answer.setdefault("headers", {})["X-Request-Id"] = ident


def _declare_keys(document: dict[str, Any], settings: Settings) -> None:
    if not settings.api_keys:
        return
    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    document["components"]["securitySchemes"] = schemes
    for path, operations in document["paths"].items():
        if path.startswith("/v1/"):
            for operation in operations.values():
                operation["security"] = [{"key": []}]


def from_environment() -> FastAPI:
    """The service as a server process starts it: settings from ``THALWEG_…`` variables."""
    settings = Settings()
    configure_logging(settings.log_level)
    return create_app(settings)
