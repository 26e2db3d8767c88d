"""The options of a posted loss stream, from its query and headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from app.errors import BadRequestError, InvalidOptionError, NotAcceptableError
from app.http.identity import Identity
from app.http.media_types import MEDIA_TYPES, PICTURE_TYPES
from app.http.negotiation import Headers, answer_coding, choose_format, joined
from core.losses.parameters import ReportInputs
from core.losses.policy import Policy
from core.losses.reports import check_options
from core.losses.reports.report import RunOptions
from core.losses.summaries import SummarySets

from .inputs import Inputs
from .pictures.drawing import PICTURES
from .pictures.options import PictureForm, PictureOptions, can_draw
from .request import LossRequest, require_whole_stream
from .schemas import LossQuery, PassOptions, ReportsQuery
from .selection import parse_selection, parse_sets
from .service import LossService


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
    picture: PictureOptions | None = None
    """How the report is drawn; None for its rows."""


def read_options(
    caller: Identity,
    reports: tuple[str, ...],
    query: LossQuery,
    headers: Headers,
    losses: LossService,
) -> PostOptions:
    """Check all options before the body is read.

    May read and parse auxiliary files, so it must not run on the event loop.

    Raises:
        CoreError, ServiceError: an option is invalid, an auxiliary file is missing, or the sums
            may need too much.
    """
    partial = upload_complete(headers) is False
    if partial and query.duplex:
        raise InvalidOptionError(
            "duplex does not work for a part of a stream (Upload-Complete: ?0)", option="duplex"
        )
    form = _format(query, headers, reports)
    drawn = form in PICTURE_TYPES
    if not drawn and (unused := sorted(query.model_fields_set & _OF_PICTURES)):
        raise InvalidOptionError(
            f"{unused[0]} is of pictures, and {form} is none",
            hint="Leave it out, or ask for format=svg or png",
            option=unused[0],
        )
    if query.summary_info is not None:
        _check_info(form)
    if drawn and query.duplex:
        raise InvalidOptionError(
            "duplex does not work for a picture, which shows the whole run", option="duplex"
        )
    request = read_request(
        caller,
        PICTURES[reports[0]] if drawn else reports,
        query,
        losses,
        expect_bytes=_expected_bytes(query, headers),
        partial=partial,
    )
    check_options(request.tables, request.options, query.model_fields_set)
    without_effect = {"expect_summaries", "over_bound"} & query.model_fields_set
    if without_effect and not request.has_ledger:
        raise InvalidOptionError(
            f"{min(without_effect)} is of reports of whole runs, and none is wanted",
            hint="Leave it out",
            option=min(without_effect),
        )
    if request.sets is not None:
        _check_one_set(form, request.sets)
    if query.after is not None:
        require_whole_stream(request.tables, "and a token continues within one")
    _admit(caller, request, losses)
    return PostOptions(
        caller.payer,
        request,
        form,
        answer_coding(headers),
        joined(headers, "content-encoding"),
        query.duplex,
        query.after,
        _picture(query, form, request) if drawn else None,
    )


_OF_PICTURES = frozenset({"theme", "plot_tvar", "perspective", "currency"})


def _admit(caller: Identity, request: LossRequest, losses: LossService) -> None:
    """Refuse sums that may need too much, as far as they are known; see ``Admission``."""
    occurrence = request.inputs.occurrence
    count = 0
    if occurrence is not None and request.expect_samples is not None:
        count = len(occurrence.event_ids)
    with losses.ledger.hold(caller.payer, _INDEXED_BYTES * count, "posts"):
        losses.admission.admit(request)


_INDEXED_BYTES = 48
"""Memory for each occurrence while they are sorted by event."""


def read_policy(query: LossQuery, losses: LossService) -> Policy:
    """Return what a query accepts of a stream."""
    return Policy(
        float_width=int(query.float_width),
        nan=query.nan,
        negative=query.negative,
        sample_order=query.sample_order,
        event_order="ascending" if query.order == "event" else "any",
        max_samples=losses.max_samples,
        max_blocks=losses.max_blocks,
    )


def read_run_options(query: PassOptions) -> RunOptions:
    """Return how a query has reports of whole runs computed."""
    return RunOptions(query.confidence, query.curves, query.tvar)


def read_request(  # noqa: PLR0913 - each is another part of the request
    caller: Identity,
    reports: tuple[str, ...],
    query: LossQuery,
    losses: LossService,
    *,
    expect_bytes: int | None = None,
    partial: bool = False,
) -> LossRequest:
    """Return the analysis that a query requests, with its inputs read and parsed.

    Raises:
        CoreError, ServiceError: an option is invalid, or an auxiliary file is missing.
    """
    info = query.summary_info
    return LossRequest(
        reports=reports,
        policy=read_policy(query, losses),
        inputs=_read_inputs(caller, query, losses.inputs),
        options=read_run_options(query),
        sets=_read_sets(caller, query, losses.inputs),
        info=None if info is None else losses.inputs.parsed(caller, "summary_info", info),
        named=_named(query),
        selection=parse_selection(query.summary_ids, query.event_ids),
        expect_events=query.expect_events,
        expect_bytes=expect_bytes,
        expect_samples=query.expect_samples,
        expect_summaries=query.expect_summaries,
        refuses_over_bound=query.over_bound == "refuse",
        partial=partial,
    )


def _picture(query: LossQuery, form: str, request: LossRequest) -> PictureOptions:
    return PictureOptions(
        form=cast("PictureForm", form),
        theme=query.theme,
        summary_ids=request.selection.summary_ids,
        tail_means=query.plot_tvar,
        confidence=query.confidence,
        perspective=query.perspective,
        currency=query.currency,
    )


def _read_inputs(caller: Identity, query: LossQuery, stored: Inputs) -> ReportInputs:
    """Read the auxiliary files that the query names, and the lists in it."""
    if query.no_of_periods is not None and query.occurrence is None:
        raise InvalidOptionError("no_of_periods requires occurrence", option="no_of_periods")
    parsed = {
        name: stored.parsed(caller, name, text)
        for name in ("quantiles", "event_rates", "periods", "return_periods")
        if (text := getattr(query, name)) is not None
    }
    if query.occurrence is not None:
        parsed["occurrence"] = stored.occurrence(caller, query.occurrence, query.no_of_periods)
    return ReportInputs(**parsed)


def _read_sets(caller: Identity, query: LossQuery, stored: Inputs) -> SummarySets | None:
    """Read the summary sets that the query names.

    Raises:
        InvalidOptionError: an option lacks the xref, the sets are not in it, or are too many.
        InputGoneError: there is no such file.
    """
    if query.summary_xref is None:
        for option in ("summary_map", "sets"):
            if getattr(query, option) is not None:
                raise InvalidOptionError(
                    f"{option} requires summary_xref",
                    hint="Add summary_xref= with the digest of an input",
                    option=option,
                )
        return None
    if query.expect_summaries is not None:
        raise InvalidOptionError(
            "expect_summaries is for streams of summaries; summary_xref tells how many there are",
            option="expect_summaries",
        )
    requested = None if query.sets is None else parse_sets(query.sets)
    return stored.summary_sets(caller, query.summary_xref, query.summary_map, requested)


def _check_info(form: str) -> None:
    """Refuse columns of text where rows are records or pictures."""
    if form in _WITHOUT_COLUMNS:
        raise InvalidOptionError(
            f"summary_info is joined to rows of {', '.join(_JOINABLE)}, not of {form}",
            hint="Choose one of these with format=, and one report and set at a time",
            option="summary_info",
        )


_WITHOUT_COLUMNS = frozenset({"bin", "frames", *PICTURE_TYPES})
_JOINABLE = tuple(name for name in MEDIA_TYPES if name not in _WITHOUT_COLUMNS)


def _named(query: LossQuery) -> tuple[str, ...]:
    """The inputs of sets and info that the query names, each with its name."""
    options = ("summary_xref", "summary_map", "sets", "summary_info")
    values = ((option, getattr(query, option)) for option in options)
    return tuple(f"{option}={value}" for option, value in values if value is not None)


def _check_one_set(form: str, sets: SummarySets) -> None:
    """Refuse several summary sets in a form that holds one table."""
    if len(sets.set_ids) > 1 and form != "frames":
        listed = ", ".join(map(str, sets.set_ids))
        raise InvalidOptionError(
            f"{form} holds the report of one summary set, but these are {listed}",
            hint=f"Choose one with sets={sets.set_ids[0]}, or use format=frames",
            option="sets",
        )


def _format(query: LossQuery, headers: Headers, reports: tuple[str, ...]) -> str:
    several = isinstance(query, ReportsQuery)
    formats = ("frames",) if several else tuple(MEDIA_TYPES)
    if not several and reports[0] in PICTURES and can_draw():
        formats += tuple(PICTURE_TYPES)
    if query.format is None:
        return choose_format(joined(headers, "accept"), formats)
    if query.format in formats:
        return query.format
    if several:
        raise NotAcceptableError(
            f"several reports are available as frames, not as {query.format}",
            hint="Post to /v1/losses/{report}, or use format=frames",
        )
    raise no_picture(reports[0])


def no_picture(report: str) -> NotAcceptableError:
    """Return the error of a report that has no picture, or none on this server."""
    if report in PICTURES:
        return NotAcceptableError(
            "this server draws no pictures, because matplotlib is not installed there",
            hint="Ask its operator for the extra plot",
        )
    return NotAcceptableError(
        f"there is no picture of {report.upper()}",
        hint=f"Reports with a picture are {' and '.join(PICTURES)}",
    )


def upload_complete(headers: Headers) -> bool | None:
    """Return Upload-Complete; None if it is absent.

    Raises:
        BadRequestError: it is neither ?0 nor ?1.
    """
    text = joined(headers, "Upload-Complete")
    if text not in {None, "?0", "?1"}:
        raise BadRequestError(
            f"Upload-Complete is {str(text)[:80]!r}, not ?0 or ?1",
            hint="Send ?0 if more follows, ?1 with the last part",
        )
    return None if text is None else text == "?1"


_MAX_DIGITS = 80


def number(headers: Headers, name: str) -> int | None:
    """Return a header that is a number of bytes; None if it is absent.

    Raises:
        BadRequestError: it is no number.
    """
    text = joined(headers, name)
    if text is None:
        return None
    # What is too large for anything, its limit refuses.
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise BadRequestError(f"{name} is {text[:80]!r}, not a number of bytes")
    return int(text)


def _expected_bytes(query: LossQuery, headers: Headers) -> int | None:
    length = number(headers, "Upload-Length")
    if length is None:
        return query.expect_bytes
    if query.expect_bytes not in {None, length}:
        raise BadRequestError(
            f"Upload-Length is {length}, but expect_bytes is {query.expect_bytes}",
            hint="Both declare the length of the whole stream; send one of them",
        )
    return length
