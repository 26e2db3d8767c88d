"""Routes of reductions, as arrays and as images."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from starlette.requests import Request

from app.errors import BadRequestError, InvalidOptionError
from app.http.answers import head_response
from app.http.dependencies import DrainDep, IdentityDep, StrictRoute, from_state
from app.http.json_bodies import parse_object
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import answer_coding
from app.http.openapi import JSON_BODY, NOT_MODIFIED, content_response, problem_responses
from app.http.ranges import not_modified
from app.server.lanes.table import LONG, QUICK, in_lane
from app.server.responses import Exchange, ExchangeResponse
from core.arrays import Floats

from .pictures import check_map, png, scaled
from .reducing import reduction_stream
from .service import TileService

router = APIRouter(
    prefix="/v1/datasets/{ident}",
    tags=["reductions"],
    route_class=StrictRoute,
    responses=problem_responses(400, 401, 403, 404, 408, 409, 412, 413, 422, 503),
)

_MAX_BODY = 64 << 20
TilesDep = Annotated[TileService, from_state("tiles")]
Results = dict[str, Floats]


@router.post(
    "/reduce",
    operation_id="reduce_view",
    response_class=ExchangeResponse,
    status_code=200,
    openapi_extra=JSON_BODY,
    responses=content_response(200, MEDIA_TYPES["frames"]),
)
@in_lane(LONG)
async def reduce_view(
    ident: str, request: Request, tiles: TilesDep, who: IdentityDep, drain: DrainDep
) -> ExchangeResponse:
    """Reduce a view; the frames are heartbeats with the progress, then an array per result."""

    async def handle(exchange: Exchange) -> None:
        async with tiles.bodies.read(exchange, who, _MAX_BODY) as body:
            view, job = await tiles.threads.start(tiles.reduction, who, ident, body)
            try:
                coding = answer_coding(request.headers)
                stream = reduction_stream(
                    job,
                    coding=coding,
                    threads=tiles.threads,
                    reducing=tiles.reducing,
                    drain=drain,
                )
                await stream.send(exchange)
            finally:
                view.close()

    return ExchangeResponse(handle)


@router.get(
    "/image.png",
    operation_id="image",
    response_class=Response,
    responses=content_response(200, "image/png") | NOT_MODIFIED,
)
@in_lane(QUICK)
async def image(
    ident: str,
    request: Request,
    tiles: TilesDep,
    who: IdentityDep,
    reduction: Annotated[
        str, Query(description="Reduction as JSON; default: the sum over frames")
    ] = '{"op":"sum"}',
    view: Annotated[str, Query(description="View as JSON; default: the whole dataset")] = "{}",
    result: Annotated[
        str | None, Query(description="Result to show if the reduction has several")
    ] = None,
    low: Annotated[float, Query(ge=0, le=100, description="Percentile shown darkest")] = 1.0,
    high: Annotated[float, Query(ge=0, le=100, description="Percentile shown brightest")] = 99.0,
    map: Annotated[str, Query(description="Colour map: gray or viridis")] = "gray",  # noqa: A002 - the option's name
) -> Response:
    """Render a reduction as a PNG image; HEAD does not, so its answer has no Content-Length."""
    check_map(map)
    body = {"view": _object(view, "view"), "reduction": _object(reduction, "reduction")}

    def render() -> Response:
        opened, job = tiles.reduction(who, ident, body)
        try:
            look = hashlib.blake2b(repr((result, low, high, map)).encode(), digest_size=8)
            etag = f'"{job.name}-{look.hexdigest()}"'
            headers = {"Cache-Control": "no-cache", "ETag": etag}
            if not_modified(request.headers, etag):
                return Response(status_code=304, headers=headers)
            if request.method == "HEAD":
                return head_response("image/png", headers)
            results = job.run(lambda _done, _of: None, lambda: False)
        finally:
            opened.close()
        data = png(scaled(_select(results, result), low, high), map)
        return Response(data, media_type="image/png", headers=headers)

    return await tiles.reducing.start(render)


def _object(text: str, name: str) -> Mapping[str, Any]:
    try:
        return parse_object(text, name)
    except BadRequestError as e:
        raise InvalidOptionError(str(e), hint=e.hint, option=name) from e


def _select(results: Results, name: str | None) -> Floats:
    if name is None:
        return next(iter(results.values()))
    if name not in results:
        raise InvalidOptionError(
            f"there is no result {name[:40]!r}", hint=f"Use {', '.join(results)}", option="result"
        )
    return results[name]
