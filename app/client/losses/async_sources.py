"""Asynchronous iterables as sources: iterated in the event loop, read from a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from typing import Any, TypeAlias

from .readers import PiecesReader
from .sources import BufferedSource, BytesLike, Source, SourceLike, open_source

AsyncSourceLike: TypeAlias = SourceLike | AsyncIterable[BytesLike]


class _LoopReader(PiecesReader):
    """Bytes of an asynchronous iterable, for a thread outside its event loop."""

    def __init__(self, pieces: AsyncIterator[BytesLike], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(())
        self._source = pieces
        self._loop = loop
        self._next: Future[BytesLike | None] | None = None
        self._wake: Future[None] = Future()

    def _following(self) -> BytesLike | None:
        if self._next is None:
            self._next = asyncio.run_coroutine_threadsafe(self._take(), self._loop)
        waited: list[Future[Any]] = [self._next, self._wake]
        wait(waited, return_when=FIRST_COMPLETED)
        if not self._next.done():
            # The pending piece is returned by the next call.
            self._wake = Future()
            raise InterruptedError
        pending, self._next = self._next, None
        return pending.result()

    async def _take(self) -> BytesLike | None:
        return await anext(self._source, None)

    def interrupt(self) -> None:
        """Make a thread that waits for a piece raise InterruptedError."""
        with contextlib.suppress(InvalidStateError):
            self._wake.set_result(None)

    def settle(self) -> None:
        """Forget an interrupt that nobody noticed."""
        self._wake = Future()

    def close(self) -> None:
        """Stop waiting for good."""
        if self._next is not None:
            self._next.cancel()


def open_async_source(source: AsyncSourceLike | None, command: Sequence[str] | None) -> Source:
    """Open whatever can be posted, asynchronous iterables too; as ``open_source``."""
    if isinstance(source, AsyncIterable):
        if command is not None:
            raise TypeError("give either a source or a command")
        return BufferedSource(_LoopReader(aiter(source), asyncio.get_running_loop()))
    return open_source(source, command)
