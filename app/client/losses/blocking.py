# Made from asynchronous.py by deploy/unasync.py (make fmt): change that one.
"""Posting loss streams with blocking calls."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

import numpy as np

from ..transport.channel import Calls, Channel
from ..transport.frames import Rows
from ..transport.streams import Items
from .posting import Posting
from .requests import PART_SIZE, Choices, InputLike, LossOptions, LossRequests, Mode, Several
from .rows import End, Position, ReportTable, Table
from .saving import Observe, Saving, format_of, labels, save_mode, wire_format
from .sources import SourceLike, open_source

T = TypeVar("T")


class _Read(LossOptions, total=False):
    exec: Sequence[str] | None
    mode: Mode
    part_size: int
    progress: Observe | None


class _Post(_Read, total=False):
    after: str | None
    offset: int


class ReadOptions(_Read, total=False):
    """Everything that a post can be given that begins with its stream."""

    summary_xref: None


class ReadItems(_Read):
    """The same, of a stream of items."""

    summary_xref: InputLike


class PostOptions(_Post, total=False):
    """Everything that a post can be given besides its reports and its source."""

    summary_xref: None


class PostItems(_Post):
    """The same, of a stream of items."""

    summary_xref: InputLike


class Answer(Items[T]):
    """The rows of a post as they arrive; an iterator and a context manager.

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

    def __init__(self, channel: Channel, posting: Posting, shape: Callable[[Table], T]) -> None:
        super().__init__(channel, _shaped(posting, shape))
        self._posting = posting

    @property
    def token(self) -> str | None:
        """Token to resume with after the rows delivered; None at the beginning and end."""
        return self._posting.token

    @property
    def offset(self) -> int:
        """Stream offset in bytes that belongs to ``token``."""
        return self._posting.offset

    @property
    def end(self) -> End | None:
        """How the stream ended; None before."""
        return self._posting.end


