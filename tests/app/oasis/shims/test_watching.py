"""A script that was killed, and a writer whose reader died before it came."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from app.oasis.shims.watching import _state, _waiting, end_monitor, tell_of_lost_readers
from tests.app.oasis.shims.tools import clean_environment, run
from tests.server_process import ROOT

MONITOR = "#!/bin/bash\nwhile :; do sleep 0.1; done\n"
RUN = """\
PATH=.:$PATH
exec_wait() { wait "$@"; }
oasis_exec_monitor.sh $$ log &
( lecpy -O x ) 2>> log/stderror.err & lpid1=$!
( aalpy -a x ) 2>> log/stderror.err & lpid2=$!
exec_wait $lpid1 $lpid2
"""
AALPY = f"""#!{sys.executable}
import os, pathlib, sys
sys.path.insert(0, {str(ROOT)!r})
from app.oasis.shims.watching import check_begun
pathlib.Path(f"log/aalpy_{{os.getpid()}}_x.log").touch()
check_begun("aalpy")
"""
LOG = "touch log/lecpy_$$_x.log"
SCRIPT = "./oasis_exec_monitor.sh $$ log & echo begun; sleep 0.1; while :; do sleep 0.1; done"


@pytest.fixture(autouse=True)
def _run_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    monkeypatch.setenv("OASIS_PYTOOLS_LOG_DIR", "log")
    os.mkfifo("gul_P1")


@contextmanager
def bash(script: str) -> Iterator[subprocess.Popen[str]]:
    """A script that runs in this directory, in a group of its own, until the end of the test."""
    with subprocess.Popen(
        ["bash", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)


def await_(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def write_program(name: str, text: str) -> None:
    """Write one that a script can start."""
    Path(name).write_text(text)
    Path(name).chmod(0o755)


def test_the_last_tool_of_a_script_that_was_killed_ends_its_monitor(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_program("oasis_exec_monitor.sh", MONITOR)
    with bash(SCRIPT) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "begun\n"
        await_(lambda: Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text())
        assert end_monitor() is None
        # As oasislmf does, which reads the output to its end before it looks at the script.
        os.kill(script.pid, 9)
        await_(lambda: _state(str(script.pid)) == "Z")
        assert run("katpy", "-s", "-i", "absent.bin", "-o", "s.bin") == 1
        assert script.stdout.read() == ""
        assert f"the script of the run, process {script.pid}, was killed" in capfd.readouterr().err
        assert script.wait() == -9


@pytest.mark.parametrize("writer", ["tee gul_P1", "cat > gul_P1"])
def test_a_writer_whose_reader_does_not_come_is_told(
    writer: str, capfd: pytest.CaptureFixture[str]
) -> None:
    # A reader that waits for its writer, as most do for most of a run, is none of them.
    os.mkfifo("gul_P2")
    with bash(f"(cat < gul_P2) & sleep 60 | {writer}"):
        await_(_waiting)
        tell_of_lost_readers(0.05, 0.01)
        error = capfd.readouterr().err
        assert error.startswith("summarypy: nobody reads what a process has to write: ")
        assert error.count("\n") == 1
        assert writer in error
        reader = os.open("gul_P1", os.O_RDONLY)
        await_(lambda: not _waiting())
        os.close(reader)


@pytest.mark.parametrize(
    ("lecpy", "error"),
    [
        ("kill -9 $$", "1 of 1 processes of lecpy have died"),
        (f"{LOG}; kill -9 $$", "1 of 1 processes of lecpy have died"),
        (f"sleep 0.5; {LOG}; echo finishing process >> log/lecpy_$$_x.log", ""),
        (f"sleep 0.5; {LOG}; sleep 30", ""),
    ],
)
def test_a_process_that_dies_before_its_log_begins_is_missed_by_the_others(
    lecpy: str, error: str
) -> None:
    Path("log").mkdir()
    write_program("oasis_exec_monitor.sh", MONITOR)
    write_program("aalpy", AALPY)
    write_program("lecpy", f"#!/bin/bash\n{lecpy}\n")
    Path("run_kernel.sh").write_text(RUN)
    with bash("exec bash run_kernel.sh"):
        await_(lambda: list(Path("log").glob("aalpy_*")))
        (log,) = Path("log").glob("aalpy_*")
        await_(lambda: not Path(f"/proc/{log.name.split('_')[1]}/cwd").exists())
    text = Path("log/stderror.err").read_text()
    assert error in text
    assert bool(text) is bool(error)
