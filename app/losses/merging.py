"""Merge finished tables of partitions, as the peer's ``kat``: by event, or event and period.

Every table must ascend by event already, as that of a partition with ascending events does, and
an event must be in one table alone. So the rows below the lowest event that every table has
reached are complete, whatever comes later::

    table 1   3 3 5 5 5 9 | ...                 rows of events below 8 can go:
    table 2   4 4 8 | ...                       3 3 4 4 5 5 5
              ------------- read so far

Tables are read in pieces, so memory does not depend on their size. Csv lines and packed records
pass through unchanged.
"""

from __future__ import annotations

import io
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from core.arrays import Indices
from core.errors import InputError, OptionError
from core.losses.reports import REPORTS

from .outputs import OutputFile, Outputs

By = Literal["event", "event,period"]

_PIECE = 1 << 22
_EVENT = "EventId"
_PERIOD = "Period"
_KEYS = (_EVENT, _PERIOD)
_HEADER = b"header"
"""Of the metadata of csv: its first line."""
_ROWS = "rows"
"""Column of csv lines and packed records, beside their keys."""


@dataclass(frozen=True, slots=True)
class MergeJob:
    """One requested merge."""

    tables: Sequence[str]
    """Files of one format, which their names end with."""
    out: str
    """File, or ``-`` for standard output."""
    by: By = "event"
    report: str | None = None
    """Name of the report, which packed records do not tell."""
    float_width: int = 4
    """Bytes of a loss in packed records."""
    live: bool = False
    """Whether a pipe gets rows before all tables are known to be good."""


_OF_RUNS = (
    "Tables of whole runs, such as aal and ept, are merged as partial files: thalweg-server"
    " aggregate --partial-out of each partition, then --partials of all"
)


def merge_tables(job: MergeJob) -> int:
    """Merge tables; return the number of rows.

    Raises:
        OptionError: the tables are of different formats or one that cannot be merged.
        InputError: a table is unusable, of other columns than the first, or does not ascend
            by event; or an event is in two tables. No file is written then.
    """
    suffix = _suffix_of(job)
    with Outputs(live=job.live) as outputs:
        output = outputs.open(job.out)
        sources = _sources(job, suffix)
        schema = sources[0].waiting.schema
        if suffix == ".parquet":
            file = pa.PythonFile(OutputFile(output), "w")
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                return _write(job, sources, writer.write_table)
        output.write((schema.metadata or {}).get(_HEADER, b""))
        return _write(job, sources, lambda table: output.write(_octets(table)))


def _suffix_of(job: MergeJob) -> str:
    suffixes = {Path(path).suffix for path in job.tables}
    if len(suffixes) > 1 or (suffix := suffixes.pop()) not in _PIECES:
        raise OptionError(
            "the tables are not of one format that can be merged",
            hint=f"Name files that end with one of {', '.join(_PIECES)}",
        )
    if suffix == ".bin" and job.report is None:
        raise OptionError("packed records do not tell their report", hint="Name it with --report")
    return suffix


# -- merging ---------------------------------------------------------------------------


class _Source:
    """One table, and the rows of it that wait."""

    def __init__(self, path: str, pieces: Iterator[pa.Table]) -> None:
        self.path = path
        self.ended = False
        self._pieces = pieces
        self.last = 0
        """The highest event read so far."""
        self._count = 0
        first = self._next()
        assert first is not None  # noqa: S101 - the first has the schema
        self.waiting: pa.Table = first
        self._check(first)

    def read(self) -> None:
        """Read another piece."""
        piece = self._next()
        if piece is None:
            self.ended = True
            return
        self._check(piece)
        self.waiting = pa.concat_tables([self.waiting, piece])

    def _next(self) -> pa.Table | None:
        try:
            return next(self._pieces, None)
        except (OSError, pa.ArrowException) as e:
            raise InputError(f"cannot be read: {e}", source=self.path) from e

    def _check(self, piece: pa.Table) -> None:
        if _EVENT not in piece.column_names:
            raise InputError("it has no column EventId", hint=_OF_RUNS, source=self.path)
        events = np.append(self.last, _integers(piece, _EVENT))
        falling = np.flatnonzero(events[1:] < events[:-1])
        if len(falling):
            row = int(falling[0])
            raise InputError(
                f"row {self._count + row + 1}: event {events[row + 1]} comes after {events[row]}",
                hint="Only tables that ascend by event can be merged",
                source=self.path,
            )
        self.last = int(events[-1])
        self._count += len(piece)

    def take_below(self, event: int) -> pa.Table:
        """Remove and return the rows of lower events."""
        cut = int(np.searchsorted(_integers(self.waiting, _EVENT), event))
        result = self.waiting.slice(0, cut)
        self.waiting = self.waiting.slice(cut)
        return result


