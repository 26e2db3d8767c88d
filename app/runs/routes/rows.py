"""Routes of the rows and the progress of runs, live and afterwards."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request

from app.errors import NotAcceptableError
from app.http.dependencies import OPTIONS_ONCE, DrainDep, IdentityDep
from app.http.identity import USER_SCOPES, Identity
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import answer_coding, choose_format, joined
from app.http.openapi import content_response, problem_responses
from app.losses.encoding import RowEncoder, row_encoder
from app.losses.request import LossRequest, require_whole_stream
from app.losses.schemas import ReportName
from app.losses.tables import table_encoder
from app.losses.tokens import identity_of as digest_of
from app.run_errors import ReportNotReadyError
from app.server.responses import Exchange, ExchangeResponse
from app.streams.driver import Stream
from app.streams.sender import Head

from ..records import RunRecord
from ..rows.events import MEDIA_TYPE, RowEvents
from ..rows.progress import ProgressEvents, ProgressReader, RunProgress
from ..rows.reader import RowReader
from ..rows.streaming import RunRows, RunRowStream
from ..rows.tokens import RowTokens
from ..schemas import RowsQuery
from ..service import RunService
from ..spec import RunSpec
from .runs import RunsDep

router = APIRouter(prefix="/v1/runs/{run}", tags=["runs"], dependencies=[OPTIONS_ONCE])

_FORMATS = ("frames", "csv", "ndjson", "arrow", "parquet", "bin")
_EVENTS = "sse"
_TELL_END = frozenset({"frames", "ndjson", _EVENTS})
"""Formats that say how an answer ends."""
_MEMORY = 8 << 20
"""Memory of an analysis, of what encodes its rows, and of rows on their way."""
_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 409, 410, 412, 422, 429, 503)


@router.get(
    "/rows/{report}",
    operation_id="run_rows",
    response_class=ExchangeResponse,
    status_code=200,
    responses=content_response(
        200, *(MEDIA_TYPES[form].split(";")[0] for form in _FORMATS), MEDIA_TYPE
    )
    | _PROBLEMS,
)
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
    after = query.after or request.headers.get("last-event-id")

    def prepare() -> RowReader:
        record = service.runs.get(who, run)
        wanted = _request(service, record, report, form)
        if form not in _TELL_END and not query.follow and record.is_open:
            raise ReportNotReadyError(
                f"the run is {record.state}, and {form} cannot tell that rows are missing",
                hint="Use follow=true, or format=frames, ndjson or sse, or seal the run first",
                retry_after=5,
                state=record.state,
            )
        tokens = RowTokens(
            service.losses.keys, digest_of((b"rows 1", record.id.encode(), wanted.identity))
        )
        place = None if after is None else tokens.read(after)
        reader = RowReader(
            service.streams, record, wanted, place, query.stream, follow=query.follow
        )
        titled = place is None
        reader.encoder = _encoder(form, wanted, tokens, reader, titled=titled, live=query.follow)
        return reader

    async def handle(exchange: Exchange) -> None:
        with service.losses.ledger.hold(who.payer, _MEMORY, "rows"):
            reader = await service.threads.start(prepare)
            rows = RunRows(reader, service.threads, service.runs.watch, run)
            coding = answer_coding(request.headers)
            media = MEDIA_TYPE if form == _EVENTS else MEDIA_TYPES[form]
            head = Head.of_stream(media, coding, {"Vary": "Accept, Accept-Encoding"})
            stream = Stream(rows, RunRowStream(reader, rows), head, service.threads, drain, coding)
            await stream.send(exchange)

    return ExchangeResponse(handle)


def _format(request: Request, query: RowsQuery) -> str:
    accept = joined(request.headers, "accept")
    if query.format is not None:
        return query.format
    if accept is not None and MEDIA_TYPE in accept:
        return _EVENTS
    return choose_format(accept, _FORMATS)


def _request(service: RunService, run: RunRecord, report: str, form: str) -> LossRequest:
    """Return the request of a report of a run.

    Raises:
        WholeStreamError: it is of the whole run.
        NotAcceptableError: the format holds one table, and there are several sets.
        CoreError, ServiceError: an input is missing, or does not fit.
    """
    who = Identity(run.owner, USER_SCOPES)
    wanted = RunSpec.of(run).request(who, service.losses, (report,))
    require_whole_stream(wanted.tables, "and rows are of events; GET it from the reports instead")
    if wanted.sets is not None and len(wanted.sets.set_ids) > 1 and form != "frames":
        raise NotAcceptableError(
            f"{form} holds the report of one summary set, and the run has several",
            hint="Use format=frames",
        )
    return wanted


def _encoder(
    form: str,
    wanted: LossRequest,
    tokens: RowTokens,
    reader: RowReader,
    *,
    titled: bool,
    live: bool,
) -> RowEncoder:
    if form == _EVENTS:
        (report,) = wanted.tables
        lines = table_encoder("ndjson", report, wanted.policy.float_width)
        return RowEvents(lines, tokens.token)
    return row_encoder(form, wanted, tokens.token, reader.mark, duplex=live, titled=titled)


@router.get(
    "/progress",
    operation_id="run_progress",
    response_class=ExchangeResponse,
    status_code=200,
    responses=content_response(200, MEDIA_TYPE) | _PROBLEMS,
)
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
        record = await service.threads.quick(service.runs.get, who, run)
        reader = ProgressReader(service.streams, service.reports.jobs, record, known, follow=follow)
        supply = RunProgress(reader, service.runs, record.id, service.threads)
        head = Head.of_stream(MEDIA_TYPE, None)
        stream = Stream(supply, ProgressEvents(), head, service.threads, drain)
        await stream.send(exchange)

    return ExchangeResponse(handle)
