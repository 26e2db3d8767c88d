"""Shared memory that a worker decodes into, and the service reads from.

A segment is a memfd. Before a worker gets it, its size is sealed: a worker that shrank it would
make the service's next look at it a SIGBUS. The service maps it for reading only. What it holds
may change at any time, since the worker has it mapped too, so a number that the service relies
on, such as an offset, is copied before it is checked.

Making a segment costs a page fault per 4 KiB on both sides. So a worker has a few, used again and
again: a segment is free once no array refers to it.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import weakref
from collections import deque

import numpy as np

from core.arrays import Octets

from .wire import KEEP_BYTES

_MIN_BYTES = 256 << 10
_KEEP = 3
"""Maximum number of free segments of a worker."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Segment:
    """One piece of shared memory, freed with the last array over it.

    Attributes:
        number: names it to the worker.
        size: size in bytes.
        descriptor: the memfd; None once the worker has it.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        descriptor = os.memfd_create("thalweg-decoded", flags)
        self.descriptor: int | None = descriptor
        self._closing = weakref.finalize(self, os.close, descriptor)
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        self._map = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)

    def octets(self, nbytes: int) -> Octets:
        """Return the first bytes as a read-only array over the shared memory."""
        return np.frombuffer(self._map, np.uint8, nbytes)

    def sent(self) -> None:
        """Close the descriptor, of which the worker has a copy now."""
        self._closing()
        self.descriptor = None


class _Loan(weakref.ref[Octets]):
    """A lent array, which tells its end with its segment: a quarter of weakref.finalize's time."""

    __slots__ = ("segment",)
    segment: Segment


class Segments:
    """The segments of one worker; for one thread at a time."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._loans: dict[int, _Loan] = {}
        self._free: list[Segment] = []
        # Arrays are collected in any thread, in the middle of anything: no locks there.
        self._returned: deque[Segment] = deque()
        self._dropped: list[int] = []
        self._closed = False

    def take(self, nbytes: int) -> Segment:
        """Return a segment of at least ``nbytes``; its contents are arbitrary.

        Raises:
            OSError: the system has no memory or descriptors left.
        """
        self._collect()
        fitting = [segment for segment in self._free if segment.size >= nbytes]
        if fitting:
            segment = min(fitting, key=lambda s: s.size)
            self._free.remove(segment)
            return segment
        size = max(_MIN_BYTES, 1 << (nbytes - 1).bit_length())
        if size > KEEP_BYTES:
            size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        return Segment(next(self._numbers), size)

    def lend(self, segment: Segment, nbytes: int) -> Octets:
        """Return the contents; the segment is free again once nothing refers to them."""
        octets = segment.octets(nbytes)
        loan = self._loans[segment.number] = _Loan(octets, self._end)
        loan.segment = segment
        return octets

    def _end(self, loan: _Loan) -> None:
        self._loans.pop(loan.segment.number, None)
        self.put(loan.segment)

    def put(self, segment: Segment) -> None:
        """Return a segment; a long one is freed, as the worker has done when it answered."""
        if not self._closed and segment.size <= KEEP_BYTES:
            self._returned.append(segment)

    def dropped(self) -> list[int]:
        """Return the numbers of segments that the worker can unmap, each once."""
        self._collect()
        numbers, self._dropped = self._dropped, []
        return numbers

    def close(self) -> None:
        """Free all segments, those that are lent once they are returned."""
        self._closed = True
        self._loans.clear()
        self._returned.clear()
        self._free.clear()

    def _collect(self) -> None:
        if not self._returned:
            return
        while self._returned:
            self._free.append(self._returned.popleft())
        self._dropped += [segment.number for segment in self._free[:-_KEEP]]
        del self._free[:-_KEEP]
