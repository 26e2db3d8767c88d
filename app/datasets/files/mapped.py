"""Memory maps of files that others may cut while they are read.

Touching a map beyond the end of its file ends a process with SIGBUS, and so does a page that
the disk cannot deliver. Three things keep both from happening; a fourth makes them harmless:

1. **A read lease.** The kernel grants it only if no descriptor and no map of the file can be
   written through, and from then on makes open(2) for writing and truncate(2) wait until the
   lease is given back (with O_NONBLOCK: fail). Every way to cut a file begins with one of
   these: ftruncate(2), fallocate(2) and stores through a map need a descriptor opened for
   writing. Renaming or removing a file cuts nothing while it is open. So while the lease is
   intact, the file keeps its length, and a page fault finds its page.
2. **The file is as long as the map**, looked at under the lease: a lease says nothing about
   what happened before. And it lies in a file system of this machine (:func:`is_local`): a
   server elsewhere cuts files without asking our kernel.
3. **Its pages were delivered once.** MADV_POPULATE_READ reads them in and maps them; where the
   disk fails or the file ends, it returns an error instead of raising a signal, and the bytes
   are read the ordinary way, which tells the error.
4. **The map is watched** (:mod:`app.engine.bus_errors`). Where a page is missing all the same, a
   handler lays zeros there and marks the map. Whoever visited it looks for the mark before the
   values count, and gets an error instead.

A lease is held for one call and given up as soon as a writer waits. The kernel tells the
holder of a waiting writer with a signal, by default one that ends the process; we choose
SIGURG, which is ignored by default, and look for waiting writers ourselves between portions
of a few megabytes. A writer thus waits for about a millisecond. A holder that does not answer
(stopped, debugged, frozen) loses its lease after /proc/sys/fs/lease-break-time, 45 seconds by
default; the watch is what saves it when it goes on.

There is no lease on a file that belongs to another user, as most do that are mounted into a
container, or that somebody has open for writing. Such a file is visited in its map as well if the
map is watched: what changes under the visitor is then the same as between two reads, and is
found by the same look at the file afterwards. What is passed on unread, to a socket, needs the
lease, as there is no look after it has left. And a map of a file server's file may show bytes that
are no longer there, so such files are read.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import signal
import threading
import time
from collections import Counter, OrderedDict
from pathlib import Path

import numpy as np

from app.engine.bus_errors import watch
from core.arrays import Indices, Octets
from core.tiles.ranges import are_present
from core.untouched import zeros

from .buffers import PAGE

MAX_MAPS = 64
"""Maximum number of cached maps, each of which holds a descriptor."""
_POPULATE_READ = 22
"""MADV_POPULATE_READ of Linux 5.14, which Python has no name for."""
_SIGNAL = int(signal.SIGURG)
_REFUSED_SECONDS = 0.05
"""Time for which a file that had no lease is not asked for another one: a refusal costs as much
as a lease, and writers seldom close a file between two reads."""
_PAGE_BITS = PAGE.bit_length() - 1
_KNOWN_BYTES = 8 << 20
"""Memory for what a map has delivered; that of a file of 8 GiB fits."""
_STRETCH = 1 << 16
"""Ranges whose missing pages are listed at once: most of a million share theirs."""

# Not mmap.madvise: it would hold the interpreter's lock while the disk is read.
_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LOCAL = frozenset(
    (
        *("bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "jfs"),
        *("nilfs2", "overlay", "ramfs", "squashfs", "tmpfs", "xfs", "zfs"),
    )
)
"""Kinds of file systems, as the kernel names them."""
_TABLE = Path("/proc/self/mountinfo")


class Leases:
    """Read leases on files, shared by threads that hold the same file."""

    def __init__(self) -> None:
        self._holders: Counter[int] = Counter()
        self._local: dict[int, bool] = {}
        self._refused: dict[int, float] = {}
        """When the latest lease was refused, by the monotonic clock."""
        self._lock = threading.Lock()

    def take(self, file: int, descriptor: int) -> bool:
        """Try to keep writers out of a file until ``release``; return whether it worked.

        There is no lease if someone has the file open for writing, or waits to; if it belongs
        to another user; or if its file system has no leases, or none that bind all writers. For
        a moment after that, it is not tried again.
        """
        if file in self._refused and time.monotonic() - self._refused[file] < _REFUSED_SECONDS:
            return False
        with self._lock:
            if not self.is_local(file, descriptor):
                return False
            try:
                if not self._holders[file]:
                    fcntl.fcntl(descriptor, fcntl.F_SETSIG, _SIGNAL)
                    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                elif not self.is_intact(descriptor):
                    return False
            except OSError:
                self._refused[file] = time.monotonic()
                return False
            self._holders[file] += 1
            return True

    def is_local(self, file: int, descriptor: int) -> bool:
        """Whether a file lies in a file system of this machine; see :func:`is_local`."""
        local = self._local.get(file)
        if local is None:
            local = self._local[file] = is_local(descriptor)
        return local

    def release(self, file: int, descriptor: int) -> None:
        """Give up what ``take`` returned True for."""
        with self._lock:
            self._holders[file] -= 1
            if not self._holders[file]:
                # The kernel breaks a lease itself once a writer has waited too long.
                try:  # noqa: SIM105 - half the time of suppress
                    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
                except OSError:
                    pass

    @staticmethod
    def is_intact(descriptor: int) -> bool:
        """Whether the lease is held and no writer waits for its end."""
        return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_RDLCK


class Map:
    """A map of the first bytes of a file, to be touched under a lease on it, or while watched.

    Args:
        descriptor: the open file.
        size: number of bytes.

    Raises:
        OSError: the file cannot be mapped.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        whole = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        self.octets: Octets = np.frombuffer(whole, np.uint8)
        self._address = self.octets.ctypes.data
        self._watch = watch(self._address, size)
        # How many pages from each one on were delivered. Untouched parts take no memory.
        self._delivered = zeros(-(-size // PAGE), np.dtype(np.int32))
        self._touched = 0

    def __del__(self) -> None:
        # The watch ends before the addresses can belong to another map.
        self._watch = None

    def is_watched(self) -> bool:
        """Whether a page that is missing when it is touched does not end the process."""
        return self._watch is not None and self._watch.is_in_force()

    def missing(self) -> int | None:
        """Return the offset of a page that was missing when it was touched; None if none was.

        From there on the map holds zeros.
        """
        return None if self._watch is None else self._watch.missing()

    def has(self, starts: Indices, size: int) -> bool:
        """Whether the pages of ranges were brought into memory before; see ``deliver``."""
        return are_present(self._delivered, starts, _PAGE_BITS, size)

    def deliver(self, starts: Indices, size: int) -> bool:
        """Bring the pages of ranges into memory; return False if the kernel cannot.

        None but theirs: for a page more, the system would read megabytes around it.

        Args:
            starts: first byte of each range, shape (k,), k ≥ 1.
            size: bytes of each range, at least 1.
        """
        if self.has(starts, size):
            return True
        least = (size - 1 >> _PAGE_BITS) + 1
        for begin in range(0, len(starts), _STRETCH):
            some = starts[begin : begin + _STRETCH]
            firsts = some >> _PAGE_BITS
            more = (some + (size - 1) >> _PAGE_BITS) - firsts + 1 - least
            # Ranges that begin in one page end in one of two; the farther one comes last.
            ends = np.unique((2 * firsts + more)[self._delivered[firsts] < least + more])
            farthest = dict(zip((ends >> 1).tolist(), (ends & 1).tolist(), strict=True))
            if not all(self._deliver(first, least + one) for first, one in farthest.items()):
                return False
        return True

    def _deliver(self, first: int, pages: int) -> bool:
        """Bring ``pages`` from ``first`` on into memory; fewer at the end of the file."""
        self._touched += pages * self._delivered.itemsize + PAGE
        if self._touched > _KNOWN_BYTES and self._delivered.nbytes > _KNOWN_BYTES:
            # What is delivered once more costs a system call.
            self._delivered = zeros(len(self._delivered), self._delivered.dtype)
            self._touched = 0
        known = self._delivered[first : first + pages]
        start, length = self._address + first * PAGE, len(known) * PAGE
        if _madvise(start, length, _POPULATE_READ):
            return False
        # At the end of the file there are no more pages to come.
        whole = np.arange(pages, 0, -1, dtype=np.int32)[: len(known)]
        np.maximum(known, whole, out=known)
        return True


class Maps:
    """A cache of the most recently used maps of whole files.

    A map that is evicted lives on while an array refers to it.

    Args:
        limit: maximum number of cached maps.
    """

    def __init__(self, limit: int = MAX_MAPS) -> None:
        self._limit = limit
        self._maps: OrderedDict[int, Map] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, file: int, descriptor: int, size: int) -> Map | None:
        """Map at least the first ``size`` bytes of a file; None if that is impossible.

        The file must be known to be as long: a cached map may be of a state when it was longer.
        """
        with self._lock:
            found = self._maps.get(file)
            if found is None or len(found.octets) < size or found.missing() is not None:
                try:
                    found = self._maps[file] = Map(descriptor, size)
                except OSError:
                    return None
            self._maps.move_to_end(file)
            while len(self._maps) > self._limit:
                self._maps.popitem(last=False)
            return found

    def clear(self) -> None:
        """Drop all maps."""
        with self._lock:
            self._maps.clear()


def is_local(descriptor: int, table: Path = _TABLE) -> bool:
    """Whether an open file lies in a file system of this machine; False if that is unknown.

    A lease keeps out writers that the kernel knows. Of a network file system it knows only those
    on this machine, and a file system in a process answers to nobody, so there a file can be cut
    under a lease. The list names the kinds for which the kernel's word holds; of all others it is
    assumed not to.

    Args:
        descriptor: the open file.
        table: the mounts that this process sees.
    """
    try:
        mount = _mount(descriptor)
        for line in table.read_text("utf-8", "surrogateescape").splitlines():
            fields, _, rest = line.partition(" - ")
            if fields.split(" ", 1)[0] == mount:
                return rest.split(" ", 1)[0] in LOCAL
    except (OSError, StopIteration):
        pass
    return False


def _mount(descriptor: int) -> str:
    """Return the number of the mount through which a file was opened."""
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").splitlines()
    return next(line.split()[1] for line in lines if line.startswith("mnt_id:"))
