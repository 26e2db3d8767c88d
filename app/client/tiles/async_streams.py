"""The resumable streams of tiles, and reductions, which begin anew after a cut."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ..errors import ConnectionFailed, ProtocolError, ThalwegError, data_changed
from ..transport.async_channel import AsyncChannel
from ..transport.async_streams import AsyncRepeated, AsyncResumable
from ..transport.frames import Array, FrameReader
from ..transport.requests import Request
from .plan import Tile
from .requests import TileRequests
from .stream import ReductionReader, Stretch, TileReader, Watch


class AsyncTileStream(AsyncResumable[Tile]):
    """Yields the tiles of a stretch.

    Args:
        channel: of the operation.
        requests: builds the requests.
        stretch: which tiles.

    Attributes:
        plan: of the view.
        token: that follows the last tile yielded.
    """

    def __init__(self, channel: AsyncChannel, requests: TileRequests, stretch: Stretch) -> None:
        super().__init__(channel, stretch.start.token)
        self.plan = stretch.plan
        self._next = 0 if stretch.start.token is None else stretch.start.tile
        self._left = stretch.limit
        self._requests = requests
        self._memory = stretch.memory
        self.done = stretch.limit == 0

    def _lacks_only_the_end(self, failure: ThalwegError) -> bool:
        has_all = self._left == 0 or self._next == self.plan.tiles
        return has_all and isinstance(failure, ConnectionFailed)

    async def _attempt(self) -> AsyncGenerator[Tile, None]:
        head = await self._channel.open(self._requests.stream(self.token, self._left))
        tiles = head.headers.get("thalweg-tiles")
        if tiles is not None and tiles != str(self.plan.tiles):
            raise data_changed(f"the view had {self.plan.tiles} tiles and has {tiles[:20]} now")
        before = self.token
        reader = TileReader(self.plan, self._next, self._memory)
        frames = FrameReader(reader.allocate)
        while (tile := await self._take(reader, frames)) is not None:
            self._note(tile)
            yield tile
        self._check_end(reader.end, progressed=self.token != before)

    def _check_end(self, reason: str | None, *, progressed: bool) -> None:
        if reason == "complete":
            self.done = True
        elif reason == "drain":
            if self._left != 0:
                raise ConnectionFailed("the server is stopping")
        elif reason != "count" or self._left is None:
            raise ProtocolError(f"the answer ended with {reason}")
        elif self._left and not progressed:
            raise ProtocolError("the answer holds no tile")

    def _note(self, tile: Tile) -> None:
        if self._left is not None:
            if not self._left:
                raise ProtocolError("more tiles came than were asked for")
            self._left -= 1
            self.done = self._left == 0
        self._next = tile.index + 1
        self.token = tile.token


class AsyncReduction(AsyncRepeated):
    """Asks for one reduction until its results are there.

    Args:
        channel: of the operation.
        request: for the reduction.
        watch: called whenever the service reports how far it is.

    Attributes:
        results: arrays by name, once all are there.
    """

    def __init__(self, channel: AsyncChannel, request: Request, watch: Watch | None) -> None:
        super().__init__(channel)
        self._request = request
        self._watch = watch
        self.results: dict[str, Array] = {}

    async def _try(self) -> None:
        await self._channel.open(self._request)
        reader = ReductionReader(self._watch)
        frames = FrameReader(reader.allocate)
        await self._take(reader, frames)
        if reader.end == "drain":
            raise ConnectionFailed("the server is stopping")
        if reader.end != "complete" or not reader.results:
            count = len(reader.results)
            raise ProtocolError(f"the answer ended with {reader.end} and {count} results")
        self.results = reader.results
        self.done = True
