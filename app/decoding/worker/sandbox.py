"""Closing the sandbox: what a worker gives up before it looks at the first hostile byte.

=====================  ================================================================
parent-death signal    the worker ends with the service, however that ends
resource limits        memory, open files; no file can grow, no core is dumped
no new privileges      no set-user-id program gives any back
Landlock               no file can be opened, whatever its path; no TCP connection
seccomp                only the system calls that decoding needs (:mod:`.seccomp`)
=====================  ================================================================

The last two depend on the kernel. Where one is missing, the others hold.

Libraries import modules, load plugins and start threads with the first file they see. What
needs files must happen before Landlock (``touch``). Threads must start after it, since it binds
one thread and those that this one starts (``preload``). Seccomp then binds all threads at once.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import landlock, seccomp
from .serving import Format

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


class SandboxError(Exception):
    """A required protection is not available."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the worker may use."""

    memory: int
    """Address space in bytes, beyond that in use when the sandbox closes."""
    descriptors: int
    """Open files."""
    mode: str
    """``auto``, ``require`` or ``off``; see ``limits.DecoderLimits``."""


def die_with(parent: int) -> None:
    """Have the kernel end this process when the thread that started it ends."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it had ended before
        os._exit(1)


def close(limits: Limits, formats: Iterable[Format]) -> dict[str, str | int | None]:
    """Close the sandbox; return what is in force, by name.

    Raises:
        SandboxError: Landlock or seccomp is required, and the kernel lacks it.
    """
    formats = list(dict.fromkeys(formats))
    wanted = limits.mode != "off"
    with Path("/proc/self/statm").open("rb", buffering=0) as statm:
        for form in formats:
            form.touch()
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        files = landlock.restrict() if wanted else None
        for form in formats:
            form.preload()
        _limit_resources(limits, int(statm.read(100).split()[0]) * resource.getpagesize())
    calls = wanted and seccomp.restrict()
    if limits.mode == "require" and not (files and calls):
        raise SandboxError("this kernel has no Landlock or no seccomp, which the settings require")
    return {"landlock": files, "seccomp": calls, "memory": limits.memory}


def _limit_resources(limits: Limits, used: int) -> None:
    for kind, most in (
        (resource.RLIMIT_AS, used + limits.memory),
        (resource.RLIMIT_NOFILE, limits.descriptors),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (value, value))


def prctl(option: int, value: int) -> None:
    """Change an attribute of this process.

    Raises:
        OSError: it failed.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")
