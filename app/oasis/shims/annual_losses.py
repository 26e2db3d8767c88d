"""``aalpy``: average annual losses, and how they converge."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from app.oasis.outputs import MEANS_ONLY_REPORT
from core.arrays import Rows
from core.losses.reports.running import RunOptions

from .environment import read_environment
from .process_log import ProcessLog
from .run_inputs import RunInputs
from .tables import Tables
from .whole_runs import read_run, work_streams

_RELATIVE: Final = ("RelativeError", "RelativeErrorHaz", "RelativeErrorVuln")
_VARIANCES: Final = (
    *("VarElementHaz", "StandardErrorHaz"),
    *("VarElementVuln", "StandardErrorVuln", "StandardError"),
)
_ROWS_AT_ONCE: Final = 1 << 14


def aalpy(args: argparse.Namespace, _log: ProcessLog) -> None:
    """Write AAL and ALCT.

    A run in which no event occurs has no summary, and leaves no file, as at the peer.

    Raises:
        CoreError: a stream, an input or an output is unusable.
    """
    environment = read_environment()
    paths = {MEANS_ONLY_REPORT if args.meanonly else "aal": args.aal, "alct": args.alct}
    width = environment.float_width
    tables = Tables(paths, args.ext, width, header=not args.noheader)
    with tables.writing():
        streams = work_streams(args)
        options = RunOptions(confidence=args.confidence)
        inputs = RunInputs(args.run_dir, width).calendar()
        if tables.reports:
            sink = _EverySummary(tables.write, inputs["occurrence"].periods)
            memory = environment.memory
            read_run(streams, tables.reports, sink.take, inputs, options, environment, memory)


class _EverySummary:
    """Adds to ALCT the summaries without a loss, which the peer writes up to the last with one.

    Args:
        write: receives the rows.
        periods: of the run.
    """

    def __init__(self, write: Callable[[str, Rows], None], periods: int) -> None:
        self._write = write
        self._undefined = (*_RELATIVE, *(_VARIANCES if periods == 1 else ()))
        self._next = 1

    def take(self, report: str, rows: Rows) -> None:
        """Take rows of a report; those of ALCT have all rows of their summaries."""
        if report != "alct" or not len(rows):
            self._write(report, rows)
            return
        # Rows of a summary have the sizes of all subsets of its samples.
        ids, starts = np.unique(rows["SummaryId"], return_index=True)
        size = len(rows) // len(ids)
        gaps = np.diff(ids, prepend=self._next - 1) > 1
        written = 0
        for summary, start in zip(ids[gaps].tolist(), starts[gaps].tolist(), strict=True):
            self._write(report, rows[written:start])
            if start:
                self._next = int(rows["SummaryId"][start - 1]) + 1
            for empty in self._empty(summary, rows[start : start + size]):
                self._write(report, empty)
            written = start
        self._write(report, rows[written:])
        self._next = int(ids[-1]) + 1

    def _empty(self, end: int, like: Rows) -> Iterator[Rows]:
        """Rows of the summaries up to this one."""
        while self._next < end:
            count = min(end - self._next, max(1, _ROWS_AT_ONCE // len(like)))
            rows = np.zeros(count * len(like), like.dtype)
            rows["SummaryId"] = np.repeat(np.arange(self._next, self._next + count), len(like))
            rows["SampleSize"] = np.tile(like["SampleSize"], count)
            for name in self._undefined:
                rows[name] = np.nan
            yield rows
            self._next += count
