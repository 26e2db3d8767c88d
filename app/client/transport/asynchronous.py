"""Doing what effects say, without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import httpx

from ..errors import ConnectionFailed, ThalwegError
from ..losses.sources import Source
from .blocking import BlockingPort, SourceBody
from .effects import (
    ITEMS,
    Ask,
    Call,
    Drop,
    Effect,
    Fill,
    Finish,
    Item,
    Receive,
    Release,
    Send,
    Skip,
    Sleep,
    Steps,
)
from .http import Pool
from .requests import Head, Reply, Request

T = TypeVar("T")


class HttpxCaller:
    """Sends requests with httpx.

    Args:
        http: a client whose base URL and headers are set.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def open(
        self, request: Request, content: AsyncIterator[bytes] | bytes | None, length: int | None
    ) -> httpx.Response:
        """Send a request; its answer's body is still to be read.

        Raises:
            ConnectionFailed: there is no connection, or it broke.
        """
        headers = dict(request.headers)
        if length is not None:
            headers["Content-Length"] = str(length)
        built = self._http.build_request(
            request.method, request.target, headers=headers, content=content
        )
        try:
            return await self._http.send(built, stream=True)
        except httpx.TransportError as e:
            raise ConnectionFailed(
                f"connection to {built.url.host}: {str(e) or type(e).__name__}"
            ) from e

    async def call(self, request: Request) -> Reply:
        """Send a small request, and read its small answer.

        Raises:
            ConnectionFailed: there is no connection, or it broke.
        """
        response = await self.open(request, request.body, None)
        try:
            body = await response.aread()
        except httpx.TransportError as e:
            raise ConnectionFailed(f"the answer was cut: {e}") from e
        finally:
            await response.aclose()
        return Reply(head_of(response), body)


def head_of(response: httpx.Response) -> Head:
    """Status and headers of an answer."""
    return Head(response.status_code, {k.lower(): v for k, v in response.headers.items()})


class AsyncAnswerPort:
    """Does what the effects of one stream of answers say.

    Args:
        caller: sends requests.
    """

    def __init__(self, caller: HttpxCaller) -> None:
        self._caller = caller
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._rest = memoryview(b"")

    async def perform(self, effect: Effect) -> Any:  # noqa: ANN401 - as in BlockingPort
        """Do one thing, and give what came of it.

        Raises:
            ThalwegError: it did not succeed.
        """
        match effect:
            case Receive():
                return await self._receive(effect.view)
            case Ask():
                request = effect.request
                return self._answered(await self._caller.open(request, request.body, None))
            case Finish() | Drop():
                await self._drop()
            case Sleep():
                await asyncio.sleep(effect.seconds)
            case Call():
                return await self._caller.call(effect.request)
        return None

    def _answered(self, response: httpx.Response) -> Head:
        self._response = response
        self._chunks = response.aiter_raw()
        self._rest = memoryview(b"")
        return head_of(response)

    async def _receive(self, view: memoryview) -> int:
        assert self._chunks is not None  # noqa: S101 - for the type checker
        filled = 0
        while filled < len(view):
            if not self._rest:
                try:
                    chunk = await anext(self._chunks, None)
                except httpx.TransportError as e:
                    raise ConnectionFailed(f"the answer was cut: {e}") from e
                if chunk is None:
                    break
                self._rest = memoryview(chunk)
            count = min(len(self._rest), len(view) - filled)
            view[filled : filled + count] = self._rest[:count]
            self._rest = self._rest[count:]
            filled += count
        return filled

    async def _drop(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connection in use."""
        await self._drop()


class AsyncPort(AsyncAnswerPort):
    """Does what the effects of one post say.

    Sources may block, so they are read in a thread. httpx does not read an answer while
    it sends: duplex requests go through the blocking transport, in that thread.

    Args:
        caller: sends requests.
        pool: of connections of the blocking transport.
        source: what is posted; closed with the port.
    """

    def __init__(self, caller: HttpxCaller, pool: Pool, source: Source) -> None:
        super().__init__(caller)
        self._source = source
        self._blocking = BlockingPort(pool, source)
        self._duplex = False
        self._executor = ThreadPoolExecutor(1, "thalweg-source")
        self._closed = False

    async def perform(self, effect: Effect) -> Any:  # noqa: ANN401 - as in BlockingPort
        """Do one thing, and give what came of it.

        Raises:
            ThalwegError: it did not succeed.
        """
        if isinstance(effect, Send):
            self._duplex = effect.duplex
        if isinstance(effect, Skip | Fill) or (
            self._duplex and isinstance(effect, Send | Receive | Finish | Drop)
        ):
            return await self._in_thread(partial(self._blocking.perform, effect))
        match effect:
            case Send():
                return await self._send(effect)
            case Release():
                self._source.release(effect.offset)
            case _:
                return await super().perform(effect)
        return None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _send(self, effect: Send) -> Head:
        body = SourceBody(self._source, effect.start, effect.stop)
        response = await self._caller.open(effect.request, self._pieces(body), body.length)
        return self._answered(response)

    async def _pieces(self, body: SourceBody) -> AsyncIterator[bytes]:
        views = body.views()
        # A copy: what a transport keeps must not change under it.
        while piece := await self._in_thread(lambda: bytes(next(views, b""))):
            yield piece

    async def aclose(self) -> None:
        """Close the connection in use, and the source, once its thread lets go of it."""
        if self._closed:
            return
        self._closed = True
        self._blocking.hang_up()
        self._executor.submit(self._blocking.close)
        self._executor.shutdown(wait=False)
        await self._drop()


async def drive(steps: Steps, port: AsyncAnswerPort) -> AsyncGenerator[Item, None]:
    """Do what the steps say, and hand out what is for the consumer."""
    result: Any = None
    fault: ThalwegError | None = None
    try:
        while True:
            try:
                effect = steps.throw(fault) if fault else steps.send(result)
            except StopIteration:
                return
            result = fault = None
            if isinstance(effect, ITEMS):
                yield effect
                continue
            try:
                result = await port.perform(effect)
            except ThalwegError as e:
                fault = e
    finally:
        steps.close()
        await port.aclose()
