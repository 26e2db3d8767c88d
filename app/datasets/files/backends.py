"""Three ways to read many ranges of a dataset's files into a caller's buffer.

* ``buffered``: reads through the page cache, straight to where the bytes are wanted.
* ``mmap``: copies from a memory map, of files nobody can change meanwhile: declared to
  be immutable, or kept from writers by a lease for as long as a call lasts. A lease makes
  whoever opens the file for writing wait for that long (with O_NONBLOCK: fail).
* ``direct``: past the page cache, for scans of what will not be read again.

All give the same bytes or the same error, and a file that does not allow one way is read
in the buffered one. Whether files changed is looked at after their bytes were read: bytes
of two states, or of an old one, are never given without an error.
"""

from __future__ import annotations

import errno
import os
from typing import ClassVar, Literal, Protocol

import numpy as np

from app.errors import InvalidOptionError

from .buffers import PAGE, BufferPool, Octets
from .file_set import FileSet
from .mapped import Leases, Maps
from .ranges import Indices, Ranges, arrange, gather

Name = Literal["buffered", "mmap", "direct"]

_GAP = 16 << 10
"""Bytes between two ranges that are read rather than skipped: about what a call costs."""
_DIRECT_GAP = 128 << 10
"""The same where a disk is asked each time."""
_HUGE = 16 << 20
"""Bytes read in one call, so that a thread comes back once in a while."""
_SCATTERED = 2048
"""Bytes of a piece, on average, below which pieces are read together and copied out."""
_VECTORS = 1024
"""Buffers one call may fill: IOV_MAX."""


class RangeBackend(Protocol):
    """Reads ranges of a set of files. Any thread may call it, also at once."""

    name: ClassVar[str]

    def read_ranges(
        self, files: Indices, starts: Indices, stops: Indices, out: memoryview, offsets: Indices
    ) -> None:
        """Put bytes start to stop of each file at its offset of ``out``.

        Ranges may come in any order, overlap in the files and be empty.

        Raises:
            DataChangedError: a file is not what it was; nothing of ``out`` is to be used.
            ReadFailedError: the disk failed.
            BusyError: no buffers are left, or too many files are open.
            ValueError: a range that is not in its file or its output, or the set is closed.
        """

    def mapped(self, file: int) -> Octets | None:
        """A whole file in memory, if it is declared that nobody changes it; else None."""

    def hint(self, files: Indices, starts: Indices, stops: Indices) -> None:
        """Have ranges that will be read soon brought into memory; does not wait for them."""

    def close(self) -> None:
        """Let go of memory maps, once nobody uses them; the files stay open."""


def open_backend(
    name: str, files: FileSet, pool: BufferPool, *, immutable: bool = False
) -> RangeBackend:
    """The backend of a name, for a set of files, which the caller closes.

    Args:
        name: ``buffered``, ``mmap`` or ``direct``.
        files: what to read.
        pool: buffers, where the caller's cannot be read into.
        immutable: whether it is declared that nobody changes the files.

    Raises:
        InvalidOptionError: there is no backend of this name.
    """
    if name == "buffered":
        return BufferedBackend(files, pool)
    if name == "mmap":
        return MmapBackend(files, pool, immutable=immutable)
    if name == "direct":
        return DirectBackend(files, pool)
    raise InvalidOptionError(f"{name!r} is no way to read: buffered, mmap or direct")


