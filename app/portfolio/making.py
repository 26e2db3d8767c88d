"""Loss sets of runs: the stored streams are read once, and are not needed afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from app.errors import InvalidOptionError
from app.http.identity import Identity
from app.losses.request import LossRequest
from app.losses.schemas import given
from app.losses.service import LossService
from app.run_errors import ReportNotReadyError
from app.runs.records import RunRecord
from app.runs.results.computing import RunStreams
from app.runs.results.segments import EVENT_BYTES
from app.runs.spec import RunSpec, invalid
from app.runs.streams import Streams
from core.budget import Scope, current
from core.errors import InputError, UnsupportedStreamError
from core.losses.events import StreamHeader
from core.losses.format import Kind, header_size
from core.losses.header import parse_header
from core.losses.indexing import LossColumns, read_columns
from core.losses.inputs import SummaryInfo
from core.losses.summaries import JoinedSummaries, Reading, SummarySets, set_policy
from core.portfolio.assembling import calendar_of
from core.portfolio.labels import currency_of, notes_of, tidy

from .contents import Built, Shape, happening, write_contents
from .exchanging import check_currency
from .files import STAGE
from .records import LossSet, LossSets, SetWriter

_SEGMENT = 4 << 20
"""Bytes of a stream that are read together, beside the rest of an event."""
_COPIES = 8
"""Bytes that reading takes for each of them: columns, and the rows of the set."""
_PIECE = 1 << 20


class SetBody(BaseModel):
    """A loss set to make of a run."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str
    name: str | None = given("Id of the set; a digest of what it is made of without")
    currency: str | None = given("Currency of its losses", pattern="^[A-Z]{3}$")
    perspective: Literal["gul", "il", "ri", "rl"] | None = given("That of the run without")
    summary_set: int | None = given("Which set of summary_xref; needed if there are several", ge=1)
    summary_info: str | None = given("Digest of an input: what its summaries are, as dimensions")


@dataclass(frozen=True, slots=True)
class Making:
    """Makes loss sets of runs."""

    sets: LossSets
    streams: Streams
    losses: LossService

    def make(self, caller: Identity, values: Mapping[str, Any]) -> tuple[LossSet, bool]:
        """Make a set of a run, unless it was made before; return it, and whether it is new.

        Raises:
            NotFoundError: the caller has no such run.
            ReportNotReadyError: it is not sealed.
            CoreError, ServiceError: it has no occurrences, or a stream is faulty.
        """
        try:
            body = SetBody.model_validate(values)
        except ValidationError as e:
            raise invalid(e) from e
        run = self.streams.runs.own(caller, body.run)
        if run.is_open:
            raise ReportNotReadyError(
                f"the run is {run.state}: its losses are whole once it is sealed",
                hint=f"POST /v1/runs/{run.id}/seal once all streams are complete",
                state=run.state,
            )
        request = self._request(caller, run, body)
        info = None
        if body.summary_info is not None:
            info = tidy(self.losses.inputs.parsed(caller, "summary_info", body.summary_info))
        currency = _currency(info, body.currency)
        perspective = RunSpec.of(run).perspective
        if body.perspective not in {None, perspective}:
            fault = f"the perspective is {body.perspective}, but that of the run is {perspective}"
            hint = "Leave it out: a loss set has that of its run"
            raise InvalidOptionError(fault, hint=hint, option="perspective")
        document = {"run": run.id, "perspective": perspective, "currency": currency}
        named = {**document, "term": run.term, "set": request.set_ids, "info": body.summary_info}
        source = hashlib.blake2b(orjson.dumps(named), digest_size=12).hexdigest()
        content = partial(self._write, run, request, info, document)
        return self.sets.create(caller, body.name or source, source, content)

    def _request(self, caller: Identity, run: RunRecord, body: SetBody) -> LossRequest:
        """Return what the streams of a run are read with, and its occurrences."""
        spec = RunSpec.of(run)
        if "occurrence" not in spec.inputs:
            raise InvalidOptionError(
                f"the run {run.id} has no occurrences, so its events happen in no period",
                hint="Create a run with the input occurrence, and upload its streams to that",
                option="run",
            )
        if body.summary_set is not None and "summary_xref" in spec.inputs:
            options = spec.options.model_copy(update={"sets": [body.summary_set]})
            spec = replace(spec, options=options)
        request = spec.request(caller, self.losses, ("ept",))
        if len(request.set_ids) > 1:
            raise InvalidOptionError(
                f"the run has the summary sets {', '.join(map(str, request.set_ids))}",
                hint="Name one of them: they cut the same losses",
                option="summary_set",
            )
        return request

    def _write(
        self,
        run: RunRecord,
        request: LossRequest,
        info: SummaryInfo | None,
        document: Mapping[str, Any],
        writer: SetWriter,
    ) -> Mapping[str, Any]:
        policy = replace(request.policy, event_order="any")
        sealed = self.streams.of(run)
        streams = RunStreams([self.streams.stored(stream) for stream in sealed], policy)
        header, inputs = streams.header(), request.inputs
        assert inputs.occurrence is not None  # noqa: S101 - asked for above
        weights = None if inputs.periods is None else inputs.periods.weights
        calendar = calendar_of(inputs.occurrence, weights)
        if request.sets is None:
            columns, number = _columns(streams), header.summary_set
        else:
            columns, (number,) = _summaries(streams, request.sets), request.set_ids
        built = Built(columns, header.len_sample, f"run {run.id}", info)
        with Scope(STAGE):
            shape = Shape(header.len_sample, header.float_width)
            written = write_contents(writer, built, shape, calendar, info)
        digests = sorted(each.digest.total if each.digest else each.id for each in sealed)
        digest = hashlib.blake2b(" ".join(digests).encode(), digest_size=16).hexdigest()
        numbers = {"summary_set": number, "streams": digest, **happening(built.events, calendar)}
        notes = [] if info is None else [*notes_of(info), *built.notes()]
        return {**document, **numbers, "notes": notes, **written}


