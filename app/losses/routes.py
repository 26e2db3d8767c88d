"""Routes that accept a loss stream and answer with its reports; and those of auxiliary files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Header, Query, Request
from fastapi.responses import Response

from app.errors import ServiceError
from app.http.bodies import discard, read_whole
from app.http.decompression import MAX_INPUT, decoder
from app.http.dependencies import DrainDep, IdentityDep, Routes
from app.http.identity import Identity, identity_of
from app.http.json_bodies import send_json
from app.http.media_types import MEDIA_TYPES, PICTURE_TYPES
from app.http.negotiation import joined
from app.http.openapi import problem_responses
from app.http.trail import name_resource
from app.server.drain import Drain
from app.server.lanes.table import FRONT, LONG
from app.server.responses import Exchange, ExchangeResponse
from core.errors import InputError

from .answer import LossAnswer
from .input_store import Receipt
from .options import read_options
from .parquet import MAGIC, MEDIA_TYPE
from .request import parse_reports
from .schemas import InputAnswer, InputName, InputQuery, LossQuery, ReportName, ReportsQuery
from .service import LossService
from .tokens import Checkpoints

router = Routes(LossService, "/v1/losses", tags=["losses"])

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A loss stream (gul, loss or summary), or a part of one",
        "content": {"application/octet-stream": _BINARY},
    }
}
_TEXT = {"schema": {"type": "string"}}
_NUMBER = {"schema": {"type": "integer"}}
_HEADERS: dict[str, Any] = {
    name: {"description": description, **schema}
    for name, schema, description in (
        ("Thalweg-Completeness", _TEXT, "declared, undeclared or partial"),
        ("Thalweg-Token", _TEXT, "Partial answers: the token that resumes after these rows"),
        ("Thalweg-Offset", _NUMBER, "Partial answers: first byte of the next part"),
        ("Thalweg-Events", _NUMBER, "Complete events of the stream so far"),
        ("Thalweg-Bytes", _NUMBER, "Bytes read of the stream so far"),
        (
            *("Thalweg-Reopened-Check", _TEXT),
            "Scope of the check for reopened events: whole or since resume",
        ),
        (
            *("Thalweg-Events-Without-Occurrence", _NUMBER),
            "Complete events of this body that never occur; if occurrences are given",
        ),
        (
            *("Thalweg-Events-Only-In-Occurrence", _NUMBER),
            "Events of the occurrences that the stream lacks; if it came in one post",
        ),
        (
            *("Thalweg-Blocks-Without-Exposure", _NUMBER),
            "Blocks of this body whose losses MELT and QELT lack, as their exposure is 0; if any",
        ),
        ("Thalweg-Selected-Rows", _NUMBER, "Rows of the summaries and events that were chosen"),
        ("Thalweg-Missing-Summary-Ids", _TEXT, "Those of summary_ids that no row has, if any"),
        ("Thalweg-Missing-Event-Ids", _TEXT, "Those of event_ids that no row has, if any"),
        (
            *("Thalweg-Longest-Return-Period", _NUMBER),
            "Years up to which the periods tell losses, if a longer return period is asked for",
        ),
        (
            *("Thalweg-Ledger-Bound", _NUMBER),
            "Most bytes that the sums of the run can take, if the number of summaries is known",
        ),
        (
            *("Thalweg-Rates", _TEXT),
            "event_rates, if these are given besides occurrences, which have rates too",
        ),
        ("Upload-Complete", _TEXT, "?0 or ?1, as in the request"),
        ("Content-Encoding", _TEXT, "gzip or zstd, if the client accepts one"),
    )
}


def _responses(*formats: str) -> dict[int | str, dict[str, Any]]:
    types = MEDIA_TYPES | PICTURE_TYPES
    content = {types[name].split(";")[0]: _BINARY for name in formats}
    tables = {
        200: {"description": "Rows, or a picture of them", "content": content, "headers": _HEADERS}
    }
    statuses = (400, 401, 403, 406, 408, 409, 410, 412, 413, 415, 422, 429, 503)
    checked = {204: {"description": "With check: nothing is wrong so far", "content": {}}}
    return tables | checked | problem_responses(*statuses)


UploadComplete = Annotated[
    str | None,
    Header(alias="Upload-Complete", description="?0 if more of the stream follows, else ?1"),
]
UploadLength = Annotated[
    str | None, Header(alias="Upload-Length", description="Length of the whole stream in bytes")
]
ContentEncoding = Annotated[
    str | None,
    Header(alias="Content-Encoding", description="Coding of the body: gzip, zstd or identity"),
]


async def _answer(
    reports: tuple[str, ...], query: LossQuery, request: Request, losses: LossService, drain: Drain
) -> ExchangeResponse:
    """Check the options, then let the body arrive."""

    def prepare() -> LossAnswer:
        options = read_options(identity_of(request.scope), reports, query, request.headers, losses)
        checkpoints = Checkpoints(losses.keys, options.request.identity)
        after = None if options.after is None else checkpoints.read(options.after)
        return LossAnswer(options, checkpoints, after, losses, drain)

    answer = await losses.threads.start(prepare)
    return ExchangeResponse(_no_content if query.check else answer)


async def _no_content(exchange: Exchange) -> None:
    """Answer a request whose stream is not asked for."""
    await discard(exchange.body)
    await exchange.start(204)
    await exchange.end()


async def _one_report(
    losses: LossService,
    report: ReportName,
    query: Annotated[LossQuery, Query()],
    request: Request,
    drain: DrainDep,
    _complete: UploadComplete = None,
    _length: UploadLength = None,
    _coding: ContentEncoding = None,
) -> ExchangeResponse:
    """Compute one report of the posted loss stream."""
    return await _answer((report,), query, request, losses, drain)


async def _several_reports(
    losses: LossService,
    query: Annotated[ReportsQuery, Query()],
    request: Request,
    drain: DrainDep,
    _complete: UploadComplete = None,
    _length: UploadLength = None,
    _coding: ContentEncoding = None,
) -> ExchangeResponse:
    """Compute several reports of the posted loss stream in one pass, answered in frames."""
    return await _answer(parse_reports(query.reports), query, request, losses, drain)


for _method in ("POST", "PUT"):
    # `curl -T` sends PUT. The OpenAPI document needs one operation per method.
    for _path, _endpoint, _name, _formats in (
        ("/{report}", _one_report, "report", (*MEDIA_TYPES, *PICTURE_TYPES)),
        ("", _several_reports, "reports", ("frames",)),
    ):
        router.add(
            _method,
            _path,
            LONG,
            name=f"{_method.lower()}_{_name}",
            operation_id=f"{_method.lower()}_{_name}",
            responses=_responses(*_formats),
            openapi_extra=_BODY,
        )(_endpoint)


inputs_router = Routes(LossService, "/v1/inputs", tags=["inputs"])

_INPUT_BODY = {
    "requestBody": {
        "required": True,
        "description": "The file, csv, packed or parquet; the form is detected by content",
        "content": {
            "application/octet-stream": _BINARY,
            "text/csv": {"schema": {"type": "string"}},
            MEDIA_TYPE: _BINARY,
        },
    }
}


@inputs_router.put(
    "/{name}",
    LONG,
    status_code=201,
    openapi_extra=_INPUT_BODY,
    responses={
        200: {"description": "The file was already stored", "model": InputAnswer},
        201: {"description": "The file is stored", "model": InputAnswer},
        **problem_responses(400, 401, 403, 404, 408, 413, 415, 422, 429, 503),
    },
)
async def put_input(
    losses: LossService,
    name: InputName,
    query: Annotated[InputQuery, Query()],
    request: Request,
    caller: IdentityDep,
) -> ExchangeResponse:
    """Store an auxiliary file; queries refer to it by its digest."""

    async def handle(exchange: Exchange) -> None:
        answer, created = await receive_input(exchange, request, losses, caller, name, query)
        await send_json(exchange, answer.model_dump(), 201 if created else 200)

    return ExchangeResponse(handle)


@asynccontextmanager
async def receive_file(
    exchange: Exchange, request: Request, losses: LossService, caller: Identity
) -> AsyncIterator[bytearray]:
    """Provide the file in a request's body, decoded, and its memory until the end of the block.

    Raises:
        ServiceError: it is too large, too slow, or in no known coding.
    """
    coding = joined(request.headers, "content-encoding")
    with losses.ledger.hold(caller.payer, 0, "inputs") as hold:
        try:
            decode = decoder(coding, losses.max_input, hold.grow, MAX_INPUT)
            data = await read_whole(exchange.body, hold, decode, losses.rate, losses.threads)
        except ServiceError:
            await discard(exchange.body)
            raise
        yield data


async def receive_input(
    exchange: Exchange,
    request: Request,
    losses: LossService,
    caller: Identity,
    name: str,
    query: InputQuery,
) -> tuple[InputAnswer, bool]:
    """Store the auxiliary file in a request's body; return its description, and whether it is new.

    Raises:
        CoreError, ServiceError: it is invalid, did not arrive whole, or cannot be stored.
    """
    declared = (joined(request.headers, "content-type") or "").partition(";")[0].strip().lower()
    async with receive_file(exchange, request, losses, caller) as data:
        if declared == MEDIA_TYPE and not data.startswith(MAGIC):
            raise InputError(
                "its Content-Type is parquet, but it does not begin with PAR1",
                hint="Send another Content-Type with csv or packed records",
            )

        if declared.endswith("form-urlencoded") and b"\n" not in data and b"\0" not in data:
            message = "it came as a form, as curl --data sends one, without its line ends"
            raise InputError(message, hint="Send the file as it is: curl -T FILE", source=name)

        def store() -> Receipt:
            # A copy of a hundred megabytes would keep the event loop for tens of milliseconds.
            return losses.inputs.put(caller, name, bytes(data), query.no_of_periods)

        stored = await losses.threads.start(store)
        name_resource(request.scope, stored.digest)
    answer = InputAnswer(
        name=name,
        digest=stored.digest,
        bytes=len(data),
        expires=datetime.fromtimestamp(int(stored.expires), UTC).isoformat(),
    )
    return answer, stored.created


@inputs_router.delete(
    "/{name}/{digest}", FRONT, responses=problem_responses(400, 401, 403, 404, 422, 503)
)
async def delete_input(
    losses: LossService, name: InputName, digest: str, caller: IdentityDep
) -> Response:
    """Delete an auxiliary file; it stays stored for others who have put it too."""
    await losses.threads.start(losses.inputs.delete, caller, name, digest)
    return Response(status_code=204)
