"""``aalpy``: average annual losses, and how they converge."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.oasis.outputs import MEANS_ONLY_REPORT
from core.losses.reports.running import RunOptions

from .environment import read_environment
from .process_log import ProcessLog
from .run_inputs import RunInputs
from .tables import Tables
from .whole_runs import read_run, work_streams


def aalpy(args: argparse.Namespace, _log: ProcessLog) -> None:
    """Write AAL and ALCT.

    A run in which no event occurs has no summary, and leaves no file, as at the peer.

    Raises:
        CoreError: a stream, an input or an output is unusable.
    """
    environment = read_environment()
    paths = {MEANS_ONLY_REPORT if args.meanonly else "aal": args.aal, "alct": args.alct}
    requested = {report: path for report, path in paths.items() if path is not None}
    width = environment.float_width
    with Tables(requested, args.ext, width, header=not args.noheader) as tables:
        streams = work_streams(args)
        options = RunOptions(confidence=args.confidence)
        files = RunInputs(Path(args.run_dir, "input"), width)
        occurrence = files.occurrence()
        inputs = {"occurrence": occurrence, "periods": files.periods(occurrence.periods)}
        if requested:
            read_run(
                streams,
                list(requested),
                tables.write,
                inputs,
                options,
                environment,
                environment.memory,
            )
