"""Backends: ways to get at many ranges of a dataset's files.

Tiles are made of ranges in two ways. Bytes that are wanted as they are go straight to their
place: ``copy``, and ``read_ranges`` where lengths differ. Values that are converted, corrected
or summed pass through the processor anyway, and how far they travel before decides the speed:
``visit`` hands ranges to a function, some at a time, where they are cheapest to get at.

    leased     file ══▶ function            the pages of the page cache themselves, mapped,
                                            under a lease that is held for the call, or watched
    buffered   file ──▶ room ══▶ function   pieces of a megabyte, in a room that stays in the
                                            processor's caches and is made of huge pages

Smaller pieces would stay nearer to the processor, and are slower: the kernel copies a megabyte in
one call at the speed of the memory, and two thirds of that in four. So are stores that bypass the
caches, prefetches of the next piece, and a second thread that reads it.

``leased`` is the default. What cannot be leased, because someone writes to it or it belongs to
another user, it visits in a watched map, and copies like ``buffered``; so it reads what cannot be
watched either, and where a map would not pay. :mod:`.mapped` tells why neither can kill the
process. ``direct`` reads past the page cache (O_DIRECT),
for scans that read everything once; what does not support that is read like ``buffered``.

One tile may consist of thousands of ranges, so the number of system calls decides the speed of
reading. :func:`.ranges.arrange` sorts the ranges and joins neighbours; what remains is read in
one of two ways, by the average length of a range:

    long    file    ──[range]─gap─[range]─────[range]──    one preadv for each group of
            buffers   place   waste place      place       ranges with small gaps, straight
                                                           into place; gaps go to waste
    short   file    ──[hull of many ranges]──────────      whole hulls into a pooled buffer,
            pool      [·· ··· ·· ·····]                    then numpy copies the ranges out

A disk fetches many ranges at once faster than one after the other. So before ranges are read
that are not in memory, the kernel is told all of them, and streams tell those of the next tile
(``hint``): from a cold file that halves the time of sparse and shuffled reads.

What lies in a bucket has a backend of its own, ``objects``, which reads it in requests of a few
megabytes, many at once (:mod:`.object_reads`).

All backends give the same bytes or the same error. Files are compared with their recorded
state *after* their bytes were read: a check beforehand would miss a change in between, and
bytes of two states, or of an outdated one, must never be returned without an error. What a
visited function computes counts only once ``visit`` has returned. (Of objects only bytes of the
recorded state are given in the first place.)
"""

from __future__ import annotations

import errno
import os
from typing import ClassVar

from app.errors import InvalidOptionError
from core.arrays import Indices, Octets
from core.tiles.ranges import Ranges

from .buffered import BufferedBackend, Use
from .buffers import PAGE, BufferPool
from .file_set import FileSet
from .leased import LeasedBackend
from .object_reads import ObjectBackend
from .object_set import ObjectSet

DEFAULT = LeasedBackend.name
_GAP = 128 << 10
"""Maximum gap between two ranges to read rather than skip: every call reaches the disk."""


class DirectBackend(BufferedBackend):
    """Reads past the page cache where the file system supports it."""

    name: ClassVar[str] = "direct"

    def _read(self, descriptor: int, ranges: Ranges, out: Octets) -> None:
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT
            direct = os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError:
            super()._read(descriptor, ranges, out)
            return
        try:
            self._read_together(direct, ranges, (_GAP, PAGE), out)
        except OSError as e:
            if e.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise
            super()._read(descriptor, ranges, out)
        finally:
            os.close(direct)

    def _load(self, descriptor: int, buffer: memoryview, at: int, length: int) -> None:
        done = 0
        while done < length:
            count = os.preadv(descriptor, [buffer[done:]], at + done)
            if count < min(PAGE, length - done):
                raise EOFError
            done += count if done + count >= length else count // PAGE * PAGE

    def _visit_row(self, descriptor: int, starts: Indices, size: int, use: Use) -> bool:
        """Return False: what is in memory is not looked for."""
        del descriptor, starts, size, use
        return False

    @staticmethod
    def _hint(descriptor: int, starts: Indices, size: int) -> None:
        """Do nothing: reads do not go through the page cache."""

    @staticmethod
    def _are_apart(starts: Indices, size: int) -> bool:
        """Return False: every call reaches the disk."""
        del starts, size
        return False


_KINDS = {kind.name: kind for kind in (LeasedBackend, BufferedBackend, DirectBackend)}
BACKENDS = tuple(_KINDS)


def open_backend(name: str, files: FileSet, pool: BufferPool) -> BufferedBackend:
    """Create the backend of this name for a set of files, which the caller closes.

    Args:
        name: one of ``BACKENDS``.
        files: the files to read.
        pool: lends buffers where the caller's cannot be read into.

    Raises:
        InvalidOptionError: there is no backend of this name.
    """
    if isinstance(files, ObjectSet):
        if name == DEFAULT:
            return ObjectBackend(files, pool)
        raise InvalidOptionError(
            f"the backend {name!r} reads files in directories, and these are in a bucket",
            hint="Omit backend",
            option="backend",
        )
    if name not in _KINDS:
        raise InvalidOptionError(
            f"there is no backend {name!r}", hint=f"Use {', '.join(BACKENDS)}", option="backend"
        )
    return _KINDS[name](files, pool)
