"""Durable runs with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Unpack

from ..losses.asynchronous import AsyncSourceLike, open_async_source
from ..losses.requests import InputLike
from ..transport.asynchronous import AsyncItems, AsyncRunner
from .blocking import PathLike
from .description import Run, Stream
from .following import EventStream, RowStream, RunEvent, RunRows
from .jobs import PARALLEL, Part, Perspective, ReportOptions, RunJobs, RunLike, RunOptions
from .uploading import Observe, Uploaded


class AsyncRowAnswer(AsyncItems[RunRows]):
    """The rows of a run as they arrive: ``RowAnswer`` for ``async for``."""

    def __init__(self, runner: AsyncRunner, rows: RowStream) -> None:
        super().__init__(runner.shell(), rows.run())
        self._rows = rows

    @property
    def token(self) -> str | None:
        """Where the rows resume: after the last ones that were handed out."""
        return self._rows.token

    @property
    def end(self) -> str | None:
        """Why the rows ended, once they have."""
        return self._rows.end


class AsyncEventAnswer(AsyncItems[RunEvent]):
    """What happens to a run, as it happens: ``EventAnswer`` for ``async for``."""

    def __init__(self, runner: AsyncRunner, events: EventStream) -> None:
        super().__init__(runner.shell(), events.run())


class AsyncRuns:
    """Durable runs: ``client.runs``."""

    def __init__(self, runner: AsyncRunner) -> None:
        self._runner = runner
        self._jobs = RunJobs(runner.retries)

    async def create(
        self,
        perspective: Perspective,
        reports: Sequence[str],
        *,
        inputs: Mapping[str, InputLike] | None = None,
        days: float | None = None,
        key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Run:
        """Create a run; as ``Client.runs.create``."""
        steps = self._jobs.create(perspective, reports, inputs or {}, days, key, options)
        return await self._runner.run(steps)

    def list(self) -> AsyncIterator[Run]:
        """Iterate over your runs; as ``Client.runs.list``."""
        return AsyncItems(self._runner.shell(), self._jobs.list())

    async def status(self, run: RunLike) -> Run:
        """The run as it is now; as ``Client.runs.status``."""
        return await self._runner.run(self._jobs.status(run))

    async def streams(self, run: RunLike) -> Sequence[Stream]:
        """The streams of a run; as ``Client.runs.streams``."""
        return await self._runner.run(self._jobs.streams(run))

    async def delete(self, run: RunLike) -> None:
        """Delete a run; as ``Client.runs.delete``."""
        await self._runner.run(self._jobs.delete(run))

    async def delete_stream(self, run: RunLike, stream: str) -> None:
        """Delete a stream; as ``Client.runs.delete_stream``."""
        await self._runner.run(self._jobs.delete_stream(run, stream))

    async def put_input(self, run: RunLike, name: str, data: InputLike) -> str:
        """Bind an auxiliary file to a run; as ``Client.runs.put_input``."""
        return await self._runner.run(self._jobs.put_input(run, name, data))

    async def upload(  # noqa: PLR0913 - each is a choice of the caller
        self,
        run: RunLike,
        source: AsyncSourceLike | None = None,
        *,
        exec: Sequence[str] | None = None,  # noqa: A002 - users know it by this name
        partition: int = 1,
        state: PathLike | None = None,
        progress: Observe | None = None,
    ) -> Uploaded:
        """Upload the whole stream of a partition; as ``Client.runs.upload``.

        A source may also be an asynchronous iterable of bytes. The observer of progress is
        called from a thread.
        """
        opened = open_async_source(source, exec)
        steps = self._jobs.upload(run, opened, partition, state, progress)
        return await self._runner.run(steps, release=opened.close)

    def upload_all(
        self,
        run: RunLike,
        parts: Sequence[Part],
        *,
        parallel: int = PARALLEL,
        progress: Observe | None = None,
    ) -> AsyncIterator[tuple[Part, Uploaded | Exception]]:
        """Upload several partitions side by side; as ``Client.runs.upload_all``."""
        steps = self._jobs.upload_all(run, parts, progress)
        return AsyncItems(self._runner.shell(workers=parallel), steps)

    async def seal(self, run: RunLike, *, wait: bool = True) -> Run:
        """Have the reports computed; as ``Client.runs.seal``."""
        return await self._runner.run(self._jobs.seal(run, wait=wait))

    def rows(
        self,
        run: RunLike,
        report: str,
        *,
        after: str | None = None,
        stream: str | None = None,
        follow: bool = False,
    ) -> AsyncRowAnswer:
        """Iterate over the rows of a report with ``async for``; as ``Client.runs.rows``."""
        rows = self._jobs.rows(run, report, after, stream, follow=follow)
        return AsyncRowAnswer(self._runner, rows)

    def watch(self, run: RunLike, *, after: str | None = None) -> AsyncEventAnswer:
        """Iterate over what happens to a run; as ``Client.runs.watch``."""
        return AsyncEventAnswer(self._runner, self._jobs.watch(run, after))

    async def report(
        self,
        run: RunLike,
        report: str,
        path: PathLike,
        format: str | None = None,  # noqa: A002 - its name everywhere in the contract
        *,
        state: PathLike | None = None,
        **options: Unpack[ReportOptions],
    ) -> int:
        """Write a finished report to a file; as ``Client.runs.report``."""
        steps = self._jobs.report(run, report, path, format, state, options)
        return await self._runner.run(steps)

    async def add_reports(
        self,
        run: RunLike,
        reports: Sequence[str],
        *,
        inputs: Mapping[str, InputLike] | None = None,
        **options: Unpack[RunOptions],
    ) -> str:
        """Have a sealed run compute further reports; as ``Client.runs.add_reports``."""
        return await self._runner.run(self._jobs.add_reports(run, reports, inputs or {}, options))
