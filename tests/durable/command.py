"""A client in a process of its own, which is killed and goes on from its state files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from app.client import Client
from app.client.command.console import EXIT_CONNECTION
from tests.durable.faults import Faults


class UploadCommand:
    """Uploads partitions by ``thalweg run upload`` until all are stored.

    Args:
        url: of the service.
        files: to upload, by partition.
        states: directory for state files, which outlive a process.
    """

    def __init__(self, url: str, files: Mapping[int, Path], states: Path) -> None:
        self._url = url
        self._files = dict(files)
        self._states = states
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, run: str, faults: Faults) -> None:
        """Upload all to a run.

        Raises:
            RuntimeError: the command says that a stream cannot be uploaded.
        """
        while left := self._left(run):
            partitions = ",".join(map(str, left))
            command = [sys.executable, "-m", "app.client", "run", "upload", run]
            command += [*(str(self._files[p]) for p in left), "--partition", partitions]
            command += ["--parallel", "1", "--state", str(self._states), "--url", self._url]
            self.process = subprocess.Popen([*command, "--quiet", "--retries", "1000"])
            code = self._wait(self.process, faults)
            if code not in {0, None, EXIT_CONNECTION}:
                raise RuntimeError(f"the command ended with {code}")

    def _left(self, run: str) -> list[int]:
        """Partitions that are not complete: a state file goes with the upload that is."""
        with Client(self._url, retries=1000) as client:
            stored = {s.partition for s in client.runs.streams(run) if s.complete}
        return [partition for partition in self._files if partition not in stored]

    @staticmethod
    def _wait(process: subprocess.Popen[bytes], faults: Faults) -> int | None:
        """The exit code of a process; None if it was killed first."""
        try:
            return process.wait(faults.client_seconds())
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            faults.client_kills += 1
            return None

    def end(self) -> None:
        """Kill the process, if it runs."""
        if self.process is not None:
            self.process.kill()
