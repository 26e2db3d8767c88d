from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from app.command import summarise as summarising
from app.command.summarise import SummaryJob, summarise
from app.losses import sections
from app.losses.sections import Progress, sections_of
from app.losses.sources import Source
from core.errors import CoreError, InputError
from core.losses.events import StreamEnd
from core.losses.format import Kind
from core.losses.inputs import parse_summary_map, parse_summary_xref
from core.losses.policy import Policy
from core.losses.samples import SampleSpec, generate_stream
from core.losses.summaries import Reading, SummarySets

SPEC = SampleSpec(events=60, summaries=8, samples=20, kind=Kind.GUL)
STREAM = b"".join(generate_stream(SPEC))
XREF = "item_id,summary_id,summaryset_id\n" + "".join(
    f"{item},{item % 3 + 1},1\n{item},1,2\n{item},{item},7\n" for item in range(1, 9)
)
MAP = "loc_id,item_id,building_id\n" + "".join(f"{i // 2},{i},1\n" for i in range(1, 9))
SETS = SummarySets(parse_summary_xref(XREF.encode()), None, parse_summary_map(MAP.encode()))


class Runs:
    """Summarises files, of which small ones are cut too."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.passes: list[str] = []

    def file(self, name: str, data: bytes) -> str:
        path = self.directory / name
        path.write_bytes(data)
        return str(path)

    def run(
        self,
        threads: int,
        streams: list[str],
        reading: Reading | None = None,
        **options: Any,  # noqa: ANN401
    ) -> list[StreamEnd]:
        out = str(self.directory / f"out{threads}")
        job = SummaryJob(
            streams=streams, sets=SETS, out=out, reading=reading or Reading(), threads=threads
        )
        return summarise(job, options.get("observer"))

    def outputs(self, threads: int) -> dict[str, bytes]:
        directory = self.directory / f"out{threads}"
        return {path.name: path.read_bytes() for path in directory.glob("*")}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr(summarising, "SECTION", 3000)
    monkeypatch.setattr(sections, "WORTH_CUTTING", 0)
    result = Runs(tmp_path)
    for name in ("_run_sections", "_run_streams"):
        run = getattr(summarising, name)

        def spy(*args: Any, run: Any = run, name: str = name, **options: Any) -> Any:  # noqa: ANN401
            result.passes.append(name)
            return run(*args, **options)

        monkeypatch.setattr(summarising, name, spy)
    return result


def fault(
    runs: Runs, threads: int, paths: list[str], reading: Reading | None = None
) -> tuple[Any, ...]:
    with pytest.raises(CoreError) as caught:
        runs.run(threads, paths, reading)
    error = caught.value
    return (type(error), error.message, error.offset, error.event, error.block, error.source)


def cuts(runs: Runs) -> list[int]:
    source = Source(runs.file("whole", STREAM))
    offsets = [section.begin for section in sections_of([source], Policy(), 3000)]
    source.close()
    return offsets


def test_several_threads_write_the_bytes_of_one(runs: Runs) -> None:
    assert len(cuts(runs)) > 5
    path = runs.file("gul.bin", STREAM)
    for zeros in (False, True):
        ends = [runs.run(threads, [path], Reading(zeros=zeros)) for threads in (1, 2, 3)]
        assert ends[0] == ends[1] == ends[2]
        assert runs.outputs(1) == runs.outputs(2) == runs.outputs(3)
    assert len(runs.outputs(1)) == 6
    assert runs.passes == ["_run_streams", "_run_sections", "_run_sections"] * 2


def test_eight_byte_losses_are_summarised_by_several_threads(runs: Runs) -> None:
    spec = SampleSpec(events=40, summaries=8, samples=20, kind=Kind.GUL, float_width=8)
    path = runs.file("wide.bin", b"".join(generate_stream(spec)))
    for threads in (1, 2):
        runs.run(threads, [path], Reading(Policy(float_width=8)))
    assert runs.outputs(1) == runs.outputs(2)
    assert runs.passes == ["_run_streams", "_run_sections"]


def test_partitions_are_written_in_the_order_of_one_thread(runs: Runs) -> None:
    middle = cuts(runs)[4]
    parts = [STREAM[:8] + STREAM[middle:], STREAM[:middle], STREAM[:8]]
    paths = [runs.file(f"part{i}", data) for i, data in enumerate(parts)]
    ends = [runs.run(threads, paths) for threads in (1, 2)]
    assert ends[0] == ends[1]
    assert runs.outputs(1) == runs.outputs(2)
    assert runs.passes == ["_run_streams", "_run_sections"]


def test_a_stream_without_events_has_headers_alone(runs: Runs) -> None:
    path = runs.file("gul.bin", STREAM[:8])
    assert runs.run(1, [path]) == runs.run(2, [path])
    assert runs.outputs(1) == runs.outputs(2)
    assert {len(data) for data in runs.outputs(2).values()} == {0, 12}


def test_a_fault_is_that_which_one_thread_finds(runs: Runs) -> None:
    begin = cuts(runs)[3]
    broken = bytearray(STREAM)
    broken[-40:-36] = broken[1000:1004] = b"\xff\xff\xff\x7f"
    unknown = STREAM[:begin] + (10_000).to_bytes(4, "little") * 2 + STREAM[begin + 8 :]
    cases = {
        "truncated": STREAM[:-12],
        "broken": bytes(broken),
        "again": STREAM + STREAM[8:],
        "unknown": unknown,
        "header": STREAM[:6],
        "empty": b"",
        "summaries": b"".join(generate_stream(SampleSpec(events=3, summaries=3, samples=3))),
    }
    for name, data in cases.items():
        path = runs.file(name, data)
        assert fault(runs, 2, [path]) == fault(runs, 1, [path])
        assert runs.outputs(2) == {}
    assert runs.passes == ["_run_sections", "_run_streams", "_run_streams"] * len(cases)


def test_partitions_must_fit_each_other(runs: Runs) -> None:
    other = b"".join(generate_stream(SampleSpec(events=9, summaries=8, samples=7, kind=Kind.GUL)))
    whole = runs.file("gul.bin", STREAM)
    for name, data in {"others": other, "copy": STREAM}.items():
        paths = [whole, runs.file(name, data)]
        assert fault(runs, 2, paths) == fault(runs, 1, paths)


def test_declared_sizes_are_compared_with_those_of_all_sections(runs: Runs) -> None:
    path = runs.file("gul.bin", STREAM)
    right = Reading(expect_events=60, expect_bytes=len(STREAM))
    ends = [runs.run(threads, [path], right) for threads in (1, 2)]
    assert ends[0] == ends[1]
    for wrong in (Reading(expect_events=59), Reading(expect_events=61), Reading(expect_bytes=99)):
        assert fault(runs, 2, [path], wrong) == fault(runs, 1, [path], wrong)


def test_event_order_is_checked_across_sections(runs: Runs) -> None:
    middle = cuts(runs)[4]
    path = runs.file("turned", STREAM[:8] + STREAM[middle:] + STREAM[8:middle])
    assert runs.run(2, [path]) == runs.run(1, [path])
    ascending = Reading(Policy(event_order="ascending"))
    assert fault(runs, 2, [path], ascending) == fault(runs, 1, [path], ascending)


def test_what_may_not_be_cut_stays_with_one_thread(runs: Runs) -> None:
    path = runs.file("gul.bin", STREAM)
    runs.run(2, [path], Reading(Policy(missing_end="accept")))
    assert runs.passes == ["_run_streams"]


def test_a_pipe_that_gets_its_bytes_at_the_end_leaves_all_threads(runs: Runs) -> None:
    fifo = runs.directory / "out2" / "S1_summary.bin"
    fifo.parent.mkdir(exist_ok=True)
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    runs.run(2, [runs.file("small", STREAM[: cuts(runs)[1]])])
    os.close(reader)
    assert runs.passes == ["_run_sections"]


def test_an_output_that_cannot_be_written_ends_the_run(runs: Runs) -> None:
    path = runs.file("gul.bin", STREAM)
    runs.file("out2", b"")
    with pytest.raises(InputError, match="out2"):
        runs.run(2, [path])
    assert runs.passes == []


def test_progress_counts_bytes_and_events_of_all_streams(runs: Runs) -> None:
    middle = cuts(runs)[4]
    parts = [STREAM[:middle], STREAM[:8] + STREAM[middle:]]
    paths = [runs.file(f"part{i}", data) for i, data in enumerate(parts)]
    seen: list[tuple[int | None, int, int]] = []

    def observe(progress: Progress) -> None:
        seen.append((progress.total, progress.bytes, progress.events))

    runs.run(2, paths, observer=observe)
    size = len(STREAM) + 8
    assert seen[-1] == (size, size, 60)
    assert seen == sorted(seen)
