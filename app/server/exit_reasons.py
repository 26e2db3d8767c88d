"""Why a process ended, in words for the log."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_COUNTERS = ("memory.events", "memory/memory.oom_control")
"""Where version 2 and version 1 of control groups count processes killed for memory."""
_MEMORY = (
    "the kernel ended a process for lack of memory: raise the memory limit, or lower"
    " THALWEG_WORKERS, THALWEG_BUFFERS or THALWEG_DECODERS"
)
_HINTS = {
    signal.SIGBUS: "a page of a mapped file was missing, and a plugin handles SIGBUS in our place",
    signal.SIGSEGV: "a fault in native code: please report it with the requests before it",
    signal.SIGABRT: "a fault in native code: please report it with the requests before it",
    signal.SIGKILL: "somebody sent it, or the machine that runs the container did",
}


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended.

    Attributes:
        reason: name of the signal, or ``exit N``.
        hint: what it may mean; None if nothing is known.
    """

    reason: str
    hint: str | None


def describe_end(exit_code: int, *, out_of_memory: bool) -> End:
    """Describe how a process ended.

    Args:
        exit_code: as ``multiprocessing`` gives it: the negative number of a signal.
        out_of_memory: whether the kernel ended processes for lack of memory meanwhile.
    """
    if exit_code >= 0:
        return End(f"exit {exit_code}", None)
    try:
        received = signal.Signals(-exit_code)
    except ValueError:
        return End(f"signal {-exit_code}", None)
    if received == signal.SIGKILL and out_of_memory:
        return End(received.name, _MEMORY)
    return End(received.name, _HINTS.get(received))


def count_memory_kills(root: Path = _CGROUP, proc: Path = Path("/proc")) -> int:
    """Count the processes that the kernel has ended for lack of memory, as far as we can see.

    Args:
        root: where control groups are mounted.
        proc: the proc file system.
    """
    places = [proc / "vmstat", *(root / name for name in _COUNTERS)]
    with contextlib.suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            path = line.rpartition(":")[2].lstrip("/")
            places.append(root / path / _COUNTERS[0])
    return sum(_counter(path) for path in dict.fromkeys(places))


def _counter(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0
