"""What a process holds open, for tests that close all of theirs."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path


def open_files() -> set[tuple[str, str]]:
    """List the descriptors of this process, each with what it refers to.

    What earlier tests left is closed first, not in the middle of one that counts.
    """
    gc.collect()
    return _listed()


def _listed() -> set[tuple[str, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - faster, and asked a thousand times
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))  # noqa: PTH115 - as above
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
    before = _listed()
    yield
    if all(target.startswith(apart) for _, target in _listed() - before):
        return  # no garbage has to be looked for
    deadline = time.monotonic() + seconds
    while left := {entry for entry in open_files() - before if not entry[1].startswith(apart)}:
        assert time.monotonic() < deadline, f"left open: {sorted(left)[:9]}"
        time.sleep(0.01)


def files_open(below: Path) -> int:
    """Count the descriptors of this process that are of files below a directory.

    Whatever threads of earlier tests close in the meantime is not among them.
    """
    return sum(Path(name).is_relative_to(below) for _, name in open_files())
