"""How glibc's malloc keeps free memory: enough to reuse it, and not for ever.

Reads of bodies are faster in memory that was used before, so blocks of up to 32 MiB come from the
heap, and free ones stay there. All threads share one heap. With several, each would keep what was
taken from it at its busiest moment, together several times what requests ever held at once, and
what is free at the end of any but the first is never returned. A worker looks at its free memory
once a second, and returns it to the system when there is much, or some and little to do.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_TRIM_BYTES = 256 << 20
_MMAP_BYTES = 32 << 20

_MUCH_BYTES = 96 << 20
"""Free memory that is returned in any case."""
_SOME_BYTES = 24 << 20
"""Free memory that is returned by a process that is quiet."""
_QUIET = 0.1
"""Seconds of CPU time that a quiet process uses in a second, at most."""


def raise_malloc_thresholds() -> str | None:
    """Have glibc reuse blocks of up to 32 MiB in one heap, and not trim it below 256 MiB itself.

    Blocks of 256 KiB lie above the default thresholds: each would cost a new mapping and a
    page fault per 4 KiB. Both thresholds must be set, since setting one turns off the
    automatic adjustment of the other.

    Returns:
        None on success, else the reason.
    """
    if platform.libc_ver()[0] != "glibc":
        return "the C library is not glibc"
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError) as error:
        return f"the C library has no mallopt: {error}"
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    settings = {_M_MMAP_THRESHOLD: _MMAP_BYTES, _M_TRIM_THRESHOLD: _TRIM_BYTES, _M_ARENA_MAX: 1}
    results = [mallopt(*setting) for setting in settings.items()]
    return None if all(results) else "mallopt refused the settings"


def give_back() -> None:
    """Return free memory of the C library to the system, where the library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def bound_memory(nbytes: int) -> None:
    """Let the process take so much more than it has: what would take more fails."""
    status = Path("/proc/self/status").read_text()
    used = 1024 * int(status.partition("VmData:")[2].split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > used + nbytes:
        resource.setrlimit(resource.RLIMIT_DATA, (used + nbytes, hard))


def offer_to_be_killed(more: int = 200) -> None:
    """Have the kernel, where it lacks memory, end this process rather than the one it is from."""
    path = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        path.write_text(str(min(int(path.read_text()) + more, 1000)))


class _Mallinfo(ctypes.Structure):
    """The result of ``mallinfo2``."""

    _fields_ = (
        ("others", ctypes.c_size_t * 4),
        ("hblkhd", ctypes.c_size_t),
        ("more", ctypes.c_size_t * 2),
        ("uordblks", ctypes.c_size_t),
        ("rest", ctypes.c_size_t * 2),
    )
    hblkhd: int
    uordblks: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used."""

    resident: int
    """Bytes of private memory."""
    taken: int
    """Bytes that callers of malloc hold."""
    cpu: float
    """Seconds of CPU time."""


def measure() -> Usage | None:
    """Measure this process; None where the C library does not tell."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return None
    mallinfo.restype = _Mallinfo
    info: _Mallinfo = mallinfo()
    _, resident, shared, *_ = Path("/proc/self/statm").read_bytes().split()
    nbytes = (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return Usage(nbytes, info.uordblks + info.hblkhd, time.process_time())


@dataclass(slots=True, eq=False)
class FreeMemory:
    """Returns the free memory of this process to the system when that is due.

    Args:
        measure: measures the process.
        give_back: returns the memory.
    """

    _measure: Callable[[], Usage | None] = measure
    _give_back: Callable[[], None] = give_back
    _rest: int | None = field(default=None, init=False)
    _cpu: float = field(default=0.0, init=False)

    def look(self) -> None:
        """Return free memory if there is much of it, or some while the process is quiet.

        To be called once a second, in a thread.
        """
        usage = self._measure()
        if usage is None:
            return
        quiet = usage.cpu - self._cpu < _QUIET
        self._cpu = usage.cpu
        # What was resident at best without being taken is not free: stacks, code, parts of pages.
        rest = usage.resident - usage.taken
        self._rest = rest if self._rest is None else min(self._rest, rest)
        if rest - self._rest > (_SOME_BYTES if quiet else _MUCH_BYTES):
            self._give_back()
            self._rest = None
