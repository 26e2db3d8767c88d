"""Runs and their streams in the stores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.errors import InvalidOptionError, NotFoundError, QuotaExceededError
from app.http.identity import Identity
from app.run_errors import (
    IdempotencyError,
    PartitionTakenError,
    RunExpiredError,
    RunSealedError,
    StreamLimitError,
)
from app.runs.describing import describe_run
from app.runs.records import Extent, RunRecord, StreamRecord
from app.runs.spec import RunSpec
from app.runs.store import Runs, always
from app.runs.streams import MAX_STREAMS, Streams
from app.runs.sweeping import Removal
from app.runs.uploads.upload_protocol import http_date
from app.runs.watching import Watch
from app.state.base import RecordConflictError, StateStore, StoreDamagedError
from app.state.ownership import Namespaces
from app.state.quotas import AdmittedRecords, Limit, Quotas
from core.losses.events import Position, StreamHeader
from core.losses.format import Kind
from tests.app.state.memory import MemoryStateStore
from tests.app.state.memory_blobs import MemoryBlobStore

ALICE = Identity("alice", frozenset({"runs"}))
BOB = Identity("bob", frozenset({"runs"}))
ADMIN = Identity("admin", frozenset({"runs", "admin"}))
SPEC = {"perspective": "gul", "reports": ["melt"], "options": {"partitions": 3}}
DAY = 86400.0


class Stores:
    """Runs over stores in memory, with a clock that stands still."""

    def __init__(self, store: StateStore | None = None, /, **limits: Limit) -> None:
        self.now = 1e9
        self.records = AdmittedRecords(store or MemoryStateStore(), Quotas(limits))
        self.blobs = MemoryBlobStore()
        self.runs = Runs(self.records, 30.0, Watch(), lambda: self.now)
        self.streams = Streams(self.records, self.blobs, self.runs, lambda: self.now)
        self.removal = Removal(self.streams, self.records)

    def run(self, **spec: object) -> RunRecord:
        return self.runs.create(ALICE, {**SPEC, **spec}, {})[0]

    def add(self, run: RunRecord, partition: int | None = None) -> StreamRecord:
        run = self.runs.get(ALICE, run.id)
        return self.streams.add(run, template(), partition)

    def extend(self, stream: StreamRecord, data: bytes) -> StreamRecord:
        """Append as an upload does: bytes first, then the head."""
        fence = stream.fence + 1
        stream = self.streams.swap(stream, replace(stream, fence=fence))
        self.blobs.append("stream", stream.blob(fence), 0, data)
        extent = Extent(fence, stream.offset, len(data))
        new = replace(
            stream,
            offset=stream.offset + len(data),
            extents=(*stream.extents, extent),
        )
        return self.streams.swap(stream, new)


def template() -> StreamRecord:
    return StreamRecord("", "", ALICE.owner, 0, 0.0)


def test_times_that_no_calendar_has_are_shown() -> None:
    """Earlier versions took lifetimes of any length."""
    f = Stores()
    f.runs = Runs(f.records, 4e6, Watch(), lambda: f.now)
    run = f.run()
    assert describe_run(run, [], lambda *_: True, 1)["expires"] == "9999-12-31T23:59:59+00:00"
    assert http_date(run.expires or 0).startswith("Fri, 31 Dec 9999")
    changed = f.runs.change(run, lambda run: run)
    assert changed.expires == f.now + 36_525 * DAY
    assert f.runs.change(changed, lambda run: run) == changed


def test_a_run_of_an_earlier_version_may_declare_more_partitions_than_can_be_sealed() -> None:
    options = {"partitions": MAX_STREAMS + 1}
    spec = {"perspective": "gul", "reports": ["melt"], "options": options}
    with pytest.raises(InvalidOptionError, match=str(MAX_STREAMS)):
        RunSpec.parse(spec)
    run = Stores().run(**spec)
    assert RunSpec.of(run).options.partitions == MAX_STREAMS + 1
    assert describe_run(run, [], lambda *_: True, 1)["options"] == options


def test_what_was_deleted_is_named_by_its_own_id() -> None:
    f = Stores()
    run = f.run()
    f.removal.delete(ALICE, run.id)
    with pytest.raises(NotFoundError, match=f"there is no run '{run.id}'$"):
        f.runs.again(run)
    with pytest.raises(NotFoundError, match=f"there is no run '{run.id}'$"):
        f.runs.get(ALICE, run.id)


def test_a_run_is_its_owners_and_the_administrators() -> None:
    f = Stores()
    run = f.run()
    assert f.runs.get(ALICE, run.id) == run == f.runs.get(ADMIN, run.id)
    assert run.state == "created"
    with pytest.raises(NotFoundError):
        f.runs.get(BOB, run.id)
    assert f.runs.page(ALICE, "", 10) == [run]
    assert f.runs.page(BOB, "", 10) == []
    f.removal.delete(ALICE, run.id)
    with pytest.raises(NotFoundError):
        f.runs.get(ALICE, run.id)


def test_a_key_creates_one_run() -> None:
    f = Stores()
    run, created = f.runs.create(ALICE, SPEC, {}, key="k")
    assert created
    assert f.runs.create(ALICE, SPEC, {}, key="k") == (run, False)
    with pytest.raises(IdempotencyError):
        f.runs.create(ALICE, {**SPEC, "reports": ["selt"]}, {}, key="k")
    assert f.runs.create(BOB, SPEC, {}, key="k")[1]


def test_streams_are_listed_by_partition_and_numbered_from_the_lowest_free() -> None:
    f = Stores()
    run = f.run()
    third, first = f.add(run, 3), f.add(run)
    run = f.runs.get(ALICE, run.id)
    assert run.state == "uploading"
    assert [s.partition for s in f.streams.of(run)] == [1, 3]
    assert f.streams.page(run, "", 1) == [first]
    assert f.streams.page(run, first.id, 5) == [third]
    assert f.streams.get(run, third.id) == third
    with pytest.raises(StreamLimitError, match="1 to 3"):
        f.add(run, 4)


def test_a_creation_may_be_repeated_until_there_are_bytes() -> None:
    f = Stores()
    run = f.run()
    lost = f.add(run, 2)
    stream = f.add(run, 2)
    assert stream.id == lost.id
    f.extend(stream, b"12345678")
    with pytest.raises(PartitionTakenError) as raised:
        f.add(run, 2)
    assert raised.value.members["stream"] == stream.id
    run = f.runs.get(ALICE, run.id)
    f.streams.delete(run, stream.id)
    assert f.add(run, 2).id != stream.id


def test_the_bytes_of_a_stream_are_those_of_its_extents() -> None:
    f = Stores()
    stream = f.extend(f.add(f.run()), b"abcd")
    f.blobs.append("stream", stream.blob(1), 4, b"late")
    stream = f.extend(stream, b"efgh")
    stored = f.streams.stored(stream)
    assert stored.read(0, 100) == b"abcdefgh"
    assert stored.read(3, 5) == b"de"
    assert b"".join(stored.pieces(2)) == b"cdefgh"


def test_a_swap_of_what_has_changed_fails() -> None:
    f = Stores()
    seen = f.add(f.run())
    f.streams.swap(seen, replace(seen, fence=1))
    with pytest.raises(RecordConflictError):
        f.streams.swap(seen, replace(seen, fence=1))


def test_a_sealed_run_takes_no_streams_and_gives_none_up() -> None:
    f = Stores()
    stream = f.add(f.run())
    run = f.runs.change(f.runs.get(ALICE, stream.run), lambda r: replace(r, state="sealed"))
    with pytest.raises(RunSealedError):
        f.add(run)
    with pytest.raises(RunSealedError):
        f.streams.delete(run, stream.id)


def test_a_run_expires_after_its_last_change_and_never_lasts_longer_than_all() -> None:
    f = Stores()
    run = f.runs.create(ALICE, SPEC, {}, days=10.0)[0]
    assert f.runs.create(ALICE, SPEC, {}, days=99.0)[0].days == 30.0
    f.now += 9 * DAY
    f.runs.keep("alice", run.id)
    f.now += 9 * DAY
    assert f.runs.get(ALICE, run.id).state == "created"
    f.now += 2 * DAY
    with pytest.raises(RunExpiredError):
        f.runs.get(ALICE, run.id)


def test_bytes_count_in_the_quota_of_the_owner() -> None:
    f = Stores(stream=Limit("streams", 2, 10))
    run = f.run()
    one, other = f.extend(f.add(run), b"12345678"), f.add(run)
    with pytest.raises(QuotaExceededError):
        f.extend(other, b"123")
    other = f.streams.get(f.runs.get(ALICE, run.id), other.id)
    with pytest.raises(QuotaExceededError):
        f.add(run)
    # What was refused left nothing.
    assert len(f.streams.of(f.runs.get(ALICE, run.id))) == 2
    f.streams.delete(f.runs.get(ALICE, run.id), one.id)
    f.extend(other, b"123")


def test_a_run_goes_on_where_its_owner_has_no_room_for_more_of_them() -> None:
    f = Stores()
    run = f.run()
    f.records._quotas.limits["run"] = Limit("runs", 1, 1)
    longer = replace(run, state="failed", problem={"detail": "x" * 99})
    with pytest.raises(QuotaExceededError):
        f.runs.change(run, lambda _run: longer)
    assert f.runs.change(run, lambda _run: longer, admit=always).problem == longer.problem
    # To delete a stream, the run is noted as being uploaded to.
    stream = f.add(run)
    f.streams.delete(run, stream.id)
    assert f.runs.get(ALICE, run.id).state == "uploading"


def test_deleting_a_run_deletes_all_of_it() -> None:
    f = Stores()
    run = f.run()
    f.extend(f.add(run), b"1234")
    f.removal.delete(ALICE, run.id)
    assert not f.blobs.list("stream").blobs
    assert not f.records.list("stream").records


def test_records_survive_their_encoding() -> None:
    f = Stores()
    stream = f.add(f.run())
    header = StreamHeader(Kind.SUMMARY, 1, 3, 10, -1, 4)
    stream = replace(stream, cursor=Position(header, 0, 7, False, 3), fault={"code": "x"})
    assert f.streams.swap(stream, stream).cursor == stream.cursor


@pytest.mark.parametrize(
    "damage", [{"offset": 3}, {"extents": [[1, 5, 2]]}, {"cursor": None}, {"length": "x"}]
)
def test_a_record_that_contradicts_itself_is_damaged(damage: dict[str, object]) -> None:
    f = Stores()
    stream = f.add(f.run())
    things = Namespaces(f.records, "stream")
    owned = things.get("alice", stream.key)
    damaged = things.replace(owned, {**owned.value, **damage})
    with pytest.raises(StoreDamagedError):
        StreamRecord.decode(damaged)


def test_a_run_has_so_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runs.streams.MAX_STREAMS", 2)
    f = Stores()
    run = f.run(options={})
    f.add(run)
    f.add(run, 7)
    with pytest.raises(StreamLimitError, match="at most 2"):
        f.add(run)
