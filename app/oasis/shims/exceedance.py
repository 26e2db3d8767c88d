"""``lecpy``: exceedance curves, all from one pass over the streams.

The rows of the engine are ordered by summary, as the peer's where it finds an index beside every
stream. Without indices the peer computes one curve of all summaries after the other, and a reader
of its files finds EPCalc and EPType before SummaryId. In that case rows wait until the last summary
is computed: a file for each curve, in memory while it is small.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO, Final

import numpy as np

from core.arrays import Rows
from core.losses.reports.running import RunOptions

from .environment import read_environment
from .options import CURVES
from .process_log import ProcessLog
from .run_inputs import RunInputs
from .tables import Tables
from .whole_runs import read_run, work_streams

_PER_SAMPLE: Final = "Ww"
_IN_MEMORY: Final = 4 << 20
"""Bytes of one curve's rows that wait in memory."""
_ROWS_AT_ONCE: Final = 1 << 16


def lecpy(args: argparse.Namespace, log: ProcessLog) -> None:
    """Write EPT and PSEPT.

    Streams without a block, and a command line that asks for no curve of a table it names, leave
    no file, as at the peer.

    Raises:
        CoreError: a stream, an input or an output is unusable.
    """
    environment = read_environment()
    letters = [letter for letter, (name, _) in CURVES.items() if getattr(args, name)]
    psept = "".join(letter for letter in letters if letter in _PER_SAMPLE)
    ept = "".join(letter for letter in letters if letter not in _PER_SAMPLE)
    paths = {"ept": args.ept if ept else None, "psept": args.psept if psept else None}
    width = environment.float_width
    tables = Tables(paths, args.ext, width, header=not args.noheader)
    requested = tables.reports
    with tables.writing():
        streams = work_streams(args)
        files = RunInputs(args.run_dir, width)
        inputs = files.calendar()
        inputs["return_periods"] = files.return_periods() if args.use_return_period else None
        if not requested:
            log.note_warning("no curve is asked for of a table that is named")
            return
        options = RunOptions(curves=ept * ("ept" in requested) + psept * ("psept" in requested))
        indexed = all(path.with_suffix(".idx").exists() for path in streams)
        temporary = environment.temporary or streams[0].parent
        with closing(_ByCurve(tables.write, temporary)) as by_curve:
            sink = tables.write if indexed else by_curve.take
            partitions = read_run(streams, requested, sink, inputs, options, environment)
            if any(analysis.blocks for analysis in partitions.analyses):
                tables.begin()
            by_curve.hand_on()


class _ByCurve:
    """Rows of reports by EPCalc and EPType, then as they came.

    Args:
        write: receives the rows, ordered.
        directory: of temporary files, made if it does not exist.
    """

    def __init__(self, write: Callable[[str, Rows], None], directory: Path) -> None:
        self._write = write
        self._directory = directory
        self._files: dict[tuple[str, int, int], IO[bytes]] = {}
        self._dtypes: dict[str, np.dtype[np.void]] = {}

    def close(self) -> None:
        """Give up the temporary files."""
        for file in self._files.values():
            file.close()

    def take(self, report: str, rows: Rows) -> None:
        """Take the next rows of a report; they are copied."""
        self._dtypes[report] = rows.dtype
        types = rows["EPType"].astype(np.int64)
        calculations = rows["EPCalc"] if report == "ept" else np.zeros(len(rows), np.int64)
        keys = calculations.astype(np.int64) << 32 | types
        for key in np.unique(keys).tolist():
            self._file(report, key >> 32, key & 0xFFFFFFFF).write(rows[keys == key].tobytes())

    def _file(self, report: str, calculation: int, kind: int) -> IO[bytes]:
        key = (report, calculation, kind)
        if key not in self._files:
            self._directory.mkdir(parents=True, exist_ok=True)
            file = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(self._directory))  # noqa: SIM115 - closed at exit
            self._files[key] = file
        return self._files[key]

    def hand_on(self) -> None:
        """Hand on all rows."""
        for key in sorted(self._files):
            report = key[0]
            dtype = self._dtypes[report]
            self._files[key].seek(0)
            while octets := self._files[key].read(_ROWS_AT_ONCE * dtype.itemsize):
                self._write(report, np.frombuffer(octets, dtype))
