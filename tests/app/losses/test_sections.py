from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.losses import aggregation, sections
from app.losses.aggregation import Aggregation, Job, MappedStreams, Progress
from app.losses.report_files import TableFiles
from app.losses.sources import Source
from core.errors import CoreError, InputError, TruncatedError
from core.losses.events import StreamEnd
from core.losses.inputs import parse_occurrence
from core.losses.parameters import ReportInputs
from core.losses.policy import Policy
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.streams import QUANTILES

SPEC = SampleSpec(events=60, summaries=3, samples=20)
STREAM = b"".join(generate_stream(SPEC))
BY_EVENT = ["events", "selt", "melt", "qelt"]


class Streams:
    """Runs jobs over files, of which small ones are cut too."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.passes: list[str] = []

    def file(self, name: str, data: bytes) -> str:
        path = self.directory / name
        path.write_bytes(data)
        return str(path)

    def run(self, threads: int, streams: list[str], **options: Any) -> list[StreamEnd]:  # noqa: ANN401
        out = str(self.directory / f"out{threads}")
        options = {"reports": BY_EVENT, "inputs": ReportInputs(QUANTILES), **options}
        job = Job(streams=streams, out=out, threads=threads, **options)
        return Aggregation(job, options.pop("observer", None)).run()

    def tables(self, threads: int) -> dict[str, bytes]:
        directory = self.directory / f"out{threads}"
        return {path.name: path.read_bytes() for path in directory.glob("*")}


@pytest.fixture
def streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Streams:
    monkeypatch.setattr(aggregation, "SECTION", 1000)
    monkeypatch.setattr(sections, "WORTH_CUTTING", 0)
    made = Streams(tmp_path)
    for name in ("_run_sections", "_run_streams"):
        run = getattr(Aggregation, name)

        def spy(self: Any, *args: Any, run: Any = run, name: str = name) -> Any:  # noqa: ANN401
            made.passes.append(name)
            return run(self, *args)

        monkeypatch.setattr(Aggregation, name, spy)
    return made


def fault(streams: Streams, threads: int, paths: list[str], **options: Any) -> tuple[Any, ...]:  # noqa: ANN401
    with pytest.raises(CoreError) as caught:
        streams.run(threads, paths, **options)
    error = caught.value
    return (type(error), error.message, error.offset, error.event, error.block, error.source)


def test_two_threads_write_what_one_writes(streams: Streams) -> None:
    path = streams.file("summary.bin", STREAM)
    for kind in ("csv", "bin", "parquet"):
        ends = [streams.run(threads, [path], format=kind) for threads in (1, 2, 3)]
        assert ends[0] == ends[1] == ends[2]
        assert streams.tables(1) == streams.tables(2) == streams.tables(3)
    assert streams.passes == ["_run_streams", "_run_sections", "_run_sections"] * 3


def test_reports_of_periods_and_whole_runs_are_those_of_one_thread(streams: Streams) -> None:
    data = generate_inputs(SPEC)["occurrence.bin"]
    inputs = ReportInputs(occurrence=parse_occurrence(data, None, "occurrence"))
    path = streams.file("summary.bin", STREAM)
    reports = ["melt", "splt", "aal", "alct", "ept", "psept"]
    for threads in (1, 2):
        partial = str(streams.directory / f"out{threads}" / "partial")
        streams.run(threads, [path], reports=reports, inputs=inputs, partial_out=partial)
    assert streams.tables(1) == streams.tables(2)
    assert streams.passes == ["_run_streams", "_run_sections"]


@pytest.mark.parametrize("refused", [False, True])
def test_losses_stay_in_files_that_can_be_mapped(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    mapped: list[bool] = []

    def spy(sources: Sequence[Source]) -> MappedStreams:
        mapped.append(not refused)
        if refused:
            raise OSError
        return MappedStreams(sources)

    monkeypatch.setattr(aggregation, "MappedStreams", spy)
    data = generate_inputs(SPEC)["occurrence.bin"]
    inputs = ReportInputs(occurrence=parse_occurrence(data, None, "occurrence"))
    path = streams.file("summary.bin", STREAM)
    reports = ["melt", "aal", "alct", "ept", "psept"]
    for threads in (1, 2):
        streams.run(threads, [path], reports=reports, inputs=inputs)
    assert streams.tables(1) == streams.tables(2)
    assert mapped == [not refused]
    assert streams.passes == ["_run_streams", "_run_sections"]


def test_partitions_are_read_in_the_order_of_one_thread(streams: Streams) -> None:
    whole = Source(streams.file("whole", STREAM))
    cuts = [section.begin for section in sections.sections_of([whole], Policy(), 1000)]
    whole.close()
    middle = cuts[len(cuts) // 2]
    parts = [STREAM[:middle], STREAM[:12] + STREAM[middle:]]
    paths = [streams.file(f"part{i}", data) for i, data in enumerate(parts)]
    ends = [streams.run(threads, paths) for threads in (1, 2)]
    assert ends[0] == ends[1]
    assert streams.tables(1) == streams.tables(2)
    assert streams.passes == ["_run_streams", "_run_sections"]


def test_a_fault_is_that_which_one_thread_finds(streams: Streams) -> None:
    broken = bytearray(STREAM)
    broken[-40:-36] = broken[1000:1004] = b"\xff\xff\xff\x7f"
    cases = {
        "truncated": STREAM[:-12],
        "broken": bytes(broken),
        "again": STREAM + STREAM[12:500],
        "header": STREAM[:8],
        "empty": b"",
        "foreign": b"\x01\x02\x03\x04" * 9,
    }
    for name, data in cases.items():
        path = streams.file(name, data)
        assert fault(streams, 2, [path]) == fault(streams, 1, [path])
        assert streams.tables(2) == {}
    assert streams.passes == ["_run_sections", "_run_streams", "_run_streams"] * len(cases)


def test_the_same_events_in_two_partitions_are_refused_as_on_one_thread(streams: Streams) -> None:
    paths = [streams.file(name, STREAM) for name in ("first", "second")]
    assert fault(streams, 2, paths) == fault(streams, 1, paths)


@pytest.mark.parametrize("declared", [{"expect_events": 59}, {"expect_events": 61}])
def test_declared_counts_are_checked_as_on_one_thread(
    streams: Streams, declared: dict[str, int]
) -> None:
    path = streams.file("summary.bin", STREAM)
    assert fault(streams, 2, [path], **declared) == fault(streams, 1, [path], **declared)
    right = {"expect_events": 60, "expect_bytes": len(STREAM)}
    ends = [streams.run(threads, [path], **right) for threads in (1, 2)]
    assert ends[0] == ends[1]


def test_events_must_ascend_over_cuts_where_that_is_asked_for(streams: Streams) -> None:
    path = streams.file("whole", STREAM)
    ordered = {"order": "event", "policy": Policy(event_order="ascending")}
    streams.run(2, [path], **ordered)
    assert streams.passes == ["_run_sections"]
    source = Source(path)
    cuts = [section.begin for section in sections.sections_of([source], Policy(), 1000)]
    source.close()
    cut = cuts[len(cuts) // 2]
    swapped = streams.file("swapped", STREAM[:12] + STREAM[cut:] + STREAM[12:cut])
    assert fault(streams, 2, [swapped], **ordered) == fault(streams, 1, [swapped], **ordered)


def test_progress_counts_all_bytes_and_events(streams: Streams) -> None:
    path = streams.file("summary.bin", STREAM)
    counts: list[tuple[int, int, int | None]] = []

    def observe(progress: Progress) -> None:
        counts.append((progress.bytes, progress.events, progress.total))

    job = Job(streams=[path, path + "2"], reports=["events"], out=str(streams.directory / "out"))
    streams.file("summary.bin2", STREAM[:12])
    Aggregation(job, observe).run()
    assert counts[-1] == (len(STREAM) + 12, SPEC.events, len(STREAM) + 12)
    assert counts == sorted(counts)
    assert len(counts) > 2


def test_what_cannot_be_read_twice_is_not_cut(streams: Streams) -> None:
    path = streams.file("summary.bin", STREAM)
    accept = Policy(missing_end="accept")
    streams.run(2, [path], policy=accept)
    streams.run(2, [path, streams.file("header", STREAM[:12])], order="event")
    job = Job(streams=[path], reports=["events"], out=str(streams.directory / "out2"), threads=2)
    Aggregation(job, taps={"events": lambda _rows: None}).run()
    assert streams.passes == ["_run_streams"] * 3


def test_a_header_that_is_cut_is_truncated(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(STREAM[:9])
    source = Source(str(tmp_path / "short"))
    with pytest.raises(TruncatedError, match="header"):
        list(sections.sections_of([source], Policy(), 1000))
    source.close()


def test_a_full_disk_ends_the_only_pass(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_args: object) -> None:
        raise InputError("cannot be written: No space left on device")

    monkeypatch.setattr(TableFiles, "write", write)
    path = streams.file("summary.bin", STREAM)
    with pytest.raises(InputError, match="No space left"):
        streams.run(2, [path])
    assert streams.passes == ["_run_sections"]
    assert streams.tables(2) == {}
