"""The asynchronous client."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar, Unpack, overload

import httpx

from .client import RETRIES, TIMEOUT, is_ready
from .datasets.asynchronous import AsyncDatasets
from .errors import ThalwegError
from .losses.async_sources import async_source
from .losses.jobs import (
    PART_SIZE,
    How,
    Job,
    Observe,
    Several,
    post_job,
    reports_of,
    rows_only,
    save_job,
    with_report,
)
from .losses.requests import InputLike, LossOptions, Mode, input_bytes, put_input
from .losses.rows import End, Position
from .losses.sources import Octets, Source, SourceLike, open_source
from .pipelines.asynchronous import AsyncPipeline
from .transport.asynchronous import AsyncPort, HttpxCaller, drive
from .transport.effects import Table
from .transport.frames import Rows
from .transport.http import Address, Pool
from .transport.refusals import checked
from .transport.requests import Reply, Request, token_request
from .transport.retry import Backoff

T = TypeVar("T")
AsyncSourceLike: TypeAlias = SourceLike | AsyncIterable[Octets]


class AsyncAnswer(Generic[T]):
    """The rows of a post, as they come: ``Answer`` for ``async for``."""

    def __init__(self, job: Job, port: AsyncPort, pick: Callable[[Table], T]) -> None:
        self._job = job
        self._port = port
        self._items = drive(job.posting.run(), port)
        self._pick = pick

    @property
    def token(self) -> str | None:
        """What to go on with behind the rows handed out; None at the beginning and end."""
        return self._job.posting.position.token

    @property
    def offset(self) -> int:
        """Stream offset in bytes that belongs to ``token``."""
        return self._job.posting.position.offset

    @property
    def end(self) -> End | None:
        """How it ended; None before."""
        return self._job.posting.end

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        async for item in self._items:
            if isinstance(item, Table):
                return self._pick(item)
            self._job.note(item)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop early; what was handed out stays good."""
        await self._items.aclose()
        await self._port.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncLosses:
    """Event reports from loss streams: ``client.losses``."""

    def __init__(self, caller: HttpxCaller, pool: Pool, retries: int) -> None:
        self._caller = caller
        self._pool = pool
        self._retries = retries

    @overload
    def post(
        self,
        report: str,
        source: AsyncSourceLike | None = ...,
        *,
        exec: Sequence[str] | None = ...,
        mode: Mode = ...,
        part_size: int = ...,
        after: str | None = ...,
        offset: int = ...,
        progress: Observe | None = ...,
        **options: Unpack[LossOptions],
    ) -> AsyncAnswer[Rows]: ...

    @overload
    def post(
        self,
        report: Several,
        source: AsyncSourceLike | None = ...,
        *,
        exec: Sequence[str] | None = ...,
        mode: Mode = ...,
        part_size: int = ...,
        after: str | None = ...,
        offset: int = ...,
        progress: Observe | None = ...,
        **options: Unpack[LossOptions],
    ) -> AsyncAnswer[tuple[str, Rows]]: ...

    def post(  # noqa: PLR0913 - each is a choice of the caller
        self,
        report: str | Several,
        source: AsyncSourceLike | None = None,
        *,
        exec: Sequence[str] | None = None,  # noqa: A002 - what users know it as
        mode: Mode = "parts",
        part_size: int = PART_SIZE,
        after: str | None = None,
        offset: int = 0,
        progress: Observe | None = None,
        **options: Unpack[LossOptions],
    ) -> AsyncAnswer[Any]:
        """Post a stream, and iterate over the rows of its reports with ``async for``.

        Arguments and errors are those of ``Client.losses.post``; a source may be an
        asynchronous iterable of bytes too. To be called where an event loop runs.
        """
        how = How(mode, part_size, self._retries, progress)
        start = Position(after, offset)
        job = post_job(reports_of(report), _opened(source, exec), start, how, options)
        pick = rows_only if isinstance(report, str) else with_report
        return AsyncAnswer(job, AsyncPort(self._caller, self._pool, job.source), pick)

    async def save(  # noqa: PLR0913 - each is a choice of the caller
        self,
        report: str | Several,
        source: AsyncSourceLike | None,
        path: str | Path | int,
        format: str = "csv",  # noqa: A002 - as everywhere in the contract
        *,
        exec: Sequence[str] | None = None,  # noqa: A002 - as above
        mode: Mode | None = None,
        part_size: int = PART_SIZE,
        state: str | Path | None = None,
        progress: Observe | None = None,
        **options: Unpack[LossOptions],
    ) -> End:
        """Post a stream, and write a table to a file.

        Arguments and errors are those of ``Client.losses.save``.
        """
        how = How(mode, part_size, self._retries, progress)
        opened = _opened(source, exec)
        job = save_job(reports_of(report), opened, path, format, state, how, options)
        saving = job.tables()
        port = AsyncPort(self._caller, self._pool, opened)
        try:
            async with aclosing(drive(job.posting.run(), port)) as items:
                async for item in items:
                    saving.take(item)
                    job.note(item)
            saving.finish()
        finally:
            saving.stop()
        return job.ended()


