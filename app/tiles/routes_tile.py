"""The route of one tile: raw values, npy or JSON, as a whole answer.

Viewers request it constantly, so its path through us is short.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Annotated

from fastapi import Query
from starlette.requests import Request

from app.errors import NotAcceptableError, NotFoundError
from app.http.answers import WholeAnswer
from app.http.dependencies import Routes
from app.http.identity import identity_of
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import not_modified
from app.http.openapi import NOT_MODIFIED, content_response, problem_responses
from app.server.lanes.table import QUICK, in_lane
from app.server.responses import Exchange, ExchangeResponse
from core.tiles.plan import Tile

from .encoding import npy_bytes, npy_head, octets_of, tile_values
from .service import TileService
from .views import OpenView

MEDIA = {"bin": MEDIA_TYPES["bin"], "npy": "application/x-npy", "json": "application/json"}
"""Media type of each format."""


def check_format(form: str) -> None:
    """Check that tiles are available in a format.

    Raises:
        NotAcceptableError: they are not.
    """
    if form not in _ENCODERS:
        raise NotAcceptableError(
            f"tiles are not available as {form[:40]!r}", hint="Request bin, npy or json"
        )


def one_tile(view: OpenView, index: int, form: str, request: Request) -> WholeAnswer:
    """Answer with one tile of a view.

    Args:
        view: the view.
        index: index of the tile.
        form: a key of ``MEDIA``.
        request: the request, whose ``If-None-Match`` may avoid reading the tile.

    Raises:
        NotFoundError: there is no such tile.
        CoreError, ServiceError: the tile cannot be read.
    """
    if not 0 <= index < view.plan.tiles:
        raise NotFoundError(f"the view has tiles 0 to {view.plan.tiles - 1}")
    tile = view.plan.tile(index)
    etag = view.etag(f"{index}-{form}")
    headers = _headers(view, tile, etag, form)
    if not_modified(request.headers, etag):
        return WholeAnswer(304, headers)
    if request.method == "HEAD" and form != "json":
        before = npy_head(view.plan.dtype, tile.shape) if form == "npy" else b""
        return WholeAnswer(200, headers, length=len(before) + tile.nbytes)
    return WholeAnswer(200, headers, _ENCODERS[form](view, tile))


def _headers(view: OpenView, tile: Tile, etag: str, form: str) -> Mapping[str, str]:
    return {
        "Content-Type": MEDIA[form],
        "ETag": etag,
        "Cache-Control": "no-cache",
        "Thalweg-Dtype": view.plan.dtype.str,
        "Thalweg-Shape": json.dumps(list(tile.shape)),
        "Thalweg-Origin": json.dumps(list(tile.origin)),
        "Thalweg-Token": view.tokens.token(tile.index + 1),
    }


_ENCODERS: Mapping[str, Callable[[OpenView, Tile], bytes | memoryview]] = {
    "bin": lambda view, tile: octets_of(view.read(tile)),
    "npy": lambda view, tile: npy_bytes(view.read(tile)),
    "json": lambda view, tile: tile_values(view.read(tile)),
}


router = Routes(TileService, "/v1/datasets/{ident}", tags=["tiles"])

_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 409, 410, 412, 413, 422, 503)


@router.get(
    "/views/{name}/tiles/{index}",
    responses=content_response(200, *MEDIA.values()) | NOT_MODIFIED | _PROBLEMS,
)
@in_lane(QUICK)
async def view_tile(
    tiles: TileService,
    ident: str,
    name: str,
    index: int,
    request: Request,
    format: Annotated[str, Query(description="bin, npy or json")] = "bin",  # noqa: A002 - the option's name
) -> ExchangeResponse:
    """Send one tile as raw values, npy or JSON."""
    # Not a dependency: FastAPI takes as long to resolve one as we take to read a tile.
    who = identity_of(request.scope)
    check_format(format)

    def answer() -> WholeAnswer:
        with closing(tiles.views.registered(who, name, ident)) as view:
            return one_tile(view, index, format, request)

    async def handle(exchange: Exchange) -> None:
        # Opened, read and encoded in one call: a trip to a thread and back costs as much
        # as reading a small tile.
        await (await tiles.threads.start(answer)).send(exchange)

    return ExchangeResponse(handle)
