"""Memory maps of files, and leases that keep writers off while one is copied from.

Reading a map behind the end of a file that was cut kills the process; under a lease
nobody can cut it. The kernel tells the holder by a signal that somebody waits: it is made
one that is ignored by default, for leases are held only as long as a call lasts.
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

from .buffers import Octets

MAX_MAPS = 64
"""Maps that are kept; each has a descriptor of its own."""


class Leases:
    """Read leases on files, each shared by all threads that want one."""

    def __init__(self) -> None:
        self._holders: Counter[int] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, file: int, descriptor: int) -> Iterator[bool]:
        """Try to keep writers off a file until the end of the block.

        Gives False if that cannot be had: somebody has it open for writing, or waits for
        that; the file is another user's; the file system has no leases.
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
                elif not self.is_whole(descriptor):
                    return False
            except OSError:
                return False
            self._holders[file] += 1
            return True

    def _release(self, file: int, descriptor: int) -> None:
        with self._lock:
            self._holders[file] -= 1
            if not self._holders[file]:
                # It is gone already if somebody waited for longer than the kernel lets one.
                with suppress(OSError):
                    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    @staticmethod
    def is_whole(descriptor: int) -> bool:
        """Whether there is a lease and nobody waits for its end."""
        return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_RDLCK


class Maps:
    """Maps of whole files, the last that were used; each lives while somebody has it.

    Args:
        limit: how many are kept.
    """

    def __init__(self, limit: int = MAX_MAPS) -> None:
        self._limit = limit
        self._maps: OrderedDict[int, Octets] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, file: int, descriptor: int, size: int) -> Octets:
        """The first ``size`` bytes of a file, and maybe more; read-only.

        Raises:
            OSError: it cannot be mapped.
            EOFError: it is shorter.
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
        """A map there is already; its place among those that are kept stays as it was."""
        octets = self._maps.get(file)
        return None if octets is None or len(octets) < size else octets

    def clear(self) -> None:
        """Forget them all."""
        with self._lock:
            self._maps.clear()
