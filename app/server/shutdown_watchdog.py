"""The end of a process that does not end by itself.

After a drain, whatever still runs is cancelled, and the interpreter joins its threads. A thread
that hangs in a system call or a library would keep the process for good, and whoever waits for
it: an orchestrator, a deployment. So a timer ends it, after the log has told what hung.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback

MARGIN_SECONDS = 8.0
"""Time that a process has to end after its drain."""
_CODE = 70
"""Exit code: an internal failure, as in sysexits.h."""

_logger = logging.getLogger(__name__)


def end_after(seconds: float) -> threading.Timer:
    """End the process after some time, unless it has ended by then or the timer is cancelled."""
    timer = threading.Timer(seconds, _end)
    timer.name = "last resort"
    # It runs on while the interpreter joins the other threads.
    timer.daemon = True
    timer.start()
    return timer


def _end() -> None:
    for line in hanging():
        _logger.error("the process does not end: %s", line)
    for stream in (sys.stderr, sys.stdout):
        stream.flush()
    os._exit(_CODE)


def hanging() -> list[str]:
    """Describe where each thread is but this one and daemons, innermost call last."""
    frames = sys._current_frames()  # noqa: SLF001 - the documented way to see other threads
    own = threading.get_ident()
    lines = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is None or thread.ident == own or thread.daemon:
            continue
        calls = traceback.extract_stack(frame)[-4:]
        where = " > ".join(f"{call.filename}:{call.lineno} {call.name}" for call in calls)
        lines.append(f"thread {thread.name!r} is at {where}")
    return lines
