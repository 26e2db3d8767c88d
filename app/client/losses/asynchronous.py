"""Posting loss streams with asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

from ..transport.async_items import AsyncItems
from ..transport.asynchronous import AsyncRunner
from ..transport.frames import Rows
from .async_sources import AsyncSourceLike, open_async_source
from .jobs import (
    PART_SIZE,
    Choices,
    Observe,
    Post,
    PostOptions,
    ReadOptions,
    Several,
    read,
    save,
)
from .requests import InputLike, LossOptions, Mode, with_xref
from .rows import End, Position
from .sources import Source
from .tables import ReportTable

T = TypeVar("T")


class AsyncAnswer(AsyncItems[T]):
    """The rows of a post as they arrive; an asynchronous iterator and a context manager.

    Each row comes once, in the order of the stream, whatever happens to connections. With
    several reports, the tables of some events come one after the other, and ``token`` and
    ``offset`` move with the last of them: rows that came since they last moved come again
    after resuming with them.

    Raises (from iteration):
        ProblemError: the service refused, or the stream is wrong.
        ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
        ProducerFailed: the command failed; the rows of its complete events came before.
        SourceError: the source cannot be read.
    """

    def __init__(self, runner: AsyncRunner, source: Source, post: Post) -> None:
        super().__init__(runner.shell(release=source.close), post.run())
        self._post = post

    @property
    def token(self) -> str | None:
        """Token to resume with after the rows delivered; None at the beginning and end."""
        return self._post.posting.token

    @property
    def offset(self) -> int:
        """Stream offset in bytes that belongs to ``token``."""
        return self._post.posting.offset

    @property
    def end(self) -> End | None:
        """How the stream ended; None before."""
        return self._post.posting.end


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
        """Post a stream and iterate over the rows of its reports.

        Nothing is sent before the first row is asked for.

        Args:
            report: a name, for rows (numpy structured arrays); or several, for pairs of
                name and rows.
            source: the whole stream: a path, a file descriptor, bytes, a file object
                or an (asynchronous) iterable of bytes.
            exec: a command to run instead, whose output is the stream. It is declared
                complete only if the command exits with 0.
            mode: ``parts``: a request per part, which survives anything; ``duplex``:
                one request, with rows as they arise; ``whole``: one, with rows at its end.
            part_size: bytes of a part; parts grow where an event is longer.
            after: token to resume with; bytes of the source before ``offset`` are skipped.
            offset: stream offset in bytes that belongs to ``after``.
            progress: called whenever rows have been answered.
            summary_xref: the stream is of items: the summaries of these; the set of rows comes
                before them.
            **options: of the contract, see LossOptions.

        Raises:
            SourceError: the source or the file of an input cannot be opened.
            TypeError, ValueError: an argument is wrong.
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

        Tables have their rows as a numpy array, and ``to_arrow``, ``to_pandas`` and
        ``to_polars``.

        Args:
            report: a name, for its table; or several, for tables by name.
            source: as for ``post``.
            exec: as for ``post``.
            mode: as for ``post``.
            part_size: bytes of a part.
            progress: called whenever rows have been answered.
            summary_xref: the stream is of items: the summaries of these; tables come by set.
            **options: of the contract, see LossOptions.

        Raises:
            ThalwegError: as for ``post``.
            TypeError, ValueError: an argument is wrong.
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
        """Post a stream and write a table to a file, byte for byte as the service makes it.

        The file appears once it is complete. Csv, ndjson and bin are posted in parts by
        default and joined; ndjson without the lines that hold tokens. Arrow and parquet
        describe the whole stream.

        Args:
            report: a name; or several, in the format ``bin`` only.
            source: as for ``post``.
            path: of the file; of a directory for several reports; or a file descriptor.
            format: csv, ndjson, bin, arrow or parquet; for ept and aal also svg and png, which
                are pictures.
            exec: as for ``post``.
            mode: as for ``post``; ``duplex`` for bin only.
            part_size: bytes of a part.
            state: file that lets the same call resume after a kill. Removed at the end.
            progress: called whenever rows have been written.
            live: whether a pipe, terminal or device gets rows as they come; otherwise it gets all
                of them, or none.
            summary_xref: the stream is of items: the summaries of these. Of several ``sets``,
                which are saved as bin, files are named as ``S1_melt.bin``.
            **options: of the contract, see LossOptions.

        Raises:
            ThalwegError: as for ``post``; StateError if the state does not fit.
            OSError: the table cannot be written.
            TypeError, ValueError: an argument is wrong.
        """
        choices = Choices(mode, part_size, self._runner.retries, progress, live)
        opened = open_async_source(source, exec)
        steps = save(report, opened, path, format, state, choices, with_xref(options, summary_xref))
        return await self._runner.run(steps, release=opened.close)
