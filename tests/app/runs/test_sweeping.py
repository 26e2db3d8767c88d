"""What is removed of runs: the expired, and what crashes and lost races left."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.errors import NotFoundError
from app.http.identity import SINGLE_USER
from app.runs.records import REPORT, RUN, SEGMENT
from app.runs.results.files import PIECE
from app.runs.sweeping import (
    EXPIRED_SECONDS,
    WRITING_SECONDS,
    blobs_without_streams,
    chores,
    expired_runs,
    file_chores,
    named_inputs,
    streams_without_runs,
)
from app.state.ownership import Namespaces, record_id
from app.state.sweeper import Lasting, expired_blobs, expired_records
from tests.app.runs.stored import OWNER, Files, content
from tests.app.runs.stored import RUN as IDENT
from tests.app.runs.test_store import ALICE, DAY, SPEC, Stores
from tests.app.runs.uploaded import Uploads
from tests.runs import random_run


def test_expired_runs_go_with_their_streams() -> None:
    f = Stores()
    run, other = f.run(), f.run()
    f.extend(f.add(run), b"1234")
    f.now += 20 * DAY
    f.runs.keep("alice", other.id)
    sweep = expired_runs(f.removal, f.records, Lasting(0.0))
    sweep()
    assert f.runs.get(ALICE, run.id).id == run.id
    f.now += 20 * DAY
    sweep()
    with pytest.raises(NotFoundError):
        f.runs.get(ALICE, run.id)
    assert f.runs.get(ALICE, other.id).id == other.id
    assert not f.records.list("stream").records
    assert not f.blobs.list("stream").blobs


def test_inputs_that_a_run_names_are_kept_however_old(tmp_path: Path) -> None:
    service = Uploads(tmp_path, input_days=7)
    records, blobs = service.sealer.sealing.records, service.streams.blobs
    case = random_run(np.random.default_rng(1))
    occurrence = service.occurrence(case)
    put = service.state.losses.inputs.put
    further, unused = (put(SINGLE_USER, "quantiles", text).digest for text in (b"0.5", b"0.9"))
    run = service.run(["melt", "aal"], {"occurrence": occurrence}, no_of_periods=case.periods)
    service.upload(run, case.stream.encode())
    assert service.seal(run).state == "done"
    service.state.runs.reports.compute(
        SINGLE_USER, run.id, {"reports": ["qelt"], "inputs": {"quantiles": further}}
    )
    service.sealer.look()
    service.sealer.close()

    def kept(later: float) -> set[str]:
        seconds = 7 * DAY
        clock = lambda: time.time() + later  # noqa: E731 - short
        named = [lambda: {ident for _, ident in named_inputs(records)}]
        named.append(lambda: {record_id(*owned) for owned in named_inputs(records)})
        while expired_blobs(blobs, "input", seconds, clock, named[0])():
            pass
        while expired_records(records, "input", seconds, clock, named[1])():
            pass
        owned = {owned.ident for owned in Namespaces(records, "input").of_all()}
        assert owned == {blob.id for blob in blobs.list("input").blobs}
        return owned

    names = {f"{occurrence}.occurrence", f"{further}.quantiles"}
    assert kept(6 * DAY) == {*names, f"{unused}.quantiles"}
    assert kept(8 * DAY) == names
    assert kept(400 * DAY) == names
    service.state.runs.removal.delete(SINGLE_USER, run.id)
    assert kept(800 * DAY) == set()


def test_streams_of_no_run_and_bytes_of_no_stream_go_after_a_while() -> None:
    f = Stores()
    run = f.run()
    stream, lost = f.extend(f.add(run), b"1234"), f.extend(f.add(run), b"5678")
    # Its creation was slower than a seal, and its process ended before it could remove it.
    f.streams.swap(lost, replace(lost, term="another"))
    # An append that lost its fence before its first commit, and one that has it.
    f.streams.swap(stream, replace(stream, fence=3, appending=True))
    f.blobs.append("stream", stream.blob(2), 0, b"late")
    f.blobs.append("stream", stream.blob(3), 0, b"new")
    recent = [streams_without_runs(f.streams, f.records, lambda: f.now)]
    recent.append(blobs_without_streams(f.records, f.blobs, lambda: 0.0))
    for sweep in recent:
        assert sweep() is False
    assert len(f.records.list("stream").records) == 2
    assert len(f.blobs.list("stream").blobs) == 4
    for sweep in chores(f.removal, f.records, f.blobs, lambda: 9e9).values():
        sweep()
        sweep()
    (head,) = f.records.list("stream").records
    assert head.id.endswith(stream.key)
    assert {b.id for b in f.blobs.list("stream").blobs} == {stream.blob(1), stream.blob(3)}
    assert lost.blob(1) not in {b.id for b in f.blobs.list("stream").blobs}


def test_bytes_that_were_stored_and_never_acknowledged_go_after_a_while() -> None:
    f = Stores()
    stream = f.extend(f.add(f.run()), b"1234")
    stream = f.streams.swap(stream, replace(stream, appending=True))
    # Its process ended before it could say in the head that there are more.
    f.blobs.append("stream", stream.blob(1), 4, b"5678")
    sweep = blobs_without_streams(f.records, f.blobs, lambda: 9e9)
    sweep()
    assert f.blobs.range("stream", stream.blob(1)) == b"12345678"
    f.streams.swap(stream, replace(stream, appending=False))
    sweep()
    assert f.blobs.range("stream", stream.blob(1)) == b"1234"


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_clock_that_jumps_costs_no_run_that_is_uploaded_to(jump: float) -> None:
    f = Stores()
    ticks = 0.0
    run = f.runs.create(ALICE, SPEC, {}, days=0.5)[0]
    idle = f.runs.create(ALICE, SPEC, {}, days=0.5)[0]
    stream = f.extend(f.add(run), b"1234")
    everything = list(chores(f.removal, f.records, f.blobs, lambda: f.now, lambda: ticks).values())
    for moved in (jump, -jump, jump):
        f.now += moved
        for _ in range(4):
            # Half an hour of an append, by a clock that does not jump.
            ticks += 1800.0
            f.now += 1800.0
            for sweep in everything:
                sweep()
            f.runs.keep("alice", run.id)
    assert (
        f.streams.stored(f.streams.get(f.runs.get(ALICE, run.id), stream.id)).read(0, 9) == b"1234"
    )
    # The other one goes once it has been expired for long enough.
    f.now += 3 * DAY
    for sweep in everything:
        sweep()
    ticks += EXPIRED_SECONDS
    for sweep in everything:
        sweep()
    with pytest.raises(NotFoundError):
        f.runs.get(ALICE, idle.id)


def test_what_is_on_its_way_to_another_owner_is_not_removed() -> None:
    f = Stores()
    stream = f.extend(f.add(f.run()), b"1234")
    runs = Namespaces(f.records, "run")
    owned = runs.get("alice", stream.run)
    runs.create("bob", stream.run, owned.value)
    runs.delete("alice", stream.run)
    sweep = streams_without_runs(f.streams, f.records, lambda: 9e9)
    sweep()
    assert len(f.records.list("stream").records) == 1
    runs.delete("bob", stream.run)
    sweep()
    assert not f.records.list("stream").records


DAY = 86400.0


def sweep(files: Files, now: float) -> None:
    """Two passes, two hours apart by the clock that never jumps."""
    ticks = [0.0]
    everything = file_chores(files.records, files.blobs, lambda: now, lambda: ticks[0]).values()
    for ticks[0] in (0.0, WRITING_SECONDS):
        for chore in everything:
            while chore():
                pass


def test_files_of_runs_stay_and_those_of_deleted_runs_go() -> None:
    files = Files()
    runs = Namespaces(files.records, RUN)
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
    Namespaces(files.records, RUN).create(OWNER, IDENT, {})
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
    Namespaces(files.records, RUN).create(OWNER, IDENT, {})
    writer = files.of(SEGMENT).writer("a")
    ticks = [0.0]
    everything = file_chores(files.records, files.blobs, lambda: 9e9, lambda: ticks[0])
    for ticks[0] in (0.0, WRITING_SECONDS - 1, 2 * WRITING_SECONDS - 2):
        writer.write(b"1" * PIECE)
        everything["unpublished segments"]()
    assert content(files.of(SEGMENT), files.of(SEGMENT).publish(writer).name) == b"1" * 3 * PIECE
