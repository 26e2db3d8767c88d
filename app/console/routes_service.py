"""Routes about the service itself: data to try it with, its pipelines, and its operation."""

from __future__ import annotations

import asyncio
from contextlib import closing
from operator import itemgetter
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from app.http.dependencies import DrainDep, IdentityDep, Routes
from app.http.json_bodies import json_response
from app.http.trail import name_resource
from app.portfolio.layering import LAYERS
from app.runs.describing import describe_briefly
from app.server.lanes.table import FRONT

from . import overview, samples
from .order import order_of
from .routes import PAGE, After, Console

_RUNS = 1000
"""Runs that are looked through for those that are done."""

router = Routes(Console, "", APIRoute, include_in_schema=False)


@router.get("/console/samples/{name}", FRONT)
async def sample(console: Console, name: str) -> Response:
    """Send a loss stream, or the occurrences of its events, to try reports with."""
    content = await console.parts.threads.start(samples.losses, name)
    headers = {"Cache-Control": "private, max-age=86400"}
    return Response(content, headers=headers, media_type="application/octet-stream")


@router.post("/console/samples/scan", FRONT)
async def sample_scan(console: Console, request: Request, caller: IdentityDep) -> Response:
    """Store a scan in the first dataset root, unless it is there, to be registered."""
    threads, path = console.parts.threads, samples.place_of_scan(console.parts.settings)
    created = await threads.start(samples.store_scan, caller, path)
    name_resource(request.scope, samples.SCAN)
    return json_response(samples.SCAN_SPEC, 201 if created else 200)


@router.get("/console/pipelines", FRONT)
async def pipelines(console: Console, caller: IdentityDep, after: After = "") -> Response:
    """List the pipelines of the caller."""
    service = console.parts.pipelines
    ids = await service.threads.start(service.pipelines.ids, caller, after, PAGE)
    last = ids[-1] if len(ids) == PAGE else None
    return console.pages.answer("pipelines", pipelines=ids, after=last)


@router.get("/console/pipelines/{ident}", FRONT)
async def pipeline(console: Console, caller: IdentityDep, ident: str) -> Response:
    """Show a pipeline, stage by stage, and its order."""
    service = console.parts.pipelines

    def look() -> dict[str, Any]:
        with closing(service.pipelines.open(caller, ident)) as opened:
            described = opened.describe()
        return {"pipeline": described, "order": order_of(described)}

    return console.pages.answer("pipeline", **await service.threads.start(look))


@router.get("/console/portfolio", FRONT)
async def portfolio(console: Console, caller: IdentityDep, after: After = "") -> Response:
    """List the loss sets of the caller, and runs that others can be made of."""
    parts, runs = console.parts, console.runs.runs

    def look() -> dict[str, Any]:
        page = parts.portfolios.sets.page(caller, after, PAGE)
        # Administrators get those of all owners of an id.
        last = page[-1].id if len(page) >= PAGE else None
        found = (run for run in runs.page(caller, "", _RUNS) if not runs.is_expired(run))
        finished = [describe_briefly(run, 0) for run in found if run.state == "done"]
        sets = [known.describe() for known in page]
        for each in (sets, finished):
            each.sort(key=itemgetter("created"), reverse=True)
        return {"sets": sets, "after": last, "runs": finished, "layers": LAYERS.columns}

    return console.pages.answer("portfolio", **await parts.threads.start(look))


@router.get("/console/operations", FRONT)
async def operations(console: Console, caller: IdentityDep, drain: DrainDep) -> Response:
    """Show how the service is, and what of it is used."""
    parts = console.parts
    values: dict[str, Any] = {"who": caller, "settings": parts.settings, "threads": parts.width}
    values["readiness"] = await parts.readiness.describe(draining=drain.draining)
    values["problems"] = overview.problems((await asyncio.to_thread(parts.metrics.text)).decode())
    values["quotas"] = await parts.threads.start(overview.quotas, parts, caller)
    values["keys"] = []
    if caller.is_admin:
        values["keys"] = await parts.threads.start(lambda: [*overview.keys(parts)])
    values["limits"] = overview.limits(parts.settings)
    return console.pages.answer("operations", **values)
