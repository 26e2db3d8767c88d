"""Routes of pipelines: registration, streams of batches, single batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from app.engine.workers import Workers
from app.errors import InvalidOptionError
from app.http.addresses import Addresses
from app.http.answers import WholeAnswer
from app.http.compression import compressor
from app.http.dependencies import DrainDep, IdentityDep, Routes
from app.http.identity import identity_of
from app.http.json_bodies import JsonBodies, json_response, send_resource
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import Headers, answer_coding, choose_format, joined, not_modified
from app.http.openapi import (
    MAX_NUMBER,
    NOT_MODIFIED,
    content_response,
    json_body,
    problem_responses,
)
from app.server.lanes.table import FRONT, LONG, QUICK
from app.server.responses import Exchange, ExchangeResponse
from app.streams.driver import Limits
from app.telemetry import Metrics
from core.errors import PositionError
from core.pipelines.reference import reference, reference_of
from core.pipelines.spec import MEMBERS

from .opened import OpenPipeline
from .registry import Pipelines
from .streaming import (
    BATCH_FORMATS,
    Selection,
    batch_headers,
    batch_stream,
    encode_batch,
    make_batch,
)

MEDIA = {"frames": MEDIA_TYPES["frames"], "arrow": MEDIA_TYPES["arrow"], "npy": "application/x-npy"}
"""Media type of each format."""
_IMMUTABLE = "public, max-age=31536000, immutable"
_MAX_BODY = 1 << 20
_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 408, 409, 410, 412, 413, 416, 422, 429, 503)
_JSON = content_response(200, "application/json")


class RankQuery(BaseModel):
    """The position in a pipeline, and the rank whose rows to send."""

    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(
        None, description="Token to continue after; without it, start from the beginning"
    )
    offset: int = Field(
        0, ge=0, le=MAX_NUMBER, description="Number of batches to skip after the token"
    )
    rank: int = Field(
        0, ge=0, le=MAX_NUMBER, description="Rank whose rows of each batch to send, from 0"
    )
    world: int = Field(1, ge=1, le=MAX_NUMBER, description="Number of ranks that share each batch")


class BatchesQuery(RankQuery):
    """Options of a stream of batches; limits above the server's are lowered to the server's."""

    every: int = Field(
        1, ge=1, le=MAX_NUMBER, description="Send one of so many batches; the rest are passed over"
    )
    max_batches: int | None = Field(None, ge=0, description="Maximum number of batches to send")
    max_bytes: int | None = Field(
        None, ge=0, description="Start no batch after this many bytes of arrays"
    )
    max_seconds: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Start no batch after this many seconds"
    )
    max_epochs: int | None = Field(
        None, ge=0, description="End after this many epochs; not with every"
    )


class BatchQuery(RankQuery):
    """Options of one batch."""

    format: Literal["frames", "npy", "arrow"] | None = Field(None, description="Overrides Accept")


def one_batch(
    open_at: Callable[[str | None], OpenPipeline],
    release: Callable[[OpenPipeline], None],
    query: BatchQuery,
    form: str,
    requested: Headers,
) -> WholeAnswer:
    """Answer with the batch ``query.offset`` batches after a token.

    Args:
        open_at: opens the pipeline after a token.
        release: closes it.
        query: the batch, and the rank whose rows of it to send.
        form: a key of ``MEDIA``.
        requested: headers of the request; ``If-None-Match`` may avoid building the batch.

    Raises:
        NotFoundError: there is no such pipeline.
        PositionError: the pipeline ends before that batch.
        NotAcceptableError: the format cannot hold the batch.
        CoreError, ServiceError: the batch cannot be built.
    """
    opened = open_at(query.after)
    try:
        opened.check_rank(query.rank, query.world)
        coding = answer_coding(requested)
        etag = opened.etag(query.offset, query.rank, query.world, form, coding or "identity")
        headers = _headers(etag, form, coding, immutable=query.after is not None)
        if not_modified(requested, etag):
            return WholeAnswer(304, headers)
        data, more = _encoded(opened, query, form)
        if coding is not None:
            encoder = compressor(coding)
            data = encoder.compress(data, flush=False) + encoder.end()
        return WholeAnswer(200, {**headers, **more}, data)
    finally:
        release(opened)


def _headers(etag: str, form: str, coding: str | None, *, immutable: bool) -> dict[str, str]:
    """Return the headers known before the batch is built.

    Args:
        etag: entity tag of the answer.
        form: a key of ``MEDIA``.
        coding: compression of the answer.
        immutable: whether the request has a token, which pins the data.
    """
    headers = {
        "Content-Type": MEDIA[form],
        "ETag": etag,
        "Cache-Control": _IMMUTABLE if immutable else "no-cache",
        "Vary": "Accept, Accept-Encoding",
    }
    if coding is not None:
        headers["Content-Encoding"] = coding
    return headers


def _encoded(opened: OpenPipeline, query: BatchQuery, form: str) -> tuple[bytes, dict[str, str]]:
    """Build and encode the batch; return it with the headers that describe it."""
    state = opened.pipeline.skip(opened.start, query.offset)
    step = opened.pipeline.step(state, query.rank, query.world)
    if step is None:
        batches = opened.pipeline.batches
        known = None if batches is None else f"Use an offset within its {batches} batches"
        raise PositionError(
            "the pipeline ends before that batch", hint=next(iter(opened.notes(state)), known)
        )
    batch = make_batch(opened, step)
    return encode_batch(opened, step, batch, form), batch_headers(batch)


@dataclass(frozen=True, slots=True)
class PipelineService:
    """Everything the routes of pipelines and batches need."""

    pipelines: Pipelines
    threads: Workers
    bodies: JsonBodies
    metrics: Metrics
    addresses: Addresses


router = Routes(PipelineService, "/v1/pipelines", tags=["pipelines"])
stages = Routes(PipelineService, "/v1/stages", tags=["pipelines"])


@router.get("", FRONT, responses=_JSON | _PROBLEMS)
async def list_pipelines(
    service: PipelineService,
    caller: IdentityDep,
    after: Annotated[str, Query(max_length=128, description="List ids after this one")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of ids")] = 100,
) -> Response:
    """List the ids of the pipelines, in order."""
    ids = await service.threads.start(service.pipelines.ids, caller, after, limit)
    return json_response({"pipelines": ids, "after": ids[-1] if len(ids) == limit else None})


@router.post(
    "",
    QUICK,
    status_code=201,
    openapi_extra=json_body(MEMBERS, reference()["order"]["example"]),
    responses=_JSON | content_response(201, "application/json") | _PROBLEMS,
)
async def register_pipeline(
    service: PipelineService, request: Request, caller: IdentityDep
) -> ExchangeResponse:
    """Register a pipeline under the digest of its spec; registering it again returns it.

    ``stages`` run in the order of the list. ``order`` is the version of the rules by which they
    draw from their seeds: 1, the only one, and the default. Batches of an order never change.
    """

    async def handle(exchange: Exchange) -> None:
        async with service.bodies.read(exchange, caller, _MAX_BODY) as values:

            def register() -> tuple[dict[str, Any], bool]:
                opened, created = service.pipelines.register(caller, values)
                with closing(opened):
                    return opened.describe(), created

            description, created = await service.threads.start(register)
            at = (request.scope, service.addresses, f"/v1/pipelines/{description['id']}")
            await send_resource(exchange, *at, description, created)

    return ExchangeResponse(handle)


@router.get("/{ident}", FRONT, responses=_JSON | _PROBLEMS)
async def pipeline(service: PipelineService, ident: str, caller: IdentityDep) -> Response:
    """Describe a pipeline: its spec, data, schema, number of batches and first token."""

    def describe() -> dict[str, Any]:
        with closing(service.pipelines.open(caller, ident)) as opened:
            return opened.describe()

    return json_response(await service.threads.start(describe))


@router.delete("/{ident}", FRONT, responses=_PROBLEMS)
async def delete_pipeline(service: PipelineService, ident: str, caller: IdentityDep) -> Response:
    """Forget a pipeline; streams of its batches that run finish."""
    await service.threads.start(service.pipelines.delete, caller, ident)
    return Response(status_code=204)


@router.get(
    "/{ident}/batches", LONG, responses=content_response(200, MEDIA_TYPES["frames"]) | _PROBLEMS
)
async def pipeline_batches(
    service: PipelineService,
    ident: str,
    request: Request,
    caller: IdentityDep,
    drain: DrainDep,
    query: Annotated[BatchesQuery, Query()],
) -> ExchangeResponse:
    """Stream batches as frames, each with the token that continues after it.

    The END frame gives the reason for ending and whether the data is finished; if there is no
    batch at all, its ``notes`` say how many items came in, and that none came out of a filter.
    """
    if query.every > 1 and query.max_epochs is not None:
        raise InvalidOptionError("max_epochs applies only to every=1", option="max_epochs")

    async def handle(exchange: Exchange) -> None:
        opened = await service.threads.start(service.pipelines.open, caller, ident, query.after)
        try:
            opened.check_rank(query.rank, query.world)
            stream = batch_stream(
                opened,
                Selection(query.rank, query.world, query.offset, query.every),
                Limits.clamped(
                    query.max_batches, query.max_bytes, query.max_seconds, query.max_epochs
                ),
                coding=answer_coding(request.headers),
                threads=service.threads,
                drain=drain,
                metrics=service.metrics,
            )
            await stream.send(exchange)
        finally:
            service.pipelines.release(opened)

    return ExchangeResponse(handle)


@router.get(
    "/{ident}/batch",
    QUICK,
    responses=content_response(200, *MEDIA.values()) | NOT_MODIFIED | _PROBLEMS,
)
async def pipeline_batch(
    service: PipelineService, ident: str, request: Request, query: Annotated[BatchQuery, Query()]
) -> ExchangeResponse:
    """Send one batch, ``offset`` batches after the token; with a token it is immutable."""
    # Not a dependency: FastAPI takes as long to resolve one as we take to send a small batch.
    caller = identity_of(request.scope)
    accept = joined(request.headers, "accept")
    form = query.format or choose_format(accept, BATCH_FORMATS)

    open_at = partial(service.pipelines.open, caller, ident)

    async def handle(exchange: Exchange) -> None:
        release = service.pipelines.release
        answer = await service.threads.start(
            one_batch, open_at, release, query, form, request.headers
        )
        if request.method == "HEAD" and answer.data is not None:
            answer = replace(answer, data=None, length=len(answer.data))
        await answer.send(exchange)

    return ExchangeResponse(handle)


@stages.get("", FRONT, responses=_JSON | problem_responses(401, 503))
async def list_stages(_service: PipelineService) -> Response:
    """Describe all stages and functions, with an example of each."""
    return json_response(reference())


@stages.get("/{name}", FRONT, responses=_JSON | problem_responses(401, 422, 503))
async def stage(_service: PipelineService, name: str) -> Response:
    """Describe one stage, with its functions."""
    return json_response(reference_of(name))
