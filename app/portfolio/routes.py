"""Routes of loss sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, cast

from fastapi import Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from app.http.dependencies import IdentityDep, Routes
from app.http.json_bodies import json_response, send_json
from app.http.media_types import MEDIA_TYPES, PICTURE_TYPES
from app.http.negotiation import choose_format, joined, not_modified
from app.http.openapi import (
    NO_CONTENT,
    NOT_MODIFIED,
    content_response,
    json_body,
    problem_responses,
)
from app.http.trail import name_resource
from app.losses.pictures.options import PictureForm, Theme
from app.losses.schemas import given
from app.server.lanes.table import FRONT, LONG, in_lane
from app.server.responses import Exchange, ExchangeResponse

from .answering import Answers, Asked
from .encoding import draw, encode, encode_json
from .making import SetBody
from .query import Query as QueryBody
from .service import PortfolioService

router = Routes(PortfolioService, "/v1/portfolios", tags=["portfolios"])

_MAX_BODY = 1 << 20
_PROBLEMS = problem_responses(400, 401, 403, 404, 408, 409, 410, 413, 422, 429, 503)
_SETS = "/v1/portfolios/loss-sets"
_FORMATS = ("csv", "ndjson", "arrow", "parquet", "bin", "svg", "png")
_TYPES = {"json": "application/json", **MEDIA_TYPES, **PICTURE_TYPES}


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
    digest: str = Field(description="Digest of all content")
    bytes: int
    created: str


class LossSetList(BaseModel):
    """A page of loss sets."""

    loss_sets: list[LossSetAnswer]
    after: str | None = Field(description="Value of after for the next page; null if it is last")


@router.get(
    "/loss-sets",
    operation_id="list_loss_sets",
    responses={200: {"model": LossSetList}, **_PROBLEMS},
)
@in_lane(FRONT)
async def list_loss_sets(
    service: PortfolioService,
    who: IdentityDep,
    after: Annotated[str, Query(max_length=128, description="List ids after this one")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of things")] = 100,
) -> Response:
    """List the loss sets of the caller, in the order of their ids."""
    page = await service.threads.start(service.sets.page, who, after, limit)
    last = page[-1].id if len(page) >= limit else None
    return json_response({"loss_sets": [known.describe() for known in page], "after": last})


@router.post(
    "/loss-sets",
    operation_id="create_loss_set",
    response_class=ExchangeResponse,
    status_code=201,
    openapi_extra=json_body(SetBody, {"run": "0" * 32}),
    responses={200: {"model": LossSetAnswer}, 201: {"model": LossSetAnswer}, **_PROBLEMS},
)
@in_lane(LONG)
async def create_loss_set(
    service: PortfolioService, request: Request, who: IdentityDep
) -> ExchangeResponse:
    """Make a loss set of a sealed run; one that was made of the same before is found."""

    async def handle(exchange: Exchange) -> None:
        async with service.bodies.read(exchange, who, _MAX_BODY) as values:
            made, created = await service.threads.start(service.making.make, who, values)
        name_resource(request.scope, made.id)
        location = service.addresses.of(request.scope, f"{_SETS}/{made.id}")
        status = 201 if created else 200
        await send_json(exchange, made.describe(), status, {"Location": location})

    return ExchangeResponse(handle)


@router.get(
    "/loss-sets/{ident}",
    operation_id="loss_set",
    responses={200: {"model": LossSetAnswer}, **_PROBLEMS},
)
@in_lane(FRONT)
async def loss_set(service: PortfolioService, ident: str, who: IdentityDep) -> Response:
    """Describe a loss set."""
    found = await service.threads.start(service.sets.find, who, ident)
    return json_response(found.describe())


@router.delete(
    "/loss-sets/{ident}",
    operation_id="delete_loss_set",
    status_code=204,
    response_class=Response,
    responses=NO_CONTENT | _PROBLEMS,
)
@in_lane(FRONT)
async def delete_loss_set(service: PortfolioService, ident: str, who: IdentityDep) -> Response:
    """Delete a loss set; the run that it was made of stays."""
    await service.threads.start(service.sets.delete, who, ident)
    return Response(status_code=204)


_Form = Literal["json", "csv", "ndjson", "arrow", "parquet", "bin", "svg", "png"]


class QueryOptions(BaseModel):
    """Options of the answer to a question."""

    model_config = ConfigDict(extra="forbid")

    format: _Form | None = given("Format of the answer; overrides Accept")
    theme: Theme = Field("light", description="Pictures: colours")


@router.post(
    "/query",
    operation_id="query_portfolio",
    response_class=ExchangeResponse,
    status_code=200,
    openapi_extra=json_body(
        QueryBody,
        {
            "loss_sets": [{"id": "treaty"}],
            "report": "curves",
            "group_by": ["Region"],
            "return_periods": [250, 100, 50],
        },
    ),
    responses=content_response(
        200, "application/json", *(_TYPES[form].split(";")[0] for form in _FORMATS)
    )
    | NOT_MODIFIED
    | problem_responses(400, 401, 403, 404, 406, 408, 410, 413, 422, 429, 503),
)
@in_lane(LONG)
async def query_portfolio(
    service: PortfolioService,
    options: Annotated[QueryOptions, Query()],
    request: Request,
    who: IdentityDep,
) -> ExchangeResponse:
    """Answer a question about loss sets: averages, curves, losses of periods, layers."""
    form = options.format or _accepted(joined(request.headers, "accept"))

    async def handle(exchange: Exchange) -> None:
        answers, waiting = service.answers, service.waiting
        async with service.bodies.read(exchange, who, _MAX_BODY) as values:
            asked = await service.threads.start(answers.ask, who, values)
        etag = asked.etag(f"{form} {options.theme}")
        headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Accept"}
        headers["Content-Type"] = _TYPES[form]
        if not_modified(request.headers, etag):
            await exchange.start(304, headers)
            return
        pieces = await waiting.start(_begin, answers, asked, form, options.theme)
        piece = await waiting.start(next, pieces, None)
        await exchange.start(200, headers)
        while piece is not None:
            await exchange.write(piece)
            piece = await waiting.start(next, pieces, None)

    return ExchangeResponse(handle)


def _begin(answers: Answers, asked: Asked, form: str, theme: Theme) -> Iterator[bytes]:
    """Compute an answer; yield its bytes."""
    tables = answers.answer(asked)
    if form == "json":
        return encode_json(asked.about(), tables)
    if form in PICTURE_TYPES:
        return iter([draw(tables, asked.picture(cast("PictureForm", form), theme))])
    return encode(tables, form, asked.query.report)


def _accepted(accept: str | None) -> str:
    """Return the format that a client prefers; JSON wherever it takes that."""
    if accept is None or "application/json" in accept or "*/*" in accept:
        return "json"
    return choose_format(accept, _FORMATS)
