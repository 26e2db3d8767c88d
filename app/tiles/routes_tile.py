"""The route of one tile: what a viewer asks for all day long, so it is kept short."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.datastructures import Headers
from starlette.requests import Request

from app.errors import NotAcceptableError, NotFoundError
from app.http.dependencies import check_options_once
from app.http.media_types import MEDIA_TYPES
from app.http.openapi import NOT_MODIFIED, content_response, problem_responses
from app.http.ranges import not_modified
from app.server.responses import Exchange, ExchangeResponse
from core.tiles.plan import Tile

from .encoding import npy_bytes, octets_of, tile_values
from .service import TileService
from .views import OpenView

router = APIRouter(prefix="/v1/datasets/{ident}", tags=["tiles"])

_MEDIA = {"bin": MEDIA_TYPES["bin"], "npy": "application/x-npy", "json": "application/json"}
_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 409, 410, 412, 413, 422, 503)


@router.head(
    "/views/{name}/tiles/{index}", include_in_schema=False, response_class=ExchangeResponse
)
@router.get(
    "/views/{name}/tiles/{index}",
    operation_id="view_tile",
    response_class=ExchangeResponse,
    status_code=200,
    responses=content_response(200, *_MEDIA.values()) | NOT_MODIFIED | _PROBLEMS,
)
async def view_tile(
    ident: str,
    name: str,
    index: int,
    request: Request,
    format: Annotated[str, Query(description="bin, npy or json")] = "bin",  # noqa: A002 - its name outside
) -> ExchangeResponse:
    """One tile: plain values, or a file that numpy loads."""
    check_options_once(request)
    # Not a dependency: FastAPI would take as long to resolve it as reading a tile takes.
    tiles: TileService = request.app.state.tiles
    if format not in _encoders:
        raise NotAcceptableError(f"a tile comes as bin, npy or json, not as {format[:40]!r}")

    async def handle(exchange: Exchange) -> None:
        head = request.method == "HEAD"
        wanted = (ident, name, index, format)
        # Opened, read and encoded in one go: a way to a thread and back costs as much as
        # reading a small tile.
        made = await tiles.threads.start(_one_tile, tiles, wanted, request.headers, head)
        await exchange.start(made.status, made.headers, content_length=made.length)
        if made.data is not None:
            await exchange.end(made.data)

    return ExchangeResponse(handle)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    length: int | None
    data: bytes | memoryview | None


def _one_tile(
    tiles: TileService, wanted: tuple[str, str, int, str], headers: Headers, head: bool
) -> _Answer:
    ident, name, index, form = wanted
    view = tiles.views.registered(name, ident)
    try:
        if not 0 <= index < view.plan.tiles:
            raise NotFoundError(f"the view has tiles 0 to {view.plan.tiles - 1}")
        tile = view.plan.tile(index)
        etag = view.etag(f"{index}-{form}")
        about = _tile_headers(view, tile, etag, form)
        if not_modified(headers, etag):
            return _Answer(304, about, None, None)
        if head and form == "bin":
            return _Answer(200, about, tile.nbytes, None)
        data = _encoders[form](view, tile)
        return _Answer(200, about, len(data), data)
    finally:
        view.close()


def _tile_headers(view: OpenView, tile: Tile, etag: str, form: str) -> Mapping[str, str]:
    return {
        "Content-Type": _MEDIA[form],
        "ETag": etag,
        "Cache-Control": "no-cache",
        "Thalweg-Dtype": view.plan.dtype.str,
        "Thalweg-Shape": json.dumps(list(tile.shape)),
        "Thalweg-Origin": json.dumps(list(tile.origin)),
        "Thalweg-Token": view.tokens.token(tile.index + 1),
    }


_encoders: dict[str, Callable[[OpenView, Tile], bytes | memoryview]] = {
    "bin": lambda view, tile: octets_of(view.read(tile)),
    "npy": lambda view, tile: npy_bytes(view.read(tile)),
    "json": lambda view, tile: tile_values(view.read(tile)),
}
