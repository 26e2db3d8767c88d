"""The resumable stream of tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConnectionFailed, ProtocolError, ThalwegError, data_changed
from ..transport.answers import FrameAnswer
from ..transport.effects import Deliver, Finish, Steps
from ..transport.frames import Array, Frame, FrameReader, Octets
from ..transport.resumable import ResumableStream
from ..transport.retry import Backoff
from .memory import Memory
from .plan import Box, Plan, Tile
from .requests import TileRequests

_TOKEN_LENGTH = 512
"""Characters; the contract allows 100."""


class TileReader(FrameAnswer[Tile, str]):
    """The tiles of one answer, each checked against the plan before it gets memory.

    Args:
        plan: of the view.
        first: index of the tile that must come first; None if only the token knows.
        memory: for the values.

    Attributes:
        end: reason why the answer ended: ``complete``, ``count`` or ``drain``.
    """

    def __init__(self, plan: Plan, first: int | None, memory: Memory) -> None:
        self._plan = plan
        self._next = first
        self._memory_of_tiles = memory
        self._arriving: tuple[Box, Array] | None = None

    def _memory(self, header: dict[str, Any], size: int) -> Octets:
        box = self._box(header)
        described = {"shape": list(box.shape), "dtype": self._plan.dtype.str}
        array = {**described, "name": "data", "offset": 0, "nbytes": box.nbytes}
        arrays = header.get("arrays")
        if (
            size != box.nbytes
            or not _has(header, {**described, "origin": list(box.origin)})
            or not isinstance(arrays, list)
            or len(arrays) != 1
            or not _has(arrays[0], array)
        ):
            raise ProtocolError(f"tile {box.index} came as {str(header)[:400]}, not {array}")
        values = self._memory_of_tiles.prepare(box)
        self._arriving = (box, values)
        return values.reshape(-1).view("u1")

    def _box(self, header: Mapping[str, Any]) -> Box:
        index = header.get("tile")
        if not isinstance(index, int) or isinstance(index, bool):
            raise ProtocolError("a frame does not say which tile it holds")
        if self._next is not None and index != self._next:
            raise ProtocolError(f"tile {index} came where {self._next} was due")
        if not 0 <= index < self._plan.tiles:
            raise ProtocolError(f"tile {index} came, but there are {self._plan.tiles}")
        return self._plan.box(index)

    def _data(self, frame: Frame) -> Tile:
        assert self._arriving is not None  # noqa: S101 - its payload has been placed
        token = frame.header.get("token")
        if not isinstance(token, str) or not 0 < len(token) <= _TOKEN_LENGTH:
            raise ProtocolError("a frame does not say where to resume")
        (box, values), self._arriving = self._arriving, None
        self._next = box.index + 1
        data = self._memory_of_tiles.settle(box, values)
        return Tile(box.index, box.origin, box.shape, data, token)

    def _finish(self, header: Mapping[str, Any]) -> None:
        totals = (header.get("tiles"), header.get("nbytes"))
        if totals != (self._plan.tiles, self._plan.nbytes):
            raise ProtocolError(f"the end is that of another view: {totals}")
        reason = header.get("reason")
        if reason == "complete" and self._next not in {None, self._plan.tiles}:
            raise ProtocolError(f"the answer claims to be complete before tile {self._next}")
        self.end = str(reason)


def _has(entry: Any, members: Mapping[str, Any]) -> bool:  # noqa: ANN401 - JSON
    return isinstance(entry, dict) and all(entry.get(k) == v for k, v in members.items())


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream of tiles begins.

    Attributes:
        token: to begin with; None for the first tile.
        tile: index of the tile that comes first; None if only the token knows.
    """

    token: str | None = None
    tile: int | None = None


class TileStream(ResumableStream):
    """Delivers tiles up to the limit.

    Args:
        requests: builds the requests.
        plan: of the view.
        start: where to begin.
        limit: number of tiles; None for all.
        memory: for the values.
        backoff: decides on further attempts.

    Attributes:
        token: that follows the last tile delivered.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a stream consists of
        self,
        requests: TileRequests,
        plan: Plan,
        start: Start,
        limit: int | None,
        memory: Memory,
        backoff: Backoff,
    ) -> None:
        if limit is not None and limit < 0:
            raise ValueError("the number of tiles cannot be negative")
        super().__init__(backoff, start.token)
        self.plan = plan
        self._next = 0 if start.token is None else start.tile
        self._left = limit
        self._requests = requests
        self._memory = memory
        self._ended = False

    @property
    def done(self) -> bool:
        """Whether every tile up to the limit was delivered."""
        return self._ended or self._left == 0

    def _lacks_only_the_end(self, failure: ThalwegError) -> bool:
        has_all = self._left == 0 or self._next == self.plan.tiles
        return has_all and isinstance(failure, ConnectionFailed)

    def _attempt(self) -> Steps[None]:
        head = yield from self._open(self._requests.stream(self.token, self._left))
        tiles = head.headers.get("thalweg-tiles")
        if tiles is not None and tiles != str(self.plan.tiles):
            raise data_changed(f"the view had {self.plan.tiles} tiles and has {tiles[:20]} now")
        before = self.token
        reason = yield from self._take_frames()
        if reason == "complete":
            self._ended = True
        elif reason == "drain":
            if self._left != 0:
                raise ConnectionFailed("the server is stopping")
        elif reason != "count" or self._left is None:
            raise ProtocolError(f"the answer ended with {reason}")
        elif self._left and self.token == before:
            raise ProtocolError("the answer holds no tile")

    def _take_frames(self) -> Steps[str]:
        reader = TileReader(self.plan, self._next, self._memory)
        frames = FrameReader(reader.allocate)
        while reader.end is None:
            tile = yield from reader.receive(frames)
            if tile is not None:
                self._note(tile)
                yield Deliver(tile)
        yield Finish()
        return reader.end

    def _note(self, tile: Tile) -> None:
        if self._left is not None:
            if not self._left:
                raise ProtocolError("more tiles came than were asked for")
            self._left -= 1
        self._next = tile.index + 1
        self.token = tile.token
