"""Pipelines and their batches with asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from ..transport.asynchronous import AsyncClosing, AsyncRunner, AsyncShell
from ..transport.requests import Request
from .batch import Batch
from .description import BatchesState, PipelineDescription
from .iteration import BatchIteration
from .requests import PipelineInfo, creation
from .selection import Position


class AsyncBatches(BatchesState, AsyncClosing):
    """The batches of a pipeline as they arrive: ``Batches`` for ``async for``."""

    def __init__(self, runner: AsyncRunner, iteration: BatchIteration) -> None:
        self._runner = runner
        self._iteration = iteration
        self._shell: AsyncShell | None = None

    async def setstate(self, state: Mapping[str, Any] | None) -> None:
        """Resume from a state; as ``Batches.setstate``."""
        position = Position.parse(state)
        await self.aclose()
        self._iteration.restart(position)

    def __aiter__(self) -> Self:
        self._iteration.resume()
        return self

    async def __anext__(self) -> Batch:
        if self._shell is None:
            self._shell = self._runner.shell(workers=self._iteration.connections)
        try:
            batch = await self._shell.run(self._iteration.advance())
        except BaseException:
            # What was on its way may be lost: the next call opens a new answer.
            await self.aclose()
            raise
        if batch is None:
            if self._iteration.over:
                await self.aclose()
            raise StopAsyncIteration
        return batch

    async def aclose(self) -> None:
        """Stop early; iterating again resumes after the last batch handed out."""
        self._iteration.stop()
        shell, self._shell = self._shell, None
        if shell is not None:
            await shell.aclose()


class AsyncPipeline(PipelineDescription):
    """A pipeline that the service knows: the result of ``AsyncClient.pipeline``.

    Attributes:
        spec: as it was given.
        id: the same for the same spec and data.
        token: at its beginning.
        info: the service's whole description.
    """

    def __init__(
        self, runner: AsyncRunner, spec: Mapping[str, Any], create: Request, info: PipelineInfo
    ) -> None:
        super().__init__(spec, create, info)
        self._runner = runner

    @classmethod
    async def create(cls, runner: AsyncRunner, spec: Mapping[str, Any]) -> AsyncPipeline:
        """Make a pipeline; as ``Client.pipeline``."""
        request = creation(spec)
        info = PipelineInfo.parse(await runner.call(request))
        return cls(runner, spec, request, info)

    def batches(  # noqa: PLR0913 - each is a choice of the caller
        self,
        after: str | None = None,
        *,
        rank: int = 0,
        world: int = 1,
        max_batches: int | None = None,
        epoch: bool = False,
        skip: int = 0,
        every: int = 1,
        prefetch: int = 0,
        parallel: int | None = None,
    ) -> AsyncBatches:
        """Iterate over batches; arguments and errors are those of ``Pipeline.batches``."""
        iteration = self._iteration(
            after,
            skip,
            self._runner.retries,
            rank=rank,
            world=world,
            max_batches=max_batches,
            epoch=epoch,
            every=every,
            prefetch=prefetch,
            parallel=parallel,
        )
        return AsyncBatches(self._runner, iteration)
