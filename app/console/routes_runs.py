"""Pages of runs, and what they show that the public routes do not tell."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, Literal, cast, get_args

from fastapi import Query
from fastapi.responses import Response
from fastapi.routing import APIRoute

from app.errors import InputGoneError
from app.http.dependencies import IdentityDep, Routes
from app.http.identity import Identity
from app.http.json_bodies import json_response
from app.losses.inputs import KINDS
from app.runs.describing import describe_briefly, describe_stream
from app.runs.records import RunRecord, StreamRecord
from app.runs.results.segments import stream_header
from app.runs.service import RunService
from app.runs.spec import RunSpec
from app.server.lanes.table import FRONT, LONG
from app.service_error import ServiceError
from app.state.base import StoreDamagedError
from core.errors import CoreError
from core.losses.inputs import SummaryInfo
from core.losses.reports import REPORTS
from core.slices import slices

from .routes import PAGE, After, Console

_LOOKS, _LOOKED = 5, 1000
"""Pages of runs that are looked through, by their ids, and runs of one: 30 µs a run."""
_FOUND = 20
"""Summaries that a search finds."""
_ROWS = 1 << 12
"""Summaries that are looked at between two checks of the budget."""
_NAME = 200
"""Characters of a description that are shown."""
State = Literal["", "created", "uploading", "sealed", "computing", "done", "failed"]
Wanted = Annotated[State, Query(alias="state", description="Only runs in this state")]
Named = Annotated[str, Query(max_length=200, description="Text in a label, or how an id begins")]
Sought = Annotated[str, Query(max_length=200, description="Text in a summary or its description")]
Ids = Annotated[str, Query(pattern=r"^[0-9]{1,10}(,[0-9]{1,10}){0,19}$|^$")]

router = Routes(Console, "/console/runs", APIRoute, include_in_schema=False)


@router.get("", FRONT)
async def runs(
    console: Console, caller: IdentityDep, after: After = "", wanted: Wanted = "", q: Named = ""
) -> Response:
    """List the runs of the caller, the newest first."""
    service = console.runs

    def look() -> dict[str, Any]:
        looked = list(_all(service, caller))
        known = [run for run in looked if _is_shown(service, run, wanted, q)]
        known.sort(key=lambda run: (run.created, run.id), reverse=True)
        ids = [run.id for run in known]
        first = ids.index(after) + 1 if after in ids else 0
        page = known[first : first + PAGE]
        is_last = first + PAGE >= len(known)
        return {
            "runs": [_describe(service, run) for run in page],
            "after": None if is_last else page[-1].id,
            "most": len(looked) if len(looked) == _LOOKS * _LOOKED else None,
        }

    found = await service.threads.start(look)
    states = get_args(State)[1:]
    return console.pages.answer("runs", **found, state=wanted, states=states, q=q)


def _all(service: RunService, caller: Identity) -> Iterator[RunRecord]:
    """Yield the runs of the caller, as many as are looked through."""
    after = ""
    for _ in range(_LOOKS):
        page = service.runs.page(caller, after, _LOOKED)
        yield from page
        if len(page) < _LOOKED:
            return
        after = page[-1].id


def _is_shown(service: RunService, run: RunRecord, wanted: str, name: str) -> bool:
    named = name.casefold() in (run.spec.get("label") or "").casefold() or run.id.startswith(name)
    return named and wanted in {"", run.state} and not service.runs.is_expired(run)


def _describe(service: RunService, run: RunRecord) -> dict[str, Any]:
    brief = describe_briefly(run, service.streams.count(run))
    return {**brief, "partitions": run.spec["options"].get("partitions")}


@router.get("/new", FRONT)
async def new_run(console: Console) -> Response:
    """Offer to create a run."""
    return console.pages.answer("new_run", reports=REPORTS.values())


@router.get("/{ident}", FRONT)
async def run(console: Console, caller: IdentityDep, ident: str, after: After = "") -> Response:
    """Show a run, and a page of its streams."""
    service = console.runs

    def look() -> dict[str, Any]:
        record = service.runs.get(caller, ident)
        described = service.describe(record)
        streams = service.streams.page(record, after, PAGE)
        page = [{**describe_stream(each), "file": _file_name(each)} for each in streams]
        last = page[-1]["id"] if len(page) == PAGE else None
        return {"run": described, "streams": page, "after": last}

    rows = [name for name, report in REPORTS.items() if report.scope != "run"]
    found = await service.threads.start(look)
    return console.pages.answer("run", **found, inputs=KINDS, row_reports=rows)


def _file_name(stream: StreamRecord) -> str:
    """Return the name of the file that a stream is of; "" if its uploader did not tell."""
    name = re.search(r"(?:^|,) *filename ([\w+/=]+)", stream.metadata)
    with suppress(ValueError):
        return b64decode(name[1]).decode(errors="replace")[:_NAME] if name else ""
    return ""


@router.get("/{ident}/about", LONG)
async def about(
    console: Console, caller: IdentityDep, ident: str, q: Sought = "", ids: Ids = ""
) -> Response:
    """Tell samples and periods of a run, and which of its summaries are described so.

    Without a text or ids these are the first ones; null where the run has no summary info.
    """
    service = console.runs

    def look() -> dict[str, Any]:
        record = service.runs.get(caller, ident)
        info = _summary_info(service, caller, record)
        numbers = {int(number) for number in ids.split(",") if number}
        found = None if info is None else list(islice(_search(info, q, numbers), _FOUND))
        return {
            "run": record.id,
            "perspective": record.spec["perspective"],
            "samples": _samples(service, record),
            "periods": _periods(service, caller, record),
            "columns": None if info is None else list(info.columns)[:_FOUND],
            "summaries": found,
        }

    return json_response(await service.threads.start(look))


def _summary_info(service: RunService, caller: Identity, run: RunRecord) -> SummaryInfo | None:
    digest = run.inputs.get("summary_info")
    if digest is not None:
        with suppress(InputGoneError):
            return cast("SummaryInfo", service.losses.inputs.parsed(caller, "summary_info", digest))
    return None


def _search(info: SummaryInfo, text: str, ids: set[int]) -> Iterator[dict[str, Any]]:
    """Yield summaries by their ids, or else those whose id or description has a text."""
    sought = text.casefold()
    for a, b in slices(len(info.summary_ids), "summaries", _ROWS):
        columns = (column[a:b].tolist() for column in info.columns.values())
        for number, *texts in zip(info.summary_ids[a:b].tolist(), *columns, strict=True):
            name = " · ".join(texts)
            if number in ids if ids else sought in f"{number} {name}".casefold():
                yield {"id": number, "name": name[:_NAME]}


def _samples(service: RunService, run: RunRecord) -> int | None:
    """Samples of the streams, as the first of them says; None if it does not say so yet."""
    for stream in service.streams.page(run, "", 1):
        with suppress(CoreError, ServiceError, StoreDamagedError):
            policy = RunSpec.of(run).policy(service.losses)
            header = stream_header(service.streams.stored(stream), policy)
            return None if header is None else header.len_sample
    return None


def _periods(service: RunService, caller: Identity, run: RunRecord) -> int | None:
    """Periods of the occurrences; None without these."""
    stated: int | None = run.spec["options"].get("no_of_periods")
    digest = run.inputs.get("occurrence")
    if stated is None and digest is not None:
        with suppress(CoreError, ServiceError):
            return service.losses.inputs.occurrence(caller, digest, None).periods
    return stated
