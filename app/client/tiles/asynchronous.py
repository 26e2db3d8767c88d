"""Reading views with asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..errors import ProtocolError, check_fingerprint, data_changed
from ..files.async_downloads import AsyncDownload
from ..files.outputs import check_target
from ..transport.async_channel import AsyncChannel, AsyncConnector
from ..transport.async_streams import AsyncItems
from ..transport.frames import Array
from .async_streams import AsyncTileStream
from .lazy import LazyView
from .plan import Plan, Tile
from .requests import TileRequests
from .saving import Count, Observe, TileProgress, TileSaving, naming, saved_token
from .stream import OneMemory, Start, Stretch, memory_for


class AsyncTiles(AsyncItems[Tile]):
    """The tiles of a view as they arrive; an asynchronous iterator and a context manager.

    Each tile comes once and in order, whatever happens to the network.

    Raises (from iteration):
        ProblemError: the service refused, or the data has changed (code ``data-changed``).
        ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
    """

    def __init__(
        self,
        channel: AsyncChannel,
        requests: TileRequests,
        find: Callable[[], Awaitable[Stretch]],
        after: str | None,
    ) -> None:
        super().__init__(channel, self._run())
        self._requests = requests
        self._find = find
        self._after = after
        self._stream: AsyncTileStream | None = None
        # blocking: self._opened()  # noqa: ERA001

    async def _opened(self) -> AsyncTileStream:
        if self._stream is None:
            self._stream = AsyncTileStream(self._channel, self._requests, await self._find())
        return self._stream

    async def _run(self) -> AsyncGenerator[Tile, None]:
        stream = await self._opened()
        async with aclosing(stream.run()) as items:
            async for item in items:
                yield item

    @property
    def token(self) -> str | None:
        """Token to resume with after the last tile delivered; None before the first request."""
        return self._after if self._stream is None else self._stream.token

    @property
    def plan(self) -> Plan:
        """All tiles of the view.

        Raises:
            ValueError: the service has not been asked yet, which ``AsyncView.plan`` does.
        """
        if self._stream is None:
            raise ValueError("the plan is not known before the first tile is asked for")
        return self._stream.plan


@dataclass(frozen=True, slots=True)
class _Kept:
    """A view that the service keeps, tied to the data as it was then.

    Attributes:
        id: of the view.
        fingerprint: of the data.
        token: before the first tile.
    """

    id: str
    fingerprint: str
    token: str


class AsyncView:
    """A selection of a dataset, converted and cut into tiles: the result of ``AsyncDataset.view``.

    The service is not asked before something has to be known.

    Args:
        connector: of the client.
        dataset: id of the dataset.
        spec: the view, as JSON values.
        fingerprint: of the data that it is of; None for any.
    """

    def __init__(
        self,
        connector: AsyncConnector,
        dataset: str,
        spec: Mapping[str, Any],
        fingerprint: str | None = None,
    ) -> None:
        self._connector = connector
        self.dataset = dataset
        self.spec = dict(spec)
        self._requests = TileRequests(dataset, self.spec)
        self._fingerprint = fingerprint
        self._token: str | None = None
        self._plan: Plan | None = None
        self._grows = False
        self._kept: _Kept | None = None

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """Refuse to be read by NumPy, which would take the view for a single object."""
        raise TypeError("a view is no array before it is read: view.read() gives one")

    async def plan(self) -> Plan:  # blocking: a property
        """Shapes of the view and its tiles, and the place of each tile."""
        if self._plan is None:
            reply = await self._connector.call(self._requests.plan())
            plan = Plan.parse(reply.json())
            self._grows = "frames" in reply.json()
            if self._fingerprint is not None:
                self._check(reply.text("fingerprint"))
            if self._fingerprint is not None or self._grows:
                self._token = reply.text("token")
            self._plan = plan
        return self._plan

    async def _plan_of(self, token: str | None) -> Plan:
        """The plan of the data that a token is of: a growing dataset has more frames by now."""
        plan = await self.plan()
        if token is None or not self._grows:
            return plan
        return Plan.parse((await self._connector.call(self._requests.plan(token))).json())

    def _check(self, now: str) -> None:
        """Check that the data is that of the view, or of the kept view.

        Raises:
            ProblemError: it has changed (code ``data-changed``).
        """
        was = self._fingerprint if self._kept is None else self._kept.fingerprint
        check_fingerprint(was, now)

    async def shape(self) -> tuple[int, ...]:  # blocking: a property
        """Lengths of the axes of the whole view."""
        return (await self.plan()).shape

    async def dtype(self) -> np.dtype[Any]:  # blocking: a property
        """Type of the values."""
        return (await self.plan()).dtype

    async def nbytes(self) -> int:  # blocking: a property
        """Bytes of all values."""
        return (await self.plan()).nbytes

    async def id(self) -> str:  # blocking: a property
        """Id under which the service keeps the view, for ``/zarr/{id}`` and others.

        Asking for it keeps the view and ties it to the data as it is now.
        """
        return (await self._keep()).id

    async def zarr_url(self) -> str:  # blocking: a property
        """Address of the view as a zarr group, for ``zarr.open`` and ``xarray.open_zarr``.

        It is of the data as it is now: once the data has changed, reading fails.
        """
        kept = await self._keep()
        return f"{self._connector.url}/zarr/{kept.id}.{kept.fingerprint}"

    async def _keep(self) -> _Kept:
        """Have the service keep the view, once.

        Raises:
            ProblemError: the plan is not what it was (code ``data-changed``).
        """
        if self._kept is None:
            reply = await self._connector.call(self._requests.keep())
            plan = Plan.parse(reply.json())
            if self._plan is None:
                self._plan = plan
            if self._plan != plan:
                raise data_changed(f"the view had shape {self._plan.shape}, now {plan.shape}")
            self._check(reply.text("fingerprint"))
            self._kept = _Kept(reply.text("id"), reply.text("fingerprint"), reply.text("token"))
        return self._kept

    async def lazy(self) -> LazyView:
        """The view as an array that fetches tiles where it is indexed; pickled with the key."""
        kept = await self._keep()
        plan = await self.plan()
        return LazyView(self._connector.blocking(), self.dataset, kept.id, kept.fingerprint, plan)

    async def to_dask(self) -> Any:  # noqa: ANN401 - the library is imported when it is asked for
        """A ``dask.array`` of the view as the data is now, with a chunk for each tile.

        Threads and processes of dask fetch tiles as they need them; once the data has changed,
        they raise ProblemError with the code ``data-changed``.

        Raises:
            ThalwegError: the service refused, or could not be reached.
            ImportError: dask is not installed.
        """
        lazy = await self.lazy()
        return lazy.to_dask()

    async def to_xarray(self) -> Any:  # noqa: ANN401 - as above
        """An ``xarray.DataArray`` over ``to_dask``, with the names, coordinates and units of axes.

        Raises:
            ThalwegError: the service refused, or could not be reached.
            ImportError: xarray or dask is not installed.
        """
        lazy = await self.lazy()
        async with self._connector.channel() as channel:
            return await channel.work(lazy.to_xarray)

    def tiles(
        self,
        after: str | None = None,
        *,
        first: int = 0,
        max_tiles: int | None = None,
        out: Array | None = None,
    ) -> AsyncTiles:
        """Stream tiles.

        Args:
            after: token to resume after; excludes ``first``.
            first: index of the tile to begin with.
            max_tiles: number of tiles; None for all.
            out: array of the whole view to read into; the data of each tile is a view of it.

        Raises:
            ProblemError: the service refused.
            ConnectionFailed: it could not be reached.
            ValueError: an argument is wrong, or does not fit.
        """
        return self._open(partial(self._stretch, after, first, max_tiles, out), after)

    def _open(self, find: Callable[[], Awaitable[Stretch]], after: str | None) -> AsyncTiles:
        return AsyncTiles(self._connector.channel(), self._requests, find, after)

    async def _stretch(
        self, after: str | None, first: int, limit: int | None, out: Array | None
    ) -> Stretch:
        """The tiles that the arguments of ``tiles`` select."""
        plan = await self._plan_of(after)
        memory = memory_for(plan, out)
        if after is not None:
            if first:
                raise ValueError("after and first exclude each other")
            return Stretch(plan, Start(after), limit, memory)
        if not 0 <= first <= plan.tiles:
            raise ValueError(f"there is no tile {first}: there are {plan.tiles}")
        (start,) = await self._starts([first])
        if first:
            left = plan.tiles - first
            limit = left if limit is None else min(left, limit)
        return Stretch(plan, start, limit, memory)

    def _first(self) -> Start:
        return Start(self._token if self._kept is None else self._kept.token, 0)

    async def _starts(self, tiles: list[int]) -> list[Start]:
        """Where to begin with each of some tiles, all of the same data."""
        if tiles == [0]:
            return [self._first()]
        kept = await self._keep()
        starts = []
        for tile in tiles:
            token = kept.token if not tile else await self._token_after(kept.id, tile - 1)
            starts.append(Start(token, tile))
        await self._check_now()
        return starts

    async def _check_now(self) -> None:
        """Check that the data is still that of the view; see ``_check``."""
        reply = await self._connector.call(self._requests.keep())
        self._check(reply.text("fingerprint"))

    async def _token_after(self, view: str, tile: int) -> str:
        reply = await self._connector.call(self._requests.tile_head(view, tile))
        token = reply.head.headers.get("thalweg-token")
        if token is None:
            raise ProtocolError(f"the service does not say where to resume after tile {tile}")
        return token

    async def parallel(self, n: int, *, out: Array | None = None) -> list[AsyncTiles]:
        """Cut the tiles into at most n stretches, for readers in parallel.

        All of them are of the same data: if it changes, those that read on raise.

        Args:
            n: number of stretches.
            out: array of the whole view to read into, as for ``tiles``.
        """
        stretches = await self._stretches(n, out)
        return [self._open(partial(_known, each), each.start.token) for each in stretches]

    async def _stretches(self, n: int, out: Array | None) -> list[Stretch]:
        plan = await self.plan()
        ranges = plan.stretches(n)
        starts = await self._starts([tiles.start for tiles in ranges])
        return [
            Stretch(plan, start, len(tiles), memory_for(plan, out))
            for start, tiles in zip(starts, ranges, strict=True)
        ]

    async def read(
        self, out: Array | None = None, *, connections: int = 1, progress: Observe | None = None
    ) -> Array:
        """The whole view as one array.

        Args:
            out: array to read into; a new one by default. After an error it holds a part.
            connections: how many to read with, side by side.
            progress: called whenever a tile has arrived.

        Raises:
            ThalwegError: as for iterating over ``tiles``.
            ValueError: ``out`` does not fit.
        """
        plan = await self.plan()
        plan.warn_of_crumbs()
        array = np.empty(plan.shape, plan.dtype) if out is None else out
        take = Count(plan, progress).add
        async with self._connector.channel(workers=max(connections, 1)) as channel:
            if connections > 1:
                stretches = await self._stretches(connections, array)
                jobs = [channel.beside(partial(self._read, each, take)) for each in stretches]
                for job in jobs:
                    await channel.join(job)
            else:
                await self._read(await self._stretch(None, 0, None, array), take, channel)
        return array

    async def _read(
        self, stretch: Stretch, take: Callable[[Tile], None], channel: AsyncChannel
    ) -> None:
        async for tile in AsyncTileStream(channel, self._requests, stretch).run():
            take(tile)

    async def to_npy(
        self, path: str | Path, *, state: str | Path | None = None, progress: Observe | None = None
    ) -> None:
        """Write the whole view to a .npy file, or to a .raw file without a header.

        The file appears once it is complete, in place of one of that name. Values are in C order,
        whatever the tiles.

        Args:
            path: of the file.
            state: file that lets the same call resume after a kill. Removed at the end.
            progress: called whenever a tile was written.

        Raises:
            ThalwegError: as for iterating over ``tiles``; StateError if the state does
                not fit.
            ValueError: it has another ending.
            OSError: the file cannot be written.
        """
        check_target(Path(path), ".npy", ".raw")
        with naming(state):
            plan = await self._plan_of(saved_token(state))
            plan.warn_of_crumbs()
            saving = TileSaving(
                Path(path), plan, {"dataset": self.dataset, "view": self.spec}, state
            )
            async with self._connector.channel() as channel:
                try:
                    await channel.work(saving.open)
                    start = self._first() if saving.start.token is None else saving.start
                    stretch = Stretch(plan, start, None, OneMemory(plan))
                    async for tile in AsyncTileStream(channel, self._requests, stretch).run():
                        await channel.work(partial(saving.take, tile))
                        if progress is not None:
                            progress(saving.progress())
                    await channel.work(saving.finish)
                finally:
                    saving.stop()

    async def raw(
        self, path: str | Path, *, state: str | Path | None = None, progress: Observe | None = None
    ) -> None:
        """Write the values of all tiles, one after the other, as the service's ``raw`` has them.

        After a cut it resumes at the exact byte, even within a tile; but unlike tiles, the
        bytes have no checksums on the way.

        Args:
            path: of the file; it appears once it is complete.
            state: as for ``to_npy``.
            progress: called now and then; tiles are not counted.

        Raises:
            ThalwegError, OSError: as for ``to_npy``.
        """
        with naming(state):
            kept = await self._keep()
            await self._check_now()
            size = (await self.plan()).nbytes

            def observe(offset: int) -> None:
                if progress is not None:
                    progress(TileProgress(offset, size, 0))

            async with self._connector.channel() as channel:
                request = self._requests.raw(kept.id)
                download = AsyncDownload(channel, request, "view", kept.id, path, state, size)
                await download.save(observe)


async def _known(stretch: Stretch) -> Stretch:
    return stretch
