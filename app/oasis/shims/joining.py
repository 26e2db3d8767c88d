"""``join-summary-info``: the columns that describe summaries, appended to a table.

Texts are copied as they are, so that numbers keep their digits; only cells that need quotes get
them. In parquet the columns keep their types.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.losses.outputs import Output, OutputFile
from core.errors import InputError, OptionError
from core.losses.inputs import csv_line

from .environment import tool_outputs
from .starting import ProcessLog

_ID: Final = "summary_id"
_TABLE_ID: Final = "SummaryId"
_PIECE: Final = 4 << 20
"""Bytes of a table in memory, about."""


def join_summary_info(args: argparse.Namespace, _log: ProcessLog) -> None:
    """Write the joined table, which may replace the table itself.

    Raises:
        CoreError: the files are of several formats, or one is unusable.
    """
    paths = [Path(name) for name in (args.summaryinfo, args.data, args.output)]
    suffixes = {path.suffix for path in paths}
    if len(suffixes) > 1 or not suffixes <= {".csv", ".parquet"}:
        raise OptionError("the three files must be all .csv, or all .parquet")
    for path in paths[:2]:
        if not path.is_file():
            raise InputError(f"there is no file {path}")
    if suffixes == {".parquet"}:
        _join_parquet(*paths)
        return
    with tool_outputs() as outputs:
        _join_csv(paths[0], paths[1], outputs.open(args.output))


def _require(column: str, names: Sequence[str], path: Path) -> None:
    if column not in names:
        raise InputError(f"it has no column {column}", source=str(path))


def _quoted(cell: str) -> bytes:
    """A cell as csv, in quotes if it needs them."""
    return csv_line([cell]).encode()


def _read_infos(path: Path) -> tuple[bytes, Mapping[int, bytes], bytes]:
    """End of the header line, ends of lines by summary, and that of summaries not described."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, strict=True)
        names = [name.strip() for name in next(rows, [])]
        _require(_ID, names, path)
        at = names.index(_ID)
        ends: dict[int, bytes] = {}
        for number, row in enumerate(rows, 2):
            if not row:
                continue
            if len(row) != len(names) or not row[at].strip().isdecimal():
                raise InputError(f"line {number} is not one of its columns", source=str(path))
            ends[int(row[at])] = _end(row[:at] + row[at + 1 :])
    others = names[:at] + names[at + 1 :]
    return _end(others), ends, _end([""] * len(others))


def _end(cells: list[str]) -> bytes:
    """What is appended to a line; an empty cell has no quotes."""
    return b"".join(b"," + (_quoted(cell) if cell else b"") for cell in cells)


def _join_csv(infos: Path, table: Path, out: Output) -> None:
    title, ends, without = _read_infos(infos)
    with table.open("rb") as file:
        header = file.readline().rstrip(b"\r\n")
        names = header.decode("utf-8", "replace").split(",")
        _require(_TABLE_ID, names, table)
        at = names.index(_TABLE_ID)
        out.write(header + title + b"\n")
        by_text = {str(summary).encode(): end + b"\n" for summary, end in ends.items()}
        without += b"\n"
        while lines := file.readlines(_PIECE):
            cells = (line.split(b",", at + 1)[at].strip() for line in lines)
            joined = [
                line.rstrip(b"\r\n") + by_text.get(cell, without)
                for line, cell in zip(lines, cells, strict=True)
            ]
            out.write(b"".join(joined))


def _join_parquet(infos: Path, table: Path, output: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and most tables are csv
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    try:
        described = pq.read_table(infos)
        _require(_ID, described.column_names, infos)
        ids = described.column(_ID).to_numpy()
        described = described.drop_columns([_ID]).replace_schema_metadata(None)
        with pq.ParquetFile(table) as file:
            _require(_TABLE_ID, file.schema_arrow.names, table)
            fields = [*file.schema_arrow.remove_metadata(), *described.schema]
            schema = pa.schema([field.with_nullable(True) for field in fields])
            with tool_outputs() as outputs:
                out = pa.PythonFile(OutputFile(outputs.open(output)), "w")
                with pq.ParquetWriter(out, schema) as writer:
                    for batch in file.iter_batches(1 << 16):
                        rows, missing = _places(ids, batch.column(_TABLE_ID).to_numpy())
                        places: Any = pa.array(rows, mask=missing)
                        columns = [c.combine_chunks().take(places) for c in described.columns]
                        arrays = [*batch.columns, *columns]
                        writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    except pa.ArrowException as e:
        raise InputError(f"a table is unusable: {e}") from e


def _places(
    ids: npt.NDArray[np.integer], summaries: npt.NDArray[np.integer]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Row of each summary among those described, and whether it is not among them."""
    order = np.argsort(ids, kind="stable")
    found = np.searchsorted(ids[order], summaries, side="right") - 1
    missing = (found < 0) | (ids[order][np.maximum(found, 0)] != summaries) if len(ids) else None
    if missing is None:
        return np.zeros(len(summaries), np.int64), np.ones(len(summaries), bool)
    return order[np.maximum(found, 0)], missing
