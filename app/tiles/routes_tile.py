"""The route of one tile. Viewers request it constantly, so its path through us is short."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request

from app.http.dependencies import StrictRoute
from app.http.identity import identity_of
from app.http.openapi import NOT_MODIFIED, content_response, problem_responses
from app.server.lanes.table import QUICK, in_lane
from app.server.responses import Exchange, ExchangeResponse

from .one_tile import MEDIA, TileRequest, check_format, one_tile
from .service import TileService

router = APIRouter(prefix="/v1/datasets/{ident}", tags=["tiles"], route_class=StrictRoute)

_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 409, 410, 412, 413, 422, 503)


@router.get(
    "/views/{name}/tiles/{index}",
    operation_id="view_tile",
    response_class=ExchangeResponse,
    status_code=200,
    responses=content_response(200, *MEDIA.values()) | NOT_MODIFIED | _PROBLEMS,
)
@in_lane(QUICK)
async def view_tile(
    ident: str,
    name: str,
    index: int,
    request: Request,
    format: Annotated[str, Query(description="bin, npy or json")] = "bin",  # noqa: A002 - the option's name
) -> ExchangeResponse:
    """Send one tile as raw values, npy or JSON."""
    # Not dependencies: FastAPI takes as long to resolve one as we take to read a tile.
    tiles: TileService = request.app.state.tiles
    who = identity_of(request.scope)
    check_format(format)

    async def handle(exchange: Exchange) -> None:
        tile = TileRequest(who, ident, name, index, format, request.method == "HEAD")
        # Opened, read and encoded in one call: a trip to a thread and back costs as much
        # as reading a small tile.
        answer = await tiles.threads.start(one_tile, tiles.views, tile, request.headers)
        await answer.send(exchange)

    return ExchangeResponse(handle)
