"""From the name of an executable to its exit code: options, log, the tool, and how it ended.

Exit codes are those of the peer's tools: 0, 1 for every fault, and 2 for wrong usage. Signals that
end a process end this one too.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Final

from app.oasis.outputs import LOG_DIR_VARIABLE, in_words_of_runs

from .options import parse
from .process_log import ProcessLog

EXIT_FAULT = 1
EXIT_INTERRUPTED = 130
_STDERR = Path("/proc/self/fd/2")
_MONITORED: Final = "stderror.err"
"""File in the log of a script that its monitor looks into, every two seconds."""
_MONITOR_SECONDS: Final = 6.0

Tool = Callable[[argparse.Namespace, ProcessLog], None]

_MODULES: Final[MappingProxyType[str, tuple[str, str]]] = MappingProxyType(
    {
        "eltpy": ("loss_tables", "loss_tables"),
        "pltpy": ("loss_tables", "loss_tables"),
        "aalpy": ("loss_tables", "aalpy"),
        "lecpy": ("loss_tables", "lecpy"),
        "summarypy": ("summarising", "summarypy"),
        "katpy": ("concatenating", "katpy"),
        "join-summary-info": ("joining", "join_summary_info"),
    }
)
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
    return " ".join(in_words_of_runs(text).split())


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
    if LOG_DIR_VARIABLE in os.environ:
        from .watching import check_begun  # noqa: PLC0415 - after the log was begun

        check_begun(tool)


def _end_monitor(tool: str) -> None:
    """See that a script that was killed does not hold up the command that waits for its end."""
    if LOG_DIR_VARIABLE not in os.environ:
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
