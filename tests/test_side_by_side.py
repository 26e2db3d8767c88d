"""Tests that run side by side end as they would one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.app.harness import wait_until
from tests.server_process import ROOT

HOOKS = "from tests.side_by_side import pytest_addoption, pytest_runtestloop"
TESTS = """
import os
import pytest

@pytest.fixture(scope="session")
def lasting():
    yield
    raise ValueError("at the end")

def test_fails():
    print("said before")
    assert 1 == 2

@pytest.mark.skip(reason="as it is")
def test_is_skipped(): pass

@pytest.mark.xfail(strict=True)
def test_is_known_to_fail(): assert 0

def test_passes(lasting, tmp_path, capfd):
    os.system("echo heard")
    assert capfd.readouterr().out == "heard\\n"
"""
DIES = """
import os

def test_comes_before(): pass
def test_dies(): os._exit(0)
def test_comes_after(): pass
"""


LASTS = """
import time
import pytest
from pathlib import Path

@pytest.fixture
def lasting():
    Path("begun").touch()
    yield
    Path("ended").touch()

def test_lasts(lasting): time.sleep(600)
"""


def begin(folder: Path, *options: str, **files: str) -> subprocess.Popen[str]:
    """Start pytest on files."""
    for name, text in {"conftest": HOOKS, **files}.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-ra", "-pno:cacheprovider", "-c", os.devnull]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1"}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.Popen(
        [*command, f"--rootdir={folder}", "--processes=2", *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(folder: Path, *options: str, **files: str) -> str:
    """What pytest prints of files of which one has tests that fail."""
    with begin(folder, *options, **files) as process:
        printed = process.communicate(timeout=120)[0]
    assert process.returncode == 1, printed
    return printed


def test_all_that_came_of_tests_is_told_once(tmp_path: Path) -> None:
    printed = run(tmp_path, test_one=TESTS, test_two=DIES, test_three="def test_alone(): pass")
    assert "=== 2 failed, 4 passed, 1 skipped, 1 xfailed, 1 error in" in printed, printed
    for told in (
        "test_one.py Fsx.E",
        "ValueError: at the end",
        "said before",
        "as it is",
        "the process of the tests ended with 0",
    ):
        assert told in printed, printed
    # What is left of a file when its process dies may come after another file.
    assert "".join(re.findall(r"test_two\.py ([.F]+)", printed)) == ".F.", printed


def test_the_first_failure_ends_all_if_that_is_wanted(tmp_path: Path) -> None:
    fails = "def test_fails(): assert 0\ndef test_comes_after(): assert 0"
    printed = run(tmp_path, "-x", **{f"test_{n}": fails for n in range(9)})
    assert re.search(r"stopping after [12] failures", printed), printed
    assert "the process of the tests" not in printed
    assert "test_comes_after" not in printed


def test_what_tests_began_is_ended_though_the_one_that_collected_them_is_killed(
    tmp_path: Path,
) -> None:
    with begin(tmp_path, test_one=LASTS, test_two=LASTS) as process:
        wait_until((tmp_path / "begun").exists)
        process.kill()
        wait_until((tmp_path / "ended").exists)
