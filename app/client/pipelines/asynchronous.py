"""Pipelines and their batches, for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from ..datasets.asynchronous import AsyncCall
from ..transport.asynchronous import AsyncAnswerPort, HttpxCaller, drive
from ..transport.requests import Request
from ..transport.retry import Backoff
from .batch import Batch, EpochEnd, Field
from .lookahead import Cursor, Lookahead, Question, Wanted
from .requests import BatchRequests, PipelineInfo, Place, creation
from .stream import BatchStream


class _Fetching(Protocol):
    """Where batches come from, in order."""

    @property
    def finished(self) -> bool:
        """Whether no batch comes behind those that came."""

    async def next(self) -> Batch | EpochEnd | None:
        """What comes next; None if nothing does."""

    async def aclose(self) -> None:
        """Stop."""


class _Streaming:
    """Batches of one answer, and of another where that breaks off."""

    def __init__(self, stream: BatchStream, port: AsyncAnswerPort) -> None:
        self._stream = stream
        self._port = port
        self._items = drive(stream.run(), port)

    @property
    def finished(self) -> bool:
        return self._stream.data_finished

    @property
    def profile(self) -> Mapping[str, Any]:
        """Seconds of the stages, as the last answer told them."""
        return self._stream.profile

    async def next(self) -> Batch | EpochEnd | None:
        async for item in self._items:
            if isinstance(item, Batch | EpochEnd):
                return item
        return None

    async def aclose(self) -> None:
        await self._items.aclose()
        await self._port.aclose()


class _Asking:
    """Batches asked for one by one, some of them before they are wanted."""

    def __init__(
        self, caller: HttpxCaller, retries: int, look: Lookahead, ahead: int, connections: int
    ) -> None:
        self._caller = caller
        self._retries = retries
        self._look = look
        self._ahead = max(ahead, 1)
        self._free = asyncio.Semaphore(connections)
        self._pending: deque[asyncio.Task[Batch | None]] = deque()
        self._ended = False

    @property
    def finished(self) -> bool:
        return self._ended or (not self._pending and self._look.finished)

    async def next(self) -> Batch | None:
        while not self._ended and len(self._pending) < self._ahead:
            question = self._look.next()
            if question is None:
                break
            self._pending.append(asyncio.create_task(self._fetch(question)))
        if self._ended or not self._pending:
            return None
        batch = await self._pending[0]
        self._pending.popleft()
        self._ended = batch is None
        return batch

    async def _fetch(self, question: Question) -> Batch | None:
        async with self._free:
            one = self._look.one(question, Backoff(self._retries))
            async for _ in drive(one.run(), AsyncAnswerPort(self._caller)):
                pass
        if one.batch is not None:
            self._look.answered(question.index, one.batch, last=one.last)
        return one.batch

    async def aclose(self) -> None:
        for task in self._pending:
            task.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)
        self._pending.clear()


class AsyncBatches:
    """The batches of a pipeline, as they come: ``Batches`` for ``async for``."""

    def __init__(
        self,
        caller: HttpxCaller,
        retries: int,
        requests: BatchRequests,
        place: Place,
        wanted: Wanted,
    ) -> None:
        self._caller = caller
        self._retries = retries
        self._requests = requests
        self._wanted = wanted
        self._cursor = Cursor(place, wanted)
        self._fetching: _Fetching | None = None
        self._finished = False
        self._profile: Mapping[str, Any] = {}

    @property
    def token(self) -> str | None:
        """What to go on with behind the last batch handed out; None at the beginning."""
        return self._cursor.place.token

    @property
    def data_finished(self) -> bool:
        """Whether no batch comes behind the last one handed out, as far as is known."""
        return self._finished and self._cursor.held is None

    @property
    def profile(self) -> Mapping[str, Any]:
        """Seconds of the service's stages, as its last answer told them."""
        return self._profile

    def getstate(self) -> dict[str, Any]:
        """Where it is, as JSON values; as ``Batches.getstate``."""
        return self._cursor.place.json()

    async def setstate(self, state: Mapping[str, Any] | None) -> None:
        """Go on from a state; as ``Batches.setstate``."""
        place = Place.parse(state)
        await self.aclose()
        self._cursor = Cursor(place, self._wanted)
        self._finished = False

    def __aiter__(self) -> Self:
        self._cursor.resume()
        return self

    async def __anext__(self) -> Batch:
        cursor = self._cursor
        while not (cursor.paused or cursor.left == 0):
            item = cursor.held or await self._fetch()
            if item is None:
                break
            batch = cursor.take(item)
            if batch is not None:
                return batch
        if cursor.left == 0:
            await self._leave()
        raise StopAsyncIteration

    async def _fetch(self) -> Batch | EpochEnd | None:
        if self._fetching is None:
            if self._finished:
                return None
            self._fetching = self._begin()
        try:
            item = await self._fetching.next()
        except BaseException:
            # What was on its way may be lost: another try begins anew.
            await self.aclose()
            raise
        if item is None:
            await self._leave()
        else:
            self._note(self._fetching)
        return item

    def _begin(self) -> _Fetching:
        cursor, wanted = self._cursor, self._wanted
        if cursor.streams:
            token = cursor.place.token
            stream = BatchStream(self._requests, token, cursor.left, Backoff(self._retries))
            return _Streaming(stream, AsyncAnswerPort(self._caller))
        look = Lookahead(self._requests, cursor.place, wanted.every, cursor.left)
        return _Asking(self._caller, self._retries, look, wanted.ahead, wanted.connections)

    def _note(self, fetching: _Fetching) -> None:
        self._finished = fetching.finished
        if isinstance(fetching, _Streaming):
            self._profile = fetching.profile

    async def _leave(self) -> None:
        """Nothing more is wanted: hear how it ended, and let go of the connection."""
        fetching = self._fetching
        if fetching is not None:
            if isinstance(fetching, _Streaming):
                while (item := await fetching.next()) is not None:
                    self._cursor.take(item)
            self._note(fetching)
        await self.aclose()

    async def aclose(self) -> None:
        """Stop early; what was handed out stays good, and iterating again goes on."""
        if self._cursor.drop_held():
            self._finished = False
        fetching, self._fetching = self._fetching, None
        if fetching is not None:
            await fetching.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncPipeline:
    """A pipeline that the service knows: made by ``AsyncClient.pipeline``.

    Attributes:
        spec: as it was given.
        id: the same for the same spec and data.
        token: with which it begins.
        info: everything that the service said of it.
    """

    def __init__(
        self,
        caller: HttpxCaller,
        retries: int,
        create: Request,
        info: PipelineInfo,
        spec: Mapping[str, Any],
    ) -> None:
        self._caller = caller
        self._retries = retries
        self._create = create
        self._info = info
        self.spec = dict(spec)
        self.id = info.id
        self.token = info.token
        self.info = dict(info.content)

    @classmethod
    async def make(
        cls, caller: HttpxCaller, retries: int, call: AsyncCall, spec: Mapping[str, Any]
    ) -> AsyncPipeline:
        """Tell the service of it; as ``Client.pipeline``."""
        create = creation(spec)
        return cls(caller, retries, create, PipelineInfo.parse(await call(create)), spec)

    @property
    def schema(self) -> tuple[Field, ...]:
        """Fields of its batches."""
        return self._info.layout.fields

    @property
    def batch_size(self) -> int | None:
        """Rows of a global batch; None if they differ."""
        return self._info.batch_size

    @property
    def batches_in_all(self) -> int | None:
        """Number of batches; None if there is no end, or it is not known."""
        return self._info.batches

    @property
    def batches_per_epoch(self) -> int | None:
        """Number of batches of an epoch; None if it is not known."""
        return self._info.batches_per_epoch

    @property
    def fingerprint(self) -> str:
        """Another one if the data has changed."""
        return self._info.fingerprint

    def batches(  # noqa: PLR0913 - each is a choice of the caller
        self,
        after: str | None = None,
        *,
        rank: int = 0,
        world: int = 1,
        max_batches: int | None = None,
        epoch: bool = False,
        skip: int = 0,
        every: int = 1,
        prefetch: int = 0,
        parallel: int | None = None,
    ) -> AsyncBatches:
        """Iterate over batches; arguments and errors are those of ``Pipeline.batches``."""
        wanted = Wanted.of(
            rank=rank,
            world=world,
            max_batches=max_batches,
            every=every,
            epoch=epoch,
            prefetch=prefetch,
            parallel=parallel,
        )
        place = Place.parse({"token": after, "skip": skip})
        requests = BatchRequests(self._create, self._info, wanted.share)
        return AsyncBatches(self._caller, self._retries, requests, place, wanted)
