"""Files that were computed of runs: what the sweeper removes, and what it leaves."""

from __future__ import annotations

from app.runs.records import REPORT, RUN, SEGMENT
from app.runs.results.published import PIECE
from app.runs.results.sweeping import WRITING_SECONDS, chores
from app.state.ownership import Namespaces
from tests.app.runs.stored import OWNER, Files, content
from tests.app.runs.stored import RUN as IDENT

DAY = 86400.0


def sweep(files: Files, now: float) -> None:
    """Two passes, two hours apart by the clock that never jumps."""
    ticks = [0.0]
    everything = chores(files.heads, files.blobs, lambda: now, lambda: ticks[0]).values()
    for ticks[0] in (0.0, WRITING_SECONDS):
        for chore in everything:
            while chore():
                pass


def test_files_of_runs_stay_and_those_of_deleted_runs_go() -> None:
    files = Files()
    runs = Namespaces(files.heads, RUN)
    runs.create(OWNER, IDENT, {})
    published = files.of(REPORT)
    published.write("melt.own.x.bin", lambda write: write(b"rows"))
    now = files.blobs.list(REPORT).blobs[0].modified
    sweep(files, now + 2 * DAY)
    assert content(published, "melt.own.x.bin") == b"rows"
    runs.delete(OWNER, IDENT)
    sweep(files, now + 60)
    assert published.find("melt.own.x.bin") is not None
    sweep(files, now + 2 * DAY)
    assert published.find("melt.own.x.bin") is None
    sweep(files, now + 2 * DAY)
    assert files.blob_ids(REPORT) == []


def test_what_a_crashed_writer_left_goes_after_a_day() -> None:
    files = Files()
    Namespaces(files.heads, RUN).create(OWNER, IDENT, {})
    writer = files.of(REPORT).writer("melt.own.x.bin")
    writer.write(b"rows")
    writer.finish()
    now = files.blobs.list(REPORT).blobs[0].modified
    sweep(files, now + DAY / 2)
    assert len(files.blob_ids(REPORT)) == 1
    sweep(files, now + 2 * DAY)
    assert files.blob_ids(REPORT) == []


def test_of_two_writers_of_a_file_one_publishes_it() -> None:
    files = Files()
    published = files.of(REPORT)
    first, second = published.writer("a"), published.writer("a")
    first.write(b"1" * (9 << 20))
    second.write(b"1" * (9 << 20))
    assert published.publish(second) == published.publish(first)
    assert len(files.blob_ids(REPORT)) == 1
    assert content(published, "a") == b"1" * (9 << 20)
    assert list(published.names()) == ["a"]


def test_what_is_being_written_survives_a_clock_that_jumps() -> None:
    files = Files()
    Namespaces(files.heads, RUN).create(OWNER, IDENT, {})
    writer = files.of(SEGMENT).writer("a")
    ticks = [0.0]
    everything = chores(files.heads, files.blobs, lambda: 9e9, lambda: ticks[0])
    for ticks[0] in (0.0, WRITING_SECONDS - 1, 2 * WRITING_SECONDS - 2):
        writer.write(b"1" * PIECE)
        everything["unpublished segments"]()
    assert content(files.of(SEGMENT), files.of(SEGMENT).publish(writer).name) == b"1" * 3 * PIECE