def _integers(table: pa.Table, name: str) -> Indices:
    values: Indices = table.column(name).to_numpy().astype(np.int64)
    return values


def _merged(sources: Sequence[_Source], by: By) -> Iterator[pa.Table]:
    """Yield the rows of all tables in order, in pieces of whole events."""
    while True:
        still_open = [source for source in sources if not source.ended]
        floor = min((source.last for source in still_open), default=2**62)
        parts = [source.take_below(floor) for source in sources]
        if any(map(len, parts)):
            yield _in_order(parts, sources, by)
        if not still_open:
            return
        for source in still_open:
            if source.last == floor:
                source.read()


def _write(job: MergeJob, sources: Sequence[_Source], write: Callable[[pa.Table], object]) -> int:
    """Write the rows of all tables; return their number."""
    count = 0
    for table in _merged(sources, job.by):
        write(table)
        count += len(table)
    return count


def _in_order(parts: Sequence[pa.Table], sources: Sequence[_Source], by: By) -> pa.Table:
    events = np.concatenate([_integers(part, _EVENT) for part in parts])
    origins = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    keys: list[Indices] = [events]
    table = pa.concat_tables(parts)
    if by == "event,period":
        keys.insert(0, _integers(table, _PERIOD))
    order = np.lexsort(keys)
    by_event = np.argsort(events, kind="stable")
    equal = events[by_event][1:] == events[by_event][:-1]
    twice = np.flatnonzero(equal & (origins[by_event][1:] != origins[by_event][:-1]))
    if len(twice):
        first, second = (sources[origins[by_event[twice[0] + k]]].path for k in (0, 1))
        raise InputError(
            f"event {events[by_event[twice[0]]]} is in {first} too",
            hint="An event must be in one partition alone",
            source=second,
        )
    return table.take(order)


def _sources(job: MergeJob, suffix: str) -> list[_Source]:
    sources: list[_Source] = []
    for path in job.tables:
        source = _Source(path, _PIECES[suffix](path, job))
        schema = source.waiting.schema
        # Of csv, whose lines are one column, the header stands there.
        if sources and not schema.equals(sources[0].waiting.schema, suffix == ".csv"):
            raise InputError(f"its columns are not those of {sources[0].path}", source=path)
        sources.append(source)
    schema = sources[0].waiting.schema
    if job.report is not None and suffix != ".bin":
        header = (schema.metadata or {}).get(_HEADER) or ",".join(schema.names).encode()
        _check_report(job, f"{header.decode().rstrip()},")
    if job.by == "event,period" and _PERIOD not in sources[0].waiting.column_names:
        raise OptionError("the tables have no column Period", hint="Merge them by event")
    return sources


def _check_report(job: MergeJob, header: str) -> None:
    """Refuse tables that are not of the report that is said; further columns may follow."""
    held = [name for name, row in REPORTS.items() if header.startswith(f"{row.header},")]
    if job.report not in held:
        raise OptionError(
            f"--report is {job.report}, but {job.tables[0]} has the columns of"
            f" {' or '.join(held) or 'no report'}",
            hint="Leave it out: only packed records do not tell their report",
        )


# -- formats ---------------------------------------------------------------------------


