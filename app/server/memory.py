"""Thresholds of glibc's malloc, raised so that reads of bodies reuse memory."""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_TRIM_BYTES = 256 << 20
_MMAP_BYTES = 32 << 20


def raise_malloc_thresholds() -> str | None:
    """Have glibc reuse blocks of up to 32 MiB, and retain 256 MiB of free memory.

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
    done = mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES) and mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    return None if done else "mallopt refused the thresholds"


def give_back() -> None:
    """Return free memory of the C library to the system, where the library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
