"""From the name of an executable to its exit code: options, log, the tool, and how it ended.

Exit codes are those of the peer's tools: 0, 1 for every fault, and 2 for wrong usage. Signals that
end a process end this one too.

By the log file of a process the script of a run finds those that were lost: ``check_complete``
counts the files of a tool, and those that contain ``finish``, the last line of a process that
succeeded, and of no other. So nothing else that is logged may contain that word.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TextIO

from app.oasis import outputs

from .options import parse

EXIT_FAULT = 1
EXIT_INTERRUPTED = 130
_STDERR = Path("/proc/self/fd/2")
_MONITORED: Final = "stderror.err"
"""File in the log of a script that its monitor looks into, every two seconds."""
_MONITOR_SECONDS: Final = 6.0

_NAMES: Final = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
_WARNING: Final = 30


class ProcessLog:
    """The log of this process.

    Args:
        tool: name of the executable.
        options: of its command line, for the first line.

    The environment says where the log goes, and how severe warnings must be.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, tool: str, options: Mapping[str, Any]) -> None:
        path = outputs.log_file(tool, os.getpid(), str(uuid.uuid4()))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._tool = tool
        # Whether warnings are severe enough; any level that is not understood lets them pass.
        text = os.environ.get(outputs.LOG_LEVEL_VARIABLE, "")
        level = int(text) if text.isdecimal() else _NAMES.get(text, _WARNING)
        self._warnings = level <= _WARNING
        self._write("INFO", _without_the_word(str(dict(options))))
        self._write("INFO", outputs.LOG_STARTING)

    def note_warning(self, text: str) -> None:
        """Log what is odd but no fault."""
        if self._warnings:
            self._write("WARNING", _without_the_word(text), f"{outputs.LOG_NAME}.{self._tool}")

    def failed(self, reason: str) -> None:
        """Log why the process ends without success."""
        self._write("ERROR", _without_the_word(reason))

    def finished(self) -> None:
        """Log that the process has done all it was to do."""
        self._write("INFO", outputs.LOG_FINISHING)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, level: str, text: str, name: str = outputs.LOG_NAME) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        self._file.write(f"{stamp},{int(now % 1 * 1000):03d} - {name} - {level} - {text}\n")
        # A process that is killed leaves what it logged.
        self._file.flush()


def _without_the_word(text: str) -> str:
    """The text with ``finish`` in an escaped form that reads the same in a Python literal."""
    return text.replace("finish", r"\x66inish")


Tool = Callable[[argparse.Namespace, ProcessLog], None]

_MODULES: Final[Mapping[str, tuple[str, str]]] = {
    "eltpy": ("loss_tables", "loss_tables"),
    "pltpy": ("loss_tables", "loss_tables"),
    "aalpy": ("loss_tables", "aalpy"),
    "lecpy": ("loss_tables", "lecpy"),
    "summarypy": ("summarising", "summarypy"),
    "katpy": ("concatenating", "katpy"),
    "join-summary-info": ("joining", "join_summary_info"),
}
"""Module and function of each executable; they are imported after the log was begun."""


def _load(tool: str) -> Tool:
    module, function = _MODULES[tool]
    loaded: Tool = getattr(import_module(f".{module}", __package__), function)
    if not gc.isenabled():
        # The script turned it off: what was imported stays.
        gc.freeze()
        gc.enable()
    return loaded


def _warn_of_compilation(log: ProcessLog) -> None:
    """Tell why a process takes a minute where it should take half a second."""
    if "core._jit" in sys.modules and not sys.modules["core._jit"].is_build_begun():
        log.note_warning(
            "kernels are compiled in this process, as no cache fits this machine and environment:"
            " write the executables again, with thalweg-server oasis shims, as they are run"
        )


def main(tool: str, argv: Sequence[str] | None = None) -> int:
    """Run an executable; return its exit code.

    Args:
        tool: name of the executable.
        argv: its arguments; by default those of this process.

    Raises:
        SystemExit: as :func:`~app.oasis.shims.options.parse`.
    """
    args = parse(tool, argv)
    options = {name: value for name, value in vars(args).items() if name != "logging_level"}
    try:
        log = ProcessLog(tool, options)
    except OSError as e:
        return _tell(tool, f"its log cannot be written: {e}")
    try:
        run = _load(tool)
        _warn_of_compilation(log)
        run(args, log)
        _check_begun(tool)
        log.finished()
    except KeyboardInterrupt:
        log.failed("interrupted")
        return EXIT_INTERRUPTED
    except Exception as e:  # noqa: BLE001 - whatever it is, the run must be told
        reason = _reason(e)
        log.failed(reason if _is_expected(e) else traceback.format_exc())
        return _tell(tool, reason)
    finally:
        log.close()
        _end_monitor(tool)
    return 0


def _is_expected(e: Exception) -> bool:
    """Whether the fault is in what the tool was given, rather than in the tool."""
    from core.errors import CoreError  # noqa: PLC0415 - not needed by a run that succeeds

    return isinstance(e, CoreError | OSError)


def _reason(e: Exception) -> str:
    """Why, in one line."""
    if isinstance(e, BrokenPipeError):
        return "the reader of its output has gone"
    text = str(e) if _is_expected(e) else f"{type(e).__name__}: {e}"
    return " ".join(outputs.in_words_of_runs(text).split())


def _tell(tool: str, reason: str) -> int:
    # Standard error may be closed or full; the exit code and the log still tell.
    try:
        sys.stderr.write(f"{tool}: {reason}\n")
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _await_monitor()
    return EXIT_FAULT


def _check_begun(tool: str) -> None:
    if outputs.LOG_DIR_VARIABLE in os.environ:
        from .watching import check_begun  # noqa: PLC0415 - after the log was begun

        check_begun(tool)


def _end_monitor(tool: str) -> None:
    """See that a script that was killed does not hold up the command that waits for its end."""
    if outputs.LOG_DIR_VARIABLE not in os.environ:
        return
    from .watching import end_monitor  # noqa: PLC0415 - as above

    if (script := end_monitor()) is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{tool}: the script of the run, process {script}, was killed\n")


def _await_monitor() -> None:
    """Stay until the monitor of a script has read the line, and ends the run.

    A script that is told to stop takes the status of its last command for that of the run: it fails
    for sure only while it waits for this process.
    """
    with contextlib.suppress(OSError):
        if _STDERR.readlink().name == _MONITORED:
            time.sleep(_MONITOR_SECONDS)
