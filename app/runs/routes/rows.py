"""Routes of the rows and the progress of runs, live and afterwards."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request

from app.http.dependencies import DrainDep, IdentityDep, StrictRoute
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import answer_coding, choose_format, joined
from app.http.openapi import content_response, problem_responses
from app.losses.schemas import ReportName
from app.server.lanes.table import FRONT, LONG, in_lane
from app.server.responses import Exchange, ExchangeResponse
from app.streams.driver import Stream
from app.streams.sender import Head

from ..rows.events import MEDIA_TYPE
from ..rows.opening import EVENTS, FORMATS, MEMORY, WantedRows, open_rows
from ..rows.progress import PAUSE, ProgressEvents, ProgressReader
from ..rows.reader import RowReader
from ..rows.streaming import RunRowStream, RunSupply
from ..schemas import RowsQuery
from .runs import RunsDep

router = APIRouter(prefix="/v1/runs/{run}", tags=["runs"], route_class=StrictRoute)

_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 409, 410, 412, 422, 429, 503)


@router.get(
    "/rows/{report}",
    operation_id="run_rows",
    response_class=ExchangeResponse,
    status_code=200,
    responses=content_response(
        200, *(MEDIA_TYPES[form].split(";")[0] for form in FORMATS), MEDIA_TYPE
    )
    | _PROBLEMS,
)
@in_lane(LONG)
async def run_rows(
    run: str,
    report: ReportName,
    query: Annotated[RowsQuery, Query()],
    request: Request,
    service: RunsDep,
    who: IdentityDep,
    drain: DrainDep,
) -> ExchangeResponse:
    """Read rows of the streams of a run, from any token on, also while they are uploaded."""
    form = _format(request, query)
    # An empty Last-Event-ID is the absence of one; an empty token is a token that was lost.
    after = query.after
    if after is None:
        after = request.headers.get("last-event-id") or None

    def prepare() -> RowReader:
        record = service.runs.get(who, run)
        wanted = WantedRows(record, report, form, query.stream, query.follow)
        return open_rows(service.losses, service.streams, wanted, after)

    async def handle(exchange: Exchange) -> None:
        with service.losses.ledger.hold(who.payer, MEMORY, "rows"):
            reader = await service.threads.start(prepare)
            rows = RunSupply(reader, service.threads, service.runs.watch, run)
            coding = answer_coding(request.headers)
            media = MEDIA_TYPE if form == EVENTS else MEDIA_TYPES[form]
            head = Head.of_stream(media, coding, {"Vary": "Accept, Accept-Encoding"})
            stream = Stream(rows, RunRowStream(reader, rows), head, service.threads, drain, coding)
            await stream.send(exchange)

    return ExchangeResponse(handle)


def _format(request: Request, query: RowsQuery) -> str:
    accept = joined(request.headers, "accept")
    if query.format is not None:
        return query.format
    if accept is not None and MEDIA_TYPE in accept:
        return EVENTS
    return choose_format(accept, FORMATS)


@router.get(
    "/progress",
    operation_id="run_progress",
    response_class=ExchangeResponse,
    status_code=200,
    responses=content_response(200, MEDIA_TYPE) | _PROBLEMS,
)
@in_lane(FRONT)
async def run_progress(
    run: str,
    request: Request,
    service: RunsDep,
    who: IdentityDep,
    drain: DrainDep,
    follow: Annotated[bool, Query(description="false: end after the present state")] = True,
) -> ExchangeResponse:
    """Watch a run: an event for each change, until it is done or has failed."""
    known = request.headers.get("last-event-id")

    async def handle(exchange: Exchange) -> None:
        record = await service.threads.start(service.runs.get, who, run)
        reader = ProgressReader(service.streams, service.reports.jobs, record, known, follow=follow)
        supply = RunSupply(reader, service.threads, service.runs.watch, record.id, PAUSE)
        head = Head.of_stream(MEDIA_TYPE, None)
        stream = Stream(supply, ProgressEvents(), head, service.threads, drain)
        await stream.send(exchange)

    return ExchangeResponse(handle)
