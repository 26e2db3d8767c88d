"""Keeping malloc from giving memory back between two reads of a body."""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_TRIM_BYTES = 256 << 20
_MMAP_BYTES = 32 << 20


def raise_malloc_thresholds() -> str | None:
    """Let glibc keep blocks up to 32 MiB, and 256 MiB free, instead of unmapping them.

    Reads of 256 KB lie above the default thresholds: each then costs a mapping and a
    page fault per 4 KiB. Both are set, as setting one switches off the adaption of the
    other.

    Returns:
        None when set, else why not.
    """
    if platform.libc_ver()[0] != "glibc":
        return "the C library is not glibc"
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError) as error:
        return f"no mallopt: {error}"
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    done = mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES) and mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    return None if done else "mallopt refused the thresholds"
