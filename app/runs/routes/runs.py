"""Routes of runs: creation, state, inputs, the list of their streams, their rows and progress."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import Header, Query
from fastapi.responses import Response
from starlette.requests import Request

from app.errors import BadRequestError, InvalidOptionError
from app.http.dependencies import DrainDep, IdentityDep, Routes
from app.http.identity import Identity
from app.http.json_bodies import json_response, send_json
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import answer_coding, choose_format, joined
from app.http.openapi import content_response, json_body, problem_responses
from app.http.trail import name_resource
from app.losses.routes import receive_input
from app.losses.schemas import InputAnswer, InputName, InputQuery, ReportName
from app.server.lanes.table import FRONT, LONG
from app.server.responses import Exchange, ExchangeResponse
from app.streams.driver import Stream
from app.streams.sender import Head

from ..describing import describe_briefly, describe_stream, run_path
from ..records import RunRecord, labelled
from ..rows.events import MEDIA_TYPE, PAUSE, ProgressEvents, ProgressReader
from ..rows.opening import EVENTS, FORMATS, MEMORY, RunRowStream, RunSupply, WantedRows, open_rows
from ..rows.reader import RowReader
from ..service import RunService
from ..spec import RowsQuery, RunAnswer, RunBody, RunChange, RunList, RunSpec, StreamList

router = Routes(RunService, "/v1/runs", tags=["runs"])

_MAX_BODY = 1 << 20
_PROBLEMS = problem_responses(400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 429, 503)
_KEY = re.compile(r'"?([\x21\x23-\x7e]{1,200})"?')
After = Annotated[str, Query(max_length=128, description="List ids after this one")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of things")]


@router.get("", FRONT, responses={200: {"model": RunList}, **_PROBLEMS})
async def list_runs(
    service: RunService, caller: IdentityDep, after: After = "", limit: Limit = 100
) -> Response:
    """List the runs of the caller that have not expired, in the order of their ids."""

    def look() -> dict[str, Any]:
        page = service.runs.page(caller, after, limit)
        alive = [run for run in page if not service.runs.is_expired(run)]
        return {
            "runs": [describe_briefly(run, service.streams.count(run)) for run in alive],
            "after": page[-1].id if len(page) >= limit else None,
        }

    return json_response(await service.threads.start(look))


@router.post(
    "",
    FRONT,
    status_code=201,
    openapi_extra=json_body(RunBody, {"perspective": "gul", "reports": ["melt"]}),
    responses={200: {"model": RunAnswer}, 201: {"model": RunAnswer}, **_PROBLEMS},
)
async def create_run(
    service: RunService,
    request: Request,
    caller: IdentityDep,
    idempotency_key: Annotated[
        str | None, Header(description="Requests with the same key create one run")
    ] = None,
) -> ExchangeResponse:
    """Create a run; its streams are uploaded next, then it is sealed."""
    key = _read_key(idempotency_key)

    def create(values: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        spec, days = RunSpec.parse(values)
        spec.check(caller, service.losses)
        run, created = service.runs.create(caller, spec.to_json(), spec.inputs, days, key)
        return service.describe(run), created

    async def handle(exchange: Exchange) -> None:
        async with service.bodies.read(exchange, caller, _MAX_BODY) as values:
            description, created = await service.threads.start(create, values)
        name_resource(request.scope, description["id"])
        location = service.addresses.of(request.scope, run_path(description["id"]))
        await send_json(exchange, description, 201 if created else 200, {"Location": location})

    return ExchangeResponse(handle)


def _read_key(header: str | None) -> str | None:
    """Return the key in an Idempotency-Key, with or without quotes.

    Raises:
        BadRequestError: it is none.
    """
    if header is None:
        return None
    match = _KEY.fullmatch(header.strip())
    if match is None:
        raise BadRequestError(
            "Idempotency-Key is not a string of 1 to 200 printable characters",
            hint='Send one such as "5e0c…", drawn at random for each run',
        )
    return match[1]


@router.get("/{run}", FRONT, operation_id="run", responses={200: {"model": RunAnswer}, **_PROBLEMS})
async def describe(service: RunService, run: str, caller: IdentityDep) -> Response:
    """Describe a run: its spec, its state, and how far its streams have come."""

    def look() -> dict[str, Any]:
        record = service.runs.get(caller, run)
        return service.describe(record)

    return json_response(await service.threads.start(look))


@router.patch(
    "/{run}",
    FRONT,
    openapi_extra=json_body(RunChange, {"label": "flood, portfolio 7"}),
    responses={200: {"model": RunAnswer}, **_PROBLEMS},
)
async def change_run(service: RunService, run: str, caller: IdentityDep) -> ExchangeResponse:
    """Change the label of a run, in whatever state it is."""

    def change(values: Mapping[str, Any]) -> dict[str, Any]:
        label = RunSpec.parse_change(values)
        record = service.runs.own(caller, run)
        return service.describe(service.runs.change(record, partial(labelled, label=label)))

    async def handle(exchange: Exchange) -> None:
        async with service.bodies.read(exchange, caller, _MAX_BODY) as values:
            await send_json(exchange, await service.threads.start(change, values))

    return ExchangeResponse(handle)


@router.delete("/{run}", FRONT, responses=_PROBLEMS)
async def delete_run(service: RunService, run: str, caller: IdentityDep) -> Response:
    """Delete a run with its streams and reports."""
    await service.threads.start(service.removal.delete, caller, run)
    return Response(status_code=204)


@router.put(
    "/{run}/inputs/{name}",
    LONG,
    status_code=201,
    responses={200: {"model": InputAnswer}, 201: {"model": InputAnswer}, **_PROBLEMS},
)
async def put_run_input(
    service: RunService,
    run: str,
    name: InputName,
    query: Annotated[InputQuery, Query()],
    request: Request,
    caller: IdentityDep,
) -> ExchangeResponse:
    """Store an auxiliary file and bind it to a run that is not sealed."""
    record = await service.threads.start(_open_run, service, caller, run, name)

    async def handle(exchange: Exchange) -> None:
        answer, created = await receive_input(
            exchange, request, service.losses, caller, name, query
        )
        await service.threads.start(_bind, service, caller, record, answer, query.no_of_periods)
        await send_json(exchange, answer.model_dump(), 201 if created else 200)

    return ExchangeResponse(handle)


def _open_run(service: RunService, caller: Identity, ident: str, name: str) -> RunRecord:
    run = service.runs.own(caller, ident)
    service.runs.check_open(run)
    # Refuses a list that is an option of the run.
    RunSpec.of(replace(run, inputs={name: ""})).query()
    return run


def _bind(
    service: RunService, caller: Identity, run: RunRecord, put: InputAnswer, periods: int | None
) -> None:
    """Bind a file; a number of periods that comes with occurrences becomes the run's."""
    known = {} if periods is None or put.name != "occurrence" else {"no_of_periods": periods}
    if put.name == "occurrence":
        try:
            count = periods or RunSpec.of(run).options.no_of_periods
            service.losses.inputs.occurrence(caller, put.digest, count)
        except InvalidOptionError as e:
            hint = "PUT it with the right no_of_periods, which becomes the run's"
            raise InvalidOptionError(str(e), hint=hint, option="no_of_periods") from e

    def bound(run: RunRecord) -> RunRecord:
        service.runs.check_open(run)
        spec = {**run.spec, "options": {**run.spec["options"], **known}}
        return replace(run, spec=spec, inputs={**run.inputs, put.name: put.digest})

    service.runs.change(run, bound)


