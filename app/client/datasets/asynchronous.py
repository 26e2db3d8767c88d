"""Datasets with asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from ..tiles.asynchronous import AsyncView
from ..tiles.options import ViewOptions, ViewSpec
from ..tiles.reductions import Watch
from ..tiles.view import reduce
from ..transport.asynchronous import AsyncRunner
from ..transport.frames import Array
from .catalogue import DatasetOperations, Ids, Info, list_ids, register


class AsyncDataset:
    """Files of a detector, read as one array: ``client.datasets[id]``.

    Args:
        runner: runs operations.
        ident: its id.
        info: its description, if known.
    """

    def __init__(
        self, runner: AsyncRunner, ident: str, info: Mapping[str, Any] | None = None
    ) -> None:
        self._runner = runner
        self._operations = DatasetOperations(ident, info, runner.retries)
        self.id = ident

    async def info(self) -> Info:
        """Its description; as ``Dataset.info``."""
        return await self._runner.run(self._operations.describe())

    async def view(self, **options: Unpack[ViewOptions]) -> AsyncView:
        """A view of the dataset; as ``Dataset.view``."""
        spec = await self._runner.run(self._operations.view(ViewSpec(options)))
        return AsyncView(self._runner, self.id, spec)

    async def delete(self) -> None:
        """Have the service forget the dataset; as ``Dataset.delete``."""
        await self._runner.run(self._operations.delete())

    async def delete_view(self, view: str) -> None:
        """Have the service forget a view; as ``Dataset.delete_view``."""
        await self._runner.run(self._operations.delete_view(view))

    async def reduce(
        self,
        reduction: str | Mapping[str, Any],
        view: AsyncView | None = None,
        progress: Watch | None = None,
    ) -> dict[str, Array]:
        """Reduce frames or pixels on the server; as ``Dataset.reduce``."""
        spec = {} if view is None else view.spec
        steps = reduce(self.id, spec, reduction, self._runner.retries, progress)
        return await self._runner.run(steps)

    async def image(
        self,
        path: str | Path,
        reduction: str | Mapping[str, Any] | None = None,
        view: AsyncView | None = None,
        **options: Any,  # noqa: ANN401 - those of the service
    ) -> None:
        """Write a reduction as a picture (PNG) to a file; as ``Dataset.image``."""
        spec = None if view is None else view.spec
        await self._runner.run(self._operations.image(path, reduction, spec, options))


class AsyncDatasets:
    """Datasets of the service: ``client.datasets``."""

    def __init__(self, runner: AsyncRunner) -> None:
        self._runner = runner

    async def list(self) -> Ids:
        """Ids of all datasets, in order; as ``Datasets.list``."""
        return await self._runner.run(list_ids(self._runner.retries))

    async def register(
        self,
        spec: Mapping[str, Any] | None = None,
        /,
        **more: Any,  # noqa: ANN401 - as in the contract
    ) -> AsyncDataset:
        """Register files that the service can read as a dataset; as ``Datasets.register``."""
        info = await self._runner.run(register({**(spec or {}), **more}, self._runner.retries))
        return AsyncDataset(self._runner, str(info.get("id")), info)

    def __getitem__(self, ident: str) -> AsyncDataset:
        """A dataset by its id; the service is not asked yet."""
        return AsyncDataset(self._runner, ident)
