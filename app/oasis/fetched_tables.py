"""Outputs from the tables that a service has computed, which :mod:`.service_plan` describes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.losses.outputs import Outputs
from core.arrays import Rows
from core.errors import InputError
from core.losses.reports import REPORTS

from .directory import RunDirectory, check_writable
from .locking import locked
from .outputs import output_file, stem
from .tables import OutputTables

_PIECE_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedTablesJob:
    """The outputs of a run whose tables are here."""

    directory: Path
    tables: Path
    """Folder with a folder for each of the losses, and in it ``S1_melt.bin``, packed rows."""
    form: str | None = None
    join: bool = False
    out: Path | None = None


def write_fetched(job: FetchedTablesJob) -> list[Path]:
    """Write the outputs of a run, all or none; return their paths.

    Raises:
        CoreError: a table is missing or cut, or an output cannot be written.
    """
    directory = RunDirectory(job.directory, job.form, join=job.join)
    out = job.out or job.directory / "output"
    check_writable(out)
    with locked(out, "outputs"), Outputs() as outputs:
        files = OutputTables(outputs, directory.float_width)
        for losses in directory.losses():
            for request in directory.requests(losses):
                name = stem(losses.perspective, losses.priority, request.set_id)
                paths = {o: out / output_file(name, o, request.form) for o in request.outputs}
                files.add(losses.name, request, paths, directory.info(request, losses))
                for report in request.reports:
                    path = job.tables / losses.name / f"S{request.set_id}_{report}.bin"
                    for rows in _rows(path, REPORTS[report].dtype(directory.float_width)):
                        files.write(losses.name, request.set_id, report, rows)
        files.end()
    return files.paths


def _rows(path: Path, dtype: np.dtype[np.void]) -> Iterator[Rows]:
    try:
        with path.open("rb") as file:
            while data := file.read(_PIECE_ROWS * dtype.itemsize):
                if len(data) % dtype.itemsize:
                    raise InputError(
                        f"is not whole rows of {dtype.itemsize} bytes", source=str(path)
                    )
                yield np.frombuffer(data, dtype)
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", source=str(path)) from e
