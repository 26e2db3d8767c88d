"""Operations on runs, from the arguments of a call; either client runs them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict
from uuid import uuid4

from ..errors import ThalwegError
from ..losses.requests import InputLike, input_bytes, put_input
from ..losses.sources import Source, SourceLike, open_source
from ..transport.answers import call, checked, delete, exchange
from ..transport.effects import Deliver, Drop, Join, Sleep, Spawn, Steps, Work, next_item
from ..transport.retry import Backoff
from .description import FINISHED, Run, Stream, pages
from .downloading import ReportStream, save_report
from .requests import RunRequests, create_run
from .uploading import Observe, Upload, Uploaded, find_uploaded

RunLike: TypeAlias = "str | Run"
"""A run, or its id."""
Perspective: TypeAlias = Literal["gul", "il", "ri", "rl"]

PARALLEL = 4
"""Uploads at a time."""

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
"""Seconds between two questions whether a run is done."""


class RunOptions(TypedDict, total=False):
    """Options of a run; those left out have the server's defaults."""

    partitions: int
    """Number of streams; sealing requires all of them."""
    quantiles: Sequence[float]
    return_periods: Sequence[int]
    no_of_periods: int
    confidence: float
    curves: str
    tvar: Literal["count", "weight"]
    float_width: Literal[4, 8]
    nan: Literal["error", "zero", "drop"]
    negative: Literal["error", "keep"]
    sample_order: Literal["ascending", "any"]
    order: Literal["received", "event"]
    sets: Sequence[int]
    summary_ids: str


class ReportOptions(TypedDict, total=False):
    """What a report is made of, and as what it is written."""

    set: int
    """The summary set, of a run with several."""
    summary_ids: str
    """Only rows of these summaries, such as ``1,5,10-20``."""
    event_ids: str
    """Only rows of these events, in the same form."""
    variant: str
    """What ``add_reports`` returned, for a further report."""


@dataclass(frozen=True, slots=True)
class Part:
    """A partition to upload.

    Attributes:
        partition: which one it is, from 1.
        source: its stream, as for ``client.losses.post``.
        exec: a command to run instead, whose output is the stream; once its turn has come.
        state: file that lets another process go on. Of parts that are uploaded together all files
            stay until all parts are stored, so that the same call can be made again.
        replace: whether to delete the stream that the partition has, unless ``state`` goes on
            with it.
    """

    partition: int
    source: SourceLike | None = None
    exec: Sequence[str] | None = None
    state: str | os.PathLike[str] | None = None
    replace: bool = False


def run_id(run: RunLike) -> str:
    """Return the id of a run."""
    return run if isinstance(run, str) else run.id


