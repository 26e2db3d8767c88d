"""The script that Oasis generated for a run, unchanged, with our executables first on PATH.

What computes losses cannot run here: its streams are saved, and programs of the same names replay
them. ``fmpy`` finds out which stream it is given by comparing, so that every byte has to come
through the pipes, fifos and tees of the script.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from app.oasis.outputs import OUTPUTS
from app.oasis.shims.installing import write_shims
from core.arrays import Rows
from tests.app.oasis.shims.tools import (
    RUN,
    clean_environment,
    expected,
    is_lost,
    names_of_sets,
    needs_conformance,
    rows_of,
)
from tests.oasis_curves import assert_curves

PROGRAMS = {
    "evepy": 'echo "$1"',
    "gulmc": "read -r process; cat $STREAMS/gul_P$process.bin",
    "fmpy": """case "$*" in
  -a2*) from=gul to=il;;
  *RI_1*) from=il to=ri_IP1;;
  *RI_2*) from=ri_IP1 to=ri;;
esac
given=$(mktemp); cat > $given
for process in 1 2; do
  if cmp -s $given $STREAMS/${from}_P$process.bin; then
    cat $STREAMS/${to}_P$process.bin
    found=1
  fi
done
rm $given; test -n "$found" """,
    "socket-server": "exec sleep 3000",
    "oasis_exec_monitor.sh": "exec sleep 3000",
}
"""What the script calls besides; it kills the last two itself."""


def write_programs(folder: Path) -> Path:
    folder.mkdir()
    for name, text in PROGRAMS.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def assert_same(actual: Rows, wanted: Rows) -> None:
    """Equal row by row, to print precision."""
    assert len(actual) == len(wanted)
    for name in wanted.dtype.names or ():
        np.testing.assert_allclose(
            actual[name], wanted[name], 1e-5, 0.0051, err_msg=name, equal_nan=True
        )


def assert_outputs(folder: Path) -> None:
    """Every file is there, with the peer's columns and rows.

    Curves under period weights are those of the reference, which orders ties by period.
    """
    for name in names_of_sets():
        for output in OUTPUTS.values():
            ours = rows_of((folder / f"{name}_{output.name}.csv").read_bytes(), output.report)
            if output.report in {"ept", "psept"}:
                rows = np.array(ours.tolist(), np.float64)
                assert_curves(rows, name, output.report, "items")
            else:
                assert_same(ours, rows_of(expected(f"{name}_{output.name}"), output.report))


@needs_conformance
@pytest.mark.slow
def test_the_script_of_a_run_leaves_the_peers_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean_environment(monkeypatch, tmp_path)
    shutil.copytree(RUN / "run", "run")
    shutil.copy(RUN / "run_kernel.sh", "run")
    shutil.rmtree("run/work", ignore_errors=True)
    for name in ("fifo", "work"):
        Path("run", name).mkdir(exist_ok=True)
    write_shims(tmp_path / "shims")
    programs = write_programs(tmp_path / "programs")
    environment = {
        "PATH": f"{tmp_path}/shims:{programs}:/usr/bin:/bin",
        "HOME": os.environ["HOME"],
        "STREAMS": str(RUN / "streams"),
    }
    script = ["bash", "run/run_kernel.sh"]
    with Path("said").open("w") as said:
        done = subprocess.run(
            script, env=environment, stdout=said, stderr=said, start_new_session=True, check=False
        )
    assert done.returncode == 0, Path("said").read_text()
    assert "Run Completed" in Path("said").read_text()
    assert Path("run/log/stderror.err").read_text() == ""
    processes = list(Path("run/log").glob("*_[0-9]*.log"))
    assert len(processes) == 128
    assert not any(is_lost(path.read_text()) for path in processes)
    assert_outputs(Path("run/output"))
