"""Answering one posted loss stream: after its body, or while it arrives."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable
from dataclasses import dataclass

from app.context import Services
from app.errors import DrainingError, ProblemError, ServiceError, problem_of
from app.http.compression import Compressor, compressor
from app.http.decompression import decoder
from app.server.body import ClientDisconnected
from app.server.drain import Drain
from app.server.responses import Exchange
from app.streams.frames import MEDIA_TYPES
from core.errors import CoreError

from .encoding import Answer, Buffers, make_answer, take_chunk
from .options import Wanted
from .posting import Ending, Posting
from .pump import Pump, discard
from .spool import Mark, Spool
from .tokens import Checkpoints


class _Encoded:
    """What an answer's bytes go through on their way out."""

    def __init__(self, coding: str | None, *, flush: bool) -> None:
        self._compressor: Compressor | None = None if coding is None else compressor(coding)
        self._flush = flush

    def pass_on(self, buffers: Buffers, *, last: bool = False) -> bytes:
        data = b"".join(buffers)
        if self._compressor is None:
            return data
        made = self._compressor.compress(data, flush=self._flush and not last) if data else b""
        return made + self._compressor.end() if last else made


@dataclass(slots=True)
class LossAnswer:
    """The handler of one exchange.

    Args:
        wanted: what was asked for.
        checkpoints: makes this analysis' tokens.
        after: where the stream goes on, None for its beginning.
        services: of the process.
        drain: of the process.
    """

    wanted: Wanted
    checkpoints: Checkpoints
    after: Mark | None
    services: Services
    drain: Drain

    async def __call__(self, exchange: Exchange) -> None:
        """Read the body, answer it.

        Raises:
            ProblemError: what is wrong with it, before anything was answered.
            ClientDisconnected: nobody is there any more.
        """
        services = self.services
        buffers = services.buffers.take(2)
        services.metrics.buffers.inc(2)
        spool = services.spool()
        try:
            posting = self._posting(spool)
            try:
                if self.wanted.duplex:
                    await self._while_it_arrives(exchange, posting, spool, buffers)
                else:
                    await self._after_the_body(exchange, posting, spool, buffers)
            except (CoreError, ServiceError) as e:
                if not self.drain.hard.is_set():
                    await discard(exchange.body, buffers[0])
                raise self._problem(e, posting) from e
        finally:
            spool.close()
            services.buffers.give_back(buffers)
            services.metrics.buffers.dec(2)

    def _posting(self, spool: Spool) -> Posting:
        wanted = self.wanted
        decode = decoder(wanted.body_coding, self.services.settings.max_body)
        return Posting(wanted.request, decode, spool, self.after)

    def _problem(self, error: Exception, posting: Posting) -> ProblemError:
        """Nothing was answered: whoever tries again begins where this post began."""
        found = problem_of(_alone(error))
        found.members["token"] = self.checkpoints.token(posting.start)
        found.members["resume_offset"] = posting.start.position.offset
        return ProblemError(found)

    def _pump(
        self,
        exchange: Exchange,
        posting: Posting,
        buffers: list[mmap.mmap],
        tell: Callable[[], None],
    ) -> Pump:
        def progress(count: int) -> None:
            self.services.metrics.body_bytes.inc(count)
            tell()

        return Pump(
            exchange.body,
            posting,
            buffers,
            workers=self.services.workers,
            drain=self.drain,
            progress=progress,
        )

    def _answer(self, posting: Posting, *, titled: bool) -> Answer:
        wanted = self.wanted
        return make_answer(
            wanted.form,
            wanted.request,
            self.checkpoints.token,
            posting.start,
            duplex=wanted.duplex,
            titled=titled,
        )

    def _headers(self, completeness: str) -> dict[str, str]:
        wanted = self.wanted
        headers = {
            "Content-Type": MEDIA_TYPES[wanted.form],
            "Cache-Control": "no-store",
            "Vary": "Accept, Accept-Encoding",
            "X-Accel-Buffering": "no",
            "Thalweg-Completeness": completeness,
            "Upload-Complete": "?0" if wanted.request.partial else "?1",
        }
        if wanted.coding is not None:
            headers["Content-Encoding"] = wanted.coding
        return headers

    # -- after the body ----------------------------------------------------------

    async def _after_the_body(
        self, exchange: Exchange, posting: Posting, spool: Spool, buffers: list[mmap.mmap]
    ) -> None:
        ending = await self._pump(exchange, posting, buffers, lambda: None).run()
        if ending.reason == "drain":
            raise DrainingError(
                "the server stops before the body was read",
                hint="Post it again: another server answers",
                retry_after=1,
            )
        self.services.metrics.events.inc(ending.events - posting.start.position.events)
        place = ending.mark
        # Where the stream's own header is not whole yet, the table has not begun.
        begun = place is None or place.position.offset > 0
        answer = self._answer(posting, titled=begun and posting.start.position.offset == 0)
        await self._send_all(exchange, answer, spool, ending)

    def _known_headers(self, ending: Ending) -> dict[str, str]:
        headers = self._headers(ending.completeness) | {
            "Thalweg-Events": str(ending.events),
            "Thalweg-Bytes": str(ending.bytes),
            "Thalweg-Reopened-Check": ending.reopened_check,
        }
        if ending.mark is not None:
            headers["Thalweg-Token"] = self.checkpoints.token(ending.mark)
            headers["Thalweg-Offset"] = str(ending.mark.position.offset)
        return headers

    async def _send_all(
        self, exchange: Exchange, answer: Answer, spool: Spool, ending: Ending
    ) -> None:
        out = _Encoded(self.wanted.coding, flush=False)
        length = None
        if self.wanted.form == "bin" and self.wanted.coding is None:
            length = spool.waiting

        def chunk() -> tuple[bytes, bool]:
            made, _ = take_chunk(answer, spool)
            last = not len(spool)
            if last:
                made += answer.end(ending)
            if not exchange.started:
                made = answer.begin() + made
            return out.pass_on(made, last=last), last

        while True:
            data, last = await self.services.workers.start(chunk)
            if not exchange.started:
                known = len(data) if last else length
                await exchange.start(200, self._known_headers(ending), content_length=known)
            if last:
                await exchange.end(data)
                return
            await exchange.write(data)

    # -- while it arrives --------------------------------------------------------

    async def _while_it_arrives(
        self, exchange: Exchange, posting: Posting, spool: Spool, buffers: list[mmap.mmap]
    ) -> None:
        news = asyncio.Event()
        pump = asyncio.ensure_future(self._pump(exchange, posting, buffers, news.set).run())
        pump.add_done_callback(lambda _: news.set())
        gone = asyncio.ensure_future(exchange.disconnected.wait())
        gone.add_done_callback(lambda _: news.set())
        sender = _Sender(self, exchange, posting, spool)
        try:
            while not pump.done():
                await news.wait()
                news.clear()
                if gone.done():
                    raise ClientDisconnected("the client left")
                if posting.proven:
                    await sender.send_waiting()
            await self._end(sender, pump)
        finally:
            gone.cancel()
            if not pump.done():
                pump.cancel()
            await asyncio.wait({pump})
            pump.cancelled() or pump.exception()

    async def _end(self, sender: _Sender, pump: asyncio.Future[Ending]) -> None:
        """Send the last rows, and how it ended."""
        try:
            ending = pump.result()
        except (CoreError, ServiceError) as e:
            if not sender.started:
                raise
            await sender.send_waiting()
            await sender.fail(e)
            return
        self.services.metrics.events.inc(ending.events - sender.start_events)
        await sender.send_waiting()
        await sender.end(ending)

    def open_answer(self, posting: Posting) -> tuple[Answer, dict[str, str]]:
        """The encoder of a duplex answer, and what is known before its end."""
        request = self.wanted.request
        declared = request.expect_bytes is not None or request.expect_events is not None
        headers = self._headers("declared" if declared else "undeclared")
        return self._answer(posting, titled=posting.start.position.offset == 0), headers


