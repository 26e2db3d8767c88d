"""The log file of a process, by which the script of a run finds processes that were lost.

``check_complete`` counts the files of a tool, and those that contain ``finish``: the last line of
a process that succeeded, and of no other. So nothing else that is logged may contain that word.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final, TextIO

from app.oasis.outputs import (
    LOG_FINISHING,
    LOG_LEVEL_VARIABLE,
    LOG_NAME,
    LOG_STARTING,
    log_file,
)

_NAMES: Final = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
_WARNING: Final = 30


def _warnings_logged(environ: Mapping[str, str]) -> bool:
    """Whether warnings are severe enough; any level that is not understood lets them pass."""
    text = environ.get(LOG_LEVEL_VARIABLE, "")
    level = int(text) if text.isdecimal() else _NAMES.get(text, _WARNING)
    return level <= _WARNING


class ProcessLog:
    """The log of this process.

    Args:
        tool: name of the executable.
        options: of its command line, for the first line.
        environ: where the log goes, and how severe warnings must be.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(
        self, tool: str, options: Mapping[str, Any], environ: Mapping[str, str] = os.environ
    ) -> None:
        path = log_file(tool, os.getpid(), str(uuid.uuid4()), environ)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._tool = tool
        self._warnings = _warnings_logged(environ)
        self._write("INFO", _without_the_word(str(dict(options))))
        self._write("INFO", LOG_STARTING)

    def note_warning(self, text: str) -> None:
        """Log what is odd but no fault."""
        if self._warnings:
            self._write("WARNING", _without_the_word(text), f"{LOG_NAME}.{self._tool}")

    def failed(self, reason: str) -> None:
        """Log why the process ends without success."""
        self._write("ERROR", _without_the_word(reason))

    def finished(self) -> None:
        """Log that the process has done all it was to do."""
        self._write("INFO", LOG_FINISHING)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, level: str, text: str, name: str = LOG_NAME) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        self._file.write(f"{stamp},{int(now % 1 * 1000):03d} - {name} - {level} - {text}\n")
        # A process that is killed leaves what it logged.
        self._file.flush()


def _without_the_word(text: str) -> str:
    """The text with ``finish`` in an escaped form that reads the same in a Python literal."""
    return text.replace("finish", r"\x66inish")
