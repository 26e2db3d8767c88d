"""The route of the read-only zarr v3 facade."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from starlette.requests import Request

from app.errors import NotFoundError
from app.http.dependencies import IdentityDep, StrictRoute, from_state
from app.http.openapi import NOT_MODIFIED, content_response, problem_responses
from app.http.ranges import not_modified
from app.server.lanes.table import QUICK, in_lane
from app.server.responses import Exchange, ExchangeResponse

from .service import TileService
from .zarr_facade import ZarrFacade

router = APIRouter(prefix="/zarr", tags=["zarr"], route_class=StrictRoute)

_OCTETS = "application/octet-stream"
TilesDep = Annotated[TileService, from_state("tiles")]


@router.get(
    "/{view}/{key:path}",
    operation_id="zarr",
    response_class=ExchangeResponse,
    status_code=200,
    responses=content_response(200, "application/json", "application/octet-stream")
    | NOT_MODIFIED
    | problem_responses(400, 401, 403, 404, 412, 422, 503),
)
@in_lane(QUICK)
async def zarr(
    view: str, key: str, request: Request, tiles: TilesDep, who: IdentityDep
) -> ExchangeResponse:
    """Read a key of the zarr store of a view."""

    async def handle(exchange: Exchange) -> None:
        opened = await tiles.threads.start(tiles.views.registered, who, view)
        try:
            store = ZarrFacade(opened)
            compute = store.find(key)
            if compute is None:
                raise NotFoundError(f"the store has no key {key[:80]!r}")
            etag = opened.etag(f"zarr-{key}")
            if not_modified(request.headers, etag):
                await exchange.start(304, {"ETag": etag})
                return
            size = store.size(key) if request.method == "HEAD" else None
            if size is not None:
                headers = {"ETag": etag, "Cache-Control": "no-cache", "Content-Type": _OCTETS}
                await exchange.start(200, headers, content_length=size)
                return
            content, media_type = await tiles.threads.start(compute)
            headers = {"Content-Type": media_type, "ETag": etag, "Cache-Control": "no-cache"}
            await exchange.start(200, headers, content_length=len(content))
            await exchange.end(content)
        finally:
            opened.close()

    return ExchangeResponse(handle)
