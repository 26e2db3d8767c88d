"""Opening the rows of a run: which are read, from where on, and in which form."""

from __future__ import annotations

from dataclasses import dataclass

from app.errors import NotAcceptableError
from app.http.identity import USER_SCOPES, Identity
from app.losses.encoding import RowEncoder, row_encoder
from app.losses.request import LossRequest, require_whole_stream
from app.losses.service import LossService
from app.losses.tables import table_encoder
from app.losses.tokens import identity_of
from app.run_errors import ReportNotReadyError

from ..records import RunRecord
from ..spec import RunSpec
from ..streams import Streams
from .events import RowEvents
from .reader import RowReader
from .tokens import RowPlace, RowTokens

FORMATS = ("frames", "csv", "ndjson", "arrow", "parquet", "bin")
EVENTS = "sse"
TELL_END = ("frames", "ndjson", EVENTS)
"""Formats that say how an answer ends."""
MEMORY = 8 << 20
"""Memory of an analysis, of what encodes its rows, and of rows on their way."""


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Rows that a client wants of a run.

    Attributes:
        run: the run.
        report: one of events or periods.
        form: one of ``FORMATS``, or ``EVENTS``.
        stream: id of the only stream to read; None for all.
        follow: whether to wait for what is still to come.
    """

    run: RunRecord
    report: str
    form: str
    stream: str | None = None
    follow: bool = False


def open_rows(
    losses: LossService, streams: Streams, wanted: WantedRows, after: str | RowPlace | None
) -> RowReader:
    """Return a reader of rows; not on the event loop.

    Args:
        losses: inputs and keys.
        streams: those of all runs.
        wanted: what is read.
        after: token or place to go on after; None for the beginning.

    Raises:
        ReportNotReadyError: rows may follow, and the format cannot tell that they are missing.
        WholeStreamError: the report is of the whole run.
        NotAcceptableError: the format holds one table, and there are several sets.
        CoreError, ServiceError: an input is missing, or the token or place does not fit.
    """
    run, form = wanted.run, wanted.form
    request = _request(losses, run, wanted.report, form)
    if form not in TELL_END and not wanted.follow and run.is_open:
        raise ReportNotReadyError(
            f"the run is {run.state}, and {form} cannot tell that rows are missing",
            hint="Use follow=true, or format=frames, ndjson or sse, or seal the run first",
            retry_after=5,
            state=run.state,
        )
    tokens = RowTokens(losses.keys, identity_of((b"rows 1", run.id.encode(), request.identity)))
    place = tokens.read(after) if isinstance(after, str) else after
    reader = RowReader(streams, run, request, place, wanted.stream, follow=wanted.follow)
    reader.encoder = _encoder(wanted, request, tokens, reader, titled=place is None)
    return reader


def _request(losses: LossService, run: RunRecord, report: str, form: str) -> LossRequest:
    who = Identity(run.owner, USER_SCOPES)
    request = RunSpec.of(run).request(who, losses, (report,))
    require_whole_stream(request.tables, "and rows are of events; GET it from the reports instead")
    if request.sets is not None and len(request.sets.set_ids) > 1 and form != "frames":
        raise NotAcceptableError(
            f"{form} holds the report of one summary set, and the run has several",
            hint="Use format=frames",
        )
    return request


def _encoder(
    wanted: WantedRows,
    request: LossRequest,
    tokens: RowTokens,
    reader: RowReader,
    *,
    titled: bool,
) -> RowEncoder:
    form, live = wanted.form, wanted.follow
    if form == EVENTS:
        (report,) = request.tables
        lines = table_encoder("ndjson", report, request.policy.float_width)
        return RowEvents(lines, tokens.token)
    return row_encoder(form, request, tokens.token, reader.mark, duplex=live, titled=titled)
