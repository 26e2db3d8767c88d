"""Reading views with asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..transport.async_items import AsyncItems
from ..transport.asynchronous import AsyncRunner
from ..transport.effects import Steps
from ..transport.frames import Array
from .plan import Plan, Tile
from .saving import Observe
from .stream import TileStream
from .view import ViewOperations


class AsyncTiles(AsyncItems[Tile]):
    """The tiles of a view as they arrive; an asynchronous iterator and a context manager.

    Each tile comes once and in order, whatever happens to connections.

    Raises (from iteration):
        ProblemError: the service refused, or the data has changed (code ``data-changed``).
        ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
    """

    def __init__(self, runner: AsyncRunner, opening: Steps[TileStream], after: str | None) -> None:
        self._stream: TileStream | None = runner.at_once(opening)
        self._after = after
        super().__init__(runner.shell(), self._run(opening))

    def _run(self, opening: Steps[TileStream]) -> Steps[None]:
        if self._stream is None:
            self._stream = yield from opening
        yield from self._stream.run()

    @property
    def token(self) -> str | None:
        """Token to resume with after the last tile delivered; None at the beginning."""
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


def _opened(stream: TileStream) -> Steps[TileStream]:
    yield from ()
    return stream


class AsyncView:
    """A selection of a dataset, converted and cut into tiles: the result of ``AsyncDataset.view``.

    The service is not asked before something has to be known.

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

    async def plan(self) -> Plan:  # blocking: a property
        """Shapes of the view and its tiles, and the place of each tile."""
        return await self._runner.run(self._operations.plan())

    async def shape(self) -> tuple[int, ...]:  # blocking: a property
        """Of the whole view."""
        return (await self.plan()).shape

    async def dtype(self) -> np.dtype[Any]:  # blocking: a property
        """Of the values."""
        return (await self.plan()).dtype

    async def nbytes(self) -> int:  # blocking: a property
        """Bytes of all values."""
        return (await self.plan()).nbytes

    async def id(self) -> str:  # blocking: a property
        """Id under which the service keeps the view, for ``/zarr/{id}`` and others.

        Asking for it keeps the view and ties it to the data as it is now.
        """
        kept = await self._runner.run(self._operations.keep())
        return kept.id

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
        opening = self._operations.tiles(after, first, max_tiles, out)
        return AsyncTiles(self._runner, opening, after)

    async def parallel(self, n: int, *, out: Array | None = None) -> list[AsyncTiles]:
        """Cut the tiles into at most n stretches, for readers in parallel.

        All of them are of the same data: if it changes, those that read on raise.

        Args:
            n: number of stretches.
            out: array of the whole view to read into, as for ``tiles``.
        """
        streams = await self._runner.run(self._operations.parallel(n, out))
        return [AsyncTiles(self._runner, _opened(stream), stream.token) for stream in streams]

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
        steps = self._operations.read(out, connections, progress)
        return await self._runner.run(steps, workers=max(connections, 1))

    async def to_npy(
        self,
        path: str | Path,
        *,
        state: str | Path | None = None,
        progress: Observe | None = None,
    ) -> None:
        """Write the whole view to a .npy file, or to a .raw file without a header.

        The file appears once it is complete. Values are in C order, whatever the tiles.

        Args:
            path: of the file.
            state: file that lets the same call resume after a kill. Removed at the end.
            progress: called whenever a tile was written.

        Raises:
            ThalwegError: as for iterating over ``tiles``; StateError if the state does
                not fit.
            OSError: the file cannot be written.
        """
        await self._runner.run(self._operations.to_npy(path, state, progress))

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
        await self._runner.run(self._operations.raw(path, state, progress))
