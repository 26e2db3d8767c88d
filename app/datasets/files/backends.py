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
megabytes, many at once.

All backends give the same bytes or the same error. Files are compared with their recorded
state *after* their bytes were read: a check beforehand would miss a change in between, and
bytes of two states, or of an outdated one, must never be returned without an error. What a
visited function computes counts only once ``visit`` has returned. (Of objects only bytes of the
recorded state are given in the first place.)
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np

from app.errors import InvalidOptionError, ServiceError
from core.arrays import Indices, Octets
from core.budget import Scope
from core.tiles.ranges import Piece, Ranges, arrange, copy_rows, gather

from .buffered import BufferedBackend, Lend, Use
from .buffers import PAGE, BufferPool
from .fetching import AT_ONCE, PART, Wanted, parts
from .file_set import FileSet
from .mapped import Leases, Maps
from .object_set import ObjectSet

_OBJECT_GAP = 256 << 10
"""Maximum gap between two ranges to read rather than skip."""
_ALIGNED = 64
"""Alignment in bytes of what is visited where it arrived, in the object and in memory."""


class ObjectBackend(BufferedBackend):
    """Reads ranges of objects, in requests of up to ``PART`` bytes, several under way."""

    name: ClassVar[str] = "objects"
    ahead: ClassVar[int] = AT_ONCE * PART

    def __init__(self, files: ObjectSet, pool: BufferPool) -> None:
        super().__init__(files, pool)
        self._objects = files

    def _read_all(self, ranges: Ranges, out: Octets) -> list[int]:
        pieces = list(self._pieces(ranges))
        for piece, octets in zip(pieces, self._fetched(pieces), strict=True):
            gather(octets, piece.ranges.starts - piece.start, piece.ranges, out)
        return []

    def _pieces(self, ranges: Ranges) -> Iterator[Piece]:
        for file, part in ranges.by_file():
            self._check_size(file, part.end)
        return ranges.pieces(_OBJECT_GAP, PART)

    def _fetched(self, pieces: Sequence[Piece]) -> Iterator[Octets]:
        """Yield the bytes of pieces, in order."""
        places: deque[tuple[int, int]] = deque()

        def begun() -> Iterator[Future[Octets]]:
            for piece in pieces:
                future, at = self._begin(piece)
                places.append((at, at + piece.stop - piece.start))
                yield future

        nbytes = sum(piece.stop - piece.start for piece in pieces)
        for octets in parts(begun(), nbytes):
            at, stop = places.popleft()
            yield octets[at:stop]
            # Not kept while the next is waited for.
            del octets

    def _begin(self, piece: Piece) -> tuple[Future[Octets], int]:
        file, start, stop = piece.file, piece.start, piece.stop
        fetching = self._objects.fetching
        result = fetching.take(Wanted(self._objects.state(file), start, stop))
        return result or (fetching.start(partial(self._objects.part, file, start, stop)), 0)

    def _copy(self, file: int, starts: Indices, size: int, out: Octets) -> None:
        self._read_all(_ordered(np.full(len(starts), file, np.int64), starts, size), out)

    def _visit(self, file: int, starts: Indices, size: int, use: Use) -> None:
        files = np.full(len(starts), file, np.int64)
        if size > PART or (starts[1:] < starts[:-1] + size).any():
            self._visit_many(files, starts, size, use)
            return
        pieces = [_widened(piece) for piece in self._pieces(_ordered(files, starts, size))]
        longest = max(piece.stop - piece.start for piece in pieces)
        first = 0
        with Scope("objects", longest):
            room = _aligned_room(longest)
            for piece, octets in zip(pieces, self._fetched(pieces), strict=True):
                aligned = octets if octets.ctypes.data % _ALIGNED == 0 else room[: len(octets)]
                if aligned is not octets:
                    aligned[...] = octets
                del octets
                use(first, aligned, piece.ranges.starts - piece.start)
                first += len(piece.ranges.starts)

    @contextmanager
    def _room(self, starts: Indices, size: int) -> Iterator[Octets]:
        """Provide memory for as many ranges as are under way at once, or all."""
        nbytes = min(max(AT_ONCE * PART // size, 1), len(starts)) * size
        with Scope("objects", nbytes):
            yield np.empty(nbytes, np.uint8)

    def hint(self, files: Indices, starts: Indices, size: int) -> None:
        """See BufferedBackend; ranges of any files."""
        if not len(starts):
            return
        each = np.broadcast_to(files, starts.shape)
        # Whatever is wrong is told by the read to come.
        with suppress(ServiceError, ValueError):
            room = self.ahead
            for piece in map(_widened, self._pieces(_ordered(each, starts, size))):
                room -= piece.stop - piece.start
                if room < 0:
                    return
                file, start, stop = piece.file, piece.start, piece.stop
                wanted = Wanted(self._objects.state(file), start, stop)
                call = partial(self._objects.part, file, start, stop)
                self._objects.fetching.fetch_ahead(wanted, call)


def _ordered(files: Indices, starts: Indices, size: int) -> Ranges:
    """Sort ranges of one length, bound for an output one after the other.

    Those in order already are not joined: what is read of some is then cut into the same pieces,
    whether it was hinted at, is visited or copied.
    """
    offsets = np.arange(len(starts), dtype=np.int64) * size
    if (starts[1:] >= starts[:-1] + size).all() and (files[1:] == files[:-1]).all():
        return Ranges(files, starts, starts + size, offsets)
    return arrange(files, starts, starts + size, offsets, None)


def _widened(piece: Piece) -> Piece:
    """Return a piece that begins where values of any type may begin."""
    return piece._replace(start=piece.start // _ALIGNED * _ALIGNED)


def _aligned_room(nbytes: int) -> Octets:
    room = np.empty(nbytes + _ALIGNED, np.uint8)
    at = -room.ctypes.data % _ALIGNED
    return room[at : at + nbytes]


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
            count = self._visit_map(_Held(file, descriptor), starts, size, use)
            if count < len(starts):
                self._announce(descriptor, starts[count:], size)
                self._copy_read(file, descriptor, starts[count:], size, out[count * size :])

    def _visit(self, file: int, starts: Indices, size: int, use: Use) -> None:
        if len(starts) * size < _LEAST:
            super()._visit(file, starts, size, use)
            return
        descriptor = self._files.acquire(file)
        try:
            held = _Held(file, descriptor, watched=True)
            count = self._visit_map(held, starts, size, use)
            if count < len(starts):
                rest = partial(_later, use, count) if count else use
                self._visit_read(file, descriptor, starts[count:], size, rest)
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
            present = mapped.has(starts, size)
            if not present:
                self._hint(descriptor, starts, size)
            step = max(_PORTION // size, 1)
            for first in range(0, len(starts), step):
                begins = starts[first : first + step]
                if not (present or mapped.deliver(begins, size)):
                    return first
                # The lease was taken just now, unless a disk or a portion took time since.
                late = first or not present
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
        offset = 0
        while offset < length:
            count = os.preadv(descriptor, [buffer[offset:]], at + offset)
            if count < min(PAGE, length - offset):
                raise EOFError
            offset += count if offset + count >= length else count // PAGE * PAGE

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
