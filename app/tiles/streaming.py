"""Tiles as a resumable stream of frames, and as raw bytes back to back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.errors import Problem
from app.http.media_types import MEDIA_TYPES
from app.server.drain import Drain
from app.streams.ahead import Ahead
from app.streams.driver import DRAIN, Stream
from app.streams.frames import Buffers, FrameKind, FrameWriter, describe_array
from app.streams.limits import MAX_COUNT, Limits, Progress
from app.streams.plain import Piece
from app.streams.sender import Head
from app.streams.threads import Threads
from core.arrays import Array
from core.tiles.plan import Tile

from .codecs import Codec
from .encoding import octets_of
from .views import OpenView

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
    reader = view.reader()
    for index in range(first, stop):
        if index + 1 < stop:
            # Before this one is read, so that the disk is busy while it is decoded and sent.
            reader.hint(view.plan.tile(index + 1))
        tile = view.plan.tile(index)
        yield ReadTile(tile, reader.read(tile))


class TileFrames:
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

    @property
    def heavy(self) -> bool:
        """True if tiles are compressed."""
        return self._codec is not None

    @property
    def finished(self) -> bool:
        """Whether the last tile of the view has been encoded."""
        return self._next >= self._plan.tiles

    def begin(self) -> Buffers:
        """Return no frames."""
        return []

    def item(self, item: ReadTile) -> Buffers:
        """Encode a tile; an uncompressed payload is a view of its values."""
        tile = item.tile
        array = describe_array("data", item.values)
        header = {
            "tile": tile.index,
            "origin": list(tile.origin),
            "token": self._tokens.token(tile.index + 1),
            "offset": tile.offset + tile.nbytes,
            "arrays": [array],
            "dtype": array["dtype"],
            "shape": array["shape"],
        }
        payload: bytes | memoryview
        if self._codec is None:
            payload = octets_of(item.values)
        else:
            header["codec"], compress = self._codec
            payload = compress(item.values)
        self._next = tile.index + 1
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


def tile_at(tile: Callable[[int], Tile], tiles: int, offset: int) -> int:
    """Find the tile that holds the byte at ``offset``, by bisection."""
    low, high = 0, tiles - 1
    while low < high:
        middle = (low + high + 1) // 2
        if tile(middle).offset <= offset:
            low = middle
        else:
            high = middle - 1
    return low