class BufferedBackend:
    """Reads through the page cache."""

    name: ClassVar[str] = "buffered"

    def __init__(self, files: FileSet, pool: BufferPool) -> None:
        self._files = files
        self._pool = pool
        # Where bytes go that nobody wants; threads may write it at once, nobody reads it.
        self._waste = memoryview(bytearray(_GAP))

    def read_ranges(
        self, files: Indices, starts: Indices, stops: Indices, out: memoryview, offsets: Indices
    ) -> None:
        """Put bytes start to stop of each file at its offset of ``out``; see RangeBackend."""
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
            raise ValueError(f"a range ends at byte {stop} of a file of {size}")

    def _read(self, file: int, descriptor: int, ranges: Ranges, out: Octets) -> None:  # noqa: ARG002
        """Read ranges of one file."""
        if len(ranges.starts) > 1 and (ranges.stops - ranges.starts).mean() < _SCATTERED:
            self._read_together(descriptor, ranges, (_GAP, 1), out)
            return
        view = out.data
        starts, stops = ranges.starts.tolist(), ranges.stops.tolist()
        ends = (ranges.offsets + ranges.stops - ranges.starts).tolist()
        wanted = [view[a:b] for a, b in zip(ranges.offsets.tolist(), ends, strict=True)]
        for first, last in ranges.groups(_GAP):
            buffers = wanted[first:last]
            if last - first > 1:
                # What is between two pieces is read to nowhere.
                gaps = zip(stops[first : last - 1], starts[first + 1 : last], strict=True)
                waste = (self._waste[: start - stop] for stop, start in gaps)
                buffers = [buffer for pair in zip(buffers, waste, strict=False) for buffer in pair]
                buffers.append(wanted[last - 1])
            begin, end = starts[first], stops[last - 1]
            # Nearly always one call is enough.
            short = end - begin > _HUGE or len(buffers) > _VECTORS
            if short or os.preadv(descriptor, buffers, begin) < end - begin:
                self._fill(descriptor, buffers, begin, end)

    @staticmethod
    def _fill(descriptor: int, buffers: list[memoryview], at: int, stop: int) -> None:
        """Fill buffers one after the other from bytes of the file.

        Raises:
            EOFError: the file ends before.
        """
        index = skip = 0
        while at < stop:
            head = buffers[index][skip:] if skip else buffers[index]
            if len(head) > _HUGE:
                batch = [head[:_HUGE]]
            else:
                batch = [head, *buffers[index + 1 : index + _VECTORS]]
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
        """Read whole pages with what is between near pieces, and copy the pieces out."""
        gap, page = limits
        with self._pool.lend() as buffer:
            view = buffer.data
            for load in ranges.loads(gap, len(buffer), page):
                for hull in load.hulls:
                    self._load(
                        descriptor, view[hull.at : hull.at + hull.size], hull.begin, hull.wanted
                    )
                gather(buffer, load.positions, load.ranges, out)

    def _load(self, descriptor: int, buffer: memoryview, at: int, wanted: int) -> None:
        self._fill(descriptor, [buffer[:wanted]], at, at + wanted)

    def mapped(self, file: int) -> Octets | None:
        """None: nothing is in memory."""

    def hint(self, files: Indices, starts: Indices, stops: Indices) -> None:
        """Have ranges that will be read soon brought into memory; see RangeBackend."""
        for file, ranges in arrange(files, starts, stops, starts, None).by_file():
            self._check_size(file, ranges)
            with self._files.use(file) as descriptor:
                for first, last in ranges.groups(_DIRECT_GAP):
                    start, stop = int(ranges.starts[first]), int(ranges.stops[last - 1])
                    os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """Nothing is held."""


class MmapBackend(BufferedBackend):
    """Copies from memory maps where that is safe."""

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
        """Copy ranges from the map; not to the end if somebody waits for the lease."""
        size = self._files.size(file)
        if os.fstat(descriptor).st_size < size:
            raise EOFError
        octets = self._maps.of(file, descriptor, size)
        ranges = ranges.cut(_HUGE)
        for first, last in ranges.portions(_HUGE):
            if leased and not self._leases.is_whole(descriptor):
                return False
            part = ranges.part(first, last)
            gather(octets, part.starts, part, out)
        return True

    def mapped(self, file: int) -> Octets | None:
        """A whole file in memory, if it is declared that nobody changes it; else None.

        Raises:
            DataChangedError: it is not what it was.
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
        """Let go of the maps, once nobody uses them."""
        self._maps.clear()


class DirectBackend(BufferedBackend):
    """Reads past the page cache where the file system lets it."""

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

    def _load(self, descriptor: int, buffer: memoryview, at: int, wanted: int) -> None:
        done = 0
        while done < wanted:
            count = os.preadv(descriptor, [buffer[done:]], at + done)
            if count < min(PAGE, wanted - done):
                raise EOFError
            done += count if done + count >= wanted else count // PAGE * PAGE

    def hint(self, files: Indices, starts: Indices, stops: Indices) -> None:
        """Nothing: what is read does not go through the page cache."""
