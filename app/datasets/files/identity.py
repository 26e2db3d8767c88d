"""What identifies a file, and what tells that its contents changed.

Device, inode, size and modification time are compared whenever a file is used. They miss one
kind of change: the contents are overwritten in place, and the modification time is set back,
as ``rsync --inplace --times``, ``touch -r`` and restored backups do. Nobody can set back the
*change* time (ctime), but a new one does not prove a change of data: chmod, chown, a hard link
made or removed and a backup program that resets the access time move it too. So it raises a
suspicion that the contents have to settle:

    device, inode, size, modification time
      one differs ────────────────────────────▶ changed
      all equal, change time equal ───────────▶ unchanged
      all equal, change time moved ──▶ digest of both ends, as kept at the first use
                                          differs ──▶ changed
                                          equal ────▶ unchanged; the new time is kept

Both ends are the bytes that the fingerprint of a plain file covers, so a file whose
fingerprint no longer holds is never read as if it did. What goes unnoticed is what leaves
both ends, the size and the modification time as they were: an overwrite between the ends of a
file of more than 128 KiB with the time set back, and stores through a writable memory map
into pages that it has already made dirty, which move no time at all.

A file that grows is compared by its prefix: its ends are those of the length known so far.

Times are stamped by a coarse clock. A time that is younger than its step could be given to a
further change too, so it is never kept: until it is older, every use compares the contents.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from xxhash import xxh3_128

SAMPLE = 64 << 10
"""Bytes at each end of a file that stand for its contents."""
CLOCK_STEP = 0.02
"""Seconds by which the clock that stamps files may lag: two of the longest kernel ticks."""


class Identity(NamedTuple):
    """What ``stat`` tells of a file; times in nanoseconds since 1970."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int
    """Time of the last change of contents or metadata."""

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Take the identity from the result of ``stat``."""
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )

    def difference(self, other: Identity, *, growing: bool) -> str | None:
        """Say how the file became ``other`` as far as that is certain; None if it may not have.

        Args:
            other: the identity now.
            growing: whether the file may have become longer.
        """
        if (other.device, other.inode) != (self.device, self.inode):
            return "was replaced"
        if other.size < self.size:
            return "shrank"
        if growing:
            return None
        if other.size > self.size:
            return "grew"
        return "was modified" if other.modified != self.modified else None


State = tuple[int | str, ...]
"""Identifies an open file, or an object, and its contents."""


def state_of(status: os.stat_result, known: int) -> State:
    """Return what identifies an open file of which ``known`` bytes are to be read."""
    return (
        status.st_dev,
        status.st_ino,
        known,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


class Lent(NamedTuple):
    """A file, as a decoder gets it."""

    state: State
    descriptors: Sequence[int]
    """The open file; none if its bytes are to be fetched."""
    fetch: Callable[[int, int], bytes] | None = None
    """Reads bytes ``start`` to ``stop``."""


class Ends(NamedTuple):
    """The contents of a file, told by its first and last bytes."""

    size: int
    """Length of the prefix that the ends are of."""
    digest: bytes


def read_ends(descriptor: int, size: int) -> Ends:
    """Read both ends of the first ``size`` bytes of a file.

    Raises:
        EOFError: the file is shorter.
        OSError: the disk failed.
    """
    digest = xxh3_128()
    for start, stop in spans(size):
        at = start
        while at < stop:
            piece = os.pread(descriptor, stop - at, at)
            if not piece:
                raise EOFError
            digest.update(piece)
            at += len(piece)
    return Ends(size, digest.digest())


def spans(size: int) -> list[tuple[int, int]]:
    """List the (start, stop) of what stands for a file of ``size`` bytes: it all, or its ends."""
    if size <= 2 * SAMPLE:
        return [(0, size)]
    return [(0, SAMPLE), (size - SAMPLE, size)]


def is_young(stamp: int) -> bool:
    """Whether a change from now on could still be given the same time."""
    return 0 <= time.time() - stamp / 1e9 < CLOCK_STEP
