"""Routes of views: single tiles, plans, streams of tiles, raw bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import Query
from fastapi.responses import Response
from starlette.requests import Request

from app.errors import NotAcceptableError, NotFoundError, TooLargeError
from app.http.answers import WholeAnswer, head_response
from app.http.dependencies import DrainDep, IdentityDep, Routes
from app.http.identity import Identity, identity_of
from app.http.json_bodies import json_response, send_json, send_resource
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import answer_coding, not_modified
from app.http.openapi import NOT_MODIFIED, content_response, json_body, problem_responses
from app.server.drain import Drain
from app.server.lanes.table import FRONT, LONG, QUICK
from app.server.responses import Exchange, ExchangeResponse
from app.streams.plain import Whole, send_range
from core.iterate.sinks import npy_header
from core.tiles.plan import Tile

from .encoding import (
    npy_bytes,
    octets_of,
    partitions,
    plan_arrow,
    plan_json,
    plan_summary,
    tile_codec,
    tile_values,
)
from .service import TileService
from .streaming import stored_bytes, tile_bytes, tile_stream
from .views import OpenView

_TEXTS = {
    "select": 'Positions of the scan, one of {"all": true}, {"nav": [[start, stop, step], …]} for'
    ' each axis, {"frames": [3, 1, 1]} in this order, {"mask": base64 of np.packbits} and'
    ' {"shuffle": {"seed": 7}}',
    "sig": "Pixels of a frame, [start, stop] for each axis, such as [[32, 96], [0, 64]]",
    "bin": 'Positions and pixels along each axis that are summed: {"nav": 2, "sig": 4}',
    "tile_shape": "Shape of a tile, a length for each axis of the view; or the number of frames,"
    " then a length for each axis of a frame; default: about 2 MiB",
    "target_bytes": "Approximate size of a tile, instead of tile_shape",
    "dtype": "numpy type of the values, such as <f4; default: that of the dataset, wider for sums"
    " of integers, floating for corrected integers",
    "casting": "What is made of values that dtype does not hold: safe (the default), an error;"
    " wrap, the lowest bits; clip, the nearest that it holds",
    "corrections": "Whether the dark, gain and excluded pixels of the dataset apply: true or false",
    "sync_offset": "Frame at which the scan begins, of either sign; default: the dataset's",
    "missing": "Positions without a frame: skip (the default), zero or nan",
}
VIEW = {name: {"description": text} for name, text in _TEXTS.items()}
"""Schemas of the members of a view, all of which are optional."""


router = Routes(TileService, "/v1/datasets/{ident}", tags=["tiles"])

_MAX_LISTED = 5_000_000
"""Tiles of a plan in one table."""
MAX_COUNT = 100_000
"""Tiles of a plan that are listed at once."""
MAX_PARTS = 10_000
"""Partitions of a plan."""
MAX_BODY = 64 << 20
"""Bytes of the JSON of a view or reduction: of masks, lists of positions and weights in it."""
"""Size of a view in bytes: its mask or list may select many millions of frames."""
_VIEW = json_body(VIEW, {"select": {"nav": [[0, 2], [0, 2]]}, "dtype": "<f4"})
_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 408, 409, 410, 412, 413, 416, 422, 429, 503)
_TILE_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 409, 410, 412, 413, 422, 503)
_FRAMES = content_response(200, MEDIA_TYPES["frames"])
_JSON = content_response(200, "application/json")
_PLAN = content_response(200, "application/json", MEDIA_TYPES["arrow"])
_RAW = content_response(200, MEDIA_TYPES["bin"]) | content_response(206, MEDIA_TYPES["bin"])

After = Annotated[str | None, Query(description="Token to continue after")]
CodecName = Annotated[str | None, Query(description="Codec that compresses each tile: blosc2")]
MaxTiles = Annotated[int | None, Query(ge=1, description="Maximum number of tiles to send")]
First = Annotated[int, Query(ge=0, description="Index of the first tile to list")]
Count = Annotated[int, Query(ge=0, le=MAX_COUNT, description="Number of tiles to list")]


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
        before = npy_header(view.plan.dtype, tile.shape) if form == "npy" else b""
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


# The first route: viewers request single tiles constantly, so the way to them is short.
@router.get(
    "/views/{name}/tiles/{index}",
    QUICK,
    responses=content_response(200, *MEDIA.values()) | NOT_MODIFIED | _TILE_PROBLEMS,
)
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
    caller = identity_of(request.scope)
    check_format(format)

    def answer() -> WholeAnswer:
        with closing(tiles.views.registered(caller, name, ident)) as view:
            return one_tile(view, index, format, request)

    async def handle(exchange: Exchange) -> None:
        # Opened, read and encoded in one call: a trip to a thread and back costs as much
        # as reading a small tile.
        await (await tiles.threads.start(answer)).send(exchange)

    return ExchangeResponse(handle)


async def _stream(
    exchange: Exchange,
    view: OpenView,
    request: Request,
    tiles: TileService,
    drain: Drain,
    after: str | None,
    limit: int | None,
    codec: str | None,
) -> None:
    with closing(view):
        stream = tile_stream(
            view,
            0 if after is None else view.tokens.read(after, view.plan.tiles),
            limit,
            coding=answer_coding(request.headers),
            codec=None if codec is None else (codec, tile_codec(codec)),
            threads=tiles.threads,
            drain=drain,
        )
        await stream.send(exchange)


@router.post("/tiles", LONG, openapi_extra=_VIEW, responses=_FRAMES | _PROBLEMS)
async def stream_tiles(
    tiles: TileService,
    ident: str,
    request: Request,
    caller: IdentityDep,
    drain: DrainDep,
    after: After = None,
    max_tiles: MaxTiles = None,
    codec: CodecName = None,
) -> ExchangeResponse:
    """Stream the tiles of the view in the body as frames.

    Each frame carries the token that continues after it.
    """

    async def handle(exchange: Exchange) -> None:
        async with tiles.bodies.read(exchange, caller, MAX_BODY) as spec:
            view = await tiles.threads.start(tiles.views.open, caller, ident, spec, after)
            await _stream(exchange, view, request, tiles, drain, after, max_tiles, codec)

    return ExchangeResponse(handle)


@router.post("/plan", QUICK, openapi_extra=_VIEW, responses=_JSON | _PROBLEMS)
async def plan_view(
    tiles: TileService,
    ident: str,
    caller: IdentityDep,
    first: First = 0,
    count: Count = 1000,
    after: Annotated[
        str | None, Query(description="Token, of whose frames a view of a growing dataset is")
    ] = None,
) -> ExchangeResponse:
    """Plan the view in the body: its shapes and a list of its tiles."""

    async def handle(exchange: Exchange) -> None:
        async with tiles.bodies.read(exchange, caller, MAX_BODY) as spec:

            def plan() -> bytes:
                view = tiles.views.open(caller, ident, spec, after)
                view.close()
                if after is not None:
                    view.tokens.read(after, view.plan.tiles)
                return orjson.dumps({**_data(view), **plan_json(view.plan, first, count)})

            await send_json(exchange, await tiles.threads.start(plan))

    return ExchangeResponse(handle)


@router.post(
    "/views",
    QUICK,
    status_code=201,
    openapi_extra=_VIEW,
    responses=_JSON | content_response(201, "application/json") | _PROBLEMS,
)
async def register_view(tiles: TileService, ident: str, request: Request) -> ExchangeResponse:
    """Register a view; registering it again returns the same id."""
    # Not a dependency: what is refused should cost little.
    caller = identity_of(request.scope)

    async def handle(exchange: Exchange) -> None:
        async with tiles.bodies.read(exchange, caller, MAX_BODY) as spec:

            def register() -> tuple[str, bool, bytes]:
                name, view, created = tiles.views.register(caller, ident, spec)
                view.close()
                return name, created, _describe(name, ident, view)

            name, created, description = await tiles.threads.start(register)
            at = (request.scope, tiles.addresses, f"/v1/datasets/{ident}/views/{name}")
            await send_resource(exchange, *at, description, created)

    return ExchangeResponse(handle)


def _describe(name: str, dataset: str, view: OpenView) -> bytes:
    return orjson.dumps(
        {
            "id": name,
            "dataset": dataset,
            "view": view.view.to_json(),
            **_data(view),
            **plan_summary(view.plan),
        }
    )


def _data(view: OpenView) -> dict[str, Any]:
    """Say which data a view is of: if it grows, how many frames."""
    frames = view.tokens.frames
    return {
        "fingerprint": view.dataset.fingerprint.hex(),
        "token": view.tokens.token(0),
        **({} if frames is None else {"frames": frames}),
    }


async def _registered(
    tiles: TileService, caller: Identity, ident: str, name: str, after: str | None = None
) -> OpenView:
    return await tiles.threads.start(tiles.views.registered, caller, name, ident, after)


@router.get("/views/{name}", FRONT, operation_id="view", responses=_JSON | _PROBLEMS)
async def view_of(tiles: TileService, ident: str, name: str, caller: IdentityDep) -> Response:
    """Describe a view: its spec, shapes, dtype and size, and its first token."""

    def describe() -> bytes:
        view = tiles.views.registered(caller, name, ident)
        view.close()
        return _describe(name, ident, view)

    return json_response(await tiles.threads.start(describe))


@router.delete("/views/{name}", FRONT, responses=_PROBLEMS)
async def delete_view(tiles: TileService, ident: str, name: str, caller: IdentityDep) -> Response:
    """Forget a registered view; streams that run over it finish."""
    await tiles.threads.start(tiles.views.delete, caller, name, ident)
    return Response(status_code=204)


@router.get("/views/{name}/plan", QUICK, responses=_PLAN | _PROBLEMS)
async def view_plan(
    tiles: TileService,
    ident: str,
    name: str,
    request: Request,
    caller: IdentityDep,
    first: First = 0,
    count: Count = 1000,
    parts: Annotated[
        int, Query(ge=1, le=MAX_PARTS, description="Number of partitions for parallel readers")
    ] = 1,
    format: Annotated[str, Query(description="json or arrow")] = "json",  # noqa: A002 - the option's name
) -> Response:
    """List the tiles of a view in order, and partitions of them for parallel readers."""
    if format not in {"json", "arrow"}:
        raise NotAcceptableError(
            f"plans are not available as {format[:40]!r}", hint="Request json or arrow"
        )
    view = await _registered(tiles, caller, ident, name)
    view.close()
    if format == "arrow":
        if view.plan.tiles > _MAX_LISTED:
            raise TooLargeError(
                f"a plan of {view.plan.tiles} tiles is too large for Arrow",
                hint="Request json, page by page",
                limit="tiles",
                allowed=_MAX_LISTED,
                setting=None,
            )
        if request.method == "HEAD":
            return head_response(MEDIA_TYPES["arrow"], {})
        data = await tiles.threads.start(plan_arrow, view.plan)
        return Response(data, media_type=MEDIA_TYPES["arrow"])

    def plan() -> bytes:
        return orjson.dumps(
            {
                **plan_json(view.plan, first, count),
                "partitions": list(partitions(view.plan, parts, view.tokens)),
            }
        )

    return json_response(await tiles.threads.start(plan))


@router.get("/views/{name}/tiles", LONG, responses=_FRAMES | _PROBLEMS)
async def view_tiles(
    tiles: TileService,
    ident: str,
    name: str,
    request: Request,
    caller: IdentityDep,
    drain: DrainDep,
    after: After = None,
    max_tiles: MaxTiles = None,
    codec: CodecName = None,
) -> ExchangeResponse:
    """Stream the tiles of a view as frames, each with the token that continues after it."""

    async def handle(exchange: Exchange) -> None:
        view = await _registered(tiles, caller, ident, name, after)
        await _stream(exchange, view, request, tiles, drain, after, max_tiles, codec)

    return ExchangeResponse(handle)


@router.get("/views/{name}/raw", LONG, responses=_RAW | NOT_MODIFIED | _PROBLEMS)
async def view_raw(
    tiles: TileService, ident: str, name: str, request: Request, caller: IdentityDep
) -> ExchangeResponse:
    """Send the tiles of a view back to back as raw bytes: all of them, or a byte range."""

    async def handle(exchange: Exchange) -> None:
        view = await _registered(tiles, caller, ident, name)
        with closing(view):
            whole = Whole(
                view.plan.nbytes,
                view.etag("raw"),
                {
                    "Content-Type": "application/octet-stream",
                    "Cache-Control": "no-cache",
                    "Thalweg-Dtype": view.plan.dtype.str,
                    "Thalweg-Shape": json.dumps(list(view.plan.shape)),
                    "Thalweg-Tile-Shape": json.dumps(list(view.plan.tile_shape)),
                },
                partial(tile_bytes, view),
                partial(stored_bytes, view),
            )
            body = request.method != "HEAD"
            await send_range(exchange, whole, request.headers, tiles.threads, body=body)

    return ExchangeResponse(handle)
