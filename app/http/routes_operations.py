"""Routes for operators, and the documentation of the service."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import orjson
from fastapi import Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field

from app.errors import KINDS, Kind, NotFoundError
from app.health import readiness
from app.server.lanes.table import FRONT, in_lane
from app.telemetry import METRICS_TYPE, Metrics

from .dependencies import DrainDep, Routes
from .openapi import problem_responses


class Health(BaseModel):
    """A live process."""

    status: Literal["ok"]


class ReadinessPart(BaseModel):
    """A part of the worker that answers."""

    status: Literal["ok", "failing"]
    since: str = Field(description="When it became so")
    detail: str | None = Field(None, description="Why it fails")


class ReadinessWorker(BaseModel):
    """A worker of the service."""

    worker: int
    status: Literal["ready", "being replaced", "not ready"]
    reasons: list[str] = []


class Readiness(BaseModel):
    """Whether the service is ready for requests, and if not, why."""

    status: Literal["ready", "not ready"]
    reasons: list[str] = []
    parts: dict[str, ReadinessPart] = {}
    workers: list[ReadinessWorker] = []
    poisoned_jobs: int = Field(0, description="Jobs that were given up: their processes died")


@dataclass(frozen=True, slots=True)
class Operations:
    """Everything the routes for operators need."""

    metrics: Metrics
    readiness: readiness.Readiness


# Balancers and Prometheus add options of their own.
router = Routes(Operations, "", APIRoute, tags=["operations"])

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#123}
code{background:#eef3f6;padding:.1em .3em;border-radius:3px}
h2{border-top:1px solid #cde;padding-top:1rem}
b.method{color:#06566e;display:inline-block;min-width:3.5rem}
table{border-collapse:collapse;margin:.5rem 0}
td,th{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0}
.small{color:#567;font-size:.9rem}
@media(prefers-color-scheme:dark){body{background:#10181d;color:#dce6ea}code{background:#1d2a31}
h2{border-color:#2a3b44}b.method,a{color:#7cc7dd}.small{color:#8fa5ae}}
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
PAGE_HEADERS = {
    # Nothing may be loaded, run, embedded or sent; the style is the one above.
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def _json(value: Any, status: int = 200) -> Response:  # noqa: ANN401 - JSON
    headers = {"Cache-Control": "no-store"}
    return Response(orjson.dumps(value), status, headers, "application/json")


@router.get("/healthz", operation_id="healthz", response_model=Health)
@in_lane(FRONT)
async def healthz(_operations: Operations) -> Response:
    """Report that the process is alive."""
    return _json({"status": "ok"})


@router.get(
    "/readyz",
    operation_id="readyz",
    response_model=Readiness,
    responses={503: {"description": "Not ready for requests", "model": Readiness}},
)
@in_lane(FRONT)
async def readyz(operations: Operations, drain: DrainDep) -> Response:
    """Report whether the service is ready for requests, and if not, which part fails."""
    described = await operations.readiness.describe(draining=drain.draining)
    return _json(described, 200 if described["status"] == "ready" else 503)


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=PlainTextResponse,
    responses=problem_responses(400, 401, 403, 503),
)
@in_lane(FRONT)
async def metrics(operations: Operations) -> Response:
    """Return the metrics of all workers, in Prometheus text format."""
    # Ten milliseconds of work. Not in the threads of requests: the page is for when they are busy.
    text = await asyncio.to_thread(operations.metrics.text)
    return Response(text, media_type=METRICS_TYPE)


@router.get(
    "/problems/{code}",
    operation_id="problem",
    response_class=HTMLResponse,
    responses=problem_responses(404),
)
@in_lane(FRONT)
async def explain_problem(_operations: Operations, code: str) -> Response:
    """Explain a problem code."""
    if code not in KINDS:
        raise NotFoundError(f"there is no problem {code[:80]!r}", hint="See /docs for a list")
    return HTMLResponse(problem_page(code, KINDS[code]), headers=PAGE_HEADERS)


@router.get("/", include_in_schema=False)
@in_lane(FRONT)
async def root(_operations: Operations) -> Response:
    """Lead to the documentation, where there is no console."""
    return RedirectResponse("docs")


@router.get("/docs", operation_id="docs", include_in_schema=False)
@in_lane(FRONT)
async def docs(_operations: Operations, request: Request) -> Response:
    """Return a page that lists all routes and problems."""
    return HTMLResponse(docs_page(request.app.openapi(), KINDS), headers=PAGE_HEADERS)


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )


def problem_page(code: str, kind: Kind) -> str:
    """Return the page that explains a problem code."""
    body = (
        f"<p>{escape(kind.explanation)}</p>"
        f"<p>Status {kind.status}, code <code>{escape(code)}</code></p>"
        '<p><a href="/docs">All routes and problems</a></p>'
    )
    return _page(kind.title, body)


def docs_page(document: Mapping[str, Any], kinds: Mapping[str, Kind]) -> str:
    """Return a page with every route of an OpenAPI document and every problem code."""
    parts = [
        f"<p>{escape(document['info'].get('description', ''))}</p>",
        '<p class="small">Machine-readable: <a href="/openapi.json">/openapi.json</a></p>',
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(path, method, operation))
    rows = "".join(
        f'<tr><td>{kind.status}</td><td><a href="/problems/{escape(code)}">{escape(code)}</a></td>'
        f"<td>{escape(kind.explanation)}</td></tr>"
        for code, kind in sorted(kinds.items(), key=lambda item: (item[1].status, item[0]))
    )
    parts.append(f"<h2>Problems</h2><table>{rows}</table>")
    return _page(str(document["info"]["title"]), "".join(parts))


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    rows = "".join(_parameter(p) for p in operation.get("parameters", ()))
    text = escape(operation.get("description", operation.get("summary", "")))
    return (
        f'<h2><b class="method">{method.upper()}</b> <code>{escape(path)}</code></h2>'
        f"<p>{text}</p><table>{rows}</table>"
    )


def _parameter(parameter: Mapping[str, Any]) -> str:
    schema = parameter.get("schema", {})
    choices = schema.get("enum") or [
        value for option in schema.get("anyOf", ()) for value in option.get("enum", ())
    ]
    description = str(parameter.get("description", ""))
    if choices:
        description += f" ({' | '.join(map(str, choices))})"
    if schema.get("default") not in (None, ""):
        description += f"; default {schema['default']}"
    return (
        f"<tr><td><code>{escape(parameter['name'])}</code></td>"
        f'<td class="small">{escape(parameter["in"])}</td><td>{escape(description)}</td></tr>'
    )
