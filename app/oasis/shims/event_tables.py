"""``eltpy`` and ``pltpy``: tables by event and by period, from streams of summaries."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from core.losses.reports import REPORTS

from .environment import read_environment
from .options import KAT_TABLES
from .process_log import ProcessLog
from .reading import read_streams
from .run_inputs import RunInputs
from .tables import Tables


def loss_tables(args: argparse.Namespace, _log: ProcessLog) -> None:
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
