"""Posting loss streams with blocking calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from ..transport.blocking import BlockingPort, drive
from ..transport.effects import Table
from ..transport.frames import Rows
from ..transport.http import Pool
from .jobs import (
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
from .requests import LossOptions, Mode
from .rows import End, Position
from .sources import SourceLike, open_source

T = TypeVar("T")


class Answer(Generic[T]):
    """The rows of a post, as they come; an iterator, and a context manager.

    Rows are handed out once each and in the order of the stream, whatever becomes of
    connections meanwhile. Where several reports are made, the tables of some events come
    one after the other, and ``token`` and ``offset`` move on with the last of them: what
    was handed out since they last moved comes again to whoever goes on with them.

    Raises (from iteration):
        ProblemError: the service refused, or the stream is wrong.
        ConnectionFailed, ProtocolError: it went wrong more often than is tolerated.
        ProducerFailed: the command failed; the rows of its complete events came before.
        SourceError: what is posted cannot be read.
    """

    def __init__(
        self,
        job: Job,
        port: BlockingPort,
        pick: Callable[[Table], T],
    ) -> None:
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

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        for item in self._items:
            if isinstance(item, Table):
                return self._pick(item)
            self._job.note(item)
        raise StopIteration

    def close(self) -> None:
        """Stop early; what was handed out stays good."""
        self._items.close()
        self._port.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Losses:
    """Event reports from loss streams: ``client.losses``."""

    def __init__(self, pool: Pool, retries: int) -> None:
        self._pool = pool
        self._retries = retries

    @overload
    def post(
        self,
        report: str,
        source: SourceLike | None = ...,
        *,
        exec: Sequence[str] | None = ...,
        mode: Mode = ...,
        part_size: int = ...,
        after: str | None = ...,
        offset: int = ...,
        progress: Observe | None = ...,
        **options: Unpack[LossOptions],
    ) -> Answer[Rows]: ...

    @overload
    def post(
        self,
        report: Several,
        source: SourceLike | None = ...,
        *,
        exec: Sequence[str] | None = ...,
        mode: Mode = ...,
        part_size: int = ...,
        after: str | None = ...,
        offset: int = ...,
        progress: Observe | None = ...,
        **options: Unpack[LossOptions],
    ) -> Answer[tuple[str, Rows]]: ...

    def post(  # noqa: PLR0913 - each is a choice of the caller
        self,
        report: str | Several,
        source: SourceLike | None = None,
        *,
        exec: Sequence[str] | None = None,  # noqa: A002 - what users know it as
        mode: Mode = "parts",
        part_size: int = PART_SIZE,
        after: str | None = None,
        offset: int = 0,
        progress: Observe | None = None,
        **options: Unpack[LossOptions],
    ) -> Answer[Any]:
        """Post a stream, and iterate over the rows of its reports.

        Nothing is sent before the first row is asked for.

        Args:
            report: a name, to get rows (numpy structured arrays); or several, to get
                pairs of name and rows.
            source: the whole stream: a path, a file descriptor, bytes, a file object
                or an iterable of bytes.
            exec: a command to run instead, whose output is the stream. It is declared
                complete only if the command exits with 0.
            mode: ``parts``: a request per part, which survives anything; ``duplex``:
                one, with rows as they arise; ``whole``: one, with rows at its end.
            part_size: bytes of a part; parts grow where an event is longer.
            after: a token to go on with; bytes of the source before ``offset`` are
                skipped.
            offset: stream offset in bytes that belongs to ``after``.
            progress: called whenever rows have been answered.
            **options: as the contract has them, see LossOptions.

        Raises:
            SourceError: the source cannot be opened, or a file of an input be read.
            TypeError, ValueError: an argument cannot be.
        """
        how = How(mode, part_size, self._retries, progress)
        start = Position(after, offset)
        job = post_job(reports_of(report), open_source(source, exec), start, how, options)
        pick = rows_only if isinstance(report, str) else with_report
        return Answer(job, BlockingPort(self._pool, job.source), pick)

    def save(  # noqa: PLR0913 - each is a choice of the caller
        self,
        report: str | Several,
        source: SourceLike | None,
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
        """Post a stream, and write a table to a file, byte for byte as the service makes it.

        The file appears when it is whole. Csv, ndjson and bin are posted in parts by
        default and joined; ndjson without the lines that hold tokens. Arrow and parquet
        are made of the whole.

        Args:
            report: a name; or several, in the format ``bin`` only.
            source: as for ``post``.
            path: of the file; of a directory for several reports; or a file descriptor.
            format: csv, ndjson, bin, arrow or parquet.
            exec: as for ``post``.
            mode: as for ``post``; ``duplex`` for bin only.
            part_size: bytes of a part.
            state: file that makes it possible to go on after a kill: the same call
                goes on where the last one stopped. Removed at the end.
            progress: called whenever rows have been written.
            **options: as the contract has them, see LossOptions.

        Raises:
            ThalwegError: as for ``post``; StateError if the state does not fit.
            OSError: the table cannot be written.
            TypeError, ValueError: an argument cannot be.
        """
        how = How(mode, part_size, self._retries, progress)
        opened = open_source(source, exec)
        job = save_job(reports_of(report), opened, path, format, state, how, options)
        saving = job.tables()
        with ExitStack() as stack:
            port = BlockingPort(self._pool, opened)
            stack.callback(port.close)
            stack.callback(saving.stop)
            for item in drive(job.posting.run(), port):
                saving.take(item)
                job.note(item)
            saving.finish()
        return job.ended()
