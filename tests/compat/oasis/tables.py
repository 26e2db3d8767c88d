"""Tables of both programs, paired row by row by their keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.arrays import Rows
from core.losses.reports import REPORTS

Mask = npt.NDArray[np.bool_]

RTOL = 1e-5
_VALUES_OF_KEY = {"Quantile", "ReturnPeriod"}


def read_table(path: Path, report: str) -> Rows:
    """Packed records; none if the program did not write the file."""
    dtype = REPORTS[report].dtype(4)
    return np.fromfile(path, dtype) if path.exists() else np.zeros(0, dtype)


@dataclass(frozen=True)
class Difference:
    """Rows that differ, in the order of their keys.

    Where the tables have different keys, ``ours`` and ``peers`` are the rows that one of them
    lacks, and have different lengths.
    """

    report: str
    column: str
    ours: Rows
    peers: Rows

    def __str__(self) -> str:
        mine = self.ours[:1].tolist()
        theirs = self.peers[:1].tolist()
        return (
            f"{self.report}.{self.column}: {len(self.ours)} rows for {len(self.peers)},"
            f" first {mine} for {theirs}"
        )


def keys_of(rows: Rows) -> list[str]:
    """Columns that tell rows apart: ids, dates, quantiles and return periods."""
    names = rows.dtype.names or ()
    return [n for n in names if rows.dtype[n].kind == "i" or n in _VALUES_OF_KEY]


def in_order(rows: Rows) -> Rows:
    """Rows by key; curves, whose return periods may differ in the last digit, as they fall."""
    keys = keys_of(rows)
    columns = [rows[n] for n in keys]
    if "ReturnPeriod" in keys:
        columns[-1] = -columns[-1]
        # Points of one return period are zeros of an ever flatter curve.
        columns.append(-rows["Loss"])
    return rows[np.lexsort(columns[::-1])]


def compare(report: str, ours: Rows, peers: Rows) -> list[Difference]:
    """Differences between two tables; none if they are equal within ``RTOL``."""
    ours, peers = in_order(ours), in_order(peers)
    names = ours.dtype.names or ()
    fixed = keys_of(ours)
    if not _at_return_periods(ours, peers):
        fixed = [n for n in fixed if n != "ReturnPeriod"]
    if len(ours) != len(peers) or any((ours[n] != peers[n]).any() for n in fixed):
        return _missing(report, ours, peers, fixed)
    found = []
    for name in names:
        if name in fixed:
            continue
        close = np.isclose(ours[name], peers[name], rtol=RTOL, atol=0, equal_nan=True)
        if not close.all():
            found.append(Difference(report, name, ours[~close], peers[~close]))
    return found


def _at_return_periods(*tables: Rows) -> bool:
    """Whether curves are read at requested return periods, which are whole years."""
    columns = [t["ReturnPeriod"] for t in tables if "ReturnPeriod" in (t.dtype.names or ())]
    return all((column == np.round(column)).all() for column in columns)


def _missing(report: str, ours: Rows, peers: Rows, fixed: list[str]) -> list[Difference]:
    """Rows of keys of which the tables have different numbers, then the rest compared."""
    mine, theirs = _counts(ours, fixed), _counts(peers, fixed)
    odd = {key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)}
    sides = []
    for rows in (ours, peers):
        flags = np.array([key in odd for key in rows[fixed].tolist()], np.bool_)
        sides.append((rows[flags], rows[~flags]))
    (mine_odd, mine_rest), (theirs_odd, theirs_rest) = sides
    rest = compare(report, mine_rest, theirs_rest)
    return [Difference(report, "rows", mine_odd, theirs_odd), *rest]


def _counts(rows: Rows, fixed: list[str]) -> dict[tuple[float, ...], int]:
    counts: dict[tuple[float, ...], int] = {}
    for key in rows[fixed].tolist():
        counts[key] = counts.get(key, 0) + 1
    return counts
