"""``eltpy``, ``pltpy``, ``aalpy`` and ``lecpy``: tables from streams of summaries.

``lecpy`` computes all exceedance curves in one pass over the streams. The rows of the engine are
ordered by summary, as the peer's where it finds an index beside every stream. Without indices the
peer computes one curve of all summaries after the other, and a reader of its files finds EPCalc and
EPType before SummaryId. In that case rows wait until the last summary is computed: a file for each
curve, in memory while it is small.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from app.losses.spilling import SpillFiles
from app.oasis.outputs import MEANS_ONLY_REPORT
from core.arrays import Rows
from core.errors import InputError
from core.losses.finishing import LedgerResources
from core.losses.ledger.ledger import MEMORY_BUDGET
from core.losses.merge import Partitions
from core.losses.outputs import Sink
from core.losses.reports import REPORTS
from core.losses.reports.report import RunOptions

from .environment import Environment, read_environment
from .options import CURVES, KAT_TABLES
from .reading import RunInputs, absent, read_streams
from .starting import ProcessLog
from .tables import Tables

_OF_PROCESS = re.compile(r"P([1-9][0-9]*)")


def work_streams(args: argparse.Namespace) -> list[Path]:
    """The streams in the work folder that the command line names, by name.

    Raises:
        InputError: there is no such folder, there are none, or one is missing: beside its index,
            or in the numbers of processes.
    """
    folder = Path(args.run_dir, "work", args.subfolder or "")
    if not folder.is_dir():
        raise absent(f"folder {folder}")
    streams = sorted(folder.glob("*.bin"))
    if not streams:
        raise InputError(f"there is no stream, no .bin file, in {folder}")
    names = {path.stem for path in streams}
    missing = {path.stem for path in folder.glob("*.idx")} - names
    processes = {int(match[1]) for match in map(_OF_PROCESS.fullmatch, names) if match}
    if len(processes) == len(names):
        missing |= {f"P{number}" for number in range(1, max(processes))} - names
    if missing:
        listed = ", ".join(f"{name}.bin" for name in sorted(missing))
        raise InputError(f"streams are missing in {folder}: {listed}")
    return streams


def read_run(  # noqa: PLR0913, PLR0917 - what a run is computed from
    streams: Sequence[Path],
    reports: Sequence[str],
    sink: Sink,
    inputs: dict[str, Any],
    options: RunOptions,
    environment: Environment,
    memory: int | None = None,
) -> Partitions:
    """Compute the reports; rows go to the sink after the last stream.

    Args:
        streams: of the partitions of the run.
        reports: names.
        sink: receives the rows.
        inputs: of the reports, by name.
        options: of the reports.
        environment: of the process.
        memory: bytes for the sums of all partitions; what is beyond goes to temporary files.

    Raises:
        CoreError: a stream is faulty, or streams do not belong together.
    """
    names = [str(path) for path in streams]
    budget = (memory or MEMORY_BUDGET) // len(streams)
    with closing(SpillFiles(environment.temporary or streams[0].parent)) as spill:
        resources = LedgerResources(budget, spill=spill)
        width = environment.float_width
        return read_streams(
            names, reports, sink, width, **inputs, options=options, resources=resources
        )


def loss_tables(args: argparse.Namespace, log: ProcessLog) -> None:
    """Write SELT, MELT and QELT, or SPLT, MPLT and QPLT.

    Raises:
        CoreError: a stream, an input or an output is unusable.
    """
    width = read_environment().float_width
    paths = {name: getattr(args, name, None) for name in KAT_TABLES}
    tables = Tables(paths, args.ext, width, header=not args.noheader)
    inputs = _inputs(tables.reports, RunInputs(args.run_dir, width))
    # Without a table the streams are read to their ends all the same, as by the peer: a writer
    # would fail otherwise.
    sink = tables.write if tables.reports else _drop
    if not tables.reports:
        log.note_warning(_NO_OUTPUT)
    with tables.writing():
        tables.begin()
        read_streams(args.files_in, tables.reports or ["events"], sink, width, **inputs)


def _inputs(reports: Sequence[str], files: RunInputs) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    if any(REPORTS[name].scope == "period" for name in reports):
        inputs = files.calendar()
    if "melt" in reports:
        inputs["event_rates"] = files.event_rates()
    if "qelt" in reports or "qplt" in reports:
        inputs["quantiles"] = files.quantiles()
    return inputs


def _drop(_report: str, _rows: object) -> None:
    pass


_NO_OUTPUT: Final = "No output files specified"
"""As the peer says, though it does so where any of its tables is not named."""
_RELATIVE: Final = ("RelativeError", "RelativeErrorHaz", "RelativeErrorVuln")
_VARIANCES: Final = (
    *("VarElementHaz", "StandardErrorHaz"),
    *("VarElementVuln", "StandardErrorVuln", "StandardError"),
)
_ROWS_AT_ONCE: Final = 1 << 14


def aalpy(args: argparse.Namespace, log: ProcessLog) -> None:
    """Write AAL and ALCT.

    A run in which no event occurs has no summary, and leaves no file, as at the peer.

    Raises:
        CoreError: a stream, an input or an output is unusable.
    """
    environment = read_environment()
    paths = {MEANS_ONLY_REPORT if args.meanonly else "aal": args.aal, "alct": args.alct}
    width = environment.float_width
    tables = Tables(paths, args.ext, width, header=not args.noheader)
    if not tables.reports:
        log.note_warning(_NO_OUTPUT)
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


_PER_SAMPLE: Final = "Ww"
_IN_MEMORY: Final = 4 << 20
"""Bytes of one curve's rows that wait in memory."""
_CURVE_ROWS: Final = 1 << 16


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
            while octets := self._files[key].read(_CURVE_ROWS * dtype.itemsize):
                self._write(report, np.frombuffer(octets, dtype))
