"""Routes of the console. Its pages show what the public routes tell, and use them for the rest."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute

from app.datasets.routes import DatasetService
from app.errors import NotFoundError
from app.http.dependencies import IdentityDep, Routes
from app.runs.describing import describe_briefly, describe_run, describe_stream
from app.runs.service import RunService
from app.server.lanes.table import FRONT, in_lane

from .pages import Pages

_PAGE = 100
"""Things of a list on one page."""


@dataclass(frozen=True, slots=True)
class Console:
    """What pages are made of.

    Args:
        is_on: whether there are pages; else ``/`` leads to the documentation.
    """

    pages: Pages
    runs: RunService
    datasets: DatasetService
    is_on: bool = True


# Pages keep their state in the query, which scripts read.
router = Routes(Console, "", APIRoute, include_in_schema=False)
After = Annotated[str, Query(max_length=128, description="List things after this id")]
Prefix = Annotated[str, Query(max_length=128, description="List ids that begin so")]


@router.get("/")
@in_lane(FRONT)
async def home(console: Console, request: Request) -> Response:
    """Return the first page; lead programs to the documentation."""
    if not console.is_on or "text/html" not in request.headers.get("accept", ""):
        return RedirectResponse("docs")
    return console.pages.answer("home")


@router.get("/console/assets/{digest}/{name}")
@in_lane(FRONT)
async def asset(console: Console, digest: str, name: str) -> Response:
    """Return a file that pages load; its address changes with it."""
    found = console.pages.assets.get(name)
    if found is None or digest != console.pages.digest:
        raise NotFoundError("there is no such file of the console", hint="Load the page again")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(found.content, headers=headers, media_type=found.media_type)


@router.get("/console/runs")
@in_lane(FRONT)
async def runs(console: Console, who: IdentityDep, after: After = "") -> Response:
    """List the runs of the caller."""
    service = console.runs

    def look() -> dict[str, Any]:
        page = service.runs.page(who, after, _PAGE)
        alive = [run for run in page if not service.runs.is_expired(run)]
        described = [describe_briefly(run, service.streams.count(run)) for run in alive]
        return {"runs": described, "after": page[-1].id if len(page) == _PAGE else None}

    return console.pages.answer("runs", **await service.threads.start(look))


@router.get("/console/runs/{ident}")
@in_lane(FRONT)
async def run(console: Console, who: IdentityDep, ident: str) -> Response:
    """Show a run."""
    service = console.runs

    def look() -> dict[str, Any]:
        record = service.runs.get(who, ident)
        streams = service.streams.of(record)
        described = describe_run(record, streams, service.losses.inputs.has)
        return {"run": described, "streams": [describe_stream(stream) for stream in streams]}

    return console.pages.answer("run", **await service.threads.start(look))


@router.get("/console/datasets")
@in_lane(FRONT)
async def datasets(
    console: Console, who: IdentityDep, after: After = "", prefix: Prefix = ""
) -> Response:
    """List the datasets that the caller may read."""
    service = console.datasets
    ids = service.catalogue.ids
    found = await service.threads.start(ids, who, after, _PAGE, None, prefix)
    last = found[-1] if len(found) == _PAGE else None
    return console.pages.answer("datasets", datasets=found, after=last, prefix=prefix)


@router.get("/console/datasets/{ident}")
@in_lane(FRONT)
async def dataset(console: Console, who: IdentityDep, ident: str) -> Response:
    """Show a dataset."""
    service = console.datasets

    def look() -> dict[str, Any]:
        with closing(service.catalogue.open_any(who, ident)) as opened:
            return opened.describe()

    return console.pages.answer("dataset", dataset=await service.threads.start(look))
