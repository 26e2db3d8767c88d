"""Reading views with asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..transport.asynchronous import AsyncItems, AsyncRunner
from ..transport.effects import Steps
from ..transport.frames import Array
from .plan import Plan, Tile
from .saving import Observe
from .stream import TileStream
from .view import ViewOperations


class AsyncTiles(AsyncItems[Tile]):
    """The tiles of a view as they arrive: ``Tiles`` for ``async for``."""

    def __init__(self, runner: AsyncRunner, opening: Steps[TileStream], after: str | None) -> None:
        super().__init__(runner.shell(), self._open_and_run(opening))
        self._after = after
        self._stream: TileStream | None = None

    def _open_and_run(self, opening: Steps[TileStream]) -> Steps[None]:
        self._stream = yield from opening
        yield from self._stream.run()

    @property
    def token(self) -> str | None:
        """Token to resume with after the last tile delivered; None at the beginning."""
        return self._after if self._stream is None else self._stream.token


class AsyncView:
    """A selection of a dataset, converted and cut into tiles: the result of ``AsyncDataset.view``.

    Args:
        runner: runs operations.
        dataset: id of the dataset.
        spec: the view, as JSON values.
    """

    def __init__(self, runner: AsyncRunner, dataset: str, spec: Mapping[str, Any]) -> None:
        self._runner = runner
        self._operations = ViewOperations(dataset, spec, runner.retries)
        self.dataset = dataset
        self.spec = self._operations.spec

    async def plan(self) -> Plan:
        """Shapes of the view and its tiles, and the place of each; as ``View.plan``."""
        return await self._runner.run(self._operations.plan())

    async def id(self) -> str:
        """Id under which the service keeps the view; as ``View.id``."""
        return (await self._runner.run(self._operations.keep())).id

    def tiles(
        self,
        after: str | None = None,
        *,
        first: int = 0,
        max_tiles: int | None = None,
        out: Array | None = None,
    ) -> AsyncTiles:
        """Stream tiles; arguments and errors are those of ``View.tiles``.

        The service is not asked before the first tile is.
        """
        opening = self._operations.tiles(after, first, max_tiles, out)
        return AsyncTiles(self._runner, opening, after)

    async def read(
        self, out: Array | None = None, *, connections: int = 1, progress: Observe | None = None
    ) -> Array:
        """The whole view as one array; as ``View.read`` with so many ``threads``."""
        steps = self._operations.read(out, connections, progress)
        return await self._runner.run(steps, workers=max(connections, 1))

    async def to_npy(
        self,
        path: str | Path,
        *,
        state: str | Path | None = None,
        progress: Observe | None = None,
    ) -> None:
        """Write the whole view to a .npy or .raw file; as ``View.to_npy``."""
        await self._runner.run(self._operations.to_npy(path, state, progress))

    async def raw(
        self, path: str | Path, *, state: str | Path | None = None, progress: Observe | None = None
    ) -> None:
        """Write the values of all tiles to a file; as ``View.raw``."""
        await self._runner.run(self._operations.raw(path, state, progress))
