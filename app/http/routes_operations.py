"""Routes for operators, and the documentation of the service."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response

from app.errors import KINDS, NotFoundError
from app.health import readiness
from app.server.lanes.table import FRONT, in_lane
from app.telemetry import METRICS_TYPE, Metrics

from .dependencies import DrainDep, HeadRoute, from_state
from .openapi import problem_responses
from .pages import PAGE_HEADERS, docs_page, problem_page
from .schemas import Health, Readiness

# Balancers and Prometheus add options of their own.
router = APIRouter(tags=["operations"], route_class=HeadRoute)

MetricsDep = Annotated[Metrics, from_state("metrics")]
ReadinessDep = Annotated[readiness.Readiness, from_state("readiness")]


def _json(value: Any, status: int = 200) -> Response:  # noqa: ANN401 - JSON
    headers = {"Cache-Control": "no-store"}
    return Response(orjson.dumps(value), status, headers, "application/json")


@router.get("/healthz", operation_id="healthz", response_model=Health)
@in_lane(FRONT)
async def healthz() -> Response:
    """Report that the process is alive."""
    return _json({"status": "ok"})


@router.get(
    "/readyz",
    operation_id="readyz",
    response_model=Readiness,
    responses={503: {"description": "Not ready for requests", "model": Readiness}},
)
@in_lane(FRONT)
async def readyz(service: ReadinessDep, drain: DrainDep) -> Response:
    """Report whether the service is ready for requests, and if not, which part fails."""
    described = await service.describe(draining=drain.draining)
    return _json(described, 200 if described["status"] == "ready" else 503)


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=PlainTextResponse,
    responses=problem_responses(400, 401, 503),
)
@in_lane(FRONT)
async def metrics(own: MetricsDep) -> Response:
    """Return the metrics of all workers, in Prometheus text format."""
    # Ten milliseconds of work. Not in the threads of requests: the page is for when they are busy.
    text = await asyncio.to_thread(own.text)
    return Response(text, media_type=METRICS_TYPE)


@router.get(
    "/problems/{code}",
    operation_id="problem",
    response_class=HTMLResponse,
    responses=problem_responses(404),
)
@in_lane(FRONT)
async def explain_problem(code: str) -> Response:
    """Explain a problem code."""
    if code not in KINDS:
        raise NotFoundError(f"there is no problem {code[:80]!r}", hint="See /docs for a list")
    return HTMLResponse(problem_page(code, KINDS[code]), headers=PAGE_HEADERS)


@router.get("/docs", operation_id="docs", include_in_schema=False)
@in_lane(FRONT)
async def docs(request: Request) -> Response:
    """Return a page that lists all routes and problems."""
    return HTMLResponse(docs_page(request.app.openapi(), KINDS), headers=PAGE_HEADERS)
