"""The tutorials as their readers run them: the commands of a page, one after another, in a folder.

Fences of ``bash`` are run by one shell, those of ``python`` as a program in their turn. A fence of
``text`` after one is what it prints, where ``...`` stands for anything.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = Path(__file__).parent / "pages" / "tutorials"
SECONDS = 120.0
_FENCE = re.compile(r"^```(bash|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "==== end of fence {} ===="
_COMMANDS = {"thalweg": "-m app.client", "thalweg-server": "-m app.command", "python": ""}


class TutorialError(Exception):
    """A page does not do what it says."""


class Fence(NamedTuple):
    """What is run, and what it prints; None if the page does not say."""

    language: str
    code: str
    printed: str | None


class Tutorial:
    """A page.

    Args:
        path: the page.
        torch: the Python that runs its programs for PyTorch; without one they are left out.
        until: words of the last command that is run; all are by default.
    """

    def __init__(self, path: Path, *, torch: str | None = None, until: str | None = None) -> None:
        fences = [f for f in fences_of(path.read_text()) if torch or "torch" not in f.code]
        last = next((k for k, f in enumerate(fences) if until and until in f.code), len(fences))
        self._fences = fences[: last + 1]
        self._torch = torch

    def run(self, folder: Path, **variables: str) -> None:
        """Run the page in an empty folder.

        Args:
            folder: where it works.
            variables: for its commands.

        Raises:
            TutorialError: a command fails, or prints something else.
        """
        environment = {**_environment(folder.with_name(f"{folder.name}-bin")), **variables}
        output, errors = _shell(self._script(), folder, environment)
        for number, fence in enumerate(self._fences):
            printed, end, output = output.partition(_END.format(number) + "\n")
            if not end:
                raise TutorialError(f"it ended in fence {number}:\n{fence.code}\n{printed}{errors}")
            if fence.printed is not None:
                wanted = re.escape(fence.printed).replace(r"\.\.\.", ".*")
                if not re.fullmatch(wanted, printed, re.DOTALL):
                    raise TutorialError(f"fence {number} printed\n{printed}\nnot\n{fence.printed}")

    def _script(self) -> str:
        # Servers of a page that fails are not left.
        lines = ["set -eu -o pipefail", "trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT"]
        for number, fence in enumerate(self._fences):
            code = fence.code
            if fence.language == "python":
                python = f'"{self._torch}"' if "torch" in code else "python"
                code = f"{python} - <<'END OF PROGRAM'\n{code}END OF PROGRAM\n"
            lines += [code, f"echo '{_END.format(number)}'"]
        return "\n".join(lines)


def fences_of(page: str) -> Iterator[Fence]:
    """Yield what is run of the text of a page."""
    found = _FENCE.findall(page)
    for (language, code), (after, text) in zip(found, [*found[1:], ("", "")], strict=True):
        if language != "text":
            yield Fence(language, code, text if after == "text" else None)


def _environment(commands: Path) -> Mapping[str, str]:
    """Return variables by which the commands and the client are those of this checkout."""
    commands.mkdir()
    for name, arguments in _COMMANDS.items():
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        command.chmod(0o755)
    package = commands / "packages"
    package.mkdir()
    (package / "thalweg").symlink_to(ROOT / "app" / "client")
    path = os.pathsep.join((str(commands), str(Path(sys.executable).parent), os.environ["PATH"]))
    packages = os.pathsep.join((str(package), str(ROOT)))
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("THALWEG_")}
    kept = {name: v for name, v in os.environ.items() if name == "THALWEG_KERNEL_CACHE"}
    return {**inherited, **kept, "PATH": path, "PYTHONPATH": packages, "THALWEG_LANES": "one"}


def _shell(script: str, folder: Path, environment: Mapping[str, str]) -> tuple[str, str]:
    with subprocess.Popen(  # noqa: S603 - of our own pages
        ["bash", "-c", script],  # noqa: S607 - wherever it is
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            return process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
