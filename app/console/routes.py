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


@router.get("/console/datasets")
@in_lane(FRONT)
async def datasets(console: Console, who: IdentityDep, after: After = "") -> Response:
    """List the datasets that the caller may read."""
    service = console.datasets
    ids = await service.threads.start(service.catalogue.ids, who, after, _PAGE, None)
    last = ids[-1] if len(ids) == _PAGE else None
    return console.pages.answer("datasets", datasets=ids, after=last)


@router.get("/console/datasets/{ident}")
@in_lane(FRONT)
async def dataset(console: Console, who: IdentityDep, ident: str) -> Response:
    """Show a dataset."""
    service = console.datasets

    def look() -> dict[str, Any]:
        with closing(service.catalogue.open_any(who, ident)) as opened:
            return opened.describe()

    return console.pages.answer("dataset", dataset=await service.threads.start(look))
