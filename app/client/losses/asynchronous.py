"""Posting loss streams with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, Unpack, overload

from ..transport.asynchronous import AsyncItems, AsyncRunner
from ..transport.frames import Rows
from .async_sources import async_source
from .jobs import (
    PART_SIZE,
    Choices,
    Observe,
    Post,
    PostAnswer,
    PostOptions,
    ReadOptions,
    Several,
    read,
    save,
)
from .requests import InputLike, LossOptions, Mode, with_xref
from .rows import End, Position
from .sources import BytesLike, Source, SourceLike, open_source
from .tables import ReportTable

T = TypeVar("T")
AsyncSourceLike: TypeAlias = SourceLike | AsyncIterable[BytesLike]


class AsyncAnswer(PostAnswer, AsyncItems[T]):
    """The rows of a post as they arrive: ``Answer`` for ``async for``."""

    def __init__(self, runner: AsyncRunner, source: Source, post: Post) -> None:
        super().__init__(runner.shell(release=source.close), post.run())
        self._post = post


class AsyncLosses:
    """Reports from loss streams: ``client.losses``."""

    def __init__(self, runner: AsyncRunner) -> None:
        self._runner = runner

    @overload
    def post(
        self,
        report: str,
        source: AsyncSourceLike | None = ...,
        *,
        summary_xref: None = ...,
        **options: Unpack[PostOptions],
    ) -> AsyncAnswer[Rows]: ...

    @overload
    def post(
        self,
        report: Several,
        source: AsyncSourceLike | None = ...,
        *,
        summary_xref: None = ...,
        **options: Unpack[PostOptions],
    ) -> AsyncAnswer[tuple[str, Rows]]: ...

    @overload
    def post(
        self,
        report: str,
        source: AsyncSourceLike | None = ...,
        *,
        summary_xref: InputLike,
        **options: Unpack[PostOptions],
    ) -> AsyncAnswer[tuple[int, Rows]]: ...

    @overload
    def post(
        self,
        report: Several,
        source: AsyncSourceLike | None = ...,
        *,
        summary_xref: InputLike,
        **options: Unpack[PostOptions],
    ) -> AsyncAnswer[tuple[str, int, Rows]]: ...

    def post(  # noqa: PLR0913 - each is a choice of the caller
        self,
        report: str | Several,
        source: AsyncSourceLike | None = None,
        *,
        exec: Sequence[str] | None = None,  # noqa: A002 - users know it by this name
        mode: Mode = "parts",
        part_size: int = PART_SIZE,
        after: str | None = None,
        offset: int = 0,
        progress: Observe | None = None,
        summary_xref: InputLike | None = None,
        **options: Unpack[LossOptions],
    ) -> AsyncAnswer[Any]:
        """Post a stream and iterate over the rows of its reports with ``async for``.

        Arguments and errors are those of ``Client.losses.post``; a source may also be an
        asynchronous iterable of bytes. Call it where an event loop runs.
        """
        choices = Choices(mode, part_size, self._runner.retries, progress)
        opened = open_async_source(source, exec)
        post = Post(
            report, opened, Position(after, offset), choices, with_xref(options, summary_xref)
        )
        return AsyncAnswer(self._runner, opened, post)

    @overload
    async def read(
        self,
        report: str,
        source: AsyncSourceLike | None = ...,
        *,
        summary_xref: None = ...,
        **options: Unpack[ReadOptions],
    ) -> ReportTable: ...

    @overload
    async def read(
        self,
        report: Several,
        source: AsyncSourceLike | None = ...,
        *,
        summary_xref: None = ...,
        **options: Unpack[ReadOptions],
    ) -> dict[str, ReportTable]: ...

    @overload
    async def read(
        self,
        report: str,
        source: AsyncSourceLike | None = ...,
        *,
        summary_xref: InputLike,
        **options: Unpack[ReadOptions],
    ) -> dict[int, ReportTable]: ...

    @overload
    async def read(
        self,
        report: Several,
        source: AsyncSourceLike | None = ...,
        *,
        summary_xref: InputLike,
        **options: Unpack[ReadOptions],
    ) -> dict[str, dict[int, ReportTable]]: ...

    async def read(  # noqa: PLR0913 - each is a choice of the caller
        self,
        report: str | Several,
        source: AsyncSourceLike | None = None,
        *,
        exec: Sequence[str] | None = None,  # noqa: A002 - users know it by this name
        mode: Mode = "parts",
        part_size: int = PART_SIZE,
        progress: Observe | None = None,
        summary_xref: InputLike | None = None,
        **options: Unpack[LossOptions],
    ) -> Any:
        """Post a stream and return its reports as whole tables.

        Arguments and errors are those of ``Client.losses.read``.
        """
        choices = Choices(mode, part_size, self._runner.retries, progress)
        opened = open_async_source(source, exec)
        steps = read(report, opened, choices, with_xref(options, summary_xref))
        return await self._runner.run(steps, release=opened.close)

    async def save(  # noqa: PLR0913 - each is a choice of the caller
        self,
        report: str | Several,
        source: AsyncSourceLike | None,
        path: str | Path | int,
        format: str = "csv",  # noqa: A002 - its name everywhere in the contract
        *,
        exec: Sequence[str] | None = None,  # noqa: A002 - as above
        mode: Mode | None = None,
        part_size: int = PART_SIZE,
        state: str | Path | None = None,
        progress: Observe | None = None,
        live: bool = False,
        summary_xref: InputLike | None = None,
        **options: Unpack[LossOptions],
    ) -> End:
        """Post a stream and write a table to a file.

        Arguments and errors are those of ``Client.losses.save``.
        """
        choices = Choices(mode, part_size, self._runner.retries, progress, live)
        opened = open_async_source(source, exec)
        steps = save(report, opened, path, format, state, choices, with_xref(options, summary_xref))
        return await self._runner.run(steps, release=opened.close)


def open_async_source(source: AsyncSourceLike | None, command: Sequence[str] | None) -> Source:
    """Open whatever can be posted, asynchronous iterables too; as ``open_source``."""
    if isinstance(source, AsyncIterable):
        if command is not None:
            raise TypeError("give either a source or a command")
        return async_source(source, asyncio.get_running_loop())
    return open_source(source, command)