def _csv_pieces(path: str, _job: MergeJob) -> Iterator[pa.Table]:
    """Rows and keys of a csv with a header."""
    with Path(path).open("rb") as file:
        header = file.readline().removeprefix(BOM_UTF8).rstrip(b"\r\n") + b"\n"
        names = header.decode("utf-8", "replace").rstrip("\n").split(",")
        if _EVENT not in names:
            raise InputError("it has no header line with EventId", hint=_OF_RUNS, source=path)
        keys = [name for name in _KEYS if name in names]
        convert = pa_csv.ConvertOptions(
            include_columns=keys, column_types=dict.fromkeys(keys, pa.int64())
        )
        options = pa_csv.ReadOptions(column_names=names)
        parse = pa_csv.ParseOptions(newlines_in_values=True)
        yield _lines([], {name: [] for name in keys}, header)
        for rows in _csv_rows(file, path):
            read = pa_csv.read_csv(io.BytesIO(b"".join(rows)), options, parse, convert)
            yield _lines(rows, {name: read.column(name) for name in keys}, header)


def _csv_rows(file: BinaryIO, path: str) -> Iterator[list[bytes]]:
    """Yield rows in pieces, none of them blank.

    Raises:
        InputError: the last line has no end, or a quote is not closed within a piece.
    """
    rest: list[bytes] = []
    while lines := file.readlines(_PIECE):
        if not lines[-1].endswith(b"\n"):
            hint = "It was cut; if it is whole, end it with a line feed"
            raise InputError("its last line has no end", hint=hint, source=path)
        rows, rest = _joined(rest + lines)
        if rows:
            yield rows
        if sum(map(len, rest)) > _PIECE:
            break
    if rest:
        hint = "A cell in quotes ends with one, and has those within it doubled"
        raise InputError(f"a quote is not closed: {rest[0][:60]!r}", hint=hint, source=path)


def _joined(lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Rows of lines, as a cell in quotes may hold line feeds; and lines of a row not yet whole."""
    rows: list[bytes] = []
    row: list[bytes] = []
    quotes = 0
    for line in lines:
        row.append(line)
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            rows.append(b"".join(row))
            row = []
    return [row for row in rows if row.strip(b"\r\n")], row


def _lines(lines: list[bytes], keys: dict[str, Any], header: bytes) -> pa.Table:
    columns: dict[str, Any] = {_ROWS: pa.array(lines, pa.binary())}
    columns |= {name: pa.array(np.asarray(values, np.int64)) for name, values in keys.items()}
    return pa.table(columns).replace_schema_metadata({_HEADER: header})


def _octets(table: pa.Table) -> bytes:
    """Csv lines or packed records of a table, one after another."""
    rows: list[Any] = table.column(_ROWS).to_pylist()
    return b"".join(rows)


def _bin_pieces(path: str, job: MergeJob) -> Iterator[pa.Table]:
    """Packed records and their keys."""
    dtype = REPORTS[str(job.report)].dtype(job.float_width)
    size = Path(path).stat().st_size
    if size % dtype.itemsize:
        raise InputError(
            f"it has {size} bytes, not a multiple of the record size {dtype.itemsize}", source=path
        )
    with Path(path).open("rb") as file:
        octets = b""
        while True:
            rows = np.frombuffer(octets, dtype)
            records = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(dtype.itemsize), len(rows), [None, pa.py_buffer(octets)]
            )
            keys = [name for name in _KEYS if name in (dtype.names or ())]
            yield pa.table({_ROWS: records} | {name: rows[name].copy() for name in keys})
            octets = file.read(max(1, _PIECE // dtype.itemsize) * dtype.itemsize)
            if not octets:
                return


def _parquet_pieces(path: str, _job: MergeJob) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        yield file.schema_arrow.empty_table()
        for batch in file.iter_batches(1 << 16):
            yield pa.Table.from_batches([batch], file.schema_arrow)


_PIECES: dict[str, Callable[[str, MergeJob], Iterator[pa.Table]]] = {
    ".csv": _csv_pieces,
    ".bin": _bin_pieces,
    ".parquet": _parquet_pieces,
}
"""What reads a table, first its schema, by the ending of its name."""
