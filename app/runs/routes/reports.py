"""Routes of sealing and of the reports of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request

from app.http.answers import remark_headers
from app.http.dependencies import IdentityDep, Routes
from app.http.identity import Identity
from app.http.json_bodies import send_json
from app.http.media_types import MEDIA_TYPES, PICTURE_TYPES
from app.http.negotiation import choose_format, joined, not_modified, requested_range
from app.http.openapi import NOT_MODIFIED, content_response, json_body, problem_responses
from app.losses.schemas import ReportName as ReportPath
from app.losses.selection import RowSelection, parse_selection
from app.server.lanes.table import LONG
from app.server.responses import Exchange, ExchangeResponse

from ..describing import run_path
from ..records import OWN
from ..reports import RETRY_SECONDS, Found, PendingError
from ..results.files import (
    DAMAGED,
    FORMATS,
    PIECE,
    RECORDS,
    Look,
    PublishedFile,
    ReportFiles,
    ReportName,
)
from ..service import RunService
from ..spec import ReportsBody, ReportsQuery, RunAnswer, SealBody

router = Routes(RunService, "/v1/runs/{run}", tags=["runs"])

_MAX_BODY = 1 << 20
_PROBLEMS = problem_responses(400, 401, 403, 404, 406, 409, 410, 413, 416, 422, 429, 503)
_TYPES = MEDIA_TYPES | PICTURE_TYPES
_MEDIA = [_TYPES[form].split(";")[0] for form in FORMATS]
_JSON = {"application/json": {"schema": {"type": "object"}}}


@router.post(
    "/seal",
    LONG,
    status_code=202,
    openapi_extra=json_body(
        SealBody, {"options": {"return_periods": [250, 100, 50]}}, required=False
    ),
    responses={200: {"model": RunAnswer}, 202: {"model": RunAnswer}, **_PROBLEMS},
)
async def seal_run(service: RunService, run: str, caller: IdentityDep) -> ExchangeResponse:
    """Seal a run: its streams are complete, and its reports are computed. Idempotent."""

    def seal(values: Mapping[str, Any]) -> dict[str, Any]:
        record = service.reports.seal(caller, run, values)
        return service.describe(record)

    async def handle(exchange: Exchange) -> None:
        async with service.bodies.read(exchange, caller, _MAX_BODY, optional=True) as values:
            described = await service.threads.start(seal, values)
        is_done = described["state"] == "done"
        further = {} if is_done else {"Retry-After": str(RETRY_SECONDS)}
        await send_json(exchange, described, 200 if is_done else 202, further)

    return ExchangeResponse(handle)


@router.post(
    "/reports",
    LONG,
    status_code=202,
    openapi_extra=json_body(ReportsBody, {"reports": ["selt"]}),
    responses={202: {"description": "Computing; GET the addresses", "content": _JSON}, **_PROBLEMS},
)
async def compute_reports(
    service: RunService, run: str, request: Request, caller: IdentityDep
) -> ExchangeResponse:
    """Compute further reports of a sealed run, from what is stored: nothing is uploaded again."""

    def compute(values: Mapping[str, Any]) -> dict[str, Any]:
        job = service.reports.compute(caller, run, values)
        variant = job.variant.name
        further = "" if variant == OWN else f"?variant={variant}"
        links = {name: f"{run_path(job.run)}/reports/{name}{further}" for name in job.reports}
        return {"run": job.run, "variant": variant, "reports": links}

    async def handle(exchange: Exchange) -> None:
        async with service.bodies.read(exchange, caller, _MAX_BODY) as values:
            described = await service.threads.start(compute, values)
        first = next(iter(described["reports"].values()))
        headers = {
            "Location": service.addresses.of(request.scope, first),
            "Retry-After": str(RETRY_SECONDS),
        }
        await send_json(exchange, described, 202, headers)

    return ExchangeResponse(handle)


@router.get(
    "/reports/{report}",
    LONG,
    responses=content_response(200, *_MEDIA)
    | content_response(206, *_MEDIA)
    | problem_responses(412)
    | {202: {"description": "Being computed; ask again after Retry-After", "content": _JSON}}
    | NOT_MODIFIED
    | _PROBLEMS,
)
async def run_report(
    service: RunService,
    run: str,
    report: ReportPath,
    query: Annotated[ReportsQuery, Query()],
    request: Request,
    caller: IdentityDep,
) -> ExchangeResponse:
    """Read a report of a sealed run: an immutable file."""
    form = query.format or choose_format(joined(request.headers, "accept"), FORMATS)
    name = ReportName(report, query.set, query.variant or OWN)
    selection = parse_selection(query.summary_ids, query.event_ids)
    selection.check(report, form)
    look = Look(query.theme, query.plot_tvar, query.currency, selection.summary_ids)

    async def handle(exchange: Exchange) -> None:
        try:
            await answer(exchange)
        except PendingError as e:
            if exchange.started:
                exchange.abort()
            else:
                await send_json(exchange, e.state, 202, {"Retry-After": str(RETRY_SECONDS)})

    async def answer(exchange: Exchange) -> None:
        start = service.threads.start
        if form in PICTURE_TYPES and look.octets:
            await _send_picture(exchange, request, service, (caller, run, name, form, look))
            return
        stored = RECORDS if selection else form
        found = await start(service.reports.find, caller, run, name, stored)
        try:
            await send(exchange, found)
        except DAMAGED:
            found = await start(service.reports.repair, caller, run, name, stored, found.file)
            if exchange.started:
                # Whoever asks again gets all of it.
                exchange.abort()
            else:
                await send(exchange, found)

    async def send(exchange: Exchange, found: Found) -> None:
        remarks = await service.threads.start(service.reports.tell, found, name, selection)
        answer = _FileAnswer(service, found.files, found.file, name, form, remarks)
        if selection:
            await answer.send_selected(exchange, request, selection)
        else:
            await answer.send(exchange, request)

    return ExchangeResponse(handle)


async def _send_picture(
    exchange: Exchange,
    request: Request,
    service: RunService,
    wanted: tuple[Identity, str, ReportName, str, Look],
) -> None:
    """Send a picture that is drawn for this request alone."""
    file, picture = await service.threads.start(service.reports.draw, *wanted)
    *_, form, look = wanted
    etag = file.etag_of(form, look.octets)
    headers = _headers(form, etag)
    if not_modified(request.headers, etag):
        await exchange.start(304, headers)
        return
    await exchange.start(200, headers, content_length=len(picture))
    if request.method != "HEAD":
        await exchange.end(picture)


def _headers(form: str, etag: str) -> dict[str, str]:
    return {
        "Content-Type": _TYPES[form],
        "ETag": etag,
        "Cache-Control": "private, no-cache",
        "Vary": "Accept",
    }


@dataclass(frozen=True, slots=True)
class _FileAnswer:
    """Answers with a published file."""

    service: RunService
    files: ReportFiles
    file: PublishedFile
    name: ReportName
    form: str
    remarks: Mapping[str, int | str]

    def _headers(self, etag: str) -> dict[str, str]:
        headers = _headers(self.form, etag) | remark_headers(self.remarks)
        if self.form == RECORDS:
            headers["Thalweg-Dtype"] = json.dumps(self.files.dtype(self.name.report).descr)
        return headers

    async def send(self, exchange: Exchange, request: Request) -> None:
        """Send the file, or a range of it."""
        file, etag = self.file, self.file.etag
        headers = self._headers(etag) | {"Accept-Ranges": "bytes"}
        if not_modified(request.headers, etag):
            await exchange.start(304, headers)
            return
        has_body = request.method != "HEAD"
        part = requested_range(request.headers, file.size, etag, body=has_body)
        start, stop = part or (0, file.size)
        if part is not None:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{file.size}"
        # What is damaged is found before the answer begins, as far as it is read by then.
        first = await self._read(start, stop)
        status = 200 if part is None else 206
        await exchange.start(status, headers, content_length=stop - start)
        if not has_body:
            return
        await exchange.write(first)
        for begin in range(start + len(first), stop, PIECE):
            await exchange.write(await self._read(begin, stop))

    async def _read(self, start: int, stop: int) -> bytes:
        stop = min(start + PIECE, stop)
        return await self.service.threads.start(self.files.read, self.file, start, stop)

    async def send_selected(
        self, exchange: Exchange, request: Request, selection: RowSelection
    ) -> None:
        """Send some rows; their number is not known beforehand, so there are no ranges."""
        etag = self.file.etag_of(self.form, selection.octets)
        headers = self._headers(etag)
        if not_modified(request.headers, etag):
            await exchange.start(304, headers)
            return
        pieces: Iterator[bytes] = self.files.encoded(self.name, self.form, selection)
        threads = self.service.threads
        # The first has no rows: what is damaged is found before the answer begins, if it can be.
        piece = await threads.start(next, pieces, None)
        following = await threads.start(next, pieces, None)
        await exchange.start(200, headers)
        while piece is not None and request.method != "HEAD":
            await exchange.write(piece)
            piece, following = following, await threads.start(next, pieces, None)
