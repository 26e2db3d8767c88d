"""Answers that may break at any byte, and what is iterated over.

Rows, tiles, batches, raw bytes and reductions all arrive as one long answer. All of them resume
in the same loop; a product fills in four things: what is *done*, the *position* to resume from,
one *attempt*, and the *recoveries* for refusals that can be removed::

            ┌──────────────────────────────────────────────┐
            ▼                                              │
      done? ──yes──▶ return                                │
            │ no                                           │
            ▼                                              │
      attempt: send(request after position)                │
               yield item, move position    ◀─┐            │
               more frames ───────────────────┘            │
            │                                              │
            ├─ the answer ended as it should ── progress ──┤
            │                                              │
            ▼ broken, damaged, cut, or refused             │
      drop; forget what was yielded but not settled        │
            │                                              │
            ├─ a recovery is known and untried ── recovery it ─────┤
            │                                              │
            └─ Backoff: wait, or give up by raising        │
                         └─────────────────────────────────┘

The position moves with each item that was yielded, never before, so nothing is lost or comes
twice whatever the answer breaks on. Failures count against the limit only while nothing moves: a
stream of hours survives any number of cuts, a service that is gone fails after about half a minute.

The obvious alternative, retrying whole requests in the HTTP layer, would send a stream
again from its start and could not tell rows that were already handed out from new ones.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, Generic, Self, TypeAlias, TypeVar

from ..errors import ConnectionFailed, ProblemError, ProtocolError, ThalwegError
from .async_channel import AsyncChannel, AsyncClosing
from .frames import FrameAnswer, FrameReader
from .requests import token_request

T = TypeVar("T")
U = TypeVar("U")

Recovery: TypeAlias = Callable[[], Awaitable[None]]


class AsyncItems(AsyncClosing, Generic[T]):
    """The items of an operation; an asynchronous iterator and context manager.

    Args:
        channel: of the operation; closed with it.
        items: what it yields.
    """

    def __init__(self, channel: AsyncChannel, items: AsyncGenerator[T, None]) -> None:
        self._channel = channel
        self._items = items

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await anext(self._items)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Stop early; items that came so far remain valid."""
        # One that is being waited for fails with its connection.
        with contextlib.suppress(RuntimeError, ValueError):
            await self._items.aclose()
        await self._channel.aclose()


class AsyncResumable(ABC, Generic[T]):
    """One answer, and further ones where it breaks off, until everything has arrived.

    Args:
        channel: of the operation.
        token: position to begin at, if the stream has tokens.

    Attributes:
        token: position to resume from, if the stream has tokens.
        done: whether nothing is missing.
    """

    done = False

    def __init__(self, channel: AsyncChannel, token: str | None = None) -> None:
        self.token = token
        self._channel = channel
        self._backoff = channel.backoff()
        self._tried: set[Recovery] = set()

    @property
    def position(self) -> object:
        """Where the next attempt resumes; it differs after progress."""
        return self.token

    @abstractmethod
    def _attempt(self) -> AsyncGenerator[T, None]:
        """Open an answer at the position and yield its items up to its end.

        Raises:
            ConnectionFailed, ProtocolError, ProblemError: it did not end as it should.
        """

    def _forget(self) -> Iterable[T]:
        """Take back what was yielded after the position; the items that say so."""
        return ()

    def _lacks_only_the_end(self, failure: ThalwegError) -> bool:  # noqa: ARG002 - for others
        """Whether everything but the end had arrived before a failure."""
        return False

    def _recovery(self, problem: ProblemError) -> Recovery | None:
        """What removes the cause of a refusal, if anything does."""
        if problem.code == "token-retired" and self.token is not None:
            return self._refresh_token
        return None

    async def run(self) -> AsyncGenerator[T, None]:
        """Yield the items of the stream.

        Raises:
            ProblemError: the service refused, or the data has changed.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
        """
        recovery: Recovery | None = None
        while not self.done:
            before, failure = self.position, None
            try:
                if recovery is not None:
                    await recovery()
                    recovery, before = None, self.position
                async with aclosing(self._attempt()) as items:
                    async for item in items:
                        yield item
            except (ConnectionFailed, ProtocolError, ProblemError) as error:
                failure = error
            if failure is None or self.position != before:
                self._backoff.progressed()
                self._tried.clear()
            if failure is not None:
                await self._channel.drop()
                for item in self._forget():
                    yield item
                if self._lacks_only_the_end(failure):
                    return
                recovery = await self._prepare_retry(failure, recovery)

    async def _prepare_retry(
        self, failure: ThalwegError, recovery: Recovery | None
    ) -> Recovery | None:
        """Choose a recovery for the next attempt, or wait; one that failed is tried again."""
        if recovery is None and isinstance(failure, ProblemError):
            recovery = self._recovery(failure)
            if recovery is not None and recovery not in self._tried:
                self._tried.add(recovery)
                return recovery
            recovery = None
        await self._channel.sleep(self._backoff.delay(failure))
        self._tried.clear()
        return recovery

    async def _refresh_token(self) -> None:
        assert self.token is not None  # noqa: S101 - see _recovery
        self.token = (await self._channel.ask(token_request("refresh", self.token))).text("token")

    async def _take(self, answer: FrameAnswer[U, Any], frames: FrameReader) -> U | None:
        """Receive up to the next item of an answer; None at its end, which was read.

        Raises:
            ProblemError, ProtocolError: as for ``answer.take``; the answer ended too early.
        """
        while answer.end is None:
            count = await self._channel.receive(frames.buffer())
            if not count:
                raise ProtocolError("the answer was cut: it has no end")
            frame = frames.advance(count)
            item = None if frame is None else answer.take(frame)
            if item is not None:
                return item
        await self._channel.finish()
        return None


class AsyncRepeated(AsyncResumable[None]):
    """Something that yields nothing, and is tried until it is done."""

    @abstractmethod
    async def _try(self) -> None:
        """Send requests and take their answers, up to some progress.

        Raises:
            ConnectionFailed, ProtocolError, ProblemError: they did not end as they should.
        """

    async def _attempt(self) -> AsyncGenerator[None, None]:
        await self._try()
        nothing: tuple[None, ...] = ()
        for each in nothing:
            yield each

    async def complete(self) -> None:
        """Try until it is done.

        Raises:
            ProblemError: the service refused, or the data has changed.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
        """
        async for _ in self.run():
            pass
