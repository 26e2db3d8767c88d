"""How many descriptors a process holds, for tests that let go of all of theirs."""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path


def descriptors() -> int:
    """Count those of this process.

    What earlier tests left is closed first, not in the middle of one that counts.
    """
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as short as it gets


def files_open(below: Path) -> int:
    """Count the descriptors of this process that are of files below a directory.

    Whatever threads of earlier tests close in the meantime is not among them.
    """
    gc.collect()
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += descriptor.readlink().is_relative_to(below)
    return count