def _opened(source: AsyncSourceLike | None, command: Sequence[str] | None) -> Source:
    if isinstance(source, AsyncIterable):
        if command is not None:
            raise TypeError("either a source or a command must be given")
        return async_source(source, asyncio.get_running_loop())
    return open_source(source, command)


class AsyncInputs:
    """Auxiliary files: ``client.inputs``."""

    def __init__(self, call: Callable[[Request], Awaitable[Reply]]) -> None:
        self._call = call

    async def put(self, name: str, data: InputLike) -> str:
        """Store a file, or keep it from expiring; as ``Client.inputs.put``."""
        return (await self._call(put_input(name, input_bytes(data)))).text("digest")


class AsyncTokens:
    """What tokens say: ``client.tokens``."""

    def __init__(self, call: Callable[[Request], Awaitable[Reply]]) -> None:
        self._call = call

    async def inspect(self, token: str) -> dict[str, Any]:
        """What a token says; as ``Client.tokens.inspect``."""
        return (await self._call(token_request("inspect", token))).json()

    async def refresh(self, token: str) -> str:
        """The same token, signed with the key of today; as ``Client.tokens.refresh``."""
        return (await self._call(token_request("refresh", token))).text("token")


class AsyncClient:
    """A Thalweg service, for asyncio.

    Args:
        url: of the service, such as ``http://127.0.0.1:8000``.
        key: bearer key, or None.
        timeout: seconds without a byte after which a connection counts as broken.
        retries: faults in a row, without progress between them, to bear.
        ssl_context: for https; the system's by default.
        transport: of httpx, for everything but duplex requests; its own by default.

    Attributes:
        losses: event reports from loss streams.
        datasets: tiles of detectors' files.
        inputs: auxiliary files.
        tokens: what tokens say.

    Raises:
        ValueError: the URL is none.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of the caller
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        ssl_context: ssl.SSLContext | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        address = Address.parse(url, key, timeout, ssl_context)
        # Proxies of the environment are not used, as by the blocking client.
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers=dict(address.headers),
            timeout=timeout,
            verify=address.context or True,
            transport=transport,
            trust_env=False,
        )
        self._pool = Pool(address)
        self._caller = HttpxCaller(self._http)
        self._retries = retries
        self.losses = AsyncLosses(self._caller, self._pool, retries)
        self.datasets = AsyncDatasets(self._caller, retries, self._call)
        self.inputs = AsyncInputs(self._call)
        self.tokens = AsyncTokens(self._call)

    async def pipeline(self, spec: Mapping[str, Any]) -> AsyncPipeline:
        """A pipeline, to iterate over its batches; as ``Client.pipeline``."""
        return await AsyncPipeline.make(self._caller, self._retries, self._call, spec)

    async def health(self) -> bool:
        """Whether the service takes work; as ``Client.health``."""
        return is_ready(await self._caller.call(Request("GET", "/readyz")))

    async def _call(self, request: Request) -> Reply:
        backoff = Backoff(self._retries)
        while True:
            try:
                return checked(await self._caller.call(request))
            except ThalwegError as error:
                delay = backoff.delay(error)
            await asyncio.sleep(delay)

    async def aclose(self) -> None:
        """Close the connections that wait for requests."""
        await self._http.aclose()
        self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