def _alone(error: Exception) -> Exception:
    """The error without its traceback.

    The analysis keeps the error, and the traceback would keep the analysis: megabytes
    that only the garbage collector finds.
    """
    return error.with_traceback(None)


class _Sender:
    """Sends a duplex answer piece by piece."""

    def __init__(
        self, owner: LossAnswer, exchange: Exchange, posting: Posting, spool: Spool
    ) -> None:
        self._exchange = exchange
        self._spool = spool
        self._workers = owner.services.workers
        self._answer, self._headers = owner.open_answer(posting)
        self._out = _Encoded(owner.wanted.coding, flush=True)
        self._last = posting.start
        self.start_events = posting.start.position.events

    @property
    def started(self) -> bool:
        """Whether anything was sent."""
        return self._exchange.started

    async def send_waiting(self) -> None:
        """Send the rows that wait; the answer begins with the first of them."""
        while len(self._spool):
            made, last = await self._workers.start(take_chunk, self._answer, self._spool)
            if last is not None:
                self._last = last
            if any(map(len, made)):
                await self._write(made)

    async def _write(self, made: Buffers) -> None:
        if not self.started:
            made = self._answer.begin() + made
            await self._exchange.start(200, self._headers)
        data = await self._workers.start(self._out.pass_on, made)
        await self._exchange.write(data)

    async def end(self, ending: Ending) -> None:
        """End the answer; if the format cannot say that it is not whole, break it off."""
        if ending.mark is not None and not self._answer.says_how_it_ended:
            self._exchange.abort()
            return
        await self._finish(self._answer.end(ending))

    async def fail(self, error: Exception) -> None:
        """End the answer with what went wrong, or break it off."""
        made = self._answer.fail(problem_of(_alone(error)), self._last)
        if made is None:
            self._exchange.abort()
            return
        await self._finish(made)

    async def _finish(self, made: Buffers) -> None:
        if not self.started:
            made = self._answer.begin() + made
            await self._exchange.start(200, self._headers)
        await self._exchange.end(self._out.pass_on(made, last=True))
