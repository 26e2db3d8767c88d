"""Reports of whole runs from the streams in a work folder, for ``aalpy`` and ``lecpy``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from app.losses.spilling import SpillFiles
from core.errors import InputError
from core.losses.finishing import LedgerResources
from core.losses.ledger.ledger import MEMORY_BUDGET
from core.losses.merge import Partitions
from core.losses.outputs import Sink
from core.losses.reports.running import RunOptions

from .environment import Environment
from .reading import read_streams

_OF_PROCESS = re.compile(r"P([1-9][0-9]*)")


def work_streams(args: argparse.Namespace) -> list[Path]:
    """The streams in the work folder that the command line names, by name.

    Raises:
        InputError: there is no such folder, there are none, or one is missing: beside its index,
            or in the numbers of processes.
    """
    folder = Path(args.run_dir, "work", args.subfolder or "")
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
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
