"""Sending batches as frames with tokens."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.context import Services
from app.errors import ServiceError, problem_of
from app.http.compression import Compressor, compressor
from app.server.body import ClientDisconnected
from app.server.drain import Drain
from app.server.responses import Exchange
from app.streams.frames import MEDIA_TYPES
from app.tiles.encoding import Buffers
from core.errors import CoreError
from core.iterate.base import State

from .encoding import BatchFrames, Made, make_batch
from .profile import new_profile
from .registry import OpenPipeline

MOST_BATCHES = 1 << 24
MOST_BYTES = 1 << 44
MOST_SECONDS = 24 * 3600.0
"""Limits above these are lowered to them; no limit is these."""
HEARTBEAT_SECONDS = 10.0
"""A client that waits for a batch hears so often that it is being made."""
_GROUP_BYTES = 1 << 20
_GROUP_BATCHES = 64
_GROUP_SECONDS = 0.05
_TOGETHER = 64 << 10
"""Bytes of small frames that are sent in one go: each costs as much as copying this."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one answer may have; looked at before each batch."""

    batches: int = MOST_BATCHES
    nbytes: int = MOST_BYTES
    seconds: float = MOST_SECONDS
    epochs: int | None = None

    @classmethod
    def of(
        cls,
        batches: int | None,
        nbytes: int | None,
        seconds: float | None,
        epochs: int | None,
    ) -> Limits:
        """What a client asks for, as far as it gets it."""
        return cls(
            MOST_BATCHES if batches is None else min(batches, MOST_BATCHES),
            MOST_BYTES if nbytes is None else min(nbytes, MOST_BYTES),
            MOST_SECONDS if seconds is None else min(seconds, MOST_SECONDS),
            epochs,
        )


@dataclass(slots=True)
class _Sent:
    """What an answer has so far."""

    batches: int = 0
    nbytes: int = 0
    epochs: int = 0
    began: float = field(default_factory=time.monotonic)

    def reached(self, limits: Limits) -> str | None:
        """The limit that is reached, if any."""
        if self.batches >= limits.batches:
            return "count"
        if self.nbytes >= limits.nbytes:
            return "bytes"
        if limits.epochs is not None and self.epochs >= limits.epochs:
            return "epoch"
        return "time" if time.monotonic() - self.began >= limits.seconds else None


class Ahead:
    """Makes batches in order, in threads, a group before it is asked for.

    Args:
        opened: whose batches.
        services: threads to work in.
        rank: whose rows.
        world: ranks that share each batch.
        most: batches that will be wanted at the most.
    """

    def __init__(
        self, opened: OpenPipeline, services: Services, rank: int, world: int, most: int
    ) -> None:
        self._opened = opened
        self._services = services
        self._share = rank, world
        self._left = most
        self._state: State = opened.start
        self._failure: CoreError | ServiceError | None = None
        self._stopped = threading.Event()
        self._coming: asyncio.Future[list[Made]] | None = None
        self.profile = new_profile()
        """Seconds of the stages."""
        self.seconds = 0.0
        """That batches took to be made."""

    def _group(self) -> list[Made]:
        """Batches of about a megabyte together: small ones are not worth a thread each."""
        if self._failure is not None:
            raise self._failure
        made: list[Made] = []
        begin = time.perf_counter()
        size = 0
        with self._opened.profiles.into(self.profile):
            while self._left > 0 and not self._stopped.is_set():
                try:
                    step = self._opened.pipeline.step(self._state, *self._share)
                    if step is None:
                        break
                    made.append(make_batch(self._opened, step))
                except (CoreError, ServiceError) as e:
                    if not made:
                        raise
                    # What was made before it is sent first.
                    self._failure = e
                    break
                self._state = step.state
                self._left -= 1
                size += made[-1].nbytes
                late = time.perf_counter() - begin > _GROUP_SECONDS
                if made[-1].over or size >= _GROUP_BYTES or len(made) >= _GROUP_BATCHES or late:
                    break
        self.seconds += time.perf_counter() - begin
        return made

    def start(self) -> asyncio.Future[list[Made]]:
        """The next group: empty behind the last, or what went wrong with its first batch."""
        if self._coming is None:
            self._coming = self._services.workers.start(self._group)
        return self._coming

    def take(self) -> list[Made]:
        """The group that has come; the next one is begun.

        Raises:
            CoreError, ServiceError: why it could not be made.
        """
        assert self._coming is not None  # noqa: S101 - it has come
        made = self._coming.result()
        self._coming = None
        if made:
            self.start()
        return made

    async def close(self) -> None:
        """Wait for what is being made."""
        self._stopped.set()
        if self._coming is not None:
            await asyncio.wait({self._coming})
            self._coming.cancelled() or self._coming.exception()


