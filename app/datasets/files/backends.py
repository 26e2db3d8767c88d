"""Backends: three ways to get at many ranges of a dataset's files.

Tiles are made of ranges in two ways. Bytes that are wanted as they are go straight to their
place: ``read_ranges``. Values that are converted, corrected or summed pass through the
processor anyway, and how far they travel before decides the speed: ``visit`` hands ranges to
a function, some at a time, where they are cheapest to get at.

    leased     file ══▶ function            the pages of the page cache themselves, mapped,
                                            under a lease that is held for the call
    buffered   file ──▶ room ══▶ function   pieces that fit the second-level cache: each is
                                            still there when the function reads it

``leased`` is the default. It reads like ``buffered`` what cannot be leased, because someone
writes to it or it belongs to another user, and where a map would not pay. :mod:`.mapped` tells
why a map under a lease cannot kill the process. ``direct`` reads past the page cache (O_DIRECT),
for scans that read everything once; what does not support that is read like ``buffered``.

One tile may consist of thousands of ranges, so the number of system calls decides the speed of
reading. :func:`.ranges.arrange` sorts the ranges and joins neighbours; what remains is read in
one of two ways, by the average length of a range:

    long    file    ──[range]─gap─[range]─────[range]──    one preadv for each group of
            buffers   place   waste place      place       ranges with small gaps, straight
                                                           into place; gaps go to waste
    short   file    ──[hull of many ranges]──────────      whole hulls into a pooled buffer,
            pool      [·· ··· ·· ·····]                    then numpy copies the ranges out

All backends give the same bytes or the same error. Files are compared with their recorded
state *after* their bytes were read: a check beforehand would miss a change in between, and
bytes of two states, or of an outdated one, must never be returned without an error. What a
visited function computes counts only once ``visit`` has returned.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from app.errors import InvalidOptionError
from core.arrays import Indices, Octets
from core.tiles.ranges import Ranges, arrange, gather

from .buffers import PAGE, BufferPool
from .file_set import FileSet
from .mapped import Leases, Maps

Use = Callable[[int, Octets, Indices], None]
"""``use(first, octets, positions)``: range ``first + k`` begins at ``octets[positions[k]]``.

