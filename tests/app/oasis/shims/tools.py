"""Runs the tools, in this process or as executables, and looks at what they left."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.oasis.outputs import FLOAT_VARIABLE, INT_VARIABLE, LOG_FINISHING, LOG_STARTING
from app.oasis.shims.starting import main
from core.arrays import Rows
from core.losses.reports import REPORTS

SHARED = Path(__file__).parents[4] / ".." / "shared" / "conformance"
FIXTURES = SHARED / "oasis"
RUN = SHARED / "oasis-run"

needs_conformance = pytest.mark.skipif(
    not RUN.is_dir(), reason="the peer's conformance data are not here"
)


def clean_environment(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Work in a directory, with no variable of a run set."""
    monkeypatch.chdir(directory)
    for name in (
        *(FLOAT_VARIABLE, INT_VARIABLE, "OASIS_AAL_MEMORY", "OASIS_TMPDIR"),
        *("OASIS_PYTOOLS_LOG_DIR", "OASIS_PYTOOLS_LOG_LEVEL"),
    ):
        monkeypatch.delenv(name, raising=False)


def run(tool: str, *words: str | Path) -> int:
    """Run a tool in this process; return its exit code."""
    return main(tool, [str(word) for word in words])


def logs(tool: str, folder: Path = Path("log")) -> list[str]:
    """The logs of all processes of a tool."""
    return [path.read_text() for path in sorted(folder.glob(f"{tool}_[0-9]*.log"))]


def is_lost(log: str) -> bool:
    """Whether the script of a run takes the process of a log for lost."""
    assert LOG_STARTING in log
    assert ("finish" in log) is (LOG_FINISHING in log)
    return "finish" not in log


def expected(name: str) -> bytes:
    """A file of the peer's run."""
    return gzip.decompress((RUN / "expected" / f"{name}.csv.gz").read_bytes())


def summary_streams(name: str) -> list[Path]:
    """The streams of a set of the run, such as ``gul_S1``."""
    return [RUN / "streams" / "work" / f"{name}_summary" / f"P{p}.bin" for p in (1, 2)]


def names_of_sets() -> Iterator[str]:
    """All sets of the run."""
    for perspective in ("gul", "il", "ri_IP1", "ri"):
        for number in (1, 2):
            yield f"{perspective}_S{number}"


def rows_of(octets: bytes, report: str) -> Rows:
    """The rows of a csv with the header of a report."""
    header, *lines = csv.reader(octets.decode().splitlines())
    assert ",".join(header) == REPORTS[report].header
    columns = REPORTS[report].columns
    dtype = np.dtype([(c.name, "i8" if c.decimals is None else "f8") for c in columns])
    return np.array([tuple(line) for line in lines], dtype)


def assert_close(actual: Rows, wanted: Rows) -> None:
    """Check that tables have the same rows, undefined values included."""
    assert len(actual) == len(wanted)
    for name in wanted.dtype.names or ():
        np.testing.assert_allclose(
            actual[name], wanted[name], 1e-5, 1e-5, equal_nan=True, err_msg=name
        )
