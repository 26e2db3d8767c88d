"""Routes for operators, and the documentation of the service.

The documentation is a site, which ``make docs`` packs into one file. Pages are looked up by name in
that file, so no path can lead out of it. Each page has a policy of its own: nothing is loaded but
from this service, and of scripts and styles that are written in the page only those that it was
packed with::

    Content-Security-Policy: default-src 'none'; script-src 'self' 'sha256-…'; …
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError  # noqa: N812 - a class

from fastapi import Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import ChainableUndefined, Environment, PackageLoader
from pydantic import BaseModel, Field
from xxhash import xxh3_64_hexdigest

from app.errors import KINDS, NotFoundError
from app.health import readiness
from app.server.lanes.table import FRONT
from app.telemetry import METRICS_TYPE, Metrics

from .dependencies import DrainDep, Routes
from .json_bodies import json_response
from .media_types import FILE_TYPES
from .negotiation import not_modified
from .openapi import problem_responses

BUILT = Path(__file__).with_name("site.zip")
"""Where ``make docs`` leaves the site, and wheels have it."""
_SCRIPT_TAG = re.compile(rb"<script(?:\s[^>]*)?>(.*?)</script>", re.DOTALL)
_STYLE_TAG = re.compile(rb"<style(?:\s[^>]*)?>(.*?)</style>", re.DOTALL)
_STYLE_VALUE = re.compile(rb'\sstyle="([^"]+)"')
_POLICY = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self'{styles}; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class Document(NamedTuple):
    """A file of the site."""

    content: bytes
    media_type: str

    @property
    def etag(self) -> str:
        """The tag of the content."""
        return f'"{xxh3_64_hexdigest(self.content)}"'

    @property
    def headers(self) -> dict[str, str]:
        """The headers of an answer with it."""
        headers = {"ETag": self.etag, "Cache-Control": "no-cache", "Referrer-Policy": "same-origin"}
        if self.media_type.startswith(("text/html", "image/svg")):
            headers["Content-Security-Policy"] = policy_of(self.content)
        return headers


class Site:
    """The documentation.

    Args:
        path: the file that ``make docs`` has packed; by default the one of the installation. It
            may be replaced while the service runs.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = BUILT if path is None else path

    @property
    def is_built(self) -> bool:
        """Whether there is a site."""
        return self._path.is_file()

    def read(self, name: str) -> Document:
        """Read a file; a folder stands for the index in it.

        Raises:
            NotFoundError: there is no such file, or no site.
        """
        whole = f"{name}index.html" if name.endswith("/") or not name else name
        try:
            with ZipFile(self._path) as archive:
                content = archive.read(whole)
        except KeyError:
            raise NotFoundError(
                f"the documentation has no page {name[:80]!r}", hint="Begin at /docs/"
            ) from None
        except (OSError, BadZipFile, ZlibError) as error:
            raise NotFoundError(
                "this service has no documentation site that can be read",
                hint="/docs lists all routes and problems; make docs builds the site",
            ) from error
        kind = whole.rpartition(".")[2]
        return Document(content, FILE_TYPES.get(kind, "application/octet-stream"))


def policy_of(page: bytes) -> str:
    """Return the Content-Security-Policy of a page, by the hashes of what is written in it."""
    scripts = _hashes(_SCRIPT_TAG.findall(page))
    attributes = _hashes(html.unescape(a.decode()).encode() for a in _STYLE_VALUE.findall(page))
    styles = _hashes(_STYLE_TAG.findall(page))
    styles += f" 'unsafe-hashes'{attributes}" if attributes else ""
    return _POLICY.format(scripts=scripts, styles=styles)


def _hashes(texts: Iterable[bytes]) -> str:
    return "".join(sorted({f" {_hash(text)}" for text in texts if text}))


