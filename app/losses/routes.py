"""Routes that accept a loss stream and answer with its reports."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request

from app.http.dependencies import DrainDep, StrictRoute, from_state
from app.http.identity import identity_of
from app.http.media_types import MEDIA_TYPES, PICTURE_TYPES
from app.http.openapi import problem_responses
from app.server.drain import Drain
from app.server.lanes.table import LONG, in_lane
from app.server.responses import ExchangeResponse

from .answer import LossAnswer
from .options import read_options
from .request import parse_reports
from .schemas import LossQuery, ReportName, ReportsQuery
from .service import LossService
from .tokens import Checkpoints

router = APIRouter(prefix="/v1/losses", tags=["losses"], route_class=StrictRoute)

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
    "Thalweg-Completeness": {"description": "declared, undeclared or partial", **_TEXT},
    "Thalweg-Token": {
        "description": "Partial answers: the token that resumes after these rows",
        **_TEXT,
    },
    "Thalweg-Offset": {"description": "Partial answers: first byte of the next part", **_NUMBER},
    "Thalweg-Events": {"description": "Complete events of the stream so far", **_NUMBER},
    "Thalweg-Bytes": {"description": "Bytes read of the stream so far", **_NUMBER},
    "Thalweg-Reopened-Check": {
        "description": "Scope of the check for reopened events: whole or since resume",
        **_TEXT,
    },
    "Thalweg-Events-Without-Occurrence": {
        "description": "Complete events of this body that never occur; if occurrences are given",
        **_NUMBER,
    },
    "Thalweg-Events-Only-In-Occurrence": {
        "description": "Events of the occurrences that the stream lacks; if it came in one post",
        **_NUMBER,
    },
    "Thalweg-Ledger-Bound": {
        "description": "Most bytes that the sums of the run can take, if the number of summaries"
        " is known",
        **_NUMBER,
    },
    "Thalweg-Rates": {
        "description": "event_rates, if these are given besides occurrences, which have rates too",
        **_TEXT,
    },
    "Upload-Complete": {"description": "?0 or ?1, as in the request", **_TEXT},
    "Content-Encoding": {"description": "gzip or zstd, if the client accepts one", **_TEXT},
}


def _responses(*formats: str) -> dict[int | str, dict[str, Any]]:
    types = MEDIA_TYPES | PICTURE_TYPES
    content = {types[name].split(";")[0]: _BINARY for name in formats}
    tables = {
        200: {"description": "Rows, or a picture of them", "content": content, "headers": _HEADERS}
    }
    statuses = (400, 401, 403, 406, 408, 409, 410, 412, 413, 415, 422, 429, 503)
    return tables | problem_responses(*statuses)


LossesDep = Annotated[LossService, from_state("losses")]
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

    return ExchangeResponse(await losses.threads.start(prepare))


@in_lane(LONG)
async def _one_report(
    report: ReportName,
    query: Annotated[LossQuery, Query()],
    request: Request,
    losses: LossesDep,
    drain: DrainDep,
    _complete: UploadComplete = None,
    _length: UploadLength = None,
    _coding: ContentEncoding = None,
) -> ExchangeResponse:
    """Compute one report of the posted loss stream."""
    return await _answer((report,), query, request, losses, drain)


@in_lane(LONG)
async def _several_reports(
    query: Annotated[ReportsQuery, Query()],
    request: Request,
    losses: LossesDep,
    drain: DrainDep,
    _complete: UploadComplete = None,
    _length: UploadLength = None,
    _coding: ContentEncoding = None,
) -> ExchangeResponse:
    """Compute several reports of the posted loss stream in one pass, answered in frames."""
    return await _answer(parse_reports(query.reports), query, request, losses, drain)


for _method in ("POST", "PUT"):
    # `curl -T` sends PUT. The OpenAPI document needs one operation per method.
    router.add_api_route(
        "/{report}",
        _one_report,
        methods=[_method],
        name=f"{_method.lower()}_report",
        operation_id=f"{_method.lower()}_report",
        status_code=200,
        response_class=ExchangeResponse,
        responses=_responses(*MEDIA_TYPES, *PICTURE_TYPES),
        openapi_extra=_BODY,
    )
    router.add_api_route(
        "",
        _several_reports,
        methods=[_method],
        name=f"{_method.lower()}_reports",
        operation_id=f"{_method.lower()}_reports",
        status_code=200,
        response_class=ExchangeResponse,
        responses=_responses("frames"),
        openapi_extra=_BODY,
    )
