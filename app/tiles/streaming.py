"""Sending tiles: as frames with tokens, or as plain bytes that can be asked for in ranges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from app.context import Services
from app.errors import ServiceError, problem_of
from app.http.compression import Compressor, compressor
from app.server.drain import Drain
from app.server.responses import Exchange
from app.streams.frames import MEDIA_TYPES
from core.errors import CoreError
from core.tiles.plan import Tile

from .codecs import Codec
from .encoding import Buffers, TileFrames, octets_of
from .views import OpenView

Array = npt.NDArray[Any]


class Ahead:
    """Reads tiles in order, a few before they are asked for, each into memory of its own.

    Args:
        view: whose tiles.
        services: threads to read in.
        first: tile to begin with.
        last: tile to end before.
    """

    def __init__(self, view: OpenView, services: Services, first: int, last: int) -> None:
        self._view = view
        self._services = services
        self._reader = view.reader()
        self._next = first
        self._last = last
        self._coming: asyncio.Future[list[tuple[Tile, Array]]] | None = None

    def _batch(self) -> list[tuple[Tile, Array]]:
        """Tiles of about a megabyte together: small ones are not worth a thread each."""
        made = []
        size = 0
        while self._next < self._last and size < 1 << 20:
            tile = self._view.plan.tile(self._next)
            made.append((tile, self._reader.read(tile)))
            size += tile.nbytes
            self._next += 1
        return made

    def _start(self) -> None:
        self._coming = self._services.workers.start(self._batch)

    async def take(self) -> list[tuple[Tile, Array]]:
        """The next tiles; empty behind the last.

        Raises:
            CoreError, ServiceError: why they cannot be read.
        """
        if self._coming is None:
            self._start()
        assert self._coming is not None  # noqa: S101 - just started
        tiles = await self._coming
        self._start()
        return tiles

    async def close(self) -> None:
        """Wait for what is being read."""
        if self._coming is not None:
            await asyncio.wait({self._coming})
            self._coming.cancelled() or self._coming.exception()


@dataclass(slots=True)
class FrameStream:
    """Answers with a stream of tiles in frames.

    Args:
        view: whose tiles; closed at the end.
        first: tile to begin with.
        most: tiles to send at the most, None for all.
        coding: compression of the whole answer.
        codec: name and function, if tiles are to be compressed one by one.
    """

    view: OpenView
    first: int
    most: int | None
    coding: str | None
    services: Services
    drain: Drain
    codec: tuple[str, Codec] | None = None

    async def send(self, exchange: Exchange) -> None:
        """Send it all."""
        plan = self.view.plan
        last = plan.tiles if self.most is None else min(plan.tiles, self.first + self.most)
        ahead = Ahead(self.view, self.services, self.first, last)
        writer = TileFrames(plan, self.view.tokens, self.codec)
        press: Compressor | None = None if self.coding is None else compressor(self.coding)
        at = self.first
        try:
            # The first tile before the status: what is wrong with it is a problem.
            tiles = await ahead.take()
            await exchange.start(200, self._headers())
            while tiles and not self.drain.hard.is_set():
                for tile, values in tiles:
                    await self._write(exchange, press, await self._frame(writer, tile, values))
                    at = tile.index + 1
                tiles = await ahead.take()
            reason = "drain" if at < last else "complete" if at == plan.tiles else "count"
            await self._finish(exchange, press, writer.end(reason, at))
        except (CoreError, ServiceError) as e:
            if not exchange.started:
                raise
            await self._finish(exchange, press, writer.fail(problem_of(e), at))
        finally:
            await ahead.close()

    def _headers(self) -> dict[str, str]:
        headers = {
            "Content-Type": MEDIA_TYPES["frames"],
            "Cache-Control": "no-store",
            "Vary": "Accept-Encoding",
            "X-Accel-Buffering": "no",
            "Thalweg-Tiles": str(self.view.plan.tiles),
        }
        if self.coding is not None:
            headers["Content-Encoding"] = self.coding
        return headers

    async def _frame(self, writer: TileFrames, tile: Tile, values: Array) -> Buffers:
        if self.codec is None:
            return writer.tile(tile, values)
        return await self.services.workers.start(writer.tile, tile, values)

    async def _write(self, exchange: Exchange, press: Compressor | None, made: Buffers) -> None:
        if press is None:
            for piece in made:
                await exchange.write(piece)
            return
        data = await self.services.workers.start(_compress, press, made)
        await exchange.write(data)

    async def _finish(self, exchange: Exchange, press: Compressor | None, made: Buffers) -> None:
        data = b"".join(made)
        await exchange.end(
            data if press is None else press.compress(data, flush=False) + press.end()
        )


def _compress(press: Compressor, made: Buffers) -> bytes:
    return press.compress(b"".join(made), flush=True)


async def send_raw(
    exchange: Exchange, view: OpenView, services: Services, start: int, stop: int
) -> None:
    """Send bytes start to stop of all tiles, one behind the other; headers are sent before.

    What goes wrong behind the first byte breaks the answer off.
    """
    plan = view.plan
    if start >= stop:
        return
    first = tile_at(plan.tile, plan.tiles, start)
    last = tile_at(plan.tile, plan.tiles, stop - 1) + 1
    ahead = Ahead(view, services, first, last)
    try:
        while tiles := await ahead.take():
            for tile, values in tiles:
                octets = octets_of(values)
                low = max(start - tile.offset, 0)
                await exchange.write(octets[low : stop - tile.offset])
    except (CoreError, ServiceError):
        exchange.abort()
    finally:
        await ahead.close()


def tile_at(tile: Callable[[int], Tile], tiles: int, offset: int) -> int:
    """The tile that holds a byte, by bisection."""
    low, high = 0, tiles - 1
    while low < high:
        middle = (low + high + 1) // 2
        if tile(middle).offset <= offset:
            low = middle
        else:
            high = middle - 1
    return low
