"""Routes of the console. Its pages show what the public routes tell, and use them for the rest."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Query, Request
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from app.datasets.permissions import list_files
from app.datasets.routes import DatasetService
from app.errors import BadRequestError, NotFoundError, ServiceError, StalledError
from app.http.dependencies import IdentityDep, Routes
from app.http.json_bodies import json_response
from app.parts import Parts
from app.runs.service import RunService
from app.server.lanes.table import FRONT, LONG

from . import samples
from .overview import limits
from .pages import Pages
from .problems import PLACE

_FORM = 4096
"""Most bytes of the form with a key."""
_FORM_SECONDS = 30
"""Time in which it has to arrive."""
_ADDRESS = re.compile(r"https?://[A-Za-z0-9._~:/\[\]-]+")
"""An address that may be pasted into a shell."""
_AUTHORIZATION = '-H "Authorization: Bearer $THALWEG_KEY" '
_OWN_PLACE = re.compile(r"/(?![/\\])[\x21-\x7e]*")
"""An address of this service, as a path."""
_FILES = 1000
"""Files of a directory that are listed."""
PAGE = 100
"""Things of a list on one page."""


@dataclass(frozen=True, slots=True)
class Console:
    """What pages are made of."""

    pages: Pages
    runs: RunService
    datasets: DatasetService
    parts: Parts


# Pages keep their state in the query, which scripts read.
router = Routes(Console, "", APIRoute, include_in_schema=False)
After = Annotated[str, Query(max_length=128, description="List things after this id")]
Path = Annotated[str, Query(max_length=1024, description="A directory below the roots")]
Prefix = Annotated[str, Query(max_length=128, description="List ids that begin so")]


@router.get("/", FRONT)
async def home(console: Console, request: Request) -> Response:
    """Return the first page; lead programs to the documentation."""
    if "text/html" not in request.headers.get("accept", ""):
        return RedirectResponse("docs")
    parts = console.parts
    scan = samples.place_of_scan(parts.settings)
    host = request.headers.get("host", "")
    address = parts.settings.public_url or f"{request.scope['scheme']}://{host}"
    if not _ADDRESS.fullmatch(address):
        address = "http://localhost:8000"
    return console.pages.answer(
        "home",
        place="/",
        is_stranger=await _is_stranger(console, request),
        address=address.rstrip("/"),
        authorization=_AUTHORIZATION if parts.api_keys.required else "",
        limits=limits(parts.settings),
        scan=scan,
    )


async def _is_stranger(console: Console, request: Request) -> bool:
    """Whether a page that needs no key is looked at by somebody who has none."""
    headers, parts = request.headers, console.parts
    digest = parts.cookies.digest(request.method, request.scope["scheme"], headers)
    try:
        await parts.api_keys.identify(headers.get("authorization"), digest=digest)
    except ServiceError:
        return True
    return False


@router.get("/console", FRONT)
@router.get("/console/", FRONT)
async def top(_console: Console, request: Request) -> Response:
    """Lead to the first page, whose address has no name."""
    return RedirectResponse("../" if request.url.path.endswith("/") else "./")


@router.get("/console/sign-in", FRONT)
async def ask_for_key(console: Console) -> Response:
    """Ask for a key."""
    return console.pages.answer("sign-in", place="/")


@router.post("/console/sign-in", FRONT)
async def sign_in(console: Console, request: Request) -> Response:
    """Give the browser a cookie that stands for a key."""
    form = await _form(request)
    wanted = form.get("place", "/")
    # A page about a wrong key asks for another one, and leads to the same place.
    request.scope[PLACE] = place = wanted if _OWN_PLACE.fullmatch(wanted) else "/"
    digest = await console.parts.api_keys.check(form.get("key", ""))
    cookie = console.parts.cookies.issue(digest, request.scope["scheme"])
    return _away(console, place, cookie)


@router.post("/console/sign-out", FRONT)
async def sign_out(console: Console, request: Request) -> Response:
    """Take the cookie away."""
    return _away(console, "/", console.parts.cookies.end(request.scope["scheme"]))


async def _form(request: Request) -> dict[str, str]:
    """Read a small form.

    Raises:
        BadRequestError: it is not small, or not whole.
        StalledError: it takes too long.
    """
    body = b""
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > _FORM:
                    raise BadRequestError(
                        f"the form has more than {_FORM} bytes",
                        hint="Send the fields key and place",
                    )
    except ClientDisconnect as e:
        raise BadRequestError("the form ended early", hint="Send all of it") from e
    except TimeoutError as e:
        raise StalledError(f"the form took more than {_FORM_SECONDS} s") from e
    return dict(parse_qsl(body.decode("utf-8", "replace")))


def _away(console: Console, place: str, cookie: str) -> Response:
    place = console.pages.root + place
    headers = {"Set-Cookie": cookie, "Cache-Control": "no-store"}
    return RedirectResponse(place, 303, headers)


@router.get("/console/assets/{digest}/{name}", FRONT)
async def asset(console: Console, digest: str, name: str) -> Response:
    """Return a file that pages load; its address changes with it."""
    found = console.pages.assets.get(name)
    if found is None or digest != console.pages.digest:
        raise NotFoundError("there is no such file of the console", hint="Load the page again")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(found.content, headers=headers, media_type=found.media_type)


@router.get("/console/datasets", FRONT)
async def datasets(
    console: Console, caller: IdentityDep, after: After = "", prefix: Prefix = ""
) -> Response:
    """List the datasets that the caller may read."""
    service = console.datasets
    ids = service.catalogue.ids
    found = await service.threads.start(ids, caller, after, PAGE, None, prefix)
    last = found[-1] if len(found) == PAGE else None
    return console.pages.answer("datasets", datasets=found, after=last, prefix=prefix)


@router.get("/console/files", LONG)
async def files(console: Console, caller: IdentityDep, path: Path = "") -> Response:
    """List files and directories below the dataset roots, to be registered."""
    service = console.datasets
    found = await service.threads.start(list_files, caller, service.catalogue.roots, path)
    entries = [{"name": name, "directory": found[name]} for name in islice(found, _FILES)]
    return json_response({"path": path, "entries": entries, "of": len(found)})


@router.get("/console/datasets/{ident}", FRONT)
async def dataset(console: Console, caller: IdentityDep, ident: str) -> Response:
    """Show a dataset."""
    service = console.datasets

    def look() -> dict[str, Any]:
        with closing(service.catalogue.open_any(caller, ident)) as opened:
            return opened.describe()

    return console.pages.answer("dataset", dataset=await service.threads.start(look))
