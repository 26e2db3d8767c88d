"""``eltpy`` and ``pltpy``: tables by event and by period, from streams of summaries."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.losses.analysis import Analysis
from core.losses.outputs import Sink
from core.losses.seen import SeenEvents

from .environment import read_environment
from .process_log import ProcessLog
from .reading import policy, read_streams
from .run_inputs import RunInputs
from .tables import Tables


def eltpy(args: argparse.Namespace, _log: ProcessLog) -> None:
    """Write SELT, MELT and QELT.

    Raises:
        CoreError: a stream, an input or an output is unusable.
    """
    width = read_environment().float_width
    tables = _tables(args, ("selt", "melt", "qelt"), width)
    files = RunInputs(Path(args.run_dir, "input"), width)
    inputs: dict[str, Any] = {}
    if args.melt is not None:
        inputs["event_rates"] = files.event_rates()
    if args.qelt is not None:
        inputs["quantiles"] = files.quantiles()
    _write(args.files_in, tables, inputs, width)


def pltpy(args: argparse.Namespace, _log: ProcessLog) -> None:
    """Write SPLT, MPLT and QPLT.

    Raises:
        CoreError: a stream, an input or an output is unusable.
    """
    width = read_environment().float_width
    tables = _tables(args, ("splt", "mplt", "qplt"), width)
    files = RunInputs(Path(args.run_dir, "input"), width)
    inputs: dict[str, Any] = {}
    if tables.reports:
        occurrence = files.occurrence()
        inputs = {"occurrence": occurrence, "periods": files.periods(occurrence.periods)}
    if args.qplt is not None:
        inputs["quantiles"] = files.quantiles()
    _write(args.files_in, tables, inputs, width)


def _tables(args: argparse.Namespace, reports: Sequence[str], width: int) -> Tables:
    paths = {name: getattr(args, name) for name in reports if getattr(args, name) is not None}
    return Tables(paths, args.ext, width, header=not args.noheader)


def _write(streams: Sequence[str], tables: Tables, inputs: dict[str, Any], width: int) -> None:
    reports = tables.reports
    # Without a table the streams are read to their ends all the same, as by the peer: a writer
    # would fail otherwise.
    sink = tables.write if reports else _drop

    def make(name: str, sink: Sink, seen: SeenEvents) -> Analysis:
        return Analysis(
            reports or ["events"], sink, policy=policy(width), **inputs, name=name, seen=seen
        )

    with tables.writing():
        tables.begin()
        read_streams(streams, make, sink)


def _drop(_report: str, _rows: object) -> None:
    pass
