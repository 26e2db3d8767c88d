"""The asynchronous channel: nothing blocks the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import httpx

from ..errors import ConnectionFailed
from .async_channel import AsyncChannel, AsyncConnector
from .blocking import SocketChannel, SocketConnector
from .http import Address
from .requests import Body, Head, Request

T = TypeVar("T")

_PATIENCE = 0.5
"""Seconds that a cancelled operation waits for a source to notice an interrupt."""


async def pause(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


class HttpxChannel(AsyncChannel):
    """Exchanges requests and answers on one connection at a time.

    Functions that may block run in a thread of the operation's own. httpx reads no answer
    while it sends, so duplex requests go through a blocking channel, in that thread.

    Args:
        connector: of the client.
        workers: operations that may run at once beside this one.
        release: called when the channel is closed and its thread is idle.
    """

    def __init__(
        self,
        connector: HttpxConnector,
        *,
        workers: int = 1,
        release: Callable[[], None] | None = None,
    ) -> None:
        self.retries, self.outage = connector.retries, connector.blocking().outage
        self._connector = connector
        self._release = release
        self._loop: asyncio.AbstractEventLoop | None = None
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._rest = memoryview(b"")
        self._failure: ConnectionFailed | None = None
        self._executor = ThreadPoolExecutor(1, "thalweg-work")  # starts its thread on first use
        self._duplex: SocketChannel | None = None
        self._slots = asyncio.Semaphore(workers)
        self._beside: set[asyncio.Task[Any]] = set()
        self._idle = True
        self._closed = False

    # -- requests ----------------------------------------------------------------------

    async def send(self, request: Request) -> Head:
        """Send a request and read the head of its answer."""
        self._loop = asyncio.get_running_loop()
        await self.drop()
        if request.duplex:
            self._duplex = channel = self._connector.blocking().channel()

            def interrupt() -> None:
                channel.stop()
                if request.stream is not None:
                    request.stream.interrupt()

            return await self.work(partial(channel.send, request), interrupt)
        headers, body = dict(request.headers), request.stream
        content: AsyncIterator[bytes] | bytes | None = request.body
        if body is not None:
            content = self._pieces(body)
            if body.length is not None:
                headers["Content-Length"] = str(body.length)
        http = self._connector.http
        usual = http.timeout.read or 0.0
        timeout = httpx.Timeout(usual, read=max(usual, request.patience))
        built = http.build_request(
            request.method, request.target, headers=headers, content=content, timeout=timeout
        )
        try:
            response = await http.send(built, stream=True)
        except httpx.TransportError as e:
            raise ConnectionFailed.to(built.url.host, built.url.port, e) from e
        self._response, self._failure = response, None
        if response.is_stream_consumed:  # a transport of the caller's may answer at once
            self._chunks, self._rest = None, memoryview(response.content)
        else:
            self._chunks, self._rest = response.aiter_raw(), memoryview(b"")
        self.outage.heard(response.status_code)
        return Head(response.status_code, {k.lower(): v for k, v in response.headers.items()})

    async def _pieces(self, body: Body) -> AsyncIterator[bytes]:
        views = body.views()
        # A copy: the transport may keep a piece while the view is filled again.
        while piece := await self.work(lambda: bytes(next(views, b"")), body.interrupt):
            yield piece

    async def receive(self, view: memoryview) -> int:
        """Fill a view with the next bytes of the answer; their number, 0 at the end."""
        if self._duplex is not None:
            return await self.work(partial(self._duplex.receive, view), self._duplex.stop)
        filled = 0
        while filled < len(view) and await self._has_more():
            count = min(len(self._rest), len(view) - filled)
            view[filled : filled + count] = self._rest[:count]
            self._rest = self._rest[count:]
            filled += count
        if not filled and self._failure is not None:
            # Only now: the bytes before a cut count.
            raise self._failure
        return filled

    async def _has_more(self) -> bool:
        while not self._rest and self._failure is None and self._chunks is not None:
            try:
                self._rest = memoryview(await anext(self._chunks))
            except StopAsyncIteration:
                break
            except httpx.TransportError as e:
                self._failure = ConnectionFailed(f"the answer was cut: {e}")
        return len(self._rest) > 0

    async def finish(self) -> None:
        """Keep the connection for another request."""
        if self._duplex is not None:
            duplex, self._duplex = self._duplex, None
            await self.work(duplex.finish, duplex.stop)
            return
        # Only a connection whose answer was read to its end can be used again.
        with contextlib.suppress(ConnectionFailed):
            await self.receive(memoryview(bytearray(1)))
        await self.drop()

    async def drop(self) -> None:
        """Close the connection in use, if any."""
        duplex, self._duplex = self._duplex, None
        if duplex is not None:
            await self.work(duplex.drop, duplex.stop)
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        await pause(seconds)

    # -- the thread --------------------------------------------------------------------

    async def work(
        self, function: Callable[[], T], interrupt: Callable[[], None] | None = None
    ) -> T:
        """Run a function in the thread of the operation; its result."""
        future = asyncio.get_running_loop().run_in_executor(self._executor, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # What it ends with is of no interest any more, and asyncio would complain.
            future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            if interrupt is None:
                while not future.done():
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.wait([future])
            else:
                interrupt()
                await asyncio.wait([future], timeout=_PATIENCE)
            self._idle = future.done()
            raise

    def _close_thread(self) -> Future[None] | None:
        """Release what is to be released, after what the thread is doing."""
        last: Future[None] | None = None
        if self._duplex is not None:
            self._duplex.stop()
            last = self._executor.submit(self._duplex.close)
        if self._release is not None:
            last = self._executor.submit(self._release)
        self._executor.shutdown(wait=False)
        return last

    # -- operations beside this one ------------------------------------------------------

    def beside(self, operation: Callable[[AsyncChannel], Awaitable[T]]) -> asyncio.Task[T]:
        """Run an operation in another task, with a channel of its own."""
        self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(self._run_beside(operation))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def _run_beside(self, operation: Callable[[AsyncChannel], Awaitable[T]]) -> T:
        async with self._slots, HttpxChannel(self._connector) as channel:
            return await operation(channel)

    async def join(self, job: asyncio.Task[T]) -> T:
        """Wait for an operation beside this one; what it returned, or raised."""
        return await job

    # -- the end -----------------------------------------------------------------------

    def abandon(self) -> None:
        """Cancel what runs beside this one."""
        if self._loop is not None and self._loop.is_running():
            for task in list(self._beside):
                self._loop.call_soon_threadsafe(task.cancel)

    async def aclose(self) -> None:
        """Close the connection in use and stop what runs beside it; once.

        A source whose thread cannot be interrupted is released when it returns.
        """
        if self._closed:
            return
        self._closed = True
        beside = list(self._beside)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()
        last = self._close_thread()
        if last is not None and self._idle:
            await asyncio.wrap_future(last)

    def __del__(self) -> None:
        if self._closed:
            return
        self._close_thread()
        self.abandon()
        if self._response is not None and self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._connector.abandon, self._response)


class HttpxConnector(AsyncConnector):
    """Opens the channels of one client.

    Args:
        url: of the service.
        address: the same, parsed.
        retries: failures in a row to tolerate.
        transport: of httpx; its own by default.

    Attributes:
        http: sends requests.
    """

    def __init__(
        self,
        url: str,
        address: Address,
        retries: int,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = address.url
        # Proxies of the environment are ignored, as by the blocking client.
        self.http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers=dict(address.headers),
            timeout=address.timeout,
            # Making a usable context takes longer than a request, and http needs none.
            verify=address.context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            transport=transport,
            trust_env=False,
        )
        self._blocking = SocketConnector(address, retries)
        self.retries = retries
        self._abandoned: set[asyncio.Task[None]] = set()

    def blocking(self) -> SocketConnector:
        """Opens the channels of duplex requests, and those of other threads."""
        return self._blocking

    def channel(
        self, *, workers: int = 1, release: Callable[[], None] | None = None
    ) -> HttpxChannel:
        """A channel for one operation."""
        return HttpxChannel(self, workers=workers, release=release)

    def abandon(self, response: httpx.Response) -> None:
        """Close an answer that nobody closed; called in the event loop."""
        task = asyncio.get_running_loop().create_task(response.aclose())
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    async def aclose(self) -> None:
        """Close the idle connections."""
        await asyncio.gather(*self._abandoned, return_exceptions=True)
        await self.http.aclose()
        self._blocking.close()
