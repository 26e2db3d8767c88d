"""Ranges of files through the page cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

import numpy as np

from app.errors import ServiceError
from core.arrays import Indices, Octets
from core.tiles.ranges import Ranges, arrange, gather, last_start

from .buffers import BufferPool
from .file_set import FileSet

Use = Callable[[int, Octets, Indices], None]
"""``use(first, octets, positions)``: range ``first + k`` begins at ``octets[positions[k]]``.

Bytes around the ranges are not to be touched, and the array not to be kept."""

Lend = Callable[[memoryview], None]
"""Passes bytes to the kernel, and does not touch or keep them."""

_GAP = 16 << 10
"""Maximum gap between two ranges to read rather than skip: reading it costs about a call."""
_MAX_CALL = 16 << 20
"""Maximum bytes per call, so that a thread never blocks for long."""
_SCATTERED = 2048
"""Average length in bytes below which ranges are read together and copied out."""
_LONG = 16 << 10
"""Length in bytes from which on every range has a call of its own."""
_MAX_BUFFERS = 1024
"""Maximum number of buffers per call: IOV_MAX."""
_READ_AHEAD = 128 << 10
"""Length in bytes of what the kernel fetches from a disk at once by itself."""
_MAX_ROOM = 8 << 20
"""Maximum bytes that are read at a time to be visited, unless a single range is longer."""


class BufferedBackend:
    """Reads ranges of a set of files through the page cache; several threads may call it at once.

    Others derive from it, and override what they do otherwise.
    """

    name: ClassVar[str] = "buffered"
    ahead: ClassVar[int] = 0
    """Bytes for which ``hint`` is to be called before they are read; the next ones at least."""

    def __init__(self, files: FileSet, pool: BufferPool) -> None:
        self._files = files
        self._pool = pool
        # Gaps are read into it. All threads may write to it at once, since none reads it.
        self._waste = memoryview(bytearray(_GAP))

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
        octets = np.frombuffer(out, np.uint8)
        ranges = arrange(files, starts, stops, offsets, len(octets))
        self._files.check(self._read_all(ranges, octets))

    def _read_all(self, ranges: Ranges, out: Octets) -> list[int]:
        """Read ranges of any files; return the files, which are still to be checked."""
        by_file = ranges.by_file()
        for file, part in by_file:
            self._check_size(file, part.end)
            with self._files.use(file) as descriptor:
                try:
                    self._read(descriptor, part, out)
                except (EOFError, OSError) as e:
                    self._files.failed(file, e)
        return [file for file, _ in by_file]

    def _check_size(self, file: int, stop: int) -> None:
        if not 0 <= file < len(self._files):
            raise ValueError(f"there is no file {file}")
        if stop > (size := self._files.size(file)):
            raise ValueError(f"a range ends at byte {stop} of a file of {size} bytes")

    # -- ranges of one length -----------------------------------------------------

    def copy(self, files: Indices, starts: Indices, size: int, out: Octets) -> None:
        """Read ranges of one length to an output, one after the other.

        Args:
            files: index of the file of each range, int64, shape (k,), or (1,) if it is one file.
            starts: offset of the first byte of each range, int64, contiguous, shape (k,).
            size: length of each range in bytes, at least 1.
            out: the output, contiguous, shape (k * size,).

        Raises:
            DataChangedError, ReadFailedError, BusyError, ValueError: see ``read_ranges``.
        """
        file = self._one_file(files, starts, size)
        if len(starts) * size != len(out):
            raise ValueError(f"{len(starts)} ranges of {size} bytes do not fill {len(out)}")
        if file is not None:
            self._copy(file, starts, size, out)
            self._files.check_one(file)
        elif len(starts):
            offsets = np.arange(len(starts), dtype=np.int64) * size
            self.read_ranges(files, starts, starts + size, out.data, offsets)

    def visit(self, files: Indices, starts: Indices, size: int, use: Use) -> None:
        """Call ``use`` for successive ranges of one length, in their order, some at a time.

        Args:
            files: index of the file of each range, int64, shape (k,), or (1,) if it is one file.
            starts: offset of the first byte of each range, int64, contiguous, shape (k,).
            size: length of each range in bytes, at least 1.
            use: called with the index of the first of some ranges, the bytes they are in,
                and where in them each begins.

        Raises:
            DataChangedError: a file changed since it was opened; what ``use`` was given is
                not to be trusted.
            ReadFailedError, BusyError, ValueError: see ``read_ranges``.
            Exception: what ``use`` raises.
        """
        file = self._one_file(files, starts, size)
        if file is not None:
            self._visit(file, starts, size, use)
            self._files.check_one(file)
        elif len(starts):
            self._visit_many(files, starts, size, use)

    def lend(self, file: int, start: int, stop: int, use: Lend) -> bool:
        """Call ``use`` with bytes of a file where they are, if nobody can change them meanwhile.

        They are for the kernel to read: a page may fail to come, which kills whoever touches it.

        Args:
            file: index of the file.
            start: offset of the first byte.
            stop: offset after the last byte, within the file.
            use: called at most once, with the bytes, which it does not keep.

        Returns:
            Whether it was called; if not, or if it raised EFAULT, the bytes are to be read.

        Raises:
            DataChangedError, ReadFailedError, BusyError, ValueError: see ``read_ranges``.
            Exception: what ``use`` raises.
        """
        del file, start, stop, use  # there are no maps
        return False

    def _one_file(self, files: Indices, starts: Indices, size: int) -> int | None:
        """Return the file of all ranges; None if they are in several, or there are none.

        Raises:
            ValueError: a range lies outside of the file, or is empty.
        """
        if size < 1:
            raise ValueError("a range is empty")
        if not len(starts):
            return None
        if (farthest := last_start(starts)) < 0:
            raise ValueError("a range begins before 0")
        if len(files) > 1 and not (files == files[0]).all():
            return None
        file = int(files[0])
        self._check_size(file, farthest + size)
        return file

    def hint(self, files: Indices, starts: Indices, size: int) -> None:
        """Have the disk fetch ranges of one length that are to be read next; does not wait.

        Nothing happens if they are in memory, lie in several files, or cannot be read.

        Args:
            files: index of the file of each range, int64, shape (k,), or (1,) if it is one file.
            starts: offset of the first byte of each range, int64, contiguous, shape (k,).
            size: length of each range in bytes, at least 1.
        """
        # Whatever is wrong is told by the read to come.
        with suppress(ServiceError, OSError):
            if (file := self._one_file(files, starts, size)) is not None:
                with self._files.hold(file) as descriptor:
                    self._hint(descriptor, starts, size)

    @staticmethod
    def _hint(descriptor: int, starts: Indices, size: int) -> None:
        """Have the disk fetch ranges all at once, unless the last one is in memory already."""
        try:
            os.preadv(descriptor, [bytearray(1)], int(starts[-1]) + size - 1, os.RWF_NOWAIT)
        except BlockingIOError:
            for start in starts.tolist():
                os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_WILLNEED)
        except OSError:
            # A file system that does not know; and of a disk that fails, the read will tell.
            pass

    def _announce(self, descriptor: int, starts: Indices, size: int) -> None:
        """Hint at ranges that are read at once, unless they are but one that is read in a call."""
        if len(starts) > 1 or size > _READ_AHEAD:
            self._hint(descriptor, starts, size)

    def _copy(self, file: int, starts: Indices, size: int, out: Octets) -> None:
        with self._files.use(file) as descriptor:
            self._announce(descriptor, starts, size)
            self._copy_read(file, descriptor, starts, size, out)

    def _copy_read(
        self, file: int, descriptor: int, starts: Indices, size: int, out: Octets
    ) -> None:
        """Read ranges of an open file to an output, one after the other."""
        try:
            if self._are_apart(starts, size):
                self._read_long(descriptor, starts, size, out)
                return
            offsets = np.arange(len(starts), dtype=np.int64) * size
            files = np.zeros_like(starts)
            ranges = arrange(files, starts, starts + size, offsets, len(out))
            self._read(descriptor, ranges, out)
        except (EOFError, OSError) as e:
            self._files.failed(file, e)

    def _visit(self, file: int, starts: Indices, size: int, use: Use) -> None:
        with self._files.use(file) as descriptor:
            self._visit_read(file, descriptor, starts, size, use)

    def _visit_read(self, file: int, descriptor: int, starts: Indices, size: int, use: Use) -> None:
        """Visit ranges of an open file: at once if possible, else as many as there is room."""
        if self._visit_row(descriptor, starts, size, use):
            return
        self._announce(descriptor, starts, size)
        with self._room(starts, size) as room:
            positions = np.arange(min(len(room) // size, len(starts)), dtype=np.int64) * size
            for first in range(0, len(starts), len(positions)):
                begins = starts[first : first + len(positions)]
                self._copy_read(file, descriptor, begins, size, room[: len(begins) * size])
                use(first, room, positions[: len(begins)])

    def _visit_row(self, descriptor: int, starts: Indices, size: int, use: Use) -> bool:
        """Visit ranges that follow each other and are in memory; return False if they are not.

        Frames of a scan are such ranges. One call reads them and tells that they are there.
        """
        total, first = len(starts) * size, int(starts[0])
        if total > self._pool.size or total <= _READ_AHEAD:
            return False
        if starts.tolist() != list(range(first, first + total, size)):
            return False
        with self._pool.lend() as room:
            try:
                count = os.preadv(descriptor, [room.data[:total]], first, os.RWF_NOWAIT)
            except OSError:  # not in memory, or what the ordinary way tells
                return False
            if count < total:
                return False
            use(0, room, starts - first)
        return True

    def _visit_many(self, files: Indices, starts: Indices, size: int, use: Use) -> None:
        """Read ranges of several files, as many as there is room, and visit them."""
        used: set[int] = set()
        with self._room(starts, size) as room:
            positions = np.arange(len(room) // size, dtype=np.int64) * size
            for first in range(0, len(starts), len(positions)):
                part = slice(first, first + len(positions))
                begins, offsets = starts[part], positions[: len(starts) - first]
                ranges = arrange(files[part], begins, begins + size, offsets, len(room))
                used.update(self._read_all(ranges, room))
                use(first, room, offsets)
        self._files.check(sorted(used))

    @contextmanager
    def _room(self, starts: Indices, size: int) -> Iterator[Octets]:
        """Provide memory for some ranges of one length, or all."""
        total = len(starts) * size
        if size <= self._pool.size and self._are_apart(starts, size):
            with self._pool.lend() as buffer:
                yield buffer
        elif size < _LONG and (starts[1:] >= starts[:-1]).all():
            yield np.empty(min(max(self._pool.size, size), total), np.uint8)
        else:
            # Short ranges in no order: sorted all at once, most of them are neighbours.
            yield np.empty(min(max(_MAX_ROOM, size), total), np.uint8)

    @staticmethod
    def _are_apart(starts: Indices, size: int) -> bool:
        """Whether a call for each range is faster than to look for neighbours to read with it."""
        if size >= _LONG:
            return True
        spread = abs(int(starts[-1]) - int(starts[0]))
        return size >= _SCATTERED and spread > (len(starts) - 1) * (size + _GAP)

    def _read_long(self, descriptor: int, starts: Indices, size: int, out: Octets) -> None:
        """Read ranges of one length, one after the other, with a call for each but neighbours."""
        view = out.data
        begins = starts.tolist()
        at = 0
        while at < len(begins):
            begin, stop = begins[at], at + 1
            end = begin + size
            while stop < len(begins) and begins[stop] == end:
                stop += 1
                end += size
            target = view[at * size : stop * size]
            if end - begin > _MAX_CALL or os.preadv(descriptor, [target], begin) < end - begin:
                self._fill(descriptor, [target], begin, end)
            at = stop

    # -- ranges of any length -----------------------------------------------------

    def _read(self, descriptor: int, ranges: Ranges, out: Octets) -> None:
        """Read ranges of one open file."""
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

    def close(self) -> None:
        """Drop memory maps, which last until their users are done; the files stay open."""
