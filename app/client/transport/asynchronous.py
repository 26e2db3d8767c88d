"""The asyncio shell: performs effects without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import httpx

from ..errors import ConnectionFailed
from .answers import call
from .blocking import BlockingShell
from .effects import (
    Ask,
    Body,
    Drop,
    Effect,
    Finish,
    Join,
    Receive,
    Sleep,
    Spawn,
    Steps,
    Work,
)
from .http import Address, Pool
from .requests import Head, Reply, Request

T = TypeVar("T")

_PATIENCE = 0.5
"""Seconds that a cancelled operation waits for a source to notice an interrupt."""


async def pause(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


class AsyncShell:
    """Performs the effects of one operation, on one connection at a time.

    Functions that may block run in a thread of the operation's own. httpx reads no answer
    while it sends, so duplex requests go through the blocking shell, in that thread.

    Args:
        http: sends requests.
        pool: connections for duplex requests.
        abandoned: tasks that close what nobody closed.
        workers: steps that may run at once beside the others.
        release: called when the shell is closed and its thread is idle.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        pool: Pool,
        abandoned: set[asyncio.Task[None]],
        *,
        workers: int = 1,
        release: Callable[[], None] | None = None,
    ) -> None:
        self._http = http
        self._pool = pool
        self._abandoned = abandoned
        self._release = release
        self._loop: asyncio.AbstractEventLoop | None = None
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._rest = memoryview(b"")
        self._failure: ConnectionFailed | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._duplex: BlockingShell | None = None
        self._slots = asyncio.Semaphore(workers)
        self._beside: set[asyncio.Task[Any]] = set()
        self._idle = True
        self._closed = False

    async def run(self, steps: Steps[T]) -> T:
        """Run an operation; what it returns.

        Raises:
            Exception: whatever the operation raises.
        """
        self._loop = asyncio.get_running_loop()
        resume: Callable[[], Effect] = partial(steps.send, None)
        while True:
            try:
                effect = resume()
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                resume = partial(steps.send, await self.perform(effect))
            except BaseException as error:  # noqa: BLE001 - the operation decides
                resume = partial(steps.throw, error)

    async def perform(self, effect: Effect) -> Any:  # noqa: ANN401, C901, PLR0911 - a branch an effect
        """Perform one effect; its result.

        Raises:
            ThalwegError: it failed.
        """
        if self._duplex is not None and isinstance(effect, Receive | Finish | Drop):
            return await self._perform_duplex(effect)
        match effect:
            case Receive(view):
                return await self._receive(view)
            case Ask(request, body, duplex):
                await self._drop()
                if duplex:
                    self._duplex = BlockingShell(self._pool)
                    return await self._perform_duplex(effect)
                return await self._ask(request, body)
            case Finish():
                await self._finish()
            case Drop():
                await self._drop()
            case Sleep(seconds):
                await pause(seconds)
            case Work(function, interrupt):
                return await self._in_thread(function, interrupt)
            case Spawn(steps):
                return self._spawn(steps)
            case Join(job):
                return await job
        return None

    # -- requests ----------------------------------------------------------------------

    async def _ask(self, request: Request, body: Body | None) -> Head:
        headers = dict(request.headers)
        content: AsyncIterator[bytes] | bytes | None = request.body
        if body is not None:
            content = self._pieces(body)
            if body.length is not None:
                headers["Content-Length"] = str(body.length)
        built = self._http.build_request(
            request.method, request.target, headers=headers, content=content
        )
        try:
            response = await self._http.send(built, stream=True)
        except httpx.TransportError as e:
            raise ConnectionFailed(
                f"connection to {built.url.host}: {str(e) or type(e).__name__}"
            ) from e
        self._response, self._failure = response, None
        if response.is_stream_consumed:  # a transport of the caller's may answer at once
            self._chunks, self._rest = _no_chunks(), memoryview(response.content)
        else:
            self._chunks, self._rest = response.aiter_raw(), memoryview(b"")
        return Head(response.status_code, {k.lower(): v for k, v in response.headers.items()})

    async def _pieces(self, body: Body) -> AsyncIterator[bytes]:
        views = body.views()
        # A copy: the transport may keep a piece while the view is filled again.
        while piece := await self._in_thread(lambda: bytes(next(views, b"")), body.interrupt):
            yield piece

    async def _receive(self, view: memoryview) -> int:
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
        assert self._chunks is not None  # noqa: S101 - for the type checker
        while not self._rest and self._failure is None:
            try:
                self._rest = memoryview(await anext(self._chunks))
            except StopAsyncIteration:
                break
            except httpx.TransportError as e:
                self._failure = ConnectionFailed(f"the answer was cut: {e}")
        return len(self._rest) > 0

    async def _finish(self) -> None:
        # Only a connection whose answer was read to its end can be used again.
        with contextlib.suppress(ConnectionFailed):
            await self._receive(memoryview(bytearray(1)))
        await self._drop()

    async def _drop(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()

    # -- the thread --------------------------------------------------------------------

    async def _perform_duplex(self, effect: Effect) -> Any:  # noqa: ANN401 - as perform
        shell = self._duplex
        assert shell is not None  # noqa: S101 - for the type checker
        body = effect.body if isinstance(effect, Ask) else None

        def interrupt() -> None:
            shell.stop()
            if body is not None:
                body.interrupt()

        result = await self._in_thread(partial(shell.perform, effect), interrupt)
        if isinstance(effect, Finish | Drop):
            self._duplex = None
        return result

    async def _in_thread(
        self, function: Callable[[], T], interrupt: Callable[[], None] | None
    ) -> T:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "thalweg-work")
        future = asyncio.get_running_loop().run_in_executor(self._executor, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
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
        executor, duplex, release = self._executor, self._duplex, self._release
        last: Future[None] | None = None
        if duplex is not None or release is not None:
            executor = executor or ThreadPoolExecutor(1, "thalweg-work")
            if duplex is not None:
                duplex.stop()
                last = executor.submit(duplex.close)
            if release is not None:
                last = executor.submit(release)
        if executor is not None:
            executor.shutdown(wait=False)
        return last

    # -- steps beside these ------------------------------------------------------------

    def _spawn(self, steps: Steps[Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(self._run_beside(steps))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def _run_beside(self, steps: Steps[T]) -> T:
        async with self._slots:
            return await AsyncShell(self._http, self._pool, self._abandoned).run_and_close(steps)

    async def run_and_close(self, steps: Steps[T]) -> T:
        """Run an operation and close the shell."""
        try:
            return await self.run(steps)
        finally:
            await self.aclose()

    # -- the end -----------------------------------------------------------------------

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
        await self._drop()
        last = self._close_thread()
        if last is not None and self._idle:
            await asyncio.wrap_future(last)

    def __del__(self) -> None:
        if self._closed:
            return
        self._close_thread()
        loop = self._loop
        if loop is not None and loop.is_running():
            for task in self._beside:
                loop.call_soon_threadsafe(task.cancel)
            if self._response is not None:
                loop.call_soon_threadsafe(_close_in, loop, self._response, self._abandoned)


def _close_in(
    loop: asyncio.AbstractEventLoop,
    response: httpx.Response,
    tasks: set[asyncio.Task[None]],
) -> None:
    task = loop.create_task(response.aclose())
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def _no_chunks() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for chunk in nothing:
        yield chunk


class AsyncRunner:
    """Runs operations of one client.

    Args:
        url: of the service.
        address: the same, parsed.
        retries: failures in a row to tolerate.
        transport: of httpx; its own by default.
    """

    def __init__(
        self,
        url: str,
        address: Address,
        retries: int,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        # Proxies of the environment are ignored, as by the blocking client.
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers=dict(address.headers),
            timeout=address.timeout,
            # Making a usable context takes longer than a request, and http needs none.
            verify=address.context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            transport=transport,
            trust_env=False,
        )
        self._pool = Pool(address)
        self._abandoned: set[asyncio.Task[None]] = set()
        self.retries = retries

    def shell(self, *, workers: int = 1, release: Callable[[], None] | None = None) -> AsyncShell:
        """A shell for one operation."""
        return AsyncShell(self._http, self._pool, self._abandoned, workers=workers, release=release)

    async def run(
        self, steps: Steps[T], *, workers: int = 1, release: Callable[[], None] | None = None
    ) -> T:
        """Run an operation in a shell of its own."""
        return await self.shell(workers=workers, release=release).run_and_close(steps)

    def at_once(self, steps: Steps[T]) -> T | None:  # noqa: ARG002 - as the other
        """What an operation returns, where calls may block; None here, and it is to be run."""
        return None

    async def call(self, request: Request) -> Reply:
        """Send a small request until it is answered."""
        return await self.run(call(request, self.retries))

    async def aclose(self) -> None:
        """Close the idle connections."""
        await asyncio.gather(*self._abandoned, return_exceptions=True)
        await self._http.aclose()
        self._pool.close()
