"""``katpy``: the tables of all processes as one, by event and period or one after another."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.losses.outputs import Output, OutputFile
from app.oasis.merging import Keys, Piece, join_rows, merge
from core.arrays import Rows
from core.errors import InputError, OptionError
from core.losses.reports import REPORTS

from .environment import read_environment, tool_outputs
from .options import KAT_TABLES
from .starting import ProcessLog
from .tables import Tables

_PIECE: Final = 4 << 20
"""Bytes of a table in memory, at the most."""
_ALL_PIECES: Final = 64 << 20
"""Bytes of all tables in memory, about."""
_LEAST_PIECE: Final = 1 << 16
_PARQUET_ROWS: Final = 1 << 16
"""Rows of a table in memory."""


def katpy(args: argparse.Namespace, log: ProcessLog) -> None:
    """Write one table.

    Raises:
        CoreError: the command line contradicts itself, or a table is unusable.
    """
    width = read_environment().float_width
    requested = [name for name in KAT_TABLES if getattr(args, name)]
    if len(requested) != 1:
        raise OptionError("name the table with one of -s -m -q -S -M -Q")
    report = requested[0]
    paths = _inputs(args)
    form = _form(paths, args.file_type)
    out = Path(args.out)
    if out.suffix != f".{form}" and (form != "bin" or out.suffix not in {".csv", ".parquet"}):
        raise OptionError(f"{form} tables cannot be written to {out}")
    if form == "bin":
        _write_bin(args, report, paths, width, log)
    elif form == "csv":
        _write_csv(args, report, paths)
    else:
        _write_parquet(args, report, paths)


def _inputs(args: argparse.Namespace) -> list[Path]:
    """Files of the directory, by path, then those that are named."""
    paths: list[Path] = []
    if args.dir_in is not None:
        folder = Path(args.dir_in)
        if not folder.is_dir():
            raise InputError(f"there is no directory {folder}")
        found = (path for form in ("csv", "bin", "parquet") for path in folder.glob(f"*.{form}"))
        paths = sorted(path.resolve() for path in found)
    for name in args.files_in or ():
        if not Path(name).is_file():
            raise InputError(f"there is no file {name}")
        paths.append(Path(name))
    if not paths:
        raise InputError("there are no tables to concatenate: name files with -i, or -d DIRECTORY")
    return paths


def _form(paths: Sequence[Path], named: str | None) -> str:
    suffixes = {path.suffix for path in paths}
    if len(suffixes) > 1:
        raise OptionError(f"the tables are of several formats: {', '.join(sorted(suffixes))}")
    form = suffixes.pop()[1:] or named
    if form is None:
        raise OptionError(
            "names without a suffix do not tell the format: add -f csv, bin or parquet"
        )
    if form not in {"csv", "bin", "parquet"}:
        raise OptionError(f"there is no table format {form}")
    return form


def _key(columns: Any, report: str) -> Keys:  # noqa: ANN401 - rows or a mapping of columns
    """Event ids, and below them the periods of tables that have them; shape (n,)."""
    events: Keys = np.asarray(columns["EventId"]).astype(np.int64)
    if REPORTS[report].scope == "event":
        return events
    # Ids are int32, so that the sum keeps the order of pairs.
    return (events << 32) + np.asarray(columns["Period"]).astype(np.int64)


# -- packed records -------------------------------------------------------------------


def _write_bin(
    args: argparse.Namespace, report: str, paths: list[Path], width: int, log: ProcessLog
) -> None:
    form = Path(args.out).suffix[1:] or "bin"
    dtype = REPORTS[report].dtype(width)
    if args.unsorted and form == "bin":
        _copy(paths, args.out)
        return
    with Tables({report: args.out}, form, width, header=True).writing() as tables:
        tables.begin()
        if args.unsorted:
            # The peer sees only the file of all, and takes it for empty if it is not whole.
            if _is_whole("", paths, dtype, log):
                for rows in _whole_records(paths, dtype):
                    tables.write(report, rows)
            return
        whole = [path for path in paths if _is_whole(f"{path}: ", [path], dtype, log)]
        pieces = [_bin_pieces(path, dtype, report, _piece(len(whole))) for path in whole]
        for rows in merge(pieces, join_rows):
            tables.write(report, rows)


def _copy(paths: Sequence[Path], name: str) -> None:
    with tool_outputs() as outputs:
        out = outputs.open(name)
        for path in paths:
            _copy_rest(path, out)


def _copy_rest(path: Path, out: Output, skipped_lines: int = 0) -> None:
    """Copy a file, but for its first lines."""
    with path.open("rb") as file:
        for _ in range(skipped_lines):
            file.readline()
        while octets := file.read(_PIECE):
            out.write(octets)


def _is_whole(name: str, paths: Sequence[Path], dtype: np.dtype[np.void], log: ProcessLog) -> bool:
    """Whether files hold whole records, all together."""
    size = sum(path.stat().st_size for path in paths)
    whole = size % dtype.itemsize == 0
    if not whole:
        record = f"not a multiple of the record size {dtype.itemsize}: left out"
        log.note_warning(f"{name}{size} bytes are {record}")
    return whole


def _whole_records(paths: Sequence[Path], dtype: np.dtype[np.void]) -> Iterator[Rows]:
    """The bytes of all files as records, which may begin in one and end in the next."""
    rest = b""
    for path in paths:
        with path.open("rb") as file:
            while octets := file.read(_PIECE):
                octets = rest + octets
                cut = len(octets) // dtype.itemsize * dtype.itemsize
                yield np.frombuffer(octets[:cut], dtype)
                rest = octets[cut:]


def _piece(tables: int) -> int:
    """Bytes of each of so many tables in memory."""
    return min(_PIECE, max(_LEAST_PIECE, _ALL_PIECES // tables))


def _bin_pieces(
    path: Path, dtype: np.dtype[np.void], report: str, piece: int
) -> Iterator[Piece[Rows]]:
    with path.open("rb") as file:
        while octets := file.read(piece // dtype.itemsize * dtype.itemsize):
            rows = np.frombuffer(octets, dtype)
            yield _key(rows, report), rows


# -- csv ------------------------------------------------------------------------------


def _write_csv(args: argparse.Namespace, report: str, paths: list[Path]) -> None:
    expected = REPORTS[report].header.encode()
    titled = [_has_header(path, expected) for path in paths]
    if not any(titled):
        raise InputError(f"no table has the header line of {report.upper()}")
    with tool_outputs() as outputs:
        out = outputs.open(args.out)
        out.write(expected + b"\n")
        if args.unsorted:
            for path, has_header in zip(paths, titled, strict=True):
                _copy_rest(path, out, int(has_header))
        else:
            pieces = [
                _csv_pieces(path, report, _piece(len(paths)), has_header=has_header)
                for path, has_header in zip(paths, titled, strict=True)
            ]
            for lines in merge(pieces, join_rows):
                out.write(b"".join(lines.tolist()))


def _has_header(path: Path, expected: bytes) -> bool:
    with path.open("rb") as file:
        first = file.readline().strip()
    if b"EventId" not in first:
        return False
    if first != expected:
        columns = first.decode(errors="replace")
        hint = f"They are {columns[:200]}"
        raise InputError("its columns are not those of the table", hint=hint, source=str(path))
    return True


def _csv_pieces(
    path: Path, report: str, piece: int, *, has_header: bool
) -> Iterator[Piece[npt.NDArray[np.object_]]]:
    names = REPORTS[report].header.split(",")
    by_period = REPORTS[report].scope != "event"
    indices = {name: names.index(name) for name in ("EventId", "Period")[: 1 + by_period]}
    with path.open("rb") as file:
        if has_header:
            file.readline()
        while lines := [line for line in file.readlines(piece) if line.strip()]:
            lines[-1] = lines[-1].rstrip(b"\n") + b"\n"
            try:
                cells = [line.split(b",") for line in lines]
                columns = {
                    name: np.array([int(cell[index]) for cell in cells], np.int64)
                    for name, index in indices.items()
                }
            except (ValueError, IndexError) as e:
                raise InputError(f"a line is not one of the table: {e}", source=str(path)) from e
            rows = np.empty(len(lines), object)
            rows[:] = lines
            yield _key(columns, report), rows


# -- parquet --------------------------------------------------------------------------


def _write_parquet(args: argparse.Namespace, report: str, paths: list[Path]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and most tables are packed
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    def reorder(parts: list[Any], order: Keys) -> Any:  # noqa: ANN401 - tables of Arrow
        return pa.concat_tables(parts).take(order)

    try:
        with tool_outputs() as outputs:
            file = pa.PythonFile(OutputFile(outputs.open(args.out)), "w")
            with pq.ParquetWriter(file, pq.read_schema(paths[0])) as writer:
                tables = [_parquet_pieces(path, report) for path in paths]
                one_after_another = (rows for table in tables for _, rows in table)
                for rows in one_after_another if args.unsorted else merge(tables, reorder):
                    writer.write_table(rows)
    except pa.ArrowException as e:
        raise InputError(f"a table is unusable: {e}") from e


def _parquet_pieces(path: Path, report: str) -> Iterator[Piece[Any]]:
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_PARQUET_ROWS):
            table = pa.Table.from_batches([batch], file.schema_arrow)
            yield _key(table, report), table