@router.get("/{run}/streams", FRONT, responses={200: {"model": StreamList}, **_PROBLEMS})
async def list_streams(
    service: RunService, run: str, caller: IdentityDep, after: After = "", limit: Limit = 100
) -> Response:
    """List the streams of a run, in the order of their partitions."""

    def look() -> list[dict[str, Any]]:
        record = service.runs.get(caller, run)
        return [describe_stream(s) for s in service.streams.page(record, after, limit)]

    streams = await service.threads.start(look)
    last = streams[-1]["id"] if len(streams) == limit else None
    return json_response({"streams": streams, "after": last})


rows_router = Routes(RunService, "/v1/runs/{run}", tags=["runs"])

_ROWS_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 409, 410, 412, 422, 429, 503)


@rows_router.get(
    "/rows/{report}",
    LONG,
    responses=content_response(
        200, *(MEDIA_TYPES[form].split(";")[0] for form in FORMATS), MEDIA_TYPE
    )
    | _ROWS_PROBLEMS,
)
async def run_rows(
    service: RunService,
    run: str,
    report: ReportName,
    query: Annotated[RowsQuery, Query()],
    request: Request,
    caller: IdentityDep,
    drain: DrainDep,
) -> ExchangeResponse:
    """Read rows of the streams of a run, from any token on, also while they are uploaded."""
    form = _format(request, query)
    # An empty Last-Event-ID is the absence of one; an empty token is a token that was lost.
    after = query.after
    if after is None:
        after = request.headers.get("last-event-id") or None

    def prepare() -> RowReader:
        record = service.runs.get(caller, run)
        wanted = WantedRows(record, report, form, query.stream, query.follow)
        return open_rows(service.losses, service.streams, wanted, after)

    async def handle(exchange: Exchange) -> None:
        with service.losses.ledger.hold(caller.payer, MEMORY, "rows"):
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


@rows_router.get("/progress", FRONT, responses=content_response(200, MEDIA_TYPE) | _ROWS_PROBLEMS)
async def run_progress(
    service: RunService,
    run: str,
    request: Request,
    caller: IdentityDep,
    drain: DrainDep,
    follow: Annotated[bool, Query(description="false: end after the present state")] = True,
) -> ExchangeResponse:
    """Watch a run: an event for each change, until it is done or has failed."""
    known = request.headers.get("last-event-id")

    async def handle(exchange: Exchange) -> None:
        record = await service.threads.start(service.runs.get, caller, run)
        reader = ProgressReader(service.streams, service.reports.jobs, record, known, follow=follow)
        supply = RunSupply(reader, service.threads, service.runs.watch, record.id, PAUSE)
        head = Head.of_stream(MEDIA_TYPE, None)
        stream = Stream(supply, ProgressEvents(), head, service.threads, drain)
        await stream.send(exchange)

    return ExchangeResponse(handle)