Bytes around the ranges are not to be touched, and the array not to be kept."""

LEASED, BUFFERED, DIRECT = BACKENDS = ("leased", "buffered", "direct")

_GAP = 16 << 10
"""Maximum gap between two ranges to read rather than skip: reading it costs about a call."""
_DIRECT_GAP = 128 << 10
"""The same where every call reaches the disk."""
_MAX_CALL = 16 << 20
"""Maximum bytes per call, so that a thread never blocks for long."""
_SCATTERED = 2048
"""Average length in bytes below which ranges are read together and copied out."""
_MAX_BUFFERS = 1024
"""Maximum number of buffers per call: IOV_MAX."""
_PORTION = 4 << 20
"""Bytes between two looks for writers who wait for a lease."""
_LEAST = 64 << 10
"""Bytes from which on a lease pays."""


class Run(NamedTuple):
    """Ranges of one open file, all of one length."""

    file: int
    descriptor: int
    starts: Indices
    """Offset of the first byte of each range."""
    size: int
    """Bytes of a range."""


class RangeBackend(Protocol):
    """Reads ranges of a set of files; several threads may call it at once."""

    name: ClassVar[str]

    def read_ranges(
        self, files: Indices, starts: Indices, stops: Indices, out: memoryview, offsets: Indices
    ) -> None:
        """Read bytes ``starts[k]`` to ``stops[k]`` of ``files[k]`` to ``out[offsets[k]:]``.

        Ranges may be in any order, overlap in the files, and be empty.

        Args:
            files: index of the file of each range, int64, shape (k,); likewise the others.
            starts: offset of the first byte of each range.
            stops: offset after the last byte of each range.
            out: the output, writable bytes.
            offsets: where in the output each range begins.

        Raises:
            DataChangedError: a file changed since it was opened; discard ``out``.
            ReadFailedError: the disk failed.
            BusyError: no buffers are left, or too many files are open.
            ValueError: a range lies outside of its file or the output, or the set is closed.
        """

    piece: int
    """Bytes that are best visited at a time."""

    def visit(self, files: Indices, starts: Indices, size: int, room: Octets, use: Use) -> None:
        """Call ``use`` for successive ranges, in their order, some at a time.

        Args:
            files: index of the file of each range, int64, shape (k,).
            starts: offset of the first byte of each range, likewise.
            size: length of each range in bytes, at least 1.
            room: where ranges are put that have to be read; at least ``size`` bytes.
            use: called with the index of the first of some ranges, the bytes they are in,
                and where in them each begins.

        Raises:
            DataChangedError: a file changed since it was opened; what ``use`` was given is
                not to be trusted.
            ReadFailedError, BusyError, ValueError: see ``read_ranges``.
            Exception: what ``use`` raises.
        """

    def hint(self, files: Indices, starts: Indices, stops: Indices) -> None:
        """Start to bring ranges into the page cache that will be read soon; does not wait."""

    def close(self) -> None:
        """Drop memory maps, which last until their users are done; the files stay open."""


def open_backend(name: str, files: FileSet, pool: BufferPool) -> RangeBackend:
    """Create the backend of this name for a set of files, which the caller closes.

    Args:
        name: one of ``BACKENDS``.
        files: the files to read.
        pool: lends buffers where the caller's cannot be read into.

    Raises:
        InvalidOptionError: there is no backend of this name.
    """
    if name == LEASED:
        return LeasedBackend(files, pool)
    if name == BUFFERED:
        return BufferedBackend(files, pool)
    if name == DIRECT:
        return DirectBackend(files, pool)
    raise InvalidOptionError(
        f"there is no backend {name!r}", hint=f"Use {', '.join(BACKENDS)}", option="backend"
    )


class BufferedBackend:
    """Reads through the page cache."""

    name: ClassVar[str] = BUFFERED
    piece = 512 << 10

    def __init__(self, files: FileSet, pool: BufferPool) -> None:
        self._files = files
        self._pool = pool
        # Gaps are read into it. All threads may write to it at once, since none reads it.
        self._waste = memoryview(bytearray(_GAP))

    def read_ranges(
        self, files: Indices, starts: Indices, stops: Indices, out: memoryview, offsets: Indices
    ) -> None:
        """See RangeBackend."""
        octets = np.frombuffer(out, np.uint8)
        ranges = arrange(files, starts, stops, offsets, len(octets))
        self._files.check(self._read_all(ranges, octets))

    def _read_all(self, ranges: Ranges, out: Octets) -> list[int]:
        """Read ranges of any files; return the files, which are still to be checked."""
        by_file = ranges.by_file()
        for file, part in by_file:
            self._check_size(file, part.end)
            with self._files.use(file) as descriptor:
                self._read(file, descriptor, part, out)
        return [file for file, _ in by_file]

    def _check_size(self, file: int, stop: int) -> None:
        if not 0 <= file < len(self._files):
            raise ValueError(f"there is no file {file}")
        if stop > (size := self._files.size(file)):
            raise ValueError(f"a range ends at byte {stop} of a file of {size} bytes")

    def visit(self, files: Indices, starts: Indices, size: int, room: Octets, use: Use) -> None:
        """See RangeBackend."""
        if not len(starts):
            return
        if starts.min() < 0 or not 0 < size <= len(room):
            raise ValueError("a range begins before 0, or does not fit the room")
        if (files == files[0]).all():
            file = int(files[0])
            self._check_size(file, int(starts.max()) + size)
            with self._files.use(file) as descriptor:
                self._visit(Run(file, descriptor, starts, size), room, use)
            self._files.check((file,))
            return
        used: set[int] = set()
        positions = np.arange(len(room) // size, dtype=np.int64) * size
        for first in range(0, len(starts), len(positions)):
            part = slice(first, first + len(positions))
            begins, offsets = starts[part], positions[: len(starts) - first]
            ranges = arrange(files[part], begins, begins + size, offsets, len(room))
            used.update(self._read_all(ranges, room))
            use(first, room, offsets)
        self._files.check(sorted(used))

    def _visit(self, run: Run, room: Octets, use: Use) -> None:
        """Visit ranges of one file."""
        file, descriptor, starts, size = run
        positions = np.arange(min(len(room) // size, len(starts)), dtype=np.int64) * size
        step = len(positions)
        for first in range(0, len(starts), step):
            begins = starts[first : first + step]
            offsets = positions[: len(begins)]
            self._read(file, descriptor, _packed(file, begins, offsets, size), room)
            use(first, room, offsets)

    def _read(self, file: int, descriptor: int, ranges: Ranges, out: Octets) -> None:
        """Read ranges of one file.

        Raises:
            DataChangedError: the file ends before the ranges.
            ReadFailedError: the disk failed.
        """
        try:
            self._read_file(descriptor, ranges, out)
        except EOFError as e:
            raise self._files.changed(file, "shrank") from e
        except OSError as e:
            self._files.failed(file, e)

    def _read_file(self, descriptor: int, ranges: Ranges, out: Octets) -> None:
        if len(ranges.starts) > 1 and (ranges.stops - ranges.starts).mean() < _SCATTERED:
            self._read_together(descriptor, ranges, (_GAP, 1), out)
            return
        view = out.data
        starts, stops = ranges.starts.tolist(), ranges.stops.tolist()
        ends = (ranges.offsets + ranges.stops - ranges.starts).tolist()
        targets = [view[a:b] for a, b in zip(ranges.offsets.tolist(), ends, strict=True)]
        for first, last in ranges.groups(_GAP):
            buffers = targets[first:last]
            if last - first > 1:
                gaps = zip(stops[first : last - 1], starts[first + 1 : last], strict=True)
                waste = (self._waste[: start - stop] for stop, start in gaps)
                buffers = [buffer for pair in zip(buffers, waste, strict=False) for buffer in pair]
                buffers.append(targets[last - 1])
            begin, end = starts[first], stops[last - 1]
            # A single call nearly always suffices.
            large = end - begin > _MAX_CALL or len(buffers) > _MAX_BUFFERS
            if large or os.preadv(descriptor, buffers, begin) < end - begin:
                self._fill(descriptor, buffers, begin, end)

    @staticmethod
    def _fill(descriptor: int, buffers: list[memoryview], at: int, stop: int) -> None:
        """Fill buffers, in their order, with bytes ``at`` to ``stop`` of the file.

        Raises:
            EOFError: the file ends before ``stop``.
        """
        index = skip = 0
        while at < stop:
            head = buffers[index][skip:] if skip else buffers[index]
            if len(head) > _MAX_CALL:
                batch = [head[:_MAX_CALL]]
            else:
                batch = [head, *buffers[index + 1 : index + _MAX_BUFFERS]]
            count = os.preadv(descriptor, batch, at)
            if not count:
                raise EOFError
            at += count
            skip += count
            while at < stop and skip >= len(buffers[index]):
                skip -= len(buffers[index])
                index += 1

    def _read_together(
        self, descriptor: int, ranges: Ranges, limits: tuple[int, int], out: Octets
    ) -> None:
        """Read hulls of near ranges into a pooled buffer, and copy the ranges out.

        Args:
            descriptor: the file.
            ranges: ranges of this file.
            limits: maximum gap within a hull, and the page size hulls are aligned to.
            out: the output.
        """
        gap, page = limits
        with self._pool.lend() as buffer:
            view = buffer.data
            for load in ranges.loads(gap, len(buffer), page):
                for hull in load.hulls:
                    self._load(
                        descriptor, view[hull.at : hull.at + hull.size], hull.begin, hull.length
                    )
                gather(buffer, load.positions, load.ranges, out)

    def _load(self, descriptor: int, buffer: memoryview, at: int, length: int) -> None:
        self._fill(descriptor, [buffer[:length]], at, at + length)

    def hint(self, files: Indices, starts: Indices, stops: Indices) -> None:
        """See RangeBackend."""
        for file, ranges in arrange(files, starts, stops, starts, None).by_file():
            self._check_size(file, ranges.end)
            with self._files.use(file) as descriptor:
                for first, last in ranges.groups(_DIRECT_GAP):
                    start, stop = int(ranges.starts[first]), int(ranges.stops[last - 1])
                    os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """Do nothing: there are no maps."""


class LeasedBackend(BufferedBackend):
    """Visits mapped files under leases; reads what cannot be leased."""

    name: ClassVar[str] = LEASED

    def __init__(self, files: FileSet, pool: BufferPool) -> None:
        super().__init__(files, pool)
        self._leases = Leases()
        self._maps = Maps()

    def _visit(self, run: Run, room: Octets, use: Use) -> None:
        done = 0
        if len(run.starts) * run.size >= _LEAST:
            with self._leases.hold(run.file, run.descriptor) as leased:
                if leased:
                    done = self._visit_map(run, use)
        if done < len(run.starts):
            rest = run._replace(starts=run.starts[done:])
            super()._visit(rest, room, partial(_shifted, use, done) if done else use)

    def _visit_map(self, run: Run, use: Use) -> int:
        """Visit ranges in the map; return how many, fewer if a writer or the disk interferes."""
        file, descriptor, starts, size = run
        try:
            mapped = self._maps.of(file, descriptor, self._files.size(file))
        except EOFError as e:
            raise self._files.changed(file, "shrank") from e
        except OSError:
            return 0
        step = max(_PORTION // size, 1)
        for first in range(0, len(starts), step):
            begins = starts[first : first + step]
            if not (mapped.deliver(begins, size) and self._leases.is_intact(descriptor)):
                return first
            use(first, mapped.octets, begins)
        return len(starts)

    def close(self) -> None:
        """Drop the maps, which last until their users are done."""
        self._maps.clear()


class DirectBackend(BufferedBackend):
    """Reads past the page cache where the file system supports it."""

    name: ClassVar[str] = DIRECT
    piece = 8 << 20

    def _read_file(self, descriptor: int, ranges: Ranges, out: Octets) -> None:
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT
            direct = os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError:
            super()._read_file(descriptor, ranges, out)
            return
        try:
            self._read_together(direct, ranges, (_DIRECT_GAP, PAGE), out)
        except OSError as e:
            if e.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise
            super()._read_file(descriptor, ranges, out)
        finally:
            os.close(direct)

    def _load(self, descriptor: int, buffer: memoryview, at: int, length: int) -> None:
        done = 0
        while done < length:
            count = os.preadv(descriptor, [buffer[done:]], at + done)
            if count < min(PAGE, length - done):
                raise EOFError
            done += count if done + count >= length else count // PAGE * PAGE

    def hint(self, files: Indices, starts: Indices, stops: Indices) -> None:
        """Do nothing: reads do not go through the page cache."""


def _packed(file: int, starts: Indices, offsets: Indices, size: int) -> Ranges:
    """Arrange ranges of one length and file for an output without gaps."""
    length = len(starts) * size
    if (np.diff(starts) == size).all():
        # Most tiles: one range, for which sorting and joining cost more than a small read.
        first = starts[:1]
        return Ranges(np.array([file]), first, first + length, offsets[:1])
    return arrange(np.full(len(starts), file), starts, starts + size, offsets, length)


def _shifted(use: Use, by: int, first: int, octets: Octets, positions: Indices) -> None:
    use(by + first, octets, positions)
