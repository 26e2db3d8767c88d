"""The rows of a run as an answer: which are read, from where on, and in which form."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from app.errors import NotAcceptableError, Problem
from app.http.bodies import Threads
from app.http.identity import USER_SCOPES, Identity
from app.losses.encoding import RowEncoder, row_encoder
from app.losses.posting import Ending
from app.losses.request import LossRequest, require_whole_stream
from app.losses.rows import Chunk
from app.losses.service import LossService
from app.losses.tables import table_encoder
from app.losses.tokens import identity_of
from app.run_errors import ReportNotReadyError
from app.streams.ahead import settle
from app.streams.driver import Encoder, Progress
from app.streams.frames import Buffers

from ..records import RunRecord
from ..spec import RunSpec
from ..streams import Streams
from ..watching import Follower, Watch
from .events import RowEvents
from .reader import RowReader
from .tokens import RowPlace, RowTokens

T_co = TypeVar("T_co", covariant=True)


class Reader(Protocol[T_co]):
    """Reads something of a run, in threads, one call at a time."""

    @property
    def ended(self) -> bool:
        """Whether there is nothing more once a call returns None."""

    def step(self) -> T_co | None:
        """Return what is next; None if there is nothing at present, or nothing more."""


class RunSupply(Generic[T_co]):
    """Supplies what a reader finds in a run to a streamed answer.

    Args:
        reader: finds it.
        threads: run it.
        watch: tells of changes of the run.
        run: its id.
        pause: seconds between two findings at least.
    """

    def __init__(
        self, reader: Reader[T_co], threads: Threads, watch: Watch, run: str, pause: float = 0.0
    ) -> None:
        self._reader = reader
        self._threads = threads
        self._watch = watch
        self._run = run
        self._pause = pause
        self._upcoming: asyncio.Task[Sequence[T_co]] | None = None
        self._call: asyncio.Future[T_co | None] | None = None
        self._follower: Follower | None = None

    @property
    def idle(self) -> bool:
        """Whether no thread reads."""
        return self._call is None or self._call.done()

    def upcoming(self) -> asyncio.Task[Sequence[T_co]]:
        """Return the future of what is next; it yields nothing after the last."""
        if self._upcoming is None:
            self._upcoming = asyncio.ensure_future(self._next())
        return self._upcoming

    async def _next(self) -> Sequence[T_co]:
        if self._pause and self._call is not None and not self._reader.ended:
            await asyncio.sleep(self._pause)
        while True:
            self._call = self._threads.start(self._reader.step)
            found = await asyncio.shield(self._call)
            if found is not None:
                return [found]
            if self._reader.ended:
                return []
            if self._follower is None:
                # And look again: what changed until now was not announced to us.
                self._follower = self._watch.follow(self._run)
            else:
                await self._follower.changed()

    def take(self) -> Sequence[T_co]:
        """Return what is ready.

        Raises:
            CoreError, ServiceError: the reader failed; all it found before was taken.
        """
        found = self.upcoming().result()
        self._upcoming = None
        return found

    async def close(self) -> None:
        """Stop, and wait until no thread reads any more."""
        if self._upcoming is not None:
            self._upcoming.cancel()
            await settle(self._upcoming)
        if self._call is not None:
            await settle(self._call)
        if self._follower is not None:
            self._follower.close()


class RunRowStream(Encoder[Chunk]):
    """Adapts an encoder of rows to the driver.

    Args:
        reader: reads the rows.
        rows: the supply of what it has encoded.
    """

    def __init__(self, reader: RowReader, rows: RunSupply[Chunk]) -> None:
        self._reader = reader
        self._rows = rows

    def begin(self) -> Buffers:
        """Return the header of the format, if it has one."""
        return self._reader.encoder.begin()

    def item(self, item: Chunk) -> Buffers:
        """Return the chunk, which is already encoded."""
        return item.buffers

    def heartbeat(self) -> Buffers:
        """Encode a sign of life, unless a thread is encoding rows."""
        return self._reader.encoder.heartbeat() if self._rows.idle else []

    def end(self, reason: str, _progress: Progress) -> Buffers | None:
        """Encode the end; None if there may be more rows and the format cannot tell."""
        reader = self._reader
        reason = reader.reason or reason
        whole = reason in {"sealed", "complete"}
        if not whole and not reader.encoder.tells_end:
            return None
        completeness = "declared" if whole else "partial"
        ending = Ending(reason, completeness, reader.mark, reader.events, reader.bytes, "whole")
        return reader.encoder.end(ending)

    def fail(self, problem: Problem) -> Buffers | None:
        """Encode the failure, with the last mark whose rows were all sent."""
        return self._reader.encoder.fail(problem, self._reader.mark)


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
    caller = Identity(run.owner, USER_SCOPES)
    request = RunSpec.of(run).request(caller, losses, (report,))
    instead = f"GET /v1/runs/{run.id}/reports/{report} once the run is sealed"
    require_whole_stream(request.tables, "and these are rows of events", instead)
    if request.sets is not None and len(request.sets.set_ids) > 1 and form != "frames":
        raise NotAcceptableError(
            f"{form} holds the report of one summary set, and the run has several",
            hint="Use format=frames",
        )
    return request


def _encoder(
    wanted: WantedRows, request: LossRequest, tokens: RowTokens, reader: RowReader, *, titled: bool
) -> RowEncoder:
    form, live = wanted.form, wanted.follow
    if form == EVENTS:
        (report,) = request.tables
        lines = table_encoder("ndjson", report, request.policy.float_width)
        return RowEvents(lines, tokens.token)
    return row_encoder(form, request, tokens.token, reader.mark, duplex=live, titled=titled)