class Losses(Calls):
    """Reports from loss streams: ``client.losses``."""

    @overload
    def post(
        self, report: str, source: SourceLike | None = ..., **options: Unpack[PostOptions]
    ) -> Answer[Rows]: ...

    @overload
    def post(
        self, report: Several, source: SourceLike | None = ..., **options: Unpack[PostOptions]
    ) -> Answer[tuple[str, Rows]]: ...

    @overload
    def post(
        self, report: str, source: SourceLike | None = ..., **options: Unpack[PostItems]
    ) -> Answer[tuple[int, Rows]]: ...

    @overload
    def post(
        self, report: Several, source: SourceLike | None = ..., **options: Unpack[PostItems]
    ) -> Answer[tuple[str, int, Rows]]: ...

    def post(  # noqa: PLR0913 - each is a choice of the caller
        self,
        report: str | Several,
        source: SourceLike | None = None,
        *,
        exec: Sequence[str] | None = None,  # noqa: A002 - users know it by this name
        mode: Mode = "parts",
        part_size: int = PART_SIZE,
        after: str | None = None,
        offset: int = 0,
        progress: Observe | None = None,
        summary_xref: InputLike | None = None,
        **options: Unpack[LossOptions],
    ) -> Answer[Any]:
        """Post a stream and iterate over the rows of its reports.

        Nothing is sent before the first row is asked for.

        Args:
            report: a name, for rows (numpy structured arrays); or several, for pairs of
                name and rows.
            source: the whole stream: a path, a file descriptor, bytes, a file object
                or an iterable of bytes.
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
        choices = Choices(mode, part_size)
        opened = open_source(source, exec)
        try:
            requests = LossRequests(report, "frames", options, opened.size, summary_xref)
        except BaseException:
            opened.close()
            raise
        channel = self._connector.channel(release=opened.close)
        start = Position(after, offset)
        posting = Posting(channel, requests, opened, choices, progress, start)
        alone = isinstance(report, str)
        return Answer(channel, posting, partial(_shape, alone, requests.of_items))

    @overload
    def read(
        self, report: str, source: SourceLike | None = ..., **options: Unpack[ReadOptions]
    ) -> ReportTable: ...

    @overload
    def read(
        self, report: Several, source: SourceLike | None = ..., **options: Unpack[ReadOptions]
    ) -> dict[str, ReportTable]: ...

    @overload
    def read(
        self, report: str, source: SourceLike | None = ..., **options: Unpack[ReadItems]
    ) -> dict[int, ReportTable]: ...

    @overload
    def read(
        self, report: Several, source: SourceLike | None = ..., **options: Unpack[ReadItems]
    ) -> dict[str, dict[int, ReportTable]]: ...

    def read(  # noqa: PLR0913 - each is a choice of the caller
        self,
        report: str | Several,
        source: SourceLike | None = None,
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
            **options: inputs (occurrence, periods, return_periods, quantiles, event_rates,
                summary_map), rows (summary_ids, event_ids, sets, order), computation
                (no_of_periods, confidence, curves, tvar), stream (float_width, nan, negative,
                sample_order), and what is expected of it (expect_events, expect_bytes,
                expect_samples, expect_summaries, over_bound); see LossOptions.

        Raises:
            ThalwegError: as for ``post``.
            TypeError, ValueError: an argument is wrong.
        """
        choices = Choices(mode, part_size)
        opened = open_source(source, exec)
        with self._connector.channel(release=opened.close) as channel:
            requests = LossRequests(report, "frames", options, opened.size, summary_xref)
            posting = Posting(channel, requests, opened, choices, progress, Position())
            parts: dict[tuple[str, int | None], list[Rows]] = {}
            for item in posting.run():
                if isinstance(item, Table):
                    parts.setdefault((item.report, item.set_id), []).append(item.rows)

        def table(name: str, set_id: int | None) -> ReportTable:
            dtype = posting.dtypes.get(name, np.dtype([]))
            rows = parts.get((name, set_id)) or [np.zeros(0, dtype)]
            return ReportTable(name, np.concatenate(rows), set_id)

        tables: dict[str, Any] = {
            name: {set_id: table(name, set_id) for set_id in posting.set_ids}
            if requests.of_items
            else table(name, None)
            for name in requests.reports
        }
        return tables[report] if isinstance(report, str) else tables

    def save(  # noqa: PLR0913 - each is a choice of the caller
        self,
        report: str | Several,
        source: SourceLike | None,
        path: str | Path | int,
        format: str | None = None,  # noqa: A002 - its name everywhere in the contract
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

        The file appears once it is complete, in place of one that is there. Csv, ndjson and
        bin are posted in parts by default and joined; ndjson without the lines that hold
        tokens. Arrow and parquet describe the whole stream.

        Args:
            report: a name; or several, in the format ``bin`` only.
            source: as for ``post``.
            path: of the file; of a directory for several reports; or a file descriptor.
            format: csv, ndjson, bin, arrow or parquet; for ept and aal also svg and png, which
                are pictures. By default the ending of the path says it, or it is csv.
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
        format = format or format_of(path)  # noqa: A001 - as above
        choices = Choices(save_mode(format, mode), part_size)
        opened = open_source(source, exec)
        with self._connector.channel(release=opened.close) as channel:
            requests = LossRequests(report, wire_format(format), options, opened.size, summary_xref)
            target = path if isinstance(path, int) else Path(path)
            saving = Saving(labels(requests, format), format, target, state, opened, live=live)
            try:
                channel.work(saving.open)
                posting = Posting(
                    channel, requests, opened, choices, progress, saving.start, saving.passed
                )
                for item in posting.run():
                    channel.work(partial(saving.take, item))
                channel.work(saving.finish)
            finally:
                saving.stop()
        assert posting.end is not None  # noqa: S101 - the items are over
        return posting.end

    def check(
        self,
        report: str | Several,
        format: str = "csv",  # noqa: A002 - its name everywhere in the contract
        *,
        summary_xref: InputLike | None = None,
        **options: Unpack[LossOptions],
    ) -> None:
        """Have the service check what could be wrong with a post before its stream is sent.

        Files of inputs are stored.

        Args:
            report: as for ``save``.
            format: as for ``save``.
            summary_xref: as for ``post``.
            **options: of the contract, see LossOptions.

        Raises:
            ThalwegError, TypeError, ValueError: as for ``save``.
        """
        requests = LossRequests(report, wire_format(format), options, None, summary_xref)
        with self._connector.channel() as channel:
            for name, request in requests.inputs():
                requests.input_stored(name, (channel.call(request)).text("digest"))
            channel.call(requests.check())


def _shaped(posting: Posting, shape: Callable[[Table], T]) -> Generator[T, None, None]:
    with closing(posting.run()) as items:
        for item in items:
            if isinstance(item, Table):
                yield shape(item)


def _shape(alone: bool, of_items: bool, table: Table) -> Any:  # noqa: ANN401 - rows, or a tuple
    """The rows of a table, with the names of its report and set where there are several."""
    if of_items:
        of_set = (table.set_id, table.rows)
        return of_set if alone else (table.report, *of_set)
    return table.rows if alone else (table.report, table.rows)