class RunJobs:
    """Operations on runs.

    Args:
        retries: failures in a row to tolerate.
    """

    def __init__(self, retries: int) -> None:
        self._retries = retries

    def create(  # noqa: PLR0913, PLR0917 - what a run consists of
        self,
        perspective: str,
        reports: Sequence[str],
        inputs: Mapping[str, InputLike],
        days: float | None,
        key: str | None,
        options: RunOptions,
    ) -> Steps[Run]:
        """Store the inputs that are files, and create a run."""
        unknown = set(options) - RunOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"there is no option {min(unknown)}")
        digests = yield from self._store(inputs)
        spec: dict[str, Any] = {"perspective": perspective, "reports": list(reports)}
        spec |= {"inputs": digests, "options": dict(options)}
        if days is not None:
            spec["days"] = days
        reply = yield from call(create_run(spec, key or str(uuid4())), self._retries)
        return Run.parse(reply.json())

    def _store(self, inputs: Mapping[str, InputLike]) -> Steps[dict[str, str]]:
        """Store the inputs that are files; the digests of all, by name."""
        digests: dict[str, str] = {}
        for name, value in inputs.items():
            if isinstance(value, str):
                digests[name] = value
            else:
                request = put_input(name, input_bytes(value))
                digests[name] = (yield from call(request, self._retries)).text("digest")
        return digests

    def streams(self, run: RunLike) -> Steps[Sequence[Stream]]:
        """Ask for all streams of a run, in the order of their partitions."""
        requests = RunRequests(run_id(run))
        steps = pages(requests.list_streams, "streams", Stream.parse, self._retries)
        found: list[Stream] = []
        while (stream := (yield from next_item(steps))) is not None:
            found.append(stream)
        return found

    def delete_stream(self, run: RunLike, stream: str) -> Steps[None]:
        """Delete a stream of a run."""
        return delete(RunRequests(run_id(run)).delete_stream(stream), self._retries)

    def upload(
        self,
        run: RunLike,
        source: Source,
        partition: int,
        state: str | os.PathLike[str] | None,
        observe: Observe | None,
    ) -> Steps[Uploaded]:
        """Upload the stream of a partition."""
        path = None if state is None else Path(state)
        requests, backoff = RunRequests(run_id(run)), Backoff(self._retries)
        return Upload(requests, source, partition, backoff, path, observe).upload()

    def upload_all(
        self, run: RunLike, parts: Sequence[Part], observe: Observe | None
    ) -> Steps[None]:
        """Upload several partitions side by side; deliver each with how it ended."""
        jobs, are_stored = [], True
        for part in parts:
            jobs.append((yield Spawn(self._upload_part(run, part, observe))))  # noqa: PERF401 - it yields
        for part, job in zip(parts, jobs, strict=True):
            result = yield Join(job)
            are_stored &= isinstance(result, Uploaded)
            yield Deliver((part, result))
        for part in parts:
            if are_stored and part.state is not None:
                yield Work(partial(Path(part.state).unlink, missing_ok=True))

    def _upload_part(
        self, run: RunLike, part: Part, observe: Observe | None
    ) -> Steps[Uploaded | Exception]:
        try:
            if part.exec is not None and part.state is not None:
                stored = yield from self._find_uploaded(run, part, Path(part.state))
                if stored is not None:  # its command need not run again
                    return stored
            source: Source = yield Work(partial(open_source, part.source, part.exec))
        except (ThalwegError, TypeError) as error:
            return error
        try:
            if part.replace and (part.state is None or not Path(part.state).exists()):
                yield from self._vacate(run, part.partition)
            requests, backoff = RunRequests(run_id(run)), Backoff(self._retries)
            path = None if part.state is None else Path(part.state)
            upload = Upload(requests, source, part.partition, backoff, path, observe)
            return (yield from upload.upload(keep_state=True))
        except (ThalwegError, OSError) as error:
            return error
        finally:
            source.close()

    def _find_uploaded(self, run: RunLike, part: Part, state: Path) -> Steps[Uploaded | None]:
        requests = RunRequests(run_id(run))
        return find_uploaded(requests, part.partition, state, self._retries)

    def _vacate(self, run: RunLike, partition: int) -> Steps[None]:
        """Delete the stream of a partition, if there is one."""
        for stream in (yield from self.streams(run)):
            if stream.partition == partition:
                yield from self.delete_stream(run, stream.id)

    def seal(self, run: RunLike, *, wait: bool) -> Steps[Run]:
        """Seal a run; it is done if the caller waits for it.

        Raises:
            ProblemError: a stream is missing, incomplete or faulty; or computing has failed.
        """
        requests = RunRequests(run_id(run))
        sealed = Run.parse((yield from call(requests.seal(), self._retries)).json())
        return (yield from self.finish(sealed)) if wait else sealed

    def finish(self, run: RunLike) -> Steps[Run]:
        """Wait until a run is done.

        Raises:
            ProblemError: it has failed.
            ConnectionFailed: more failures in a row than are tolerated.
        """
        requests, backoff, pause = RunRequests(run_id(run)), Backoff(self._retries), _FIRST_PAUSE
        while True:
            try:
                reply = checked((yield from exchange(requests.describe())))
                now = Run.parse(reply.json())
            except ThalwegError as error:
                yield Drop()
                yield Sleep(backoff.delay(error))
                continue
            backoff.progressed()
            if now.state in FINISHED:
                now.check()
                return now
            yield Sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def report(  # noqa: PLR0913, PLR0917 - each is a choice of the caller
        self,
        run: RunLike,
        report: str,
        path: str | os.PathLike[str],
        table_format: str | None,
        state: str | os.PathLike[str] | None,
        options: ReportOptions,
    ) -> Steps[int]:
        """Write a finished report to a file; its size in bytes."""
        out = Path(path)
        query = {"format": table_format or out.suffix.removeprefix(".") or "csv", **options}
        requests, backoff = RunRequests(run_id(run)), Backoff(self._retries)
        stream = ReportStream(requests, report, query, 0, None, backoff)
        request = requests.report(report, query, 0, None)
        return save_report(stream, out, request.target, None if state is None else Path(state))

    def add_reports(
        self,
        run: RunLike,
        reports: Sequence[str],
        inputs: Mapping[str, InputLike],
        options: Mapping[str, Any],
    ) -> Steps[str]:
        """Have a sealed run compute further reports; the variant to ask for them with."""
        digests = yield from self._store(inputs)
        content: dict[str, Any] = {"reports": list(reports), "options": dict(options)}
        if digests:
            content["inputs"] = digests
        request = RunRequests(run_id(run)).add_reports(content)
        return (yield from call(request, self._retries)).text("variant")
