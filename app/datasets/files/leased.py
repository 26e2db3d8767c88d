"""Ranges of files in memory maps, under leases or watched."""

from __future__ import annotations

import errno
import os
from functools import partial
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np

from core.arrays import Indices, Octets
from core.tiles.ranges import copy_rows

from .buffered import BufferedBackend, Lend, Use
from .buffers import BufferPool
from .file_set import FileSet
from .mapped import Leases, Maps

_PORTION = 4 << 20
"""Bytes between two looks for writers who wait for a lease."""
_LEAST = 64 << 10
"""Bytes from which on a lease pays."""


class _Held(NamedTuple):
    """An open file."""

    file: int
    """Index of the file."""
    descriptor: int
    watched: bool = False
    """Whether a watched map will do where there is no lease."""


class LeasedBackend(BufferedBackend):
    """Visits and copies files in their maps under leases, and visits watched maps without.

    What can be neither leased nor watched is read.
    """

    name: ClassVar[str] = "leased"

    def __init__(self, files: FileSet, pool: BufferPool) -> None:
        super().__init__(files, pool)
        self._leases = Leases()
        self._maps = Maps()

    def _copy(self, file: int, starts: Indices, size: int, out: Octets) -> None:
        if len(starts) * size < _LEAST:
            super()._copy(file, starts, size, out)
            return
        with self._files.hold(file) as descriptor:
            use = partial(_copy_out, size, out)
            done = self._visit_map(_Held(file, descriptor), starts, size, use)
            if done < len(starts):
                self._announce(descriptor, starts[done:], size)
                self._copy_read(file, descriptor, starts[done:], size, out[done * size :])

    def _visit(self, file: int, starts: Indices, size: int, use: Use) -> None:
        if len(starts) * size < _LEAST:
            super()._visit(file, starts, size, use)
            return
        descriptor = self._files.acquire(file)
        try:
            held = _Held(file, descriptor, watched=True)
            done = self._visit_map(held, starts, size, use)
            if done < len(starts):
                rest = partial(_later, use, done) if done else use
                self._visit_read(file, descriptor, starts[done:], size, rest)
        finally:
            self._files.release(file)

    def _visit_map(self, held: _Held, starts: Indices, size: int, use: Use) -> int:
        """Visit ranges in the map of an open file, if there is a lease, or if it is watched.

        Args:
            held: the open file.
            starts: offset of the first byte of each range, shape (k,), k ≥ 1.
            size: length of each range in bytes.
            use: called with some ranges at a time.

        Returns:
            How many were visited; fewer than all if a writer or the disk interferes.

        Raises:
            DataChangedError: the file changed since it was opened.
            ReadFailedError: the disk failed.
        """
        file, descriptor, watched = held
        leased = self._leases.take(file, descriptor)
        try:
            # Under the lease: what is seen now stays so.
            self._files.look(file, descriptor)
            if not leased and not (watched and self._leases.is_local(file, descriptor)):
                return 0
            mapped = self._maps.of(file, descriptor, self._files.size(file))
            if mapped is None or not (leased or mapped.is_watched()):
                return 0
            there = mapped.has(starts, size)
            if not there:
                self._hint(descriptor, starts, size)
            step = max(_PORTION // size, 1)
            for first in range(0, len(starts), step):
                begins = starts[first : first + step]
                if not (there or mapped.deliver(begins, size)):
                    return first
                # The lease was taken just now, unless a disk or a portion took time since.
                late = first or not there
                if leased and late and not self._leases.is_intact(descriptor):
                    return first
                use(first, mapped.octets, begins)
                if (missing := mapped.missing()) is not None:
                    self._tell_missing(file, descriptor, missing)
            return len(starts)
        finally:
            if leased:
                self._leases.release(file, descriptor)

    def _tell_missing(self, file: int, descriptor: int, offset: int) -> NoReturn:
        """Raise the error for a page that was missing in the map: a disk's, or a cut file's.

        Raises:
            DataChangedError: the file was cut.
            ReadFailedError: the disk failed.
        """
        try:
            os.pread(descriptor, 1, offset)
        except OSError as e:
            self._files.failed(file, e)
        raise self._files.changed(file, "shrank")

    def lend(self, file: int, start: int, stop: int, use: Lend) -> bool:
        """See BufferedBackend."""
        self._check_size(file, stop)

        def pass_on(_first: int, octets: Octets, positions: Indices) -> None:
            begin = int(positions[0])
            # The file may have been replaced, which its lease does not show.
            self._files.check_one(file)
            use(octets[begin : begin + stop - start].data)

        with self._files.hold(file) as descriptor:
            starts = np.array([start], np.int64)
            try:
                held = _Held(file, descriptor)
                return bool(self._visit_map(held, starts, stop - start, pass_on))
            except OSError as e:
                if e.errno != errno.EFAULT:
                    raise
                return False

    def close(self) -> None:
        """Drop the maps, which last until their users are done."""
        self._maps.clear()


def _copy_out(size: int, out: Octets, first: int, octets: Octets, positions: Indices) -> None:
    """Copy ranges from a map to their places in the output."""
    part = out[first * size : (first + len(positions)) * size]
    copy_rows(octets, positions, part.reshape(-1, size))


def _later(use: Use, by: int, first: int, octets: Octets, positions: Indices) -> None:
    use(by + first, octets, positions)
