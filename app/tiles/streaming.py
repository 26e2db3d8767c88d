"""Tiles as a resumable stream of frames, and as raw bytes back to back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from app.datasets.files.passing import LEAST, Run, StoredBytes, join_runs
from app.errors import Problem
from app.http.bodies import Threads
from app.http.media_types import MEDIA_TYPES
from app.server.drain import Drain
from app.streams.ahead import Ahead
from app.streams.driver import DRAIN, MAX_COUNT, Encoder, Limits, Progress, Stream
from app.streams.frames import Buffers, FrameKind, FrameWriter
from app.streams.plain import Piece
from app.streams.sender import Head
from core.arrays import Array, Indices
from core.tiles.plan import Tile
from core.tiles.reader import TileReader

from .encoding import Codec, octets_of, values_header
from .views import OpenView

_LONG_RUN = 64 << 10
"""Average length in bytes from which on the runs of a tile are passed on one by one."""
_TILES_AHEAD = 8
"""Most tiles that are hinted at before they are read."""
_OVER_BUDGET = dict.fromkeys(("memory", "cpu", "items"), DRAIN)
"""Reason to end with if the next tile exceeds a budget: clients go on after a drain."""


@dataclass(frozen=True, slots=True)
class ReadTile:
    """A tile and its values."""

    tile: Tile
    values: Array

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return self.tile.nbytes


def read_tiles(view: OpenView, first: int, stop: int) -> Iterator[ReadTile]:
    """Read tiles ``first`` to ``stop`` in order, each into a new array.

    The iterator may move between threads, but only one at a time may advance it.
    """
    reader, next_hint = view.reader(), first + 1
    for index in range(first, stop):
        tile = view.plan.tile(index)
        # Before this one is read, so that the disk is busy while it is decoded and sent.
        ahead = min(max(view.dataset.backend.ahead // max(tile.nbytes, 1), 1), _TILES_AHEAD)
        for further in range(max(next_hint, index + 1), min(index + 1 + ahead, stop)):
            reader.hint(view.plan.tile(further))
            next_hint = further + 1
        yield ReadTile(tile, reader.read(tile))


class TileFrames(Encoder[ReadTile]):
    """Encoder of tiles as frames, each with the token that continues after it.

    Args:
        view: the view the tiles are from.
        first: index of the first tile of the stream.
        codec: name and function of the codec that compresses each tile, or None.
    """

    def __init__(self, view: OpenView, first: int, codec: tuple[str, Codec] | None) -> None:
        self._plan = view.plan
        self._tokens = view.tokens
        self._codec = codec
        self._writer = FrameWriter()
        self._next = first
        self.heavy = codec is not None
        self.finished = first >= view.plan.tiles

    def item(self, item: ReadTile) -> Buffers:
        """Encode a tile; an uncompressed payload is a view of its values."""
        tile = item.tile
        header = {
            "tile": tile.index,
            "origin": list(tile.origin),
            "token": self._tokens.token(tile.index + 1),
            "offset": tile.offset + tile.nbytes,
            **values_header(item.values),
        }
        payload: bytes | memoryview
        if self._codec is None:
            payload = octets_of(item.values)
        else:
            header["codec"], compress = self._codec
            payload = compress(item.values)
        self._next = tile.index + 1
        self.finished = self._next >= self._plan.tiles
        return self._writer.frame(FrameKind.DATA, header, payload)

    def heartbeat(self) -> Buffers:
        """Repeat the token of the tile the client is waiting for."""
        return self._writer.frame(FrameKind.HEARTBEAT, {"token": self._tokens.token(self._next)})

    def end(self, reason: str, _progress: Progress) -> Buffers:
        """Give the reason ``complete`` after the last tile, else ``count`` or ``drain``."""
        header = {
            "reason": "complete" if self.finished else reason,
            "tiles": self._plan.tiles,
            "nbytes": self._plan.nbytes,
            "token": None if self.finished else self._tokens.token(self._next),
        }
        return self._writer.frame(FrameKind.END, header)

    def fail(self, problem: Problem) -> Buffers:
        """Encode the problem with the token that retries the tile."""
        header = {"problem": problem.to_json(), "token": self._tokens.token(self._next)}
        return self._writer.frame(FrameKind.ERROR, header)


def tile_stream(
    view: OpenView,
    first: int,
    limit: int | None,
    *,
    coding: str | None,
    codec: tuple[str, Codec] | None,
    threads: Threads,
    drain: Drain,
) -> Stream[ReadTile]:
    """Build the answer that streams the tiles of a view.

    Args:
        view: the view; stays open until the answer has ended.
        first: index of the first tile to send.
        limit: maximum number of tiles, or None for all.
        coding: compression of the whole answer.
        codec: name and function of the codec that compresses each tile, or None.
        threads: read the tiles.
        drain: ends the stream early.
    """
    tiles = view.plan.tiles
    stop = tiles if limit is None else min(tiles, first + limit)
    head = Head.of_stream(MEDIA_TYPES["frames"], coding, {"Thalweg-Tiles": str(tiles)})
    return Stream(
        Ahead(read_tiles(view, first, stop), threads.start),
        TileFrames(view, first, codec),
        head,
        threads,
        drain,
        coding,
        Limits(count=MAX_COUNT if limit is None else limit),
        over_budget=_OVER_BUDGET,
    )


def tile_bytes(view: OpenView, start: int, stop: int) -> Iterator[Piece]:
    """Read bytes ``start`` to ``stop`` of the raw concatenation of all tiles."""
    plan = view.plan
    if start >= stop:
        return
    first = tile_at(plan.tile, plan.tiles, start)
    last = tile_at(plan.tile, plan.tiles, stop - 1) + 1
    for item in read_tiles(view, first, last):
        offset = item.tile.offset
        yield Piece(octets_of(item.values)[max(start - offset, 0) : stop - offset])


def stored_bytes(view: OpenView, start: int, stop: int) -> StoredBytes | None:
    """Return bytes ``start`` to ``stop`` as ``tile_bytes`` does, to be passed on from the files.

    None if the tiles are not stored as they are, or not worth it.
    """
    if stop - start < LEAST or not _long_runs(view.reader(), view.plan.tile(0)):
        return None
    pieces = join_runs(_stored_pieces(view, start, stop))
    return StoredBytes(stop - start, pieces, view.dataset.backend)


def _stored_pieces(view: OpenView, start: int, stop: int) -> Iterator[Run | memoryview]:
    """Locate the tiles, and read those that lie in many places."""
    plan, reader = view.plan, view.reader()
    first = tile_at(plan.tile, plan.tiles, start)
    last = tile_at(plan.tile, plan.tiles, stop - 1)
    for index in range(first, last + 1):
        tile = plan.tile(index)
        skip, end = max(start - tile.offset, 0), min(stop - tile.offset, tile.nbytes)
        runs = _long_runs(reader, tile)
        if not runs:
            yield octets_of(reader.read(tile))[skip:end]
        for run, at in zip(
            runs, accumulate((r.stop - r.start for r in runs), initial=0), strict=False
        ):
            low, high = max(skip - at, 0), min(end - at, run.stop - run.start)
            if low < high:
                yield Run(run.file, run.start + low, run.start + high)


def _long_runs(reader: TileReader, tile: Tile) -> list[Run]:
    """Return the runs that a tile consists of; none if they are short, or it is not stored."""
    located = reader.locate(tile)
    if located is None:
        return []
    runs = _runs(*located)
    return runs if tile.nbytes >= len(runs) * _LONG_RUN else []


def _runs(files: Indices, starts: Indices, size: int) -> list[Run]:
    """Join ranges of one length that follow each other."""
    breaks = np.diff(starts) != size
    if len(files) > 1:
        breaks |= np.diff(files) != 0
    edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(starts)]
    return [
        Run(int(files[a % len(files)]), int(starts[a]), int(starts[b - 1]) + size)
        for a, b in pairwise(edges)
    ]


def tile_at(tile: Callable[[int], Tile], tiles: int, offset: int) -> int:
    """Find the tile that holds the byte at ``offset``, by bisection."""
    return bisect_right(range(1, tiles), offset, key=lambda index: tile(index).offset)
