"""Runs tests against a changed module, in a copy of the tree."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.modules import ROOT

_COPIED = ("app", "core", "deploy", "tests", "pyproject.toml", "README.md", "Makefile")
_LIMITS = "ulimit -v 8000000; ulimit -t 600"
"""KiB of address space, for a change may make a buffer that never stops growing; seconds of
CPU, for the tests may outlive whoever started them."""


class Tree:
    """A copy of the tree in which one module at a time is changed.

    Args:
        directory: where to make it; it must not be there yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache")
        for name in _COPIED:
            source, target = ROOT / name, directory / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=leave_out)
            else:
                shutil.copy(source, target)
        self._environment = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(directory),
            "THALWEG_CHANGED": "1",
            # Loading them takes three times as long as the tests of most modules.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        self._process: subprocess.Popen[str] | None = None

    def source(self, module: str) -> bytes:
        """A module as it is written."""
        return (ROOT / module).read_bytes()

    def run(self, tests: Sequence[str], seconds: float | None = None) -> tuple[int | None, str]:
        """What pytest returns and prints; None if it took too long."""
        shutil.rmtree(self._directory / ".hypothesis", ignore_errors=True)
        options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider"]
        options += ["-p", "_hypothesis_pytestplugin", "--hypothesis-seed=0"]
        options += [f"--basetemp={self._directory / 'tmp'}"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        limited = ["sh", "-c", f'{_LIMITS}; exec "$@"', "sh", *command]
        # The engine is changed too often to compile it; around it, servers of their own run.
        plain = any(test.startswith("tests/core/") for test in tests)
        with subprocess.Popen(
            limited,
            cwd=self._directory,
            env={**self._environment, "NUMBA_DISABLE_JIT": str(int(plain))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            self._process = process
            try:
                printed, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                self.stop()
                self._process = None
        return process.returncode, printed

    def stop(self) -> None:
        """End the tests that run, and what they started: it holds the pipe, and the copy."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def time(self, test: str) -> float:
        """Seconds that a file of tests takes.

        Raises:
            RuntimeError: it fails without any change.
        """
        begun = time.monotonic()
        status, printed = self.run([test])
        if status != 0:
            raise RuntimeError(f"{test} fails without any change:\n{printed[-3000:]}")
        return time.monotonic() - begun

    def survives(self, module: str, changed: bytes, tests: Sequence[str], seconds: float) -> bool:
        """Whether no test notices that a module is changed. One that hangs has noticed it."""
        path = self._directory / module
        whole = path.read_bytes()
        path.write_bytes(changed)
        try:
            return self.run(tests, seconds)[0] == 0
        finally:
            path.write_bytes(whole)
