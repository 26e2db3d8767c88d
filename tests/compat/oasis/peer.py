"""The peer as a process per family of tools, started when first needed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Call = tuple[str, dict[str, Any]]

_DRIVER = Path(__file__).with_name("peer_tools.py")


class Peer:
    """Calls the peer's tools.

    Args:
        python: an interpreter with ``oasislmf``.
        folder: where the tools leave their logs.
    """

    def __init__(self, python: str, folder: Path) -> None:
        self._python = python
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            assert process.stdin
            process.stdin.close()
            process.wait()

    def __call__(self, tool: str, **options: Any) -> str | None:  # noqa: ANN401
        """Call ``run`` of a tool; return what it raised, or how its process died."""
        process = self._processes.get(tool)
        if process is None or process.poll() is not None:
            process = self._start(tool)
        assert process.stdin
        assert process.stdout
        job = {"calls": [[tool, {"cwd": str(self._folder), **options}]]}
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            return f"the process died with code {process.wait()}"
        raised: str | None = json.loads(answer)[0]
        return raised

    def _start(self, tool: str) -> subprocess.Popen[str]:
        # The peer reserves memory for an index of its input, 4 GiB if not told otherwise.
        variables = {**os.environ, "OASIS_AAL_MEMORY": "0.05"}
        variables.pop("PYTHONPATH", None)
        process = subprocess.Popen(
            [self._python, str(_DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=variables,
        )
        self._processes[tool] = process
        return process
