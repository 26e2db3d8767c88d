"""Processes that are forked: how they begin, and how they end with their supervisor."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn, TypeVar, cast

PASSED_ON = (signal.SIGTERM, signal.SIGINT)
"""Signals that the supervisor passes on. They are blocked while it forks: a child must not run
its handlers."""
CUT = signal.SIGUSR1
"""What the supervisor sends once it has got a second signal: a repeated SIGTERM says nothing, as
the system merges it with the first, and a process group gets each signal by two ways."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
T = TypeVar("T")
_ADOPTION_SECONDS = 5.0
_LOOK_SECONDS = 0.0005


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def fork(function: Callable[[], int], close: Callable[[], None]) -> int:
    """Run a function in a child, which ends with this process; return its pid.

    Args:
        function: returns an exit code.
        close: called in the child first, to close what is this process's.

    Raises:
        OSError: the system has no room for it.
    """
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    try:
        pid = os.fork()
        if not pid:
            _run(function, parent, close)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)


def in_child(function: Callable[[], T]) -> T:
    """Return what a function returns in a child of its own, or raise what it raises.

    Raises:
        RuntimeError: the child died.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            with os.fdopen(writer, "wb") as file:
                pickle.dump(_outcome(function), file)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    if not data:
        raise RuntimeError("a process that was to look at the stores died")
    result, error = pickle.loads(data)  # noqa: S301 - from our own child
    if error is not None:
        raise error
    return cast("T", result)


def _outcome(function: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return function(), None
    except Exception as e:  # noqa: BLE001 - the parent raises it
        return None, e


def fork_for(parent: int, function: Callable[[], int]) -> None:
    """Run a function in a process that becomes a child of another one, and ends with that.

    Args:
        parent: an ancestor that adopts orphans.
        function: returns an exit code.

    Raises:
        OSError: the system has no room for it.
    """
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    # Its parent ends at once, so that the ancestor adopts it.
    try:
        pid = os.fork()
    except OSError:
        os._exit(1)
    if pid:
        os._exit(0)
    _run(function, parent, lambda: None)


def _run(function: Callable[[], int], parent: int, close: Callable[[], None]) -> NoReturn:
    """Run a function in a new process; its result is the exit code."""
    code = 1
    try:
        _end_with(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # A terminal sends these to all processes; the supervisor tells us.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        close()
        code = function()
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:  # noqa: BLE001 - the last resort
        traceback.print_exc()
    finally:
        # Waits for threads, and first tells those of executors to end: what the interpreter does
        # at its end, and multiprocessing in its children.
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # Not the exit of the process that was forked: its frames are below ours.
        os._exit(code)


def _end_with(parent: int) -> None:
    """Have the kernel end this process with its parent, once that has adopted it."""
    latest = time.monotonic() + _ADOPTION_SECONDS
    first = os.getppid()
    while (present := os.getppid()) != parent:
        # A third one has adopted us where the parent has ended meanwhile.
        if present != first or time.monotonic() > latest:
            raise SystemExit(1)
        time.sleep(_LOOK_SECONDS)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)
