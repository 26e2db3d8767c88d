"""Reports of a run directory: every output of a perspective in one pass over its streams.

::

    gul_P1 --+                       +-- set 1: selt melt ... ept  --> output/gul_S1_*.csv
             +--> sums of the sets --+
    gul_P2 --+                       +-- set 2: palt alct          --> output/gul_S2_*.csv

The sets have inputs, curves and formats of their own, as the settings ask. A chunk of a run, which
is computed elsewhere, leaves rows and sums instead of reports, which :mod:`.chunks` describes.

A stream of losses has no end marker: when a process that writes one is killed between two blocks,
the stream looks complete. So the files get their names only when the caller has confirmed that
the processes have ended well (``confirm``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from app.losses.analyses import Analyses, OrderedThreads
from app.losses.outputs import Outputs
from app.losses.sections import Progress, stream_observer
from app.losses.sources import STDIN
from app.losses.spilling import SpillFiles
from core.arrays import Rows
from core.errors import OptionError
from core.losses.analysis import Analysis
from core.losses.events import StreamEnd
from core.losses.finishing import LedgerResources
from core.losses.ledger.calendar import ledger_bound, make_calendar
from core.losses.ledger.ledger import MEMORY_BUDGET
from core.losses.merge import Order, Partitions
from core.losses.outputs import Sink
from core.losses.policy import Policy
from core.losses.seen import SeenEvents
from core.losses.summaries import Reading, SetReports, Summariser

from .chunks import ChunkFiles, run_outputs
from .directory import OutputTables, RunDirectory, check_writable
from .files import locked
from .settings import Losses
from .streams import StreamGroup, StreamOption, read_streams, stream_groups

WAITING_BYTES = 128 << 20
"""Bytes of rows that may wait for the slowest partition before the others are left alone."""
_NO_LIMIT = 1 << 62
_PROGRESS_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob:
    """One requested aggregation of a run directory."""

    directory: RunDirectory
    out: Path
    """Where the outputs go."""
    streams: Sequence[StreamOption] = ()
    """Streams to read; those in the folder ``fifo`` if none are named."""
    policy: Policy | None = None
    """What streams may hold; its float width is that of OASIS_FLOAT."""
    sort: bool = True
    """Whether rows are sorted by event, as far as events are dealt out in order."""
    chunk: tuple[int, int] | None = None
    """Number of a chunk and of chunks: leave what :mod:`.chunks` merges."""
    work: Path | None = None
    """Folder of what a chunk leaves; by default ``<chunk>.work`` in the directory."""
    memory_budget: int = MEMORY_BUDGET
    """Bytes of memory for sums; those beyond go to ``spill_dir``."""
    spill_dir: Path | None = None
    """By default the folder of the outputs."""
    idle_timeout: float | None = None
    confirm: Callable[[Mapping[str, int]], None] | None = None
    """Called with the number of events of each kind of losses when all streams have been read;
    raises if a process that wrote one failed."""


class RunAggregation:
    """Runs one job.

    Raises:
        CoreError: the settings, inputs and streams contradict each other.
    """

    def __init__(self, job: RunJob) -> None:
        self._job = job
        self._directory = job.directory
        self._groups = stream_groups(self._directory, job.streams)
        if sum(group.paths.count(STDIN) for group in self._groups) > 1:
            raise OptionError("standard input can be only one of the streams")
        self._policy = replace(job.policy or Policy(), float_width=self._directory.float_width)
        self._sort = job.sort and self._directory.ascends
        self._out = job.out
        if job.chunk is not None:
            self._out = job.work or job.directory.path / f"{job.chunk[0]}.work"
        self._log = structlog.get_logger()
        self._events: dict[str, int] = {}

    @property
    def perspectives(self) -> list[str]:
        """Perspectives of the streams."""
        return list(dict.fromkeys(group.losses.perspective for group in self._groups))

    @property
    def names(self) -> list[str]:
        """Names of the streams, in the order of their ends."""
        return [path for group in self._groups for path in group.paths]

    def run(self) -> list[StreamEnd]:
        """Read all streams and write the outputs; return how each stream ended.

        Raises:
            CoreError: an input or a stream is faulty, or a disk full; no output is written then.
        """
        job = self._job
        check_writable(self._out)
        self._tell()
        name = "-".join(self.perspectives)
        spill = SpillFiles(job.spill_dir or self._out)
        with locked(self._out, name), closing(spill):
            with Outputs() as outputs:
                files = self._files(outputs)
                ends = self._run(files, spill)
                files.end()
                # A disk that is full here leaves no other perspective's outputs either.
                outputs.save()
                if job.confirm is not None:
                    job.confirm(self._events)
            if isinstance(files, ChunkFiles):
                files.describe()
        self._log.info("outputs written", of=name, files=len(files.paths), folder=str(self._out))
        return ends

    def _tell(self) -> None:
        """Log what is ignored, and the bound of the memory."""
        for ignored in self._directory.settings.legacy:
            self._log.warning("there is no such output any more", request=ignored)
        if self._job.sort and not self._sort:
            self._log.warning("events.bin does not ascend: rows are not sorted by event")
        bound = self._bound()
        budget = self._job.memory_budget
        self._log.info(
            "memory bound",
            sums_at_most=bound,
            in_memory_at_most=budget if bound is None else min(bound, budget),
            waiting_rows_at_most=WAITING_BYTES,
            spilled_to=str(self._job.spill_dir or self._out),
        )

    def _bound(self) -> int | None:
        """Bytes of sums at most; None with streams of summaries, whose number no xref tells."""
        if any(group.set_id is not None for group in self._groups):
            return None
        samples = self._directory.settings.number_of_samples
        bound = 0
        for losses in dict.fromkeys(group.losses for group in self._groups):
            sets = self._directory.sets(losses)
            for index, request in enumerate(self._directory.requests(losses)):
                inputs = self._directory.inputs(request, losses)
                if samples is None or inputs.occurrence is None or not run_outputs(request):
                    continue
                count = int((sets.places.set_indices == index).sum())
                calendar = make_calendar(inputs.occurrence)
                width = self._policy.float_width
                bound += ledger_bound(calendar, samples, width, count).state_bytes
        return bound

    def _files(self, outputs: Outputs) -> OutputTables | ChunkFiles:
        if self._job.chunk is None:
            return OutputTables(outputs, self._directory, self._out)
        return ChunkFiles(outputs, self._directory, self._out, self._job.chunk, sort=self._sort)

    def _run(self, files: OutputTables | ChunkFiles, spill: SpillFiles) -> list[StreamEnd]:
        parts = sum(
            len(group.paths) * (1 if group.set_id else len(self._directory.requests(group.losses)))
            for group in self._groups
        )
        resources = LedgerResources(
            self._job.memory_budget // parts, spill=spill, map=OrderedThreads()
        )
        for losses in dict.fromkeys(group.losses for group in self._groups):
            for request in self._directory.requests(losses):
                files.add(losses, request)
        takers = [self._taker(group, files, resources) for group in self._groups]
        progress = _Progress(self._log)
        readers: list[Analysis | Summariser] = []
        for taker in takers:
            readers += taker.summarisers if isinstance(taker, SetReports) else taker.analyses
        read_streams(
            [(group.paths, taker) for group, taker in zip(self._groups, takers, strict=True)],
            in_order=self._sort,
            limit=WAITING_BYTES // len(takers),
            idle_timeout=self._job.idle_timeout,
            observe=stream_observer(readers, None, progress),
        )
        progress.tell()
        for group, taker in zip(self._groups, takers, strict=True):
            # Streams of summaries leave out events without losses.
            if isinstance(taker, SetReports):
                count = sum(summariser.events for summariser in taker.summarisers)
                self._events[group.losses.name] = count
        return [end for taker in takers for end in taker.ends]

    def _taker(
        self, group: StreamGroup, files: OutputTables | ChunkFiles, resources: LedgerResources
    ) -> SetReports | Partitions:
        order: Order = "event" if self._sort else "received"
        make = partial(self._analyses, files, resources, group.losses)

        def write(set_id: int | None, report: str, rows: Rows) -> None:
            files.write((group.losses.name, set_id), report, rows)

        if group.set_id is None:
            sets, reading = self._directory.sets(group.losses), Reading(self._policy)

            def analyse(
                set_id: int, name: str, sink: Sink, seen: SeenEvents, policy: Policy
            ) -> Analysis:
                return make(set_id, policy).of_partition(name, sink, seen)

            return SetReports(
                group.paths, sets, analyse, write, reading, order=order, read_ahead=_NO_LIMIT
            )
        policy = replace(self._policy, event_order="ascending" if self._sort else "any")
        return Partitions(
            group.paths,
            make(group.set_id, policy).of_partition,
            partial(write, group.set_id),
            order=order,
            read_ahead=_NO_LIMIT,
        )

    def _analyses(
        self,
        files: OutputTables | ChunkFiles,
        resources: LedgerResources,
        losses: Losses,
        set_id: int,
        policy: Policy,
    ) -> Analyses:
        request = next(r for r in self._directory.requests(losses) if r.set_id == set_id)
        reports: Sequence[str] = request.reports
        inputs: Mapping[str, Any] = self._directory.inputs(request, losses).to_dict()
        if isinstance(files, ChunkFiles):
            reports, inputs = files.reports(request, inputs)
            resources = replace(resources, on_merged=files.exchange(losses, request))
        options = {"policy": policy, "options": request.options, "resources": resources}
        return Analyses(reports, {**inputs, **options})


class _Progress:
    """Logs how far the streams have been read, from time to time."""

    def __init__(self, log: Any) -> None:  # noqa: ANN401 - structlog's
        self._log = log
        self._now = Progress(None)
        self._last = time.monotonic()

    def __call__(self, now: Progress) -> None:
        self._now = now
        if time.monotonic() - self._last >= _PROGRESS_SECONDS:
            self._last = time.monotonic()
            self.tell()

    def tell(self) -> None:
        """Log it now."""
        self._log.info("losses read", events=self._now.events, bytes=self._now.bytes)
