"""Routes of loss sets, of tables that become such, and of questions about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Annotated, Literal, cast, get_args

from fastapi import Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from app.engine.workers import Workers
from app.errors import NotAcceptableError
from app.http.dependencies import IdentityDep, Routes
from app.http.json_bodies import json_response, send_resource
from app.http.media_types import MEDIA_TYPES, PICTURE_TYPES
from app.http.negotiation import choose_format, joined, not_modified
from app.http.openapi import NOT_MODIFIED, content_response, json_body, problem_responses
from app.losses.pictures.options import PictureForm, Theme
from app.losses.routes import receive_file
from app.losses.schemas import given
from app.server.lanes.table import FRONT, LONG
from app.server.responses import Exchange, ExchangeResponse
from app.streams.plain import Piece, Whole, send_range

from .answering import Answer
from .asking import Asked
from .encoding import draw, encode, encode_json
from .exchanging import BLOCKS, ImportOptions, check_sample, export, export_tag
from .making import SetBody
from .query import Query as QueryBody
from .records import KIND, LOSSES, LossSet
from .service import PortfolioService

router = Routes(PortfolioService, "/v1/portfolios", tags=["portfolios"])

_MAX_BODY = 1 << 20
_PIECE = 8 << 20
_NOTES, _NOTE = 8, 400
"""Notes of an answer, and their characters, in a header."""
_PROBLEMS = problem_responses(400, 401, 403, 404, 408, 409, 410, 413, 422, 429, 503)
_TABLE_PROBLEMS = _PROBLEMS | problem_responses(406, 412, 415, 416)
_SETS = "/v1/portfolios/loss-sets"
_TableForm = Literal["csv", "ndjson", "arrow", "parquet", "bin"]
_Form = Literal["json", _TableForm, "svg", "png"]
_FORMATS = get_args(_Form)[1:]
_TYPES = {"json": "application/json", **MEDIA_TYPES, **PICTURE_TYPES}
_MEDIA = [_TYPES[form].split(";")[0] for form in get_args(_Form)]
_TABLE_MEDIA = [_TYPES[form].split(";")[0] for form in get_args(_TableForm)]


class LossSetAnswer(BaseModel):
    """A loss set."""

    id: str
    run: str | None = None
    perspective: str | None
    currency: str | None
    summary_set: int | None
    events: int = Field(description="Events with a loss")
    blocks: int = Field(description="Summaries with a loss, of all events")
    rows: int = Field(description="Losses above 0, numerical means among them")
    samples: int
    means: bool = Field(True, description="Whether it has numerical means")
    float_width: int
    periods: int
    occurrences: int
    weighted: bool = Field(description="Whether periods have weights of their own")
    dated: bool = Field(description="Whether occurrences have dates of the calendar")
    granular: bool = Field(description="Whether dates have hours and minutes")
    catalogue: str = Field(description="Digest of the occurrences and weights")
    dimensions: list[str]
    left_out: dict[str, int] = Field({}, description="Rows of a table that are not in it")
    notes: list[str] = Field([], description="What of it is likely a mistake")
    digest: str = Field(description="Digest of all content")
    bytes: int
    created: str


class LossSetList(BaseModel):
    """A page of loss sets."""

    loss_sets: list[LossSetAnswer]
    after: str | None = Field(description="Value of after for the next page; null if it is last")


@router.get("/loss-sets", FRONT, responses={200: {"model": LossSetList}, **_PROBLEMS})
async def list_loss_sets(
    service: PortfolioService,
    caller: IdentityDep,
    after: Annotated[str, Query(max_length=128, description="List ids after this one")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of things")] = 100,
) -> Response:
    """List the loss sets of the caller, in the order of their ids."""
    page = await service.threads.start(service.sets.page, caller, after, limit)
    last = page[-1].id if len(page) >= limit else None
    return json_response({"loss_sets": [known.describe() for known in page], "after": last})


@router.post(
    "/loss-sets",
    LONG,
    status_code=201,
    openapi_extra=json_body(SetBody, {"run": "0" * 32}),
    responses={200: {"model": LossSetAnswer}, 201: {"model": LossSetAnswer}, **_PROBLEMS},
)
async def create_loss_set(
    service: PortfolioService, request: Request, caller: IdentityDep
) -> ExchangeResponse:
    """Make a loss set of a sealed run; one that was made of the same before is found."""

    async def handle(exchange: Exchange) -> None:
        async with service.bodies.read(exchange, caller, _MAX_BODY) as values:
            loss_set, created = await service.threads.start(service.making.make, caller, values)
        at = (request.scope, service.addresses, f"{_SETS}/{loss_set.id}")
        await send_resource(exchange, *at, loss_set.describe(), created)

    return ExchangeResponse(handle)


@router.put(
    "/loss-sets/{ident}",
    LONG,
    status_code=201,
    responses={200: {"model": LossSetAnswer}, 201: {"model": LossSetAnswer}, **_TABLE_PROBLEMS},
)
async def put_loss_set(
    service: PortfolioService,
    ident: str,
    options: Annotated[ImportOptions, Query()],
    request: Request,
    caller: IdentityDep,
) -> ExchangeResponse:
    """Make a loss set of a table: csv, parquet or Arrow, as its first bytes tell."""

    async def handle(exchange: Exchange) -> None:
        async with receive_file(exchange, request, service.making.losses, caller) as body:

            def put() -> tuple[LossSet, bool]:
                return service.importing.put(caller, ident, bytes(body), options)

            loss_set, created = await service.threads.start(put)
        at = (request.scope, service.addresses, f"{_SETS}/{loss_set.id}")
        await send_resource(exchange, *at, loss_set.describe(), created)

    return ExchangeResponse(handle)


@router.get("/loss-sets/{ident}", FRONT, responses={200: {"model": LossSetAnswer}, **_PROBLEMS})
async def loss_set(service: PortfolioService, ident: str, caller: IdentityDep) -> Response:
    """Describe a loss set."""
    found = await service.threads.start(service.sets.find, caller, ident)
    return json_response(found.describe())


@router.delete("/loss-sets/{ident}", FRONT, responses=_PROBLEMS)
async def delete_loss_set(service: PortfolioService, ident: str, caller: IdentityDep) -> Response:
    """Delete a loss set; the run that it was made of stays."""
    await service.threads.start(service.sets.delete, caller, ident)
    return Response(status_code=204)


class ExportOptions(BaseModel):
    """How a loss set is written."""

    model_config = ConfigDict(extra="forbid")

    form: Literal["blocks", "selt", "splt", "ylt", "openquake", "climada", "elt", "occurrence"] = (
        Field("selt", description="What a row is; blocks is the stored file, of summaries")
    )
    format: _TableForm = Field("csv", description="Format of the table")
    sample: int | None = given(
        "For openquake and climada: which one, 0 for the mean", ge=0, lt=2**31
    )


@router.get(
    "/loss-sets/{ident}/losses",
    LONG,
    responses=content_response(200, *_TABLE_MEDIA)
    | content_response(206, *_TABLE_MEDIA)
    | NOT_MODIFIED
    | _TABLE_PROBLEMS,
)
async def loss_set_losses(
    service: PortfolioService,
    ident: str,
    options: Annotated[ExportOptions, Query()],
    request: Request,
    caller: IdentityDep,
) -> ExchangeResponse:
    """Read a loss set as a table: its losses, or when its events happen."""
    form, encoding, sample = options.form, options.format, options.sample
    threads = service.threads
    check_sample(form, sample)

    async def handle(exchange: Exchange) -> None:
        record = await threads.start(service.sets.find, caller, ident)
        if form == BLOCKS:
            whole, body = _stored(service, record, encoding), request.method != "HEAD"
            await send_range(exchange, whole, request.headers, threads, body=body)
            return

        def begin() -> Iterator[bytes]:
            return export(service.answers.source.open(record), form, encoding, sample)

        headers = _headers(encoding, export_tag(record, form, encoding, sample))
        await _send(exchange, request, threads, headers, begin)

    return ExchangeResponse(handle)


def _headers(form: str, tag: str) -> dict[str, str]:
    return {"ETag": tag, "Content-Type": _TYPES[form], "Cache-Control": "private, no-cache"}


async def _send(
    exchange: Exchange,
    request: Request,
    threads: Workers,
    headers: Mapping[str, str],
    begin: Callable[[], Iterator[bytes]],
    extras: Callable[[], Mapping[str, str]] = dict,
) -> None:
    """Answer with bytes that are made anew, and equal, whenever they are begun.

    Once they are, ``extras`` has further headers.
    """
    tag, body = headers["ETag"], request.method != "HEAD"
    headers = {**headers, "Accept-Ranges": "bytes"}
    if not_modified(request.headers, tag):
        await exchange.start(304, headers)
        return
    if body and "range" in request.headers:
        # An answer that was cut: how long it is shows once it was made.
        size = await threads.start(lambda: sum(map(len, begin())))
        whole = Whole(size, tag, {**headers, **extras()}, partial(_part, begin))
        await send_range(exchange, whole, request.headers, threads, body=body)
        return
    pieces = await threads.start(begin)
    piece = await threads.start(next, pieces, None)
    await exchange.start(200, {**headers, **extras()})
    while piece is not None and body:
        await exchange.write(piece)
        piece = await threads.start(next, pieces, None)


def _part(begin: Callable[[], Iterator[bytes]], start: int, stop: int) -> Iterator[Piece]:
    at = 0
    for piece in begin():
        low, high = max(start - at, 0), min(stop - at, len(piece))
        if low < high:
            yield Piece(memoryview(piece)[low:high])
        at += len(piece)


def _stored(service: PortfolioService, record: LossSet, encoding: str) -> Whole:
    if encoding != "arrow":
        raise NotAcceptableError("blocks are stored as Arrow", hint="Use format=arrow")
    blobs = service.sets.blobs

    def pieces(start: int, stop: int) -> Iterator[Piece]:
        for begin in range(start, stop, _PIECE):
            end = min(begin + _PIECE, stop)
            yield Piece(blobs.range(KIND, record.blob(LOSSES), begin, end))

    tag = export_tag(record, BLOCKS, encoding)
    return Whole(record.size(LOSSES) or 0, tag, _headers(encoding, tag), pieces)


class QueryOptions(BaseModel):
    """Options of the answer to a question."""

    model_config = ConfigDict(extra="forbid")

    format: _Form | None = given("Format of the answer; overrides Accept")
    theme: Theme = Field("light", description="Pictures: colours")


@router.post(
    "/query",
    LONG,
    openapi_extra=json_body(
        QueryBody,
        {
            "loss_sets": [{"id": "treaty"}],
            "report": "curves",
            "group_by": ["Region"],
            "return_periods": [250, 100, 50],
        },
    ),
    responses=content_response(200, *_MEDIA)
    | content_response(206, *_MEDIA)
    | NOT_MODIFIED
    | problem_responses(400, 401, 403, 404, 406, 408, 410, 412, 413, 416, 422, 429, 503),
)
async def query_portfolio(
    service: PortfolioService,
    options: Annotated[QueryOptions, Query()],
    request: Request,
    caller: IdentityDep,
) -> ExchangeResponse:
    """Answer a question about loss sets: averages, curves, losses of periods, layers.

    It changes nothing, and is posted as it may be too long for an address. So conditions and
    ranges are those of a GET: with ``If-None-Match``, an answer that is the same is 304.
    """
    form = options.format or _accepted(joined(request.headers, "accept"))
    answers = service.answers

    async def handle(exchange: Exchange) -> None:
        async with service.bodies.read(exchange, caller, _MAX_BODY) as values:
            question = await service.threads.start(answers.ask, caller, values)
        question.check_form(form)
        answer = cache(partial(answers.answer, question))

        def begin() -> Iterator[bytes]:
            return _encoded(question, answer(), form, options.theme)

        def extras() -> Mapping[str, str]:
            notes = [] if form == "json" else answer().notes
            shown = json.dumps([note[:_NOTE] for note in notes[:_NOTES]])
            return {"Thalweg-Notes": shown} if notes else {}

        headers = _headers(form, question.etag(f"{form} {options.theme}")) | {"Vary": "Accept"}
        await _send(exchange, request, service.waiting, headers, begin, extras)

    return ExchangeResponse(handle)


def _encoded(question: Asked, answer: Answer, form: str, theme: Theme) -> Iterator[bytes]:
    tables = answer.tables
    if form == "json":
        return encode_json(question.describe(answer.notes), tables)
    if form in PICTURE_TYPES:
        return iter([draw(tables, question.picture(cast("PictureForm", form), theme))])
    return encode(tables, form, question.query.report)


def _accepted(accept: str | None) -> str:
    """Return the format that a client prefers; JSON wherever it takes that."""
    if accept is None or "application/json" in accept or "*/*" in accept:
        return "json"
    return choose_format(accept, _FORMATS)
