"""Routes of tables that become loss sets, and of loss sets as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from app.errors import NotAcceptableError, ServiceError
from app.http.bodies import discard, read_whole
from app.http.decompression import MAX_INPUT, decoder
from app.http.dependencies import IdentityDep, Routes
from app.http.json_bodies import send_json
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import joined, not_modified
from app.http.openapi import NOT_MODIFIED, content_response, problem_responses
from app.http.trail import name_resource
from app.server.lanes.table import LONG, in_lane
from app.server.responses import Exchange, ExchangeResponse
from app.streams.plain import Piece, Whole, send_range

from .exchanging import BLOCKS, ImportOptions, export, export_tag
from .records import KIND, LOSSES, LossSet
from .routes import LossSetAnswer
from .service import PortfolioService

router = Routes(PortfolioService, "/v1/portfolios/loss-sets/{ident}", tags=["portfolios"])

_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 408, 409, 410, 413, 415, 416, 422, 429, 503)
_PIECE = 8 << 20
_TYPES = {name: MEDIA_TYPES[name] for name in ("csv", "ndjson", "arrow", "parquet", "bin")}


class ExportOptions(BaseModel):
    """How a loss set is written."""

    model_config = ConfigDict(extra="forbid")

    form: Literal["blocks", "selt", "splt", "ylt", "occurrence"] = Field(
        "selt", description="What rows are; blocks is the stored file, a row for each summary"
    )
    format: Literal["csv", "ndjson", "arrow", "parquet", "bin"] = Field(
        "csv", description="Format of the table"
    )


@router.put(
    "",
    operation_id="put_loss_set",
    response_class=ExchangeResponse,
    status_code=201,
    responses={200: {"model": LossSetAnswer}, 201: {"model": LossSetAnswer}, **_PROBLEMS},
)
@in_lane(LONG)
async def put_loss_set(
    service: PortfolioService,
    ident: str,
    options: Annotated[ImportOptions, Query()],
    request: Request,
    who: IdentityDep,
) -> ExchangeResponse:
    """Make a loss set of a table: csv, parquet or Arrow, as its first bytes tell."""
    losses = service.making.losses
    coding = joined(request.headers, "content-encoding")

    async def handle(exchange: Exchange) -> None:
        with losses.ledger.hold(who.payer, 0, "inputs") as hold:
            try:
                decode = decoder(coding, losses.max_input, hold.grow, MAX_INPUT)
                body = await read_whole(exchange.body, hold, decode, losses.rate, losses.threads)
            except ServiceError:
                await discard(exchange.body)
                raise

            def put() -> tuple[LossSet, bool]:
                return service.importing.put(who, ident, bytes(body), options)

            made, created = await service.threads.start(put)
        name_resource(request.scope, made.id)
        location = service.addresses.of(request.scope, f"/v1/portfolios/loss-sets/{made.id}")
        status = 201 if created else 200
        await send_json(exchange, made.describe(), status, {"Location": location})

    return ExchangeResponse(handle)


@router.get(
    "/losses",
    operation_id="loss_set_losses",
    response_class=ExchangeResponse,
    status_code=200,
    responses=content_response(200, *(kind.split(";")[0] for kind in _TYPES.values()))
    | NOT_MODIFIED
    | _PROBLEMS,
)
@in_lane(LONG)
async def loss_set_losses(
    service: PortfolioService,
    ident: str,
    options: Annotated[ExportOptions, Query()],
    request: Request,
    who: IdentityDep,
) -> ExchangeResponse:
    """Read a loss set as a table: its losses, or when its events happen."""
    start = service.threads.start

    async def handle(exchange: Exchange) -> None:
        record = await start(service.sets.find, who, ident)
        body = request.method != "HEAD"
        if options.form == BLOCKS:
            whole = _stored(service, record, options.format)
            await send_range(exchange, whole, request.headers, service.threads, body=body)
            return
        tag = export_tag(record, options.form, options.format)
        headers = {"ETag": tag, "Content-Type": _TYPES[options.format]}
        headers["Cache-Control"] = "private, no-cache"
        if not_modified(request.headers, tag):
            await exchange.start(304, headers)
            return
        pieces = await start(_pieces, service, record, options)
        piece = await start(next, pieces, None)
        await exchange.start(200, headers)
        while piece is not None and body:
            await exchange.write(piece)
            piece = await start(next, pieces, None)

    return ExchangeResponse(handle)


def _pieces(service: PortfolioService, record: LossSet, options: ExportOptions) -> Iterator[bytes]:
    return export(service.answers.source.open(record), options.form, options.format)


def _stored(service: PortfolioService, record: LossSet, encoding: str) -> Whole:
    if encoding != "arrow":
        raise NotAcceptableError("blocks are stored as Arrow", hint="Use format=arrow")
    blobs = service.sets.blobs

    def pieces(start: int, stop: int) -> Iterator[Piece]:
        for begin in range(start, stop, _PIECE):
            end = min(begin + _PIECE, stop)
            yield Piece(blobs.range(KIND, record.blob(LOSSES), begin, end))

    headers = {"Content-Type": _TYPES["arrow"], "Cache-Control": "private, no-cache"}
    return Whole(record.size(LOSSES) or 0, export_tag(record, BLOCKS, encoding), headers, pieces)
