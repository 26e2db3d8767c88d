"""Datasets with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ..tiles.asynchronous import AsyncView
from ..tiles.options import ViewOptions, ViewSpec
from ..tiles.reductions import Watch
from ..tiles.requests import view_deletion
from ..tiles.view import reduce
from ..transport.answers import delete
from ..transport.asynchronous import AsyncRunner
from ..transport.frames import Array
from .catalogue import Ids, Info, list_ids, register, shape_of, write_image
from .requests import deletion, description


class AsyncDataset:
    """Files of a detector, read as one array: ``client.datasets[id]``.

    The service is not asked before something has to be known.

    Args:
        runner: runs operations.
        ident: its id.
        info: its description, if known.
    """

    def __init__(
        self, runner: AsyncRunner, ident: str, info: Mapping[str, Any] | None = None
    ) -> None:
        self._runner = runner
        self._info = None if info is None else dict(info)
        self.id = ident

    async def info(self) -> Info:  # blocking: a property
        """Its description: shapes, axes, dtype, files, fingerprint.

        Raises:
            ProblemError: there is no such dataset, or its files cannot be read.
            ConnectionFailed: the service could not be reached.
        """
        if self._info is None:
            reply = await self._runner.call(description(self.id))
            self._info = reply.json()
        return self._info

    async def nav_shape(self) -> tuple[int, ...]:  # blocking: a property
        """Axes of the scan."""
        return shape_of(await self.info(), "nav_shape")

    async def sig_shape(self) -> tuple[int, ...]:  # blocking: a property
        """Axes of a frame."""
        return shape_of(await self.info(), "sig_shape")

    async def dtype(self) -> np.dtype[Any]:  # blocking: a property
        """Of the values, as they are stored."""
        return np.dtype(str((await self.info()).get("dtype")))

    async def fingerprint(self) -> str:  # blocking: a property
        """Identifies the data: it differs once a file has changed."""
        return str((await self.info()).get("fingerprint"))

    async def view(self, **options: Unpack[ViewOptions]) -> AsyncView:
        """A view of the dataset; everything by default.

        Args:
            **options: of the contract, see ViewOptions.

        Raises:
            TypeError, ValueError: an option is wrong.
            ThalwegError: slices need the shape, and it could not be asked for.
        """
        spec = ViewSpec(options)
        shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        if spec.needs_shape:
            shapes = (await self.nav_shape(), await self.sig_shape())
        return AsyncView(self._runner, self.id, spec.json(*shapes))

    async def delete(self) -> None:
        """Have the service forget the dataset; its files stay.

        Raises:
            ProblemError: there is no such dataset, or it is not yours.
            ConnectionFailed: the service could not be reached.
        """
        await self._runner.run(delete(deletion(self.id), self._runner.retries))
        self._info = None

    async def delete_view(self, view: str) -> None:
        """Have the service forget a view that it keeps.

        Args:
            view: its id, as ``AsyncView.id`` gives it.

        Raises:
            ProblemError: there is no such view, or it is not yours.
            ConnectionFailed: the service could not be reached.
        """
        request = view_deletion(self.id, view)
        await self._runner.run(delete(request, self._runner.retries))

    async def reduce(
        self,
        reduction: str | Mapping[str, Any],
        view: AsyncView | None = None,
        progress: Watch | None = None,
    ) -> dict[str, Array]:
        """Reduce frames to an image, or pixels to a map of the scan, on the server.

        Args:
            reduction: as in the contract, such as ``{"op": "mean", "over": "frames"}``,
                or a name, such as ``com``.
            view: what to reduce; everything by default.
            progress: called with how much is done, and of how much.

        Returns:
            The results by name.

        Raises:
            ThalwegError: the service refused, or could not be reached.
        """
        spec = {} if view is None else view.spec
        return await self._runner.run(
            reduce(self.id, spec, reduction, self._runner.retries, progress)
        )

    async def image(
        self,
        path: str | Path,
        reduction: str | Mapping[str, Any] | None = None,
        view: AsyncView | None = None,
        **options: Any,  # noqa: ANN401 - those of the service
    ) -> None:
        """Write a reduction as a picture (PNG) to a file.

        Args:
            path: of the file; it appears once it is complete.
            reduction: as for ``reduce``; the sum of all frames by default.
            view: as for ``reduce``.
            **options: of the picture: ``result``, ``low``, ``high``, ``map``.

        Raises:
            ThalwegError: the service refused, or could not be reached.
            OSError: the file cannot be written.
        """
        spec = None if view is None else view.spec
        steps = write_image(self.id, path, reduction, spec, options, self._runner.retries)
        await self._runner.run(steps)


class AsyncDatasets:
    """Datasets of the service: ``client.datasets``."""

    def __init__(self, runner: AsyncRunner) -> None:
        self._runner = runner

    async def list(self) -> Ids:
        """Ids of all datasets, in order.

        Raises:
            ThalwegError: the service refused, or could not be reached.
        """
        return await self._runner.run(list_ids(self._runner.retries))

    async def register(self, spec: Mapping[str, Any] | None = None, /, **more: Any) -> AsyncDataset:  # noqa: ANN401 - as in the contract
        """Register files that the service can read as a dataset.

        Registering the same again gives the same dataset.

        Args:
            spec: as in the contract: ``id``, ``files`` or ``glob``, ``nav_shape`` ...
            **more: members of the same.

        Raises:
            ThalwegError: the service refused, or could not be reached.
        """
        info = await self._runner.run(register({**(spec or {}), **more}, self._runner.retries))
        return AsyncDataset(self._runner, str(info.get("id")), info)

    def __getitem__(self, ident: str) -> AsyncDataset:
        """A dataset by its id; the service is not asked yet."""
        return AsyncDataset(self._runner, ident)

    async def __aiter__(self) -> AsyncIterator[str]:
        for ident in await self.list():
            yield ident
