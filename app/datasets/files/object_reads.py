"""Ranges of objects in a bucket, many at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import ClassVar

import numpy as np

from app.errors import ServiceError
from core.arrays import Indices, Octets
from core.budget import Scope
from core.tiles.ranges import Piece, Ranges, arrange, gather

from .buffered import BufferedBackend, Use
from .buffers import BufferPool
from .fetching import AT_ONCE, PART, Wanted, parts
from .object_set import ObjectSet

_GAP = 256 << 10
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
        return ranges.pieces(_GAP, PART)

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
        taken = fetching.take(Wanted(self._objects.state(file), start, stop))
        return taken or (fetching.start(partial(self._objects.part, file, start, stop)), 0)

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
                self._fetch_ahead(piece)

    def _fetch_ahead(self, piece: Piece) -> None:
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
