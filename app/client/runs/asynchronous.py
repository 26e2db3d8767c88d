"""Durable runs with asyncio."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Unpack

from ..losses.async_sources import AsyncSourceLike, open_async_source
from ..losses.requests import InputLike, input_bytes
from ..transport.answers import delete
from ..transport.async_items import AsyncItems
from ..transport.asynchronous import AsyncRunner
from ..transport.retry import Backoff
from .description import Run, Stream, pages
from .following import EventStream, RowStream, RunEvent, RunRows
from .jobs import PARALLEL, Part, Perspective, ReportOptions, RunJobs, RunLike, RunOptions, run_id
from .requests import RunRequests, list_runs
from .uploading import Observe, Uploaded

PathLike = str | os.PathLike[str]


class AsyncRowAnswer(AsyncItems[RunRows]):
    """The rows of a run as they arrive; an asynchronous iterator and a context manager."""

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
    """What happens to a run, as it happens; an asynchronous iterator and a context manager."""

    def __init__(self, runner: AsyncRunner, events: EventStream) -> None:
        super().__init__(runner.shell(), events.run())


class AsyncRuns:
    """Durable runs: ``client.runs``.

    Whatever is called ``run`` here is the id of a run, or what ``create`` returned.
    """

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
        """Create a run; it takes streams until it is sealed.

        Args:
            perspective: gul, il, ri or rl.
            reports: names of reports.
            inputs: by name, such as ``{"occurrence": Path("occurrence.bin")}``: digests, or a
                Path or bytes, which are stored first.
            days: lifetime after the last change; the server's default without.
            key: of this creation: every call with this key returns the same run, on whatever
                machine. A new one without.
            **options: of the contract, see RunOptions.

        Raises:
            ProblemError: the service refused it.
            ConnectionFailed: the service could not be reached.
            SourceError: an input cannot be read.
            TypeError: there is no such option.
        """
        steps = self._jobs.create(perspective, reports, inputs or {}, days, key, options)
        return await self._runner.run(steps)

    def list(self) -> AsyncIterator[Run]:
        """Iterate over your runs.

        Raises (from iteration):
            ProblemError, ConnectionFailed: the service refused, or could not be reached.
        """
        runs = pages(list_runs, "runs", Run.parse, self._runner.retries)
        return AsyncItems(self._runner.shell(), runs)

    async def status(self, run: RunLike) -> Run:
        """The run as it is now.

        Raises:
            ProblemError: there is no such run, or it is not yours.
            ConnectionFailed: the service could not be reached.
        """
        reply = await self._runner.call(RunRequests(run_id(run)).describe())
        return Run.parse(reply.json())

    async def streams(self, run: RunLike) -> Sequence[Stream]:
        """The streams of a run, in the order of their partitions.

        Raises:
            ProblemError, ConnectionFailed: as for ``status``.
        """
        return await self._runner.run(self._jobs.streams(run))

    async def delete(self, run: RunLike) -> None:
        """Delete a run, with its streams and reports.

        Raises:
            ProblemError, ConnectionFailed: as for ``status``.
        """
        await self._runner.run(delete(RunRequests(run_id(run)).delete(), self._runner.retries))

    async def delete_stream(self, run: RunLike, stream: str) -> None:
        """Delete a stream, such as a faulty one, so that its partition can be uploaded again.

        Raises:
            ProblemError: there is no such stream, or the run is sealed.
            ConnectionFailed: the service could not be reached.
        """
        await self._runner.run(self._jobs.delete_stream(run, stream))

    async def put_input(self, run: RunLike, name: str, data: InputLike) -> str:
        """Bind an auxiliary file to a run that is not sealed; its digest.

        Raises:
            ProblemError: the service refused it.
            ConnectionFailed: the service could not be reached.
            SourceError: the file cannot be read.
        """
        request = RunRequests(run_id(run)).put_input(name, input_bytes(data))
        reply = await self._runner.call(request)
        return reply.text("digest")

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
        """Upload the whole stream of a partition; it returns when the service has all of it.

        Cut connections and servers that restart cost what was sent and not committed: less
        than a second of a fast connection. A stream that comes once, such as a pipe, is held
        in memory until it is committed, up to 48 MiB, and read no further meanwhile.

        Args:
            run: to upload to.
            source: as for ``client.losses.post``.
            exec: a command to run instead, whose output is the stream. It is declared
                complete only if the command exits with 0.
            partition: which one it is, from 1.
            state: file that lets the same call in another process go on. Removed at the end.
            progress: called after commits; perhaps from another thread.

        Raises:
            ProblemError: the service refused the stream, or found a fault in it.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
            ProducerFailed: the command failed; the stream stays incomplete.
            SourceError: the source cannot be read, or is not what it was.
            StateError: the state file does not fit.
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
        """Upload several partitions side by side; each with how it ended, in their order.

        One that fails stops no other. Closing the iterator, or an exception such as
        KeyboardInterrupt, stops them all; what their state files say is enough to go on.

        Args:
            run: to upload to.
            parts: the partitions.
            parallel: uploads at a time.
            progress: called after commits, from several threads.
        """
        steps = self._jobs.upload_all(run, parts, progress)
        return AsyncItems(self._runner.shell(workers=parallel), steps)

    async def seal(self, run: RunLike, *, wait: bool = True) -> Run:
        """Announce that no more streams come, and have the reports computed.

        Args:
            run: to seal; one that is sealed already is fine.
            wait: return when the reports are there.

        Raises:
            ProblemError: a stream is missing, incomplete or faulty, and the problem names it;
                or the reports cannot be computed.
            ConnectionFailed: the service could not be reached.
        """
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
        """Iterate over the rows of a report of events, at any time of the run.

        Args:
            run: whose rows.
            report: a report with rows of events, such as melt.
            after: token to resume after.
            stream: id of the only stream wanted.
            follow: wait for rows of uploads until the run is sealed.

        Raises (from iteration):
            ProblemError: the service refused, or the stream in hand is faulty.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
        """
        requests, backoff = RunRequests(run_id(run)), Backoff(self._runner.retries)
        rows = RowStream(requests, report, after, stream, backoff, follow=follow)
        return AsyncRowAnswer(self._runner, rows)

    def watch(self, run: RunLike, *, after: str | None = None) -> AsyncEventAnswer:
        """Iterate over what happens to a run until it is done or has failed.

        Args:
            run: to watch.
            after: id of the last event that is known.

        Raises (from iteration):
            ProblemError: the service refused.
            ConnectionFailed: more failures in a row than are tolerated.
        """
        events = EventStream(RunRequests(run_id(run)), after, Backoff(self._runner.retries))
        return AsyncEventAnswer(self._runner, events)

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
        """Write a finished report of a sealed run to a file; its size in bytes.

        The file appears once it is complete. While the report is computed, the call waits.

        Args:
            run: whose report.
            report: its name.
            path: of the file.
            format: csv, parquet, arrow, bin, svg or png; by default the extension of the path.
            state: file that lets the same call in another process go on. Removed at the end.
            **options: see ReportOptions.

        Raises:
            ProblemError: the service has no such report, or the run is not sealed.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
            StateError: the state file does not fit.
            OSError: the file cannot be written.
        """
        return await self._runner.run(self._jobs.report(run, report, path, format, state, options))

    async def add_reports(
        self,
        run: RunLike,
        reports: Sequence[str],
        *,
        inputs: Mapping[str, InputLike] | None = None,
        **options: Unpack[RunOptions],
    ) -> str:
        """Have a sealed run compute further reports, without its streams being sent again.

        Returns:
            The ``variant`` to ask for them with: ``report(…, variant=…)`` waits until they are
            computed.

        Args:
            run: sealed.
            reports: names of reports.
            inputs: those that differ from the run's, as for ``create``.
            **options: return periods, quantiles and the like for them.

        Raises:
            ProblemError: the service refused, or could not compute them.
            ConnectionFailed: the service could not be reached.
            SourceError: an input cannot be read.
        """
        return await self._runner.run(self._jobs.add_reports(run, reports, inputs or {}, options))