def _currency(info: SummaryInfo | None, currency: str | None) -> str | None:
    """Return the currency of losses, which summaries may have as a column."""
    try:
        own = (
            None
            if info is None
            else currency_of(info.columns, lambda row: f"summary {info.summary_ids[row]}")
        )
    except InputError as e:
        raise InvalidOptionError(e.message, hint=e.hint, option="summary_info") from e
    check_currency(own, currency)
    return currency or own


def _columns(streams: RunStreams) -> Iterator[LossColumns]:
    """Yield the blocks of streams of summaries.

    Raises:
        UnsupportedStreamError: they are of items.
    """
    header = streams.header()
    if header.kind is not Kind.SUMMARY:
        raise UnsupportedStreamError(
            f"the run has a {header.describe()}: a loss set is of summaries",
            hint="Create a run with the input summary_xref, which says how items are added up",
        )
    budget = current()
    for segment in streams.segments(_SEGMENT):
        with Scope(STAGE, _COPIES * (segment.end - segment.begin)):
            data = b"".join(segment.pieces())
            yield read_columns(
                data, streams.policy, header, segment.begin, name=segment.stream.name
            )
        # However long the streams are.
        budget.renew()


def _summaries(streams: RunStreams, sets: SummarySets) -> Iterator[LossColumns]:
    """Yield the blocks of the summaries of streams of items."""
    written: list[bytes] = []
    names = [stream.name for stream in streams.streams]
    reading = Reading(streams.policy, max_event_bytes=EVENT_BYTES)
    summaries = JoinedSummaries(
        names, sets, lambda _, octets: written.append(bytes(octets)), reading
    )
    policy, budget = set_policy(streams.policy), current()
    header: StreamHeader | None = None
    offset = header_size(Kind.SUMMARY)

    def columns() -> Iterator[LossColumns]:
        nonlocal header, offset
        if header is None and written:
            header = parse_header(written.pop(0), policy, None)
        data = b"".join(written)
        written.clear()
        if header is not None and data:
            with Scope(STAGE, _COPIES * len(data)):
                yield read_columns(data, policy, header, offset)
            offset += len(data)

    for part, stream in enumerate(streams.streams):
        for begin in range(0, stream.size, _PIECE):
            summaries.receive(part, stream.read(begin, min(begin + _PIECE, stream.size)))
            yield from columns()
            budget.renew()
        summaries.close(part)
        yield from columns()
