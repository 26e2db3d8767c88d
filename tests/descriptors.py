"""What a process holds open, for tests that close all of theirs."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from pathlib import Path


def open_files() -> set[tuple[str, str]]:
    """List the descriptors of this process, each with what it refers to.

    What earlier tests left is closed first, not in the middle of one that counts.
    """
    gc.collect()
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.add((entry.name, str(entry.readlink())))
    return found


@contextlib.contextmanager
def nothing_left_open(apart: tuple[str, ...] = (), seconds: float = 10) -> Iterator[None]:
    """Fail if a block opens descriptors that are still open some seconds after it.

    Threads of earlier tests open and close theirs meanwhile, so that a difference counts only once
    it lasts.

    Args:
        apart: Begin what does not count, as ``socket:``.
        seconds: How long a difference may last.
    """
    before = open_files()
    yield
    deadline = time.monotonic() + seconds
    while left := {entry for entry in open_files() - before if not entry[1].startswith(apart)}:
        assert time.monotonic() < deadline, f"left open: {sorted(left)[:9]}"
        time.sleep(0.01)


def files_open(below: Path) -> int:
    """Count the descriptors of this process that are of files below a directory.

    Whatever threads of earlier tests close in the meantime is not among them.
    """
    return sum(Path(name).is_relative_to(below) for _, name in open_files())
