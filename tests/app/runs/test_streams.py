"""Two requests for the streams of a run, one at each store call of the other, and deaths there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from app.errors import NotFoundError, ServiceError
from app.run_errors import PartitionTakenError, RunSealedError, UploadTakenError
from app.runs.records import Extent, RunRecord, StreamRecord
from app.runs.sealing.checks import check_sealable
from app.runs.store import Runs
from app.runs.streams import Streams
from app.runs.sweeping import Removal, chores
from app.runs.uploads.appending import AppendRequest
from app.runs.uploads.uploads import Uploads
from app.runs.watching import Watch
from app.state.base import RecordConflictError, StateStore, StoreBusyError
from app.state.ownership import OwnedRecord
from tests.app.runs.test_store import ALICE, SPEC, template
from tests.app.state.memory import MemoryStateStore
from tests.app.state.memory_blobs import MemoryBlobStore

WHOLE = b"12345678"
NOW = 1e9
LATER = NOW + 1e6
"""When whatever a crash left may be removed."""


class DiedError(BaseException):
    """The process has ended."""


class Calls:
    """The store as one process sees it.

    Args:
        records: the store.
        at: number of the call before which something happens.
        event: what happens; None for the end of the process.
    """

    def __init__(
        self, records: StateStore, at: int | None = None, event: Callable[[], object] | None = None
    ) -> None:
        self._records = records
        self._at = at
        self._event = event
        self.count = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a store has
        method = getattr(self._records, name)

        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            here, self.count = self.count, self.count + 1
            if self._at is not None and here >= self._at and self._event is None:
                raise DiedError
            if here == self._at and self._event is not None:
                self._event()
            return method(*args, **kwargs)

        return call


@dataclass
class World:
    """What all processes share, and what clients were told."""

    records: MemoryStateStore = field(default_factory=MemoryStateStore)
    blobs: MemoryBlobStore = field(default_factory=MemoryBlobStore)
    run: str = ""
    first: str = ""
    """Id of the stream of partition 1 in the beginning, if it has one."""
    whole: set[str] = field(default_factory=set)
    """Ids of streams of which all bytes were acknowledged."""
    deleting: set[str] = field(default_factory=set)
    """Those that somebody has asked to delete."""
    answers: list[str] = field(default_factory=list)

    def process(self, records: StateStore | None = None) -> Process:
        return Process(self, self.records if records is None else records)


class Process:
    """A process, and what its clients ask for."""

    def __init__(self, world: World, records: StateStore) -> None:
        self.world = world
        self.runs = Runs(records, 30.0, Watch(), lambda: NOW)
        self.streams = Streams(records, world.blobs, self.runs, lambda: NOW)
        self.uploads = Uploads(self.streams, cast("Any", None), cast("Any", None), (1 << 30, ""))
        self.removal = Removal(self.streams, records)
        self.chores = chores(self.removal, records, world.blobs, lambda: LATER)

    def now(self) -> RunRecord:
        return self.runs.get(ALICE, self.world.run)

    def create(self) -> None:
        self.streams.add(self.now(), template(), 1)

    def create_any(self) -> None:
        self.streams.add(self.now(), template(), None)

    def create_whole(self) -> None:
        request = AppendRequest(0, last=True, content_length=len(WHOLE))
        self.fill(self.uploads.create(self.now(), template(), 1, request))

    def append(self) -> None:
        request = AppendRequest(0, last=True, content_length=len(WHOLE))
        self.fill(self.uploads.take(self.now(), self.world.first, request))

    def fill(self, stream: StreamRecord) -> None:
        """Commit all bytes of a stream, in two pieces, as an append does."""
        for stop in (4, 8):
            self.world.blobs.append("stream", stream.blob(stream.fence), stop - 4, WHOLE[:4])
            done = stop == len(WHOLE)
            new = replace(
                stream,
                offset=stop,
                extents=(Extent(stream.fence, 0, stop),),
                complete=done,
                appending=not done,
            )
            try:
                stream = self.streams.swap(stream, new)
            except (RecordConflictError, NotFoundError) as e:
                raise UploadTakenError("taken") from e
        self.world.whole.add(stream.id)

    def look(self) -> None:
        """Ask for the offset, which ends an append."""
        self.uploads._end_append(self.now(), self.world.first)

    def delete(self) -> None:
        self.world.deleting.add(self.world.first)
        self.streams.delete(self.now(), self.world.first)

    def seal(self) -> None:
        run = self.now()
        self.streams.seal(run, lambda streams: check_sealable(run, streams, ()), lambda run: run)

    def fail(self) -> None:
        """End a sealed run as failed, so that it takes streams again."""
        self.runs.change(
            self.now(), lambda run: run if run.is_open else replace(run, state="failed")
        )

    def delete_run(self) -> None:
        try:
            self.removal.delete(ALICE, self.world.run)
        finally:
            # All that was there until now, if it took effect.
            self.world.deleting |= self.world.whole

    def again(self) -> None:
        """Delete the run, and create another one by its key."""
        self.delete_run()
        self.runs.create(ALICE, SPEC, {}, key="k")

    def sweep(self) -> None:
        for chore in self.chores.values():
            while chore():
                pass


Request = Callable[[Process], None]
REQUESTS: dict[str, Request] = {
    name: getattr(Process, name)
    for name in (
        *("create", "create_any", "create_whole", "append", "look"),
        *("delete", "seal", "delete_run", "again", "sweep"),
    )
}
STARTS = ("empty", "untouched", "whole", "failed")


def world_of(start: str) -> World:
    """A run of two partitions, with a stream of the first one or without."""
    world = World()
    process = world.process()
    spec = {**SPEC, "options": {}}
    world.run = process.runs.create(ALICE, spec, {}, key="k")[0].id
    if start != "empty":
        stream = process.streams.add(process.now(), template(), 1)
        world.first = stream.id
        if start != "untouched":
            process.append()
    if start == "failed":
        process.seal()
        process.fail()
    return world


def ask(process: Process, request: Request) -> str:
    """Make a request; its answer."""
    try:
        request(process)
    except ServiceError as e:
        answer = e.code
    except DiedError:
        answer = "none"
    else:
        answer = "ok"
    process.world.answers.append(answer)
    return answer


def check(world: World) -> None:
    """Check all that must hold, whatever happened."""
    process = world.process()
    run_deleted = not world.records.list("run").records
    if run_deleted:
        process.sweep()
    else:
        run = process.now()
        listed = process.streams.of(run)
        assert len({s.partition for s in listed}) == len(listed) == process.streams.count(run)
        assert listed == process.streams.page(run, "", 10)
        for stream in listed:
            assert process.streams.get(run, stream.id) == stream
            assert process.streams.stored(stream).read(0, 99) == WHOLE[:4] * (stream.offset // 4)
        kept = {s.id for s in listed if s.complete}
        assert world.whole - world.deleting <= kept
        if not run.is_open:
            assert run.streams == {s.partition: s.id for s in listed}
            assert kept == set(run.streams.values())
        process.sweep()
        assert process.streams.of(process.now()) == listed
        assert len(world.records.list("stream").records) == len(listed)
        blobs = {blob.id for blob in world.blobs.list("stream").blobs}
        assert {s.blob(e.fence) for s in listed for e in s.extents} <= blobs
        if run.is_open:
            for stream in listed:
                process.streams.delete(run, stream.id)
    if run_deleted or run.is_open:
        process.sweep()
        assert not world.records.list("stream").records
        assert world.records._counts.keys() <= {("run", k) for _, k in world.records._counts}


def orders(start: str, request: Request, other: Request | None) -> Iterator[World]:
    """Each order of a request and one that comes at one of its calls; None ends it there."""
    at = 0
    while True:
        world = world_of(start)
        event = None if other is None else (lambda w=world, o=other: ask(w.process(), o))
        calls = Calls(world.records, at, event)
        ask(world.process(cast("StateStore", calls)), request)
        if calls.count <= at:
            return
        yield world
        at += 1


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", REQUESTS)
def test_two_requests_in_any_order_leave_a_run_that_agrees_with_their_answers(
    name: str, start: str
) -> None:
    for other in REQUESTS.values():
        for world in orders(start, REQUESTS[name], other):
            check(world)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", REQUESTS)
def test_what_a_death_leaves_is_repaired_by_whoever_comes_next(name: str, start: str) -> None:
    for other in REQUESTS.values():
        for world in orders(start, REQUESTS[name], None):
            ask(world.process(), other)
            check(world)


# -- three at once ----------------------------------------------------------------------


def died_creating(world: World, run: RunRecord, partition: int) -> StreamRecord:
    """The stream of a process that read a version of the run, and ended after the first write."""
    # Listing comes before it, and reading the run after it.
    process = world.process(cast("StateStore", Calls(world.records, 2)))
    with pytest.raises(DiedError):
        process.streams.add(run, template(), partition)
    (found,) = [
        s for s in world.records.list("stream").records if s.id.endswith(f"{partition:06d}")
    ]
    return StreamRecord.decode(OwnedRecord.of(found))


def test_a_stream_that_a_seal_did_not_see_is_none_of_the_run_for_ever() -> None:
    world = world_of("whole")
    process = world.process()
    run = process.now()
    process.seal()
    left = died_creating(world, run, 2)
    for sealed in (True, False):
        if not sealed:
            process.fail()
        now = process.now()
        assert [s.partition for s in process.streams.of(now)] == [1]
        assert process.streams.find(now, 2) is None
        with pytest.raises(NotFoundError):
            process.streams.get(now, left.id)
        request = AppendRequest(0)
        # Who read the run before it was sealed may find the stream, but appends nothing to it.
        with pytest.raises((NotFoundError, RunSealedError)):
            process.uploads.take(run, left.id, request)
    # Its partition is free, and the other one was not lost.
    assert process.streams.add(process.now(), template(), None).partition == 2
    check(world)


def test_a_seal_looks_again_if_somebody_appends_to_a_stream_that_it_did_not_see() -> None:
    world = world_of("whole")
    process = world.process()
    looked: list[int] = []

    def check_streams(streams: list[StreamRecord]) -> None:
        looked.append(len(streams))
        if len(streams) == 1:
            left = died_creating(world, process.now(), 2)
            process.uploads.take(process.now(), left.id, AppendRequest(0))
        else:
            raise PartitionTakenError("not complete")

    with pytest.raises(PartitionTakenError):
        process.streams.seal(process.now(), check_streams, lambda run: run)
    assert looked == [1, 2]
    assert process.now().is_open


def test_a_run_that_is_created_again_has_no_streams() -> None:
    world = world_of("whole")
    process = world.process()
    old = process.now()
    # Its process ends after the head of the run.
    calls = Calls(world.records, 2)
    assert ask(world.process(cast("StateStore", calls)), Process.delete_run) == "none"
    new, created = process.runs.create(ALICE, old.spec, {}, key="k")
    assert created
    assert process.streams.of(new) == []
    stream = process.streams.add(new, template(), 1)
    # One that began to delete the old run goes on.
    process.streams.delete_all(old)
    assert process.streams.of(process.now()) == [stream]


def test_a_creation_that_brings_bytes_is_not_replaced() -> None:
    world = world_of("untouched")
    process = world.process()
    request = AppendRequest(0, last=True, content_length=len(WHOLE))
    stream = process.uploads.create(process.now(), template(), 1, request)
    with pytest.raises(PartitionTakenError) as raised:
        process.streams.add(process.now(), template(), 1)
    assert raised.value.members["stream"] == stream.id
    process.fill(stream)
    check(world)


def test_a_creation_that_is_repeated_with_bytes_has_the_first_address() -> None:
    world = world_of("untouched")
    process = world.process()
    request = AppendRequest(0, last=True, length=len(WHOLE), content_length=len(WHOLE))
    cut = process.uploads.create(process.now(), template(), 1, request)
    process.streams.swap(cut, replace(cut, appending=False))
    # Its length is known by now, and one that declares none contradicts nothing.
    assert process.streams.add(process.now(), template(), 1).length == len(WHOLE)
    stream = process.uploads.create(process.now(), template(), 1, request)
    assert (stream.id, stream.fence, stream.appending) == (world.first, 2, True)
    process.fill(stream)
    check(world)


@pytest.mark.parametrize(
    "other", [{"length": 9}, {"metadata": "name YQ=="}, {"expected_digest": "md5=:AA==:"}]
)
def test_a_creation_that_declares_something_else_is_another(other: dict[str, Any]) -> None:
    world = world_of("empty")
    process = world.process()
    first = process.streams.add(process.now(), replace(template(), length=8), 1)
    with pytest.raises(PartitionTakenError) as raised:
        process.streams.add(process.now(), replace(template(), **other), 1)
    assert raised.value.members["stream"] == first.id
    assert process.streams.get(process.now(), first.id) == first


def test_a_creation_that_fails_leaves_a_stream_that_somebody_was_answered_with() -> None:
    for start, at in (("untouched", 5), ("empty", 3)):
        world = world_of(start)
        process = world.process()
        answered: list[StreamRecord] = []

        def event() -> None:
            answered.append(process.streams.add(process.now(), template(), 1))  # noqa: B023
            raise StoreBusyError("others hold it")

        # Its run is read after its stream was created, or found.
        failing = world.process(cast("StateStore", Calls(world.records, at, event)))
        assert ask(failing, Process.create) == "store"
        assert [s.id for s in process.streams.of(process.now())] == [answered[0].id]
        check(world)


def test_a_creation_whose_stream_was_completed_and_sealed_meanwhile_removes_nothing() -> None:
    world = world_of("empty")

    def event() -> None:
        world.process().create_whole()
        world.process().seal()

    creating = world.process(cast("StateStore", Calls(world.records, 3, event)))
    assert ask(creating, Process.create) == "run-sealed"
    assert world.whole
    check(world)


def test_a_run_that_is_deleted_while_its_key_is_used_again_is_created() -> None:
    world = world_of("whole")
    old = world.process().now()
    calls = Calls(world.records, 1, lambda: world.process().delete_run())
    process = world.process(cast("StateStore", calls))
    run, created = process.runs.create(ALICE, old.spec, {}, key="k")
    assert created
    assert run.term != old.term
    assert process.streams.of(run) == []
