"""Answer a posted loss stream, after its body or while it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.errors import DrainingError, Problem, ProblemError, ServiceError, problem_of
from app.http.answers import remark_headers
from app.http.bodies import discard
from app.http.decompression import MAX_BODY, Decoder, decoder
from app.http.media_types import MEDIA_TYPES, PICTURE_TYPES
from app.server.drain import Drain
from app.server.responses import Exchange
from app.streams.driver import Stream
from app.streams.frames import Buffers
from app.streams.sender import Head
from core.errors import CoreError

from .encoding import RowEncoder, row_encoder
from .options import PostOptions
from .pictures.drawing import PictureCollector
from .pictures.options import PictureOptions
from .posting import Ending, Posting
from .pump import Pump
from .request import LossRequest
from .rows import PostedRows
from .service import LossService
from .spool import Item, Mark, Spool, Spools, Table
from .sums_room import FIRST_BYTES, SumsRoom
from .tokens import Checkpoints

_POST_BYTES = 1 << 20
"""Memory of an analysis and of what encodes its rows."""
_QUANTILE_BYTES = 256
"""Memory for each quantile: in tables, among rows that are copied, and as text."""
_OCCURRENCE_BYTES = 64
"""Memory for each occurrence: as parsed, and indexed by event for rows and for sums."""
_PERIOD_BYTES = 24
"""Memory for each period with a weight, in each report."""
_PICTURE_BYTES = 4 << 20
"""Memory of a picture while it is drawn: pixels, and the points of up to 48 curves."""
_LEAST_SUMS = 1 << 20
"""Memory of the sums of each of many sets in the beginning."""
_INFO_BYTES = 4
"""Memory for each byte of summary info, whose texts become objects and columns."""


def draw_posted(
    spool: Spool, request: LossRequest, options: PictureOptions, summary_set: int | None
) -> bytes:
    """Draw the rows that wait; takes them all.

    It is drawn before the answer begins, so that a picture that cannot be drawn is a problem
    document.

    Args:
        spool: holds the rows of a whole run.
        request: the analysis they are of; its first report is drawn.
        options: of the picture.
        summary_set: of the stream.

    Raises:
        ReportError: the picture cannot be drawn.
        StorageFullError: the disk failed.
    """
    collector = PictureCollector(request.reports[0], options)
    while (item := spool.take()) is not None:
        if isinstance(item, Table):
            collector.take(item.report, item.rows)
    return collector.draw(summary_set)


class PictureAnswer(RowEncoder):
    """An answer that is one picture.

    Args:
        picture: its bytes.
    """

    def __init__(self, picture: bytes) -> None:
        self._picture = picture

    def begin(self) -> Buffers:
        """Return the picture."""
        return [self._picture]

    def add(self, _item: Item) -> Buffers:
        """Nothing: the picture shows all rows."""
        return []


def _memory(options: PostOptions) -> int:
    """Return about how much memory a post takes besides buffers, sums and rows that wait."""
    request, inputs = options.request, options.request.inputs
    sets = len(request.set_ids)
    nbytes = _POST_BYTES * sets
    if options.picture is not None:
        nbytes += _PICTURE_BYTES
    if request.sets is not None:
        nbytes += sum(array.nbytes for array in request.sets.places)
    if request.info is not None:
        nbytes += _INFO_BYTES * sum(column.nbytes for column in request.info.columns.values())
    if inputs.quantiles is not None:
        nbytes += _QUANTILE_BYTES * len(inputs.quantiles)
    if inputs.occurrence is not None:
        # Each set indexes them for itself.
        nbytes += _OCCURRENCE_BYTES * len(inputs.occurrence.event_ids) * sets
    if inputs.periods is not None:
        nbytes += _PERIOD_BYTES * len(inputs.periods.weights) * len(request.tables) * sets
    return nbytes


async def give_back(spools: Spools, spool: Spool, room: SumsRoom) -> None:
    """Close what an answer has stored: in a thread if it is on the disk.

    The kernel takes tens of milliseconds to free the pages of a file without a name.
    """

    def close() -> None:
        spool.close()
        room.close()

    if spool.on_disk or room.on_disk:
        # A task that is cancelled waits no longer, but all is closed.
        await asyncio.shield(spools.start(close))
    else:
        close()


@dataclass(slots=True)
class LossAnswer:
    """The handler of one exchange.

    Args:
        options: the options of the request.
        checkpoints: creates the tokens of this analysis.
        after: the mark at which the body begins; None for the beginning of the stream.
        losses: the loss service.
        drain: signals that the server is shutting down.
    """

    options: PostOptions
    checkpoints: Checkpoints
    after: Mark | None
    losses: LossService
    drain: Drain

    async def __call__(self, exchange: Exchange) -> None:
        """Read the body and answer it.

        Raises:
            ProblemError: the body is faulty, and nothing was sent yet.
            ClientDisconnected: the client left.
        """
        losses, payer = self.losses, self.options.payer
        with losses.ledger.hold(payer, _memory(self.options), "posts") as hold:
            spool = losses.spools.new(payer)
            first = max(FIRST_BYTES // len(self.options.request.set_ids), _LEAST_SUMS)
            room = SumsRoom(losses.spools, payer, first)
            try:
                decode = decoder(self.options.body_coding, losses.max_body, hold.grow, MAX_BODY)
                await self._answer(exchange, decode, spool, room)
            finally:
                await give_back(losses.spools, spool, room)

    async def _answer(
        self, exchange: Exchange, decode: Decoder, spool: Spool, room: SumsRoom
    ) -> None:
        request = self.options.request
        resources = replace(room.resources, expect_summaries=request.expect_summaries)
        posting = Posting(request, decode, spool, self.after, resources, self.losses.admission)
        answer = self._answer_duplex if self.options.duplex else self._answer_after_body
        try:
            await answer(exchange, posting, spool)
        except (CoreError, ServiceError) as e:
            problem = self._problem(e, posting)
            # A refused post is not charged for it, and the client may be slow to send the rest.
            del posting, decode
            if not self.drain.hard.is_set():
                await discard(exchange.body)
            raise ProblemError(problem) from e

    def _problem(self, error: Exception, posting: Posting) -> Problem:
        """Return the problem of an error, with the position at which this post began."""
        # The analysis references the error, and the error's traceback the analysis: a cycle
        # of megabytes that only the garbage collector would free.
        problem = problem_of(error.with_traceback(None))
        if not self.options.request.needs_whole_stream:
            problem.members["token"] = self.checkpoints.token(posting.start)
            problem.members["resume_offset"] = posting.start.position.offset
        return problem

    # -- after the body ----------------------------------------------------------

    async def _answer_after_body(self, exchange: Exchange, posting: Posting, spool: Spool) -> None:
        ending = await self._pump(exchange, posting).run()
        if ending.reason == "drain":
            raise DrainingError(
                "the server is shutting down and has not read the whole body",
                hint="Post it again: another server will answer",
                retry_after=1,
            )
        self._count_events(ending, posting)
        encoder: RowEncoder
        length: int | None
        if self.options.picture is not None:
            picture = await self.losses.threads.start(
                draw_posted, spool, self.options.request, self.options.picture, posting.summary_set
            )
            encoder, length = PictureAnswer(picture), len(picture)
        else:
            # A part that ends inside the stream's header does not begin the table yet.
            begun = ending.mark is None or ending.mark.position.offset > 0
            encoder = self._encoder(posting, titled=begun and posting.start.position.offset == 0)
            length = spool.waiting if self.options.form == "bin" else None
        ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        ended.set_result(ending)
        head = Head(self._final_headers(ending), length=length)
        await self._stream(exchange, posting, spool, encoder, ended, head)

    def _final_headers(self, ending: Ending) -> dict[str, str]:
        headers = self._headers(ending.completeness) | {
            "Thalweg-Events": str(ending.events),
            "Thalweg-Bytes": str(ending.bytes),
            "Thalweg-Reopened-Check": ending.reopened_check,
        }
        headers |= remark_headers(ending.remarks)
        if ending.bound is not None and ending.bound.summaries is not None:
            headers["Thalweg-Ledger-Bound"] = str(ending.bound.bound.state_bytes)
        if ending.mark is not None:
            headers["Thalweg-Token"] = self.checkpoints.token(ending.mark)
            headers["Thalweg-Offset"] = str(ending.mark.position.offset)
        return headers

    # -- while the body arrives --------------------------------------------------

    async def _answer_duplex(self, exchange: Exchange, posting: Posting, spool: Spool) -> None:
        request = self.options.request
        declared = request.expect_bytes is not None or request.expect_events is not None
        head = Head(self._headers("declared" if declared else "undeclared"))
        encoder = self._encoder(posting, titled=posting.start.position.offset == 0)

        news = asyncio.Event()

        def ended(reading: asyncio.Future[Ending]) -> None:
            if not reading.cancelled() and reading.exception() is None:
                self._count_events(reading.result(), posting)

        reading = asyncio.ensure_future(self._pump(exchange, posting, news.set).run())
        reading.add_done_callback(ended)
        await self._stream(exchange, posting, spool, encoder, reading, head, news)

    # -- both --------------------------------------------------------------------

    async def _stream(
        self,
        exchange: Exchange,
        posting: Posting,
        spool: Spool,
        encoder: RowEncoder,
        reading: asyncio.Future[Ending],
        head: Head,
        news: asyncio.Event | None = None,
    ) -> None:
        """Send the rows; ``news`` says that further ones have come while the body arrives."""
        threads, start = self.losses.threads, self._start(posting)
        rows = PostedRows(
            spool, encoder, posting, threads, reading, lambda: exchange.started, start, news
        )
        stream = Stream(
            rows,
            rows,
            head,
            threads,
            # The pump watches it instead, and ends the post between two events.
            drain=None,
            coding=self.options.coding,
            heartbeat=None,
            live=news is not None,
        )
        await stream.send(exchange)

    def _pump(
        self, exchange: Exchange, posting: Posting, notice: Callable[[], None] = lambda: None
    ) -> Pump[Ending]:
        def progress(count: int) -> None:
            self.losses.metrics.body_bytes.inc(count)
            notice()

        payer = self.options.payer
        return self.losses.pump(exchange.body, posting, payer, self.drain, progress)

    def _encoder(self, posting: Posting, *, titled: bool) -> RowEncoder:
        options = self.options
        return row_encoder(
            options.form,
            options.request,
            self.checkpoints.token,
            self._start(posting),
            duplex=options.duplex,
            titled=titled,
        )

    def _start(self, posting: Posting) -> Mark | None:
        return None if self.options.request.needs_whole_stream else posting.start

    def _headers(self, completeness: str) -> dict[str, str]:
        request = self.options.request
        further = {} if request.rates is None else {"Thalweg-Rates": request.rates}
        head = Head.of_stream(
            (MEDIA_TYPES | PICTURE_TYPES)[self.options.form],
            self.options.coding,
            {
                "Vary": "Accept, Accept-Encoding",
                "Thalweg-Completeness": completeness,
                "Upload-Complete": "?0" if request.partial else "?1",
                **further,
            },
        )
        return dict(head.headers)

    def _count_events(self, ending: Ending, posting: Posting) -> None:
        self.losses.metrics.events.inc(ending.events - posting.start.position.events)