@dataclass(slots=True)
class BatchStream:
    """Answers with a stream of batches in frames.

    Args:
        opened: whose batches; closed by who opened it.
        rank: whose rows.
        world: ranks that share each batch.
        limits: how much the answer may have.
        coding: compression of the whole answer.
        services: threads to work in.
        drain: when to end early.
        beat: seconds between signs of life.
    """

    opened: OpenPipeline
    rank: int
    world: int
    limits: Limits
    coding: str | None
    services: Services
    drain: Drain
    beat: float = HEARTBEAT_SECONDS
    _sent: _Sent = field(default_factory=_Sent)
    _waited: float = 0.0

    async def send(self, exchange: Exchange) -> None:
        """Send it all."""
        ahead = Ahead(self.opened, self.services, self.rank, self.world, self.limits.batches)
        sender = _Sender(exchange, self.services, self.coding)
        frames = BatchFrames(self.opened)
        state, over = self.opened.start, self.opened.is_over(self.opened.start)
        reason: str | None = self._sent.reached(self.limits)
        try:
            while reason is None:
                group = await self._next(exchange, sender, frames, ahead, state)
                if group is None:
                    reason = "drain"
                elif not group:
                    over, reason = True, "exhausted"
                for made in group or ():
                    reason = self._why(over=over)
                    if reason is not None:
                        break
                    await self._begin(exchange)
                    await sender.add(frames.batch(made))
                    state, over = made.step.state, made.over
                    self._count(made)
                await sender.flush()
                reason = reason or self._why(over=over)
            await self._begin(exchange)
            profile = self._profile(ahead)
            await sender.finish(frames.end(reason, state, finished=over, profile=profile))
        except (CoreError, ServiceError) as e:
            if not exchange.started:
                raise
            await sender.finish(frames.fail(problem_of(e), state))
        finally:
            await ahead.close()

    def _why(self, *, over: bool) -> str | None:
        """Why no other batch is to be sent, if so."""
        if self.drain.hard.is_set():
            return "drain"
        return self._sent.reached(self.limits) or ("exhausted" if over else None)

    def _count(self, made: Made) -> None:
        self._sent.batches += 1
        self._sent.nbytes += made.nbytes
        self._sent.epochs += made.step.ends_epoch
        self.services.metrics.batches.inc()

    async def _begin(self, exchange: Exchange) -> None:
        """The status, only once the first batch is there: what is wrong with it is a problem."""
        if not exchange.started:
            await exchange.start(200, self._headers())

    async def _next(
        self,
        exchange: Exchange,
        sender: _Sender,
        frames: BatchFrames,
        ahead: Ahead,
        state: State,
    ) -> list[Made] | None:
        """The next group; None if draining ends the answer."""
        begin = time.perf_counter()
        coming = ahead.start()
        gone = asyncio.ensure_future(exchange.disconnected.wait())
        draining = asyncio.ensure_future(self.drain.hard.wait())
        others: set[asyncio.Future[Any]] = {gone, draining}
        try:
            while not coming.done():
                wanted = {coming, *others}
                done, _ = await asyncio.wait(
                    wanted, timeout=self.beat, return_when=asyncio.FIRST_COMPLETED
                )
                if coming.done():
                    break
                if gone.done():
                    raise ClientDisconnected("the client is gone")
                if draining.done():
                    return None
                if not done:
                    await self._begin(exchange)
                    await sender.add(frames.beat(state))
                    await sender.flush()
            return ahead.take()
        finally:
            self._waited += time.perf_counter() - begin
            for other in others:
                other.cancel()
            await asyncio.wait(others)

    def _profile(self, ahead: Ahead) -> dict[str, Any]:
        return {
            "seconds": time.monotonic() - self._sent.began,
            "made": ahead.seconds,
            "waited": self._waited,
            "batches": self._sent.batches,
            "bytes": self._sent.nbytes,
            "stages": ahead.profile.report(),
        }

    def _headers(self) -> Mapping[str, str]:
        headers = {
            "Content-Type": MEDIA_TYPES["frames"],
            "Cache-Control": "no-store",
            "Vary": "Accept-Encoding",
            "X-Accel-Buffering": "no",
        }
        if self.coding is not None:
            headers["Content-Encoding"] = self.coding
        return headers


class _Sender:
    """Writes frames, compressed if that is wanted."""

    def __init__(self, exchange: Exchange, services: Services, coding: str | None) -> None:
        self._exchange = exchange
        self._services = services
        self._press: Compressor | None = None if coding is None else compressor(coding)

        self._waiting: Buffers = []
        self._size = 0

    async def add(self, made: Buffers) -> None:
        """Send frames, small ones with those that follow."""
        self._waiting += made
        self._size += sum(map(len, made))
        if self._size >= _TOGETHER:
            await self.flush()

    async def flush(self) -> None:
        """Send what waits."""
        made, size = self._waiting, self._size
        self._waiting, self._size = [], 0
        if not made:
            return
        if self._press is not None:
            data = await self._services.workers.start(_compress, self._press, made)
            await self._exchange.write(data)
        elif size < 2 * _TOGETHER:
            await self._exchange.write(b"".join(made))
        else:
            for piece in made:
                await self._exchange.write(piece)

    async def finish(self, made: Buffers) -> None:
        data = b"".join([*self._waiting, *made])
        if self._press is not None:
            data = self._press.compress(data, flush=False) + self._press.end()
        await self._exchange.end(data)


def _compress(press: Compressor, made: Buffers) -> bytes:
    return press.compress(b"".join(made), flush=True)
