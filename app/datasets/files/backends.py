"""Backends: three ways to read many ranges of a dataset's files into a caller's buffer.

One tile may consist of thousands of ranges, so the number of system calls decides the
speed. :func:`.ranges.arrange` sorts the ranges and joins neighbours; what remains is read
in one of two ways, by the average length of a range:

    long    file    ──[range]─gap─[range]─────[range]──    one preadv for each group of
            buffers   place   waste place      place       ranges with small gaps, straight
                                                           into place; gaps go to waste
    short   file    ──[hull of many ranges]──────────      whole hulls into a pooled buffer,
            pool      [·· ··· ·· ·····]                    then numpy copies the ranges out

The backends differ in where the bytes come from:

* ``buffered``, the default: the page cache, by preadv.
* ``mmap``: a memory map. Touching a page after the end of a truncated file kills the
  process with SIGBUS, so only files that cannot change are mapped: those declared
  immutable, and those under a read lease for the duration of the call. A lease makes a
  writer wait in open(2) until it is released (with O_NONBLOCK: fail), so it is given up
  between portions when the kernel reports a waiting writer.
* ``direct``: O_DIRECT, past the page cache, for scans that read everything once.

All give the same bytes or the same error. A file that does not support one way is read in
the buffered one. Files are compared with their recorded state *after* their bytes were
read: a check beforehand would miss a change in between, and bytes of two states, or of an
outdated one, must never be returned without an error.
"""

from __future__ import annotations

import errno
import os
from typing import ClassVar, Literal, Protocol

import numpy as np

from app.errors import InvalidOptionError
from core.arrays import Indices, Octets

from .buffers import PAGE, BufferPool
from .file_set import FileSet
from .mapped import Leases, Maps
from .ranges import Ranges, arrange, gather

Name = Literal["buffered", "mmap", "direct"]

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

    def mapped(self, file: int) -> Octets | None:
        """Return a whole file as memory if it is declared immutable, else None."""

    def hint(self, files: Indices, starts: Indices, stops: Indices) -> None:
        """Start to bring ranges into the page cache that will be read soon; does not wait."""

    def close(self) -> None:
        """Drop memory maps, which last until their users are done; the files stay open."""


def open_backend(
    name: str, files: FileSet, pool: BufferPool, *, immutable: bool = False
) -> RangeBackend:
    """Create the backend of this name for a set of files, which the caller closes.

    Args:
        name: ``buffered``, ``mmap`` or ``direct``.
        files: the files to read.
        pool: lends buffers where the caller's cannot be read into.
        immutable: whether the files are declared never to change.

    Raises:
        InvalidOptionError: there is no backend of this name.
    """
    if name == "buffered":
        return BufferedBackend(files, pool)
    if name == "mmap":
        return MmapBackend(files, pool, immutable=immutable)
    if name == "direct":
        return DirectBackend(files, pool)
    raise InvalidOptionError(f"there is no backend {name!r}", hint="Use buffered, mmap or direct")


class BufferedBackend:
    """Reads through the page cache."""

    name: ClassVar[str] = "buffered"

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
        by_file = arrange(files, starts, stops, offsets, len(octets)).by_file()
        for file, ranges in by_file:
            self._check_size(file, ranges)
            with self._files.use(file) as descriptor:
                try:
                    self._read(file, descriptor, ranges, octets)
                except EOFError as e:
                    raise self._files.changed(file, "shrank") from e
                except OSError as e:
                    self._files.failed(file, e)
        self._files.check(file for file, _ in by_file)

    def _check_size(self, file: int, ranges: Ranges) -> None:
        if not 0 <= file < len(self._files):
            raise ValueError(f"there is no file {file}")
        if (stop := ranges.end) > (size := self._files.size(file)):
            raise ValueError(f"a range ends at byte {stop} of a file of {size} bytes")

    def _read(self, file: int, descriptor: int, ranges: Ranges, out: Octets) -> None:  # noqa: ARG002
        """Read ranges of one file."""
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

    def mapped(self, file: int) -> Octets | None:
        """Return None: nothing is mapped."""

    def hint(self, files: Indices, starts: Indices, stops: Indices) -> None:
        """See RangeBackend."""
        for file, ranges in arrange(files, starts, stops, starts, None).by_file():
            self._check_size(file, ranges)
            with self._files.use(file) as descriptor:
                for first, last in ranges.groups(_DIRECT_GAP):
                    start, stop = int(ranges.starts[first]), int(ranges.stops[last - 1])
                    os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """Do nothing: there are no maps."""


class MmapBackend(BufferedBackend):
    """Copies from memory maps where that is safe; reads elsewhere."""

    name: ClassVar[str] = "mmap"

    def __init__(self, files: FileSet, pool: BufferPool, *, immutable: bool = False) -> None:
        super().__init__(files, pool)
        self._immutable = immutable
        self._leases = Leases()
        self._maps = Maps()

    def _read(self, file: int, descriptor: int, ranges: Ranges, out: Octets) -> None:
        with self._leases.hold(file, descriptor) as leased:
            if (leased or self._immutable) and self._copy(file, descriptor, ranges, out, leased):
                return
        super()._read(file, descriptor, ranges, out)

    def _copy(self, file: int, descriptor: int, ranges: Ranges, out: Octets, leased: bool) -> bool:
        """Copy ranges from the map; return False, unfinished, if a writer waits for the lease."""
        size = self._files.size(file)
        if os.fstat(descriptor).st_size < size:
            raise EOFError
        octets = self._maps.of(file, descriptor, size)
        ranges = ranges.cut(_MAX_CALL)
        for first, last in ranges.portions(_MAX_CALL):
            if leased and not self._leases.is_intact(descriptor):
                return False
            part = ranges.part(first, last)
            gather(octets, part.starts, part, out)
        return True

    def mapped(self, file: int) -> Octets | None:
        """Return a whole file as memory if it is declared immutable, else None.

        Raises:
            DataChangedError: the file changed since it was opened.
        """
        if not self._immutable or not (size := self._files.size(file)):
            return None
        octets = self._maps.known(file, size)
        if octets is None:
            with self._files.use(file) as descriptor:
                octets = self._maps.of(file, descriptor, size)
        self._files.check((file,))
        return octets

    def close(self) -> None:
        """Drop the maps, which last until their users are done."""
        self._maps.clear()


class DirectBackend(BufferedBackend):
    """Reads past the page cache where the file system supports it."""

    name: ClassVar[str] = "direct"

    def _read(self, file: int, descriptor: int, ranges: Ranges, out: Octets) -> None:
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT
            direct = os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError:
            super()._read(file, descriptor, ranges, out)
            return
        try:
            self._read_together(direct, ranges, (_DIRECT_GAP, PAGE), out)
        except OSError as e:
            if e.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise
            super()._read(file, descriptor, ranges, out)
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
