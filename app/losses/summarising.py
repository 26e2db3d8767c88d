"""Write the summaries of item streams as streams, without the service."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core.arrays import Octets, Rows
from core.errors import OptionError
from core.losses.events import StreamEnd
from core.losses.format import ID_MAX
from core.losses.summaries import JoinedSummaries, Reading, SummarySets

from .aggregation import STDOUT, Observer, Progress
from .outputs import Output, PipeOutput, open_output
from .sources import Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryJob:
    """One requested summarising."""

    streams: Sequence[str]
    sets: SummarySets
    out: str
    """Directory, or ``-`` for the stream of a single set on standard output."""
    reading: Reading = field(default_factory=Reading)
    idle_timeout: float | None = None


class _SummaryFiles:
    """A stream and an index for each set, committed together or not at all."""

    def __init__(self, job: SummaryJob) -> None:
        self._streams: dict[int, Output] = {}
        self._indices: dict[int, Output] = {}
        try:
            for set_id in job.sets.set_ids:
                if job.out == STDOUT:
                    self._streams[set_id] = PipeOutput(1, owned=False)
                    continue
                stem = Path(job.out) / f"S{set_id}_summary"
                self._streams[set_id] = open_output(stem.with_suffix(".bin"))
                self._indices[set_id] = open_output(stem.with_suffix(".idx"))
        except BaseException:
            self.discard()
            raise

    def write(self, set_id: int, octets: Octets) -> None:
        self._streams[set_id].write(octets.data)

    def write_index(self, set_id: int, rows: Rows) -> None:
        if set_id in self._indices:
            self._indices[set_id].write(rows.tobytes())

    def commit(self) -> None:
        for output in (*self._streams.values(), *self._indices.values()):
            output.commit()

    def discard(self) -> None:
        for output in self._streams.values():
            if isinstance(output, PipeOutput):
                # A stream has no end marker: whole blocks alone would look like all of it.
                output.write(struct.pack("<i", ID_MAX))
        for output in (*self._streams.values(), *self._indices.values()):
            output.discard()


def summarise(job: SummaryJob, observer: Observer | None = None) -> list[StreamEnd]:
    """Write ``S1_summary.bin`` and ``.idx`` for each set; return how each item stream ended.

    Where the output is a pipe and a stream is faulty, it ends inside a block.

    Args:
        job: what to read and write.
        observer: called with the progress after each piece of a stream.

    Raises:
        OptionError: standard output is to take several streams.
        CoreError: a stream is faulty, or does not fit the xref; no file is written then.
    """
    if job.out == STDOUT and len(job.sets.set_ids) > 1:
        hint = "Choose one with --sets, or name a directory with --out"
        raise OptionError("standard output takes the stream of a single set", hint=hint)
    if len(job.streams) > 1 and (job.reading.expect_events, job.reading.expect_bytes) != (
        None,
        None,
    ):
        raise OptionError("expect_events and expect_bytes apply to a single stream only")
    with Sources(job.streams, job.idle_timeout) as sources:
        files = _SummaryFiles(job)
        try:
            ends = _pump(job, sources, files, observer)
            files.commit()
        except BaseException:
            files.discard()
            raise
    return ends


def _pump(
    job: SummaryJob, sources: Sources, files: _SummaryFiles, observer: Observer | None
) -> list[StreamEnd]:
    names = [source.name for source in sources.sources]
    summaries = JoinedSummaries(names, job.sets, files.write, job.reading, files.write_index)
    progress = Progress(sources.total)
    while (piece := sources.read()) is not None:
        part, data = piece
        if len(data):
            summaries.receive(part, data)
        else:
            summaries.close(part)
        if observer is not None:
            progress.bytes += len(data)
            progress.events = sum(summariser.events for summariser in summaries.summarisers)
            observer(progress)
    return summaries.ends
