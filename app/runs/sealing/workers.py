"""Names of workers, by which others on the same machine see that one has died.

A name is that of the machine since it was booted, of the namespace of process ids, the id, when
the process began, and which sealer of it. Only where the first two are one's own do process ids
mean the same, and says the absence of a process anything.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = "/proc/self/ns/pid"
_STARTED = 19
"""Field of ``/proc/<pid>/stat``, from the state of the process on."""


def worker_name() -> str:
    """Return the name of a new worker in this process."""
    pid = os.getpid()
    return f"{_place()} {pid} {_started(pid)} {secrets.token_hex(4)}"


def has_died(worker: str) -> bool:
    """Whether a worker is certainly dead; False where that cannot be seen from here."""
    try:
        *place, pid, started, _ = worker.split(" ")
        return " ".join(place) == _place() != "" and _started(int(pid)) != started
    except ValueError:
        return False


def _place() -> str:
    try:
        return f"{_BOOT.read_text().strip()} {os.readlink(_NAMESPACE)}"  # noqa: PTH115 - no file
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return when a process began, in ticks since the boot; empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[_STARTED]