def _hash(text: bytes) -> str:
    """The source of a script or style, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


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
    site: Site
    places: Mapping[str, str]
    """Addresses of other pages for people, by name."""


# Balancers and Prometheus add options of their own.
router = Routes(Operations, "", APIRoute, tags=["operations"])

_STYLE = files("app.http").joinpath("explorer.css").read_text()
_SCRIPT = files("app.http").joinpath("explorer.js").read_text()


def _headers(policy: str) -> dict[str, str]:
    policy = f"default-src 'none'; style-src {_hash(_STYLE.encode())}; {policy}"
    policy += "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    # Requests that change something have to say which page sends them.
    return {"Content-Security-Policy": policy, "Referrer-Policy": "same-origin"}


PAGE_HEADERS = _headers("")
"""Of pages on which nothing may be loaded, run, embedded or sent; their style is the one above."""
DOCS_HEADERS = _headers(
    f"script-src {_hash(_SCRIPT.encode())}; connect-src 'self'; img-src blob:; "
)
"""Of the page of all routes, whose script sends requests to this service."""


@router.get("/healthz", FRONT, operation_id="healthz", response_model=Health)
async def healthz(_operations: Operations) -> Response:
    """Report that the process is alive."""
    return json_response({"status": "ok"})


@router.get(
    "/readyz",
    FRONT,
    operation_id="readyz",
    response_model=Readiness,
    responses={503: {"description": "Not ready for requests", "model": Readiness}},
)
async def readyz(operations: Operations, drain: DrainDep) -> Response:
    """Report whether the service is ready for requests, and if not, which part fails."""
    described = await operations.readiness.describe(draining=drain.draining)
    return json_response(described, 200 if described["status"] == "ready" else 503)


@router.get(
    "/metrics",
    FRONT,
    operation_id="metrics",
    response_class=PlainTextResponse,
    responses=problem_responses(400, 401, 403, 503),
)
async def metrics(operations: Operations) -> Response:
    """Return the metrics of all workers, in Prometheus text format."""
    # Ten milliseconds of work. Not in the threads of requests: the page is for when they are busy.
    text = await asyncio.to_thread(operations.metrics.text)
    return Response(text, media_type=METRICS_TYPE)


@router.get(
    "/problems/{code}",
    FRONT,
    operation_id="problem",
    response_class=HTMLResponse,
    responses=problem_responses(404),
)
async def explain_problem(operations: Operations, code: str) -> Response:
    """Explain a problem code."""
    if code not in KINDS:
        raise NotFoundError(f"there is no problem {code[:80]!r}", hint="See /docs for a list")
    kind = KINDS[code]
    template = _TEMPLATES.get_template("problem.html")
    page = template.render(title=kind.title, places=operations.places, code=code, kind=kind)
    return HTMLResponse(page, headers=PAGE_HEADERS)


@router.get("/", FRONT, include_in_schema=False)
async def root(_operations: Operations) -> Response:
    """Lead to the documentation, where there is no console."""
    return RedirectResponse("docs")


@router.get("/docs", FRONT, operation_id="docs", include_in_schema=False)
async def docs(operations: Operations, request: Request) -> Response:
    """Return a page that lists all routes and problems, and sends requests."""
    document = request.app.openapi()
    page = _TEMPLATES.get_template("docs.html").render(
        title=document["info"]["title"],
        places=operations.places,
        document=document,
        kinds=sorted(KINDS.items(), key=lambda item: (item[1].status, item[0])),
        has_site=operations.site.is_built,
    )
    return HTMLResponse(page, headers=DOCS_HEADERS)


@router.get("/docs/{name:path}", FRONT, include_in_schema=False)
async def document(operations: Operations, name: str, request: Request) -> Response:
    """Return a file of the documentation."""
    found = await asyncio.to_thread(operations.site.read, name)
    if not_modified(request.headers, found.etag):
        return Response(status_code=304, headers=found.headers)
    return Response(found.content, headers=found.headers, media_type=found.media_type)


def _described(parameter: Mapping[str, Any]) -> str:
    """Describe a parameter of an OpenAPI document, with its choices and its default."""
    schema = parameter.get("schema", {})
    choices = schema.get("enum") or [
        value for option in schema.get("anyOf", ()) for value in option.get("enum", ())
    ]
    description = str(parameter.get("description", ""))
    if choices:
        description += f" ({' | '.join(map(str, choices))})"
    if schema.get("default") not in {None, ""}:
        description += f"; default {schema['default']}"
    return description


_TEMPLATES = Environment(
    loader=PackageLoader("app.http"),
    autoescape=True,
    trim_blocks=True,
    undefined=ChainableUndefined,
)
_TEMPLATES.globals.update(style=_STYLE, script=_SCRIPT, described=_described)
