"""Memory maps of files, and leases that keep writers out while bytes are copied.

Reading a map after the end of a truncated file kills the process; under a lease nobody can
truncate it. The kernel signals a waiting writer to the holder, by default with a signal
that ends the process. We choose one that is ignored by default: leases last only for one
call, which looks for waiting writers itself.
"""

from __future__ import annotations

import fcntl
import mmap
import signal
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from core.arrays import Octets

MAX_MAPS = 64
"""Maximum number of cached maps, each of which holds a descriptor."""


class Leases:
    """Read leases on files, shared by threads that hold the same file."""

    def __init__(self) -> None:
        self._holders: Counter[int] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, file: int, descriptor: int) -> Iterator[bool]:
        """Try to keep writers out of a file until the end of the block.

        Provides False if there is no lease: someone has the file open for writing, or waits
        to; it belongs to another user; or the file system has no leases.
        """
        held = self._take(file, descriptor)
        try:
            yield held
        finally:
            if held:
                self._release(file, descriptor)

    def _take(self, file: int, descriptor: int) -> bool:
        with self._lock:
            try:
                if not self._holders[file]:
                    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
                    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                elif not self.is_intact(descriptor):
                    return False
            except OSError:
                return False
            self._holders[file] += 1
            return True

    def _release(self, file: int, descriptor: int) -> None:
        with self._lock:
            self._holders[file] -= 1
            if not self._holders[file]:
                # The kernel breaks a lease itself once a writer has waited too long.
                with suppress(OSError):
                    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    @staticmethod
    def is_intact(descriptor: int) -> bool:
        """Whether the lease is held and no writer waits for its end."""
        return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_RDLCK


class Maps:
    """A cache of the most recently used maps of whole files.

    A map that is evicted lives on while an array refers to it.

    Args:
        limit: maximum number of cached maps.
    """

    def __init__(self, limit: int = MAX_MAPS) -> None:
        self._limit = limit
        self._maps: OrderedDict[int, Octets] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, file: int, descriptor: int, size: int) -> Octets:
        """Map at least the first ``size`` bytes of a file, read-only.

        Raises:
            OSError: the file cannot be mapped.
            EOFError: the file is shorter.
        """
        with self._lock:
            octets = self._maps.get(file)
            if octets is None or len(octets) < size:
                try:
                    whole = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
                except ValueError as e:
                    raise EOFError from e
                octets = self._maps[file] = np.frombuffer(whole, np.uint8)
            self._maps.move_to_end(file)
            while len(self._maps) > self._limit:
                self._maps.popitem(last=False)
            return octets

    def known(self, file: int, size: int) -> Octets | None:
        """Return the cached map of a file, if any, without marking it as used."""
        octets = self._maps.get(file)
        return None if octets is None or len(octets) < size else octets

    def clear(self) -> None:
        """Drop all maps."""
        with self._lock:
            self._maps.clear()
