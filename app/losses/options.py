"""The options of a posted loss stream, from its query and headers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from app.errors import BadRequestError, InvalidOptionError, NotAcceptableError
from app.http.identity import Identity
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import Headers, answer_coding, choose_format, joined
from core.losses.parameters import ReportInputs
from core.losses.policy import Policy
from core.losses.reports.running import RunOptions

from .inputs import Inputs
from .request import LossRequest, parse_ids, require_whole_stream
from .schemas import LossQuery, ReportsQuery
from .service import LossService

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PostOptions:
    """The requested analysis, and how to answer it."""

    payer: str
    """Who is charged for memory, and for rows that wait."""
    request: LossRequest
    form: str
    """Format of the answer."""
    coding: str | None
    """Content coding of the answer, None for identity."""
    body_coding: str | None
    """Content-Encoding of the body, None if absent."""
    duplex: bool
    after: str | None
    """Token to resume from."""


def read_options(
    who: Identity,
    reports: tuple[str, ...],
    query: LossQuery,
    headers: Headers,
    losses: LossService,
) -> PostOptions:
    """Check all options before the body is read.

    May read and parse auxiliary files, so it must not run on the event loop.

    Raises:
        CoreError, ServiceError: an option is invalid, or an auxiliary file is missing.
    """
    partial = _is_partial(headers)
    if partial and query.duplex:
        raise InvalidOptionError(
            "duplex does not work for a part of a stream (Upload-Complete: ?0)",
            option="duplex",
        )
    request = LossRequest(
        reports=reports,
        policy=Policy(
            float_width=int(query.float_width),
            nan=query.nan,
            negative=query.negative,
            sample_order=query.sample_order,
            event_order="ascending" if query.order == "event" else "any",
            max_samples=losses.max_samples,
            max_blocks=losses.max_blocks,
        ),
        inputs=_read_inputs(who, query, losses.inputs),
        options=RunOptions(query.confidence, query.curves, query.tvar),
        summary_ids=None if query.summary_ids is None else parse_ids(query.summary_ids),
        expect_events=query.expect_events,
        expect_bytes=_expected_bytes(query, headers),
        partial=partial,
    )
    if query.after is not None:
        require_whole_stream(request.tables, "and a token continues within one")
    return PostOptions(
        who.payer,
        request,
        _format(query, headers),
        answer_coding(headers),
        joined(headers, "content-encoding"),
        query.duplex,
        query.after,
    )


def _read_inputs(who: Identity, query: LossQuery, stored: Inputs) -> ReportInputs:
    """Read the auxiliary files that the query names, and the lists in it."""
    if query.no_of_periods is not None and query.occurrence is None:
        raise InvalidOptionError("no_of_periods requires occurrence", option="no_of_periods")
    occurrence = None
    if query.occurrence is not None:
        occurrence = stored.occurrence(who, query.occurrence, query.no_of_periods)

    def read(text: str | None, reader: Callable[[Identity, str], T]) -> T | None:
        return None if text is None else reader(who, text)

    return ReportInputs(
        quantiles=read(query.quantiles, stored.quantiles),
        event_rates=read(query.event_rates, stored.event_rates),
        occurrence=occurrence,
        periods=read(query.periods, stored.periods),
        return_periods=read(query.return_periods, stored.return_periods),
    )


def _format(query: LossQuery, headers: Headers) -> str:
    formats = ("frames",) if isinstance(query, ReportsQuery) else tuple(MEDIA_TYPES)
    if query.format is None:
        return choose_format(joined(headers, "accept"), formats)
    if query.format not in formats:
        raise NotAcceptableError(
            f"several reports are available as frames, not as {query.format}",
            hint="Post to /v1/losses/{report}, or use format=frames",
        )
    return query.format


def _is_partial(headers: Headers) -> bool:
    value = joined(headers, "upload-complete")
    if value not in {None, "?0", "?1"}:
        raise BadRequestError(
            f"Upload-Complete is {str(value)[:80]!r}, not ?0 or ?1",
            hint="Send ?0 if more follows, ?1 with the last part",
        )
    return value == "?0"


def _expected_bytes(query: LossQuery, headers: Headers) -> int | None:
    text = joined(headers, "upload-length")
    if text is None:
        return query.expect_bytes
    if not (text.isascii() and text.isdigit() and len(text) < 19):  # noqa: PLR2004 - fits i8
        raise BadRequestError(f"Upload-Length is {text[:80]!r}, not a number of bytes")
    length = int(text)
    if query.expect_bytes not in {None, length}:
        raise BadRequestError(
            f"Upload-Length is {length}, but expect_bytes is {query.expect_bytes}",
            hint="Both declare the length of the whole stream; send one of them",
        )
    return length
