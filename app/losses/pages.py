"""Pages of long temporary files, which leave memory long before the file is closed.

Whoever closes a file without a name frees its pages: 40 milliseconds for each gigabyte that is in
memory, for nobody where a client has left. So of what lies beyond the first part of a file, the
system is told to keep nothing: of what was written, once it is on the disk, and of what was read.
"""

from __future__ import annotations

import os

KEPT = 512 << 20
"""Bytes at the beginning of a file that may stay."""
STEP = 128 << 20
"""Bytes between two times that the system is told. What it has not written yet stays until it is
told again."""
_TIMES = 4


def forget(fd: int, begin: int, end: int) -> None:
    """Have the bytes from ``begin`` to ``end`` leave memory, if they are on the disk."""
    begin = max(begin, KEPT)
    if begin < end:
        os.posix_fadvise(fd, begin, end - begin, os.POSIX_FADV_DONTNEED)


def forget_written(fd: int, begin: int, end: int) -> None:
    """Note that the bytes from ``begin`` to ``end`` were written, and forget those before."""
    if begin // STEP != end // STEP:
        forget(fd, end - _TIMES * STEP, end)
