"""``aggregate --engine``: workers of a cluster add partitions up, which are merged here.

Each partition becomes a partial file of its own in a directory that workers see, too, named by the
digest of all that its sums depend on. A command that is repeated goes on from the files that are
there; they are removed when its reports are complete.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from app.engine.cluster import DaskCluster
from app.losses.aggregation import Aggregation
from app.settings import Settings
from app.tasks import REGISTRY, scheduler_of
from core.errors import InputError, OptionError, ReportError
from core.losses.reports import choose_reports

from .aggregate import job_of
from .reading import named_streams
from .serving import as_option_errors

_BUDGET = 256 << 20
"""Memory for the sums of a partition, at most; what is beyond goes to the disk of the worker."""
_JSON = (str, int, float, list)
_OF_ONE = {
    "order": "received",
    "reports": ["aal"],
    "format": None,
    "partials": [],
    "plot": None,
    "expect_events": None,
    "expect_bytes": None,
    "live": False,
    "threads": 1,
    "summary_ids": None,
    "event_ids": None,
    "summary_info": None,
    "spill_dir": None,
    "engine": None,
    "engine_dir": None,
    "out": "",
    "partial_out": "",
}
"""Options of the sums of one partition that differ from those of the reports of all."""


@contextlib.contextmanager
def partials(args: argparse.Namespace) -> Iterator[list[str]]:
    """Have partitions added up; provide their partial files, and remove them afterwards.

    Raises:
        OptionError: the options ask for what workers do not do, or the cluster cannot be used.
        CoreError: a stream is faulty.
    """
    work = _Partitions.of(args)
    streams = named_streams(args)
    for path in streams:
        if not _is_file(path):
            raise InputError("is no file, and --engine takes only files", source=path)
    with as_option_errors(), contextlib.ExitStack() as undo:
        settings = Settings(engine=args.engine)
        scheduler = scheduler_of(settings)
        cluster = DaskCluster(scheduler, REGISTRY, "", settings.engine_wait_seconds)
        undo.callback(cluster.close)
        for path in cluster.spread(work, streams):
            if not work.is_done(path):
                add_up(work.task(path))
    found = [work.out(path) for path in streams]
    yield [str(path) for path in found]
    for partial in found:
        partial.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Partitions:
    """Partitions as units of work, by their paths."""

    kind: ClassVar[str] = "aggregate"
    options: Mapping[str, Any]
    """Those of the command, but for the stream."""
    directory: Path
    nbytes: int

    @classmethod
    def of(cls, args: argparse.Namespace) -> _Partitions:
        """Return the work that options ask for.

        Raises:
            OptionError, ReportError: workers do not do it.
        """
        for report in choose_reports(args.reports):
            if report.calculate is None:
                raise ReportError(
                    f"{report.name.upper()} has rows of events, and workers add up whole runs",
                    hint="Compute it without --engine",
                )
        if args.occurrence is None:
            raise OptionError("--engine needs --occurrence: workers add up by period")
        if args.summary_xref is not None:
            raise OptionError("--engine takes streams of summaries: leave out --summary-xref")
        if args.engine_dir is None:
            raise OptionError(
                "--engine needs --engine-dir", hint="Name a directory that workers see, too"
            )
        budget = min(args.memory_budget, _BUDGET)
        said = {n: v for n, v in vars(args).items() if v is None or isinstance(v, _JSON)}
        options = said | _OF_ONE | {"memory_budget": budget}
        return cls(options, Path(args.engine_dir).absolute(), 2 * budget)

    def label(self, path: str) -> str:
        """See Work."""
        return path

    def task(self, path: str) -> dict[str, Any]:
        """See Work."""
        options = {
            name: str(Path(value).absolute()) if _is_file(value) else value
            for name, value in {**self.options, "streams": path}.items()
        }
        files = {value: _seen(value) for value in options.values() if _is_file(value)}
        task = {"options": options | {"streams": [options["streams"]]}, "files": files}
        text = json.dumps([task, REGISTRY[self.kind].version], sort_keys=True)
        name = f"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}.partial"
        return {**task, "out": str(self.directory / name)}

    def out(self, path: str) -> Path:
        """Return the partial file of a partition."""
        return Path(self.task(path)["out"])

    def is_done(self, path: str) -> bool:
        """See Work."""
        return self.out(path).exists()


def add_up(task: Mapping[str, Any]) -> None:
    """Write the partial file of one partition, as a task.

    Raises:
        InputError: a file is not the one of that name which the command reads.
        CoreError: the stream is faulty, or a file cannot be written.
    """
    for path, seen in task["files"].items():
        if not _is_file(path) or _seen(path) != seen:
            raise InputError("is another file here than where the command runs", source=path)
    out = Path(task["out"])
    if out.exists():
        # Dask begins a task again when a worker dies that had done it.
        return
    written = out.with_name(f".{out.name}.{token_hex(8)}")
    with TemporaryDirectory() as scratch:
        options = {**task["options"], "out": scratch, "partial_out": str(written)}
        Aggregation(job_of(argparse.Namespace(**options), None)).run()
    os.replace(written, out)  # noqa: PTH105 - so that nobody reads half of it


def _is_file(value: object) -> bool:
    return isinstance(value, str) and value != "" and Path(value).is_file()


def _seen(path: str) -> list[int]:
    """What tells that two machines see the same file."""
    status = Path(path).stat()
    return [status.st_size, status.st_mtime_ns]
