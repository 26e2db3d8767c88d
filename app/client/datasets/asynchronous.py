"""Datasets and their views, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np

from ..tiles.files import Count, Observe
from ..tiles.plan import Array, Plan, Tile
from ..tiles.requests import (
    TileRequests,
    ViewOptions,
    ViewSpec,
    dataset_path,
    listing,
    registration,
)
from ..tiles.stream import InPlace, OwnMemory, Start, TileStream
from ..transport.asynchronous import AsyncAnswerPort, HttpxCaller, drive
from ..transport.effects import Item
from ..transport.requests import Reply, Request
from ..transport.retry import Backoff
from .blocking import Ids, shape_of, take_ids

AsyncCall = Callable[[Request], Awaitable[Reply]]


class AsyncTiles:
    """The tiles of a view, as they come: ``Tiles`` for ``async for``."""

    def __init__(self, view: AsyncView, start: Start, most: int | None, out: Array | None) -> None:
        self._view = view
        self._start = start
        self._most = most
        self._out = out
        self._stream: TileStream | None = None
        self._port: AsyncAnswerPort | None = None
        self._items: AsyncGenerator[Item, None] | None = None

    @property
    def token(self) -> str | None:
        """What to go on with behind the last tile handed out; None at the beginning."""
        return self._stream.token if self._stream is not None else self._start.token

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Tile:
        if self._items is None:
            self._items = await self._begin()
        async for item in self._items:
            if isinstance(item, Tile):
                return item
        raise StopAsyncIteration

    async def _begin(self) -> AsyncGenerator[Item, None]:
        view, out = self._view, self._out
        plan = await view.plan()
        memory = OwnMemory(plan) if out is None else InPlace(plan, out)
        backoff = Backoff(view.retries)
        stream = TileStream(view.requests, plan, self._start, self._most, memory, backoff)
        self._stream = stream
        self._port = AsyncAnswerPort(view.caller)
        return drive(stream.run(), self._port)

    async def aclose(self) -> None:
        """Stop early; what was handed out stays good."""
        if self._items is not None:
            await self._items.aclose()
        if self._port is not None:
            await self._port.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncView:
    """What is wanted of a dataset: made by ``AsyncDataset.view``.

    Args:
        caller: sends requests.
        retries: faults in a row to bear.
        call: sends a small request.
        dataset: id of the dataset.
        spec: the view, as JSON values.
    """

    def __init__(
        self,
        caller: HttpxCaller,
        retries: int,
        call: AsyncCall,
        dataset: str,
        spec: Mapping[str, Any],
    ) -> None:
        self.caller = caller
        self.retries = retries
        self.dataset = dataset
        self.spec = dict(spec)
        self.requests = TileRequests.of(dataset, spec)
        self._call = call
        self._plan: Plan | None = None

    async def plan(self) -> Plan:
        """Shapes of the view and of its tiles, and the place of each; as ``View.plan``."""
        if self._plan is None:
            self._plan = Plan.parse((await self._call(self.requests.plan())).json())
        return self._plan

    def tiles(
        self, after: str | None = None, *, max_tiles: int | None = None, out: Array | None = None
    ) -> AsyncTiles:
        """Stream tiles; arguments and errors are those of ``View.tiles``.

        Nothing is sent before the first tile is asked for.
        """
        start = Start(None, 0) if after is None else Start(after)
        return AsyncTiles(self, start, max_tiles, out)

    async def read(self, out: Array | None = None, *, progress: Observe | None = None) -> Array:
        """The whole view as one array; as ``View.read``."""
        plan = await self.plan()
        made = np.empty(plan.shape, plan.dtype) if out is None else out
        count = Count(plan, progress)
        async with self.tiles(out=made) as tiles:
            async for tile in tiles:
                count.add(tile)
        return made


class AsyncDataset:
    """Files of a detector, read as one array: ``client.datasets[id]``.

    Args:
        caller: sends requests.
        retries: faults in a row to bear.
        call: sends a small request.
        ident: its id.
        info: what is known of it, if anything is.
    """

    def __init__(
        self,
        caller: HttpxCaller,
        retries: int,
        call: AsyncCall,
        ident: str,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self._caller = caller
        self._retries = retries
        self._call = call
        self.id = ident
        self._info = None if info is None else dict(info)

    async def info(self) -> dict[str, Any]:
        """What the service says of it; as ``Dataset.info``."""
        if self._info is None:
            self._info = (await self._call(Request("GET", dataset_path(self.id)))).json()
        return self._info

    async def view(self, **options: Unpack[ViewOptions]) -> AsyncView:
        """What is wanted of it; as ``Dataset.view``."""
        spec = ViewSpec(options)
        nav: tuple[int, ...] = ()
        sig: tuple[int, ...] = ()
        if spec.needs_shape:
            info = await self.info()
            nav, sig = shape_of(info, "nav_shape"), shape_of(info, "sig_shape")
        made = spec.json(nav, sig)
        return AsyncView(self._caller, self._retries, self._call, self.id, made)


class AsyncDatasets:
    """Datasets of the service: ``client.datasets``."""

    def __init__(self, caller: HttpxCaller, retries: int, call: AsyncCall) -> None:
        self._caller = caller
        self._retries = retries
        self._call = call

    async def list(self) -> Ids:
        """Ids of all datasets, in order; as ``Datasets.list``."""
        found: Ids = []
        more = True
        while more:
            page = (await self._call(listing(found[-1] if found else ""))).json()
            more = take_ids(page, found)
        return found

    async def register(
        self,
        spec: Mapping[str, Any] | None = None,
        /,
        **more: Any,  # noqa: ANN401 - as in the contract
    ) -> AsyncDataset:
        """Make a dataset of files that the service can read; as ``Datasets.register``."""
        info = (await self._call(registration({**(spec or {}), **more}))).json()
        return self._dataset(str(info.get("id")), info)

    def __getitem__(self, ident: str) -> AsyncDataset:
        """A dataset by its id, which is not asked for yet."""
        return self._dataset(ident)

    def _dataset(self, ident: str, info: Mapping[str, Any] | None = None) -> AsyncDataset:
        return AsyncDataset(self._caller, self._retries, self._call, ident, info)
