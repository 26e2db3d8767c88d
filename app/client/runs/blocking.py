# Made from asynchronous.py by deploy/unasync.py (make fmt): change that one.
"""Durable runs with blocking calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack
from uuid import uuid4

from ..errors import ThalwegError
from ..files.downloads import Download
from ..files.state import PathLike
from ..losses.requests import INPUTS, InputLike, check_names, input_bytes, put_input, remarks_in
from ..losses.rows import ReportTable, warn, warn_of
from ..losses.sources import SourceLike, open_source
from ..transport.channel import Calls, Channel, Connector, pages
from ..transport.requests import Request
from ..transport.streams import Items
from . import requests
from .following import RunEvent, RunRows
from .requests import Part, ReportOptions, Run, RunLike, RunOptions, RunRequests, Stream
from .streams import EventStream, RowStream
from .upload import Upload, upload_parts
from .uploading import Observe, Uploaded

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
"""Seconds between two questions whether a run is done."""


class RowAnswer(Items[RunRows]):
    """The rows of a run as they arrive; an iterator and a context manager."""

    def __init__(self, channel: Channel, rows: RowStream) -> None:
        super().__init__(channel, rows.run())
        self._rows = rows

    @property
    def token(self) -> str | None:
        """Where the rows resume: after the last ones that were handed out."""
        return self._rows.token

    @property
    def end(self) -> str | None:
        """Why the rows ended, once they have."""
        return self._rows.end


class EventAnswer(Items[RunEvent]):
    """What happens to a run, as it happens; an iterator and a context manager."""


class Runs(Calls):
    """Durable runs: ``client.runs``.

    Whatever is called ``run`` here is the id of a run, or what ``create`` returned.
    """

    def create(  # noqa: PLR0913 - each is a choice of the caller
        self,
        perspective: requests.Perspective,
        reports: str | Sequence[str],
        *,
        inputs: Mapping[str, InputLike] | None = None,
        days: float | None = None,
        label: str | None = None,
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
            label: what people call the run.
            key: of this creation: every call with this key returns the same run, on whatever
                machine. A new one without.
            **options: of the contract, see RunOptions.

        Raises:
            ProblemError: the service refused it.
            ConnectionFailed: the service could not be reached.
            SourceError: an input cannot be read.
            TypeError: there is no such option or input, or it is of another type.
        """
        spec = {"perspective": perspective, **requests.report_spec(reports, options)}
        spec["inputs"] = self._store({} if inputs is None else inputs)
        if days is not None:
            if not isinstance(days, int | float):
                raise TypeError(f"days must be a number, not {days!r}")
            spec["days"] = days
        if label is not None:
            spec["label"] = label
        return self._run(requests.create_run(spec, key or str(uuid4())))

    def _run(self, request: Request) -> Run:
        return Run.parse((self._connector.call(request)).json())

    def _store(self, inputs: Mapping[str, InputLike]) -> dict[str, str]:
        """Store the inputs that are files; the digests of all, by name."""
        if not isinstance(inputs, Mapping):
            raise TypeError(f'inputs must be as {{"occurrence": Path(…)}}, not {inputs!r}')
        check_names(inputs, INPUTS, "input")
        return {name: digest_of(self._connector, name, value) for name, value in inputs.items()}

    def list(self) -> Iterator[Run]:
        """Iterate over your runs.

        Raises (from iteration):
            ProblemError, ConnectionFailed: the service refused, or could not be reached.
        """
        channel = self._connector.channel()
        return Items(channel, pages(channel.call, requests.RUNS, "runs", Run.parse))

    def status(self, run: RunLike) -> Run:
        """The run as it is now.

        Raises:
            ProblemError: there is no such run, or it is not yours.
            ConnectionFailed: the service could not be reached.
        """
        return self._run(RunRequests(run).describe())

    def label(self, run: RunLike, text: str | None) -> Run:
        """Change what people call a run, in whatever state it is; None for no label.

        Raises:
            ProblemError: the service refused, such as a label of several lines.
            ConnectionFailed: the service could not be reached.
        """
        return self._run(RunRequests(run).label(text))

    def streams(self, run: RunLike) -> Sequence[Stream]:
        """The streams of a run, in the order of their partitions.

        Raises:
            ProblemError, ConnectionFailed: as for ``status``.
        """
        path, call = RunRequests(run).streams, self._connector.call
        return list(pages(call, path, "streams", Stream.parse))

    def delete(self, run: RunLike) -> None:
        """Delete a run, with its streams and reports.

        Raises:
            ProblemError, ConnectionFailed: as for ``status``.
        """
        self._connector.call(RunRequests(run).delete())

    def delete_stream(self, run: RunLike, stream: str) -> None:
        """Delete a stream, such as a faulty one, so that its partition can be uploaded again.

        Raises:
            ProblemError: there is no such stream, or the run is sealed.
            ConnectionFailed: the service could not be reached.
        """
        self._connector.call(RunRequests(run).delete_stream(stream))

    def put_input(self, run: RunLike, name: str, data: InputLike) -> str:
        """Bind an auxiliary file to a run that is not sealed; its digest.

        Raises:
            ProblemError: the service refused it.
            ConnectionFailed: the service could not be reached.
            SourceError: the file cannot be read.
        """
        request = RunRequests(run).put_input(name, input_bytes(name, data))
        return (self._connector.call(request)).text("digest")

    def upload(  # noqa: PLR0913 - each is a choice of the caller
        self,
        run: RunLike,
        source: SourceLike | None = None,
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
        opened = open_source(source, exec)
        with self._connector.channel(release=opened.close) as channel:
            upload = Upload(channel, RunRequests(run), opened, partition, state, progress)
            return upload.upload()

    def upload_all(
        self,
        run: RunLike,
        parts: Sequence[Part],
        *,
        parallel: int = requests.PARALLEL,
        progress: Observe | None = None,
        ended: Callable[[Part, Uploaded | Exception], None] | None = None,
    ) -> Sequence[tuple[Part, Uploaded | Exception]]:
        """Upload several partitions side by side; each with how it ended, in their order.

        It returns when all have ended; one that fails stops no other. An exception such as
        KeyboardInterrupt stops them all; what their state files say is enough to go on.

        Args:
            run: to upload to.
            parts: the partitions.
            parallel: uploads at a time.
            progress: called after commits, from several threads.
            ended: called with each and how it ended, in their order.
        """
        results = []
        with self._connector.channel(workers=parallel) as channel:
            uploads = upload_parts(channel, RunRequests(run), parts, progress)
            with closing(uploads) as each:
                for part, result in each:
                    results.append((part, result))
                    if ended is not None:
                        ended(part, result)
        return results

    def seal(self, run: RunLike, *, wait: bool = True, **options: Unpack[RunOptions]) -> Run:
        """Announce that no more streams come, and have the reports computed.

        Args:
            run: to seal; one that is sealed already is fine.
            wait: return when the reports are there; what their rows do not say is a warning.
            **options: of its reports in place of those it has, such as ``return_periods``.

        Raises:
            ProblemError: a stream is missing, incomplete or faulty, and the problem names it;
                or the reports cannot be computed.
            ConnectionFailed: the service could not be reached.
        """
        sealed = self._run(RunRequests(run).seal(requests.options_of(options)))
        if wait:
            sealed = self._finish(sealed)
            for note in sealed.document.get("notes", ()):
                warn(note)
        return sealed

    def _finish(self, run: Run) -> Run:
        """Wait until a run is done.

        Raises:
            ProblemError: it has failed.
            ConnectionFailed: more failures in a row than are tolerated.
        """
        request, pause = RunRequests(run.id).describe(), _FIRST_PAUSE
        with self._connector.channel() as channel:
            backoff = channel.backoff()
            while True:
                try:
                    now = Run.parse((channel.ask(request)).json())
                except ThalwegError as error:
                    channel.pause(backoff.delay(error))
                    continue
                backoff.progressed()
                if now.state in requests.FINISHED:
                    now.check()
                    return now
                channel.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def rows(
        self,
        run: RunLike,
        report: str,
        *,
        after: str | None = None,
        stream: str | None = None,
        follow: bool = False,
    ) -> RowAnswer:
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
        channel = self._connector.channel()
        build = partial(RunRequests(run).rows, report, stream=stream, follow=follow)
        return RowAnswer(channel, RowStream(channel, build, after))

    def watch(self, run: RunLike, *, after: str | None = None) -> EventAnswer:
        """Iterate over what happens to a run until it is done or has failed.

        Args:
            run: to watch.
            after: id of the last event that is known.

        Raises (from iteration):
            ProblemError: the service refused.
            ConnectionFailed: more failures in a row than are tolerated.
        """
        channel = self._connector.channel()
        events = EventStream(channel, RunRequests(run).progress, after)
        return EventAnswer(channel, events.run())

    def report(  # noqa: PLR0913 - each is a choice of the caller
        self,
        run: RunLike,
        report: str,
        path: PathLike,
        format: str | None = None,  # noqa: A002 - its name everywhere in the contract
        *,
        state: PathLike | None = None,
        progress: Callable[[int], None] | None = None,
        **options: Unpack[ReportOptions],
    ) -> int:
        """Write a finished report of a sealed run to a file; its size in bytes.

        The file appears once it is complete, in place of one that is there. While the report
        is computed, the call waits.

        Args:
            run: whose report.
            report: its name.
            path: of the file.
            format: csv, parquet, arrow, bin, svg or png; by default the extension of the path.
            state: file that lets the same call in another process go on. Removed at the end.
            progress: called now and then with the bytes that are there.
            **options: see ReportOptions.

        Raises:
            ProblemError: the service has no such report, or the run is not sealed.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
            StateError: the state file does not fit.
            OSError: the file cannot be written.
        """
        ending = Path(path).suffix.removeprefix(".")
        query = {"format": format or ending or "csv", **options}
        request = RunRequests(run).report(report, query)
        with self._connector.channel() as channel:
            download = Download(channel, request, "report", request.target, path, state)
            size = download.save(progress)
        _warn(download)
        return size

    def read(self, run: RunLike, report: str, **options: Unpack[ReportOptions]) -> ReportTable:
        """Return a finished report of a sealed run as a whole table.

        While the report is computed, the call waits. The rows pass through a temporary file.

        Args:
            run: whose report.
            report: its name.
            **options: set, variant, summary_ids and event_ids; see ReportOptions.

        Raises:
            ProblemError: the service has no such report, or the run is not sealed.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
            OSError: the temporary file cannot be written.
        """
        request = RunRequests(run).report(report, {"format": "bin", **options})
        with TemporaryDirectory(prefix="thalweg-") as folder:
            path = Path(folder, "rows")
            with self._connector.channel() as channel:
                download = Download(channel, request, "report", request.target, path, None)
                download.save()
                rows = channel.work(download.records)
        _warn(download)
        return ReportTable(report, rows, options.get("set"))

    def add_reports(
        self,
        run: RunLike,
        reports: str | Sequence[str],
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
        content = requests.report_spec(reports, options)
        content["inputs"] = self._store({} if inputs is None else inputs)
        request = RunRequests(run).add_reports(content)
        return (self._connector.call(request)).text("variant")


def digest_of(connector: Connector, name: str, value: InputLike) -> str:
    """Digest of an input, which is stored unless that is what was given."""
    if isinstance(value, str):
        return value
    return (connector.call(put_input(name, input_bytes(name, value)))).text("digest")


def _warn(download: Download) -> None:
    warn_of(remarks_in(download.headers))
