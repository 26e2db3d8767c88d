"""One append: what is acknowledged, when, and what a failing store leaves."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from app.errors import QuotaExceededError
from app.run_errors import UploadTakenError
from app.runs.records import StreamRecord
from app.runs.uploads import appending
from app.runs.uploads.appending import Appending, ContentHasher, Terms
from app.state.base import StoreDamagedError, StoreFullError
from app.state.quotas import Limit
from core.errors import SampleRangeError
from core.losses.policy import Policy
from tests.app.runs.requests import EVENT, stream
from tests.app.runs.test_store import ALICE, Stores

GOOD = stream()
HEADER = len(stream(0))


class Gate:
    """A blob store whose commits wait until they are let through, or fail."""

    def __init__(self, blobs: Any) -> None:  # noqa: ANN401 - a BlobStore
        self._blobs = blobs
        self.open = threading.Event()
        self.waiting = threading.Event()
        self.failure: Exception | None = None
        self.open.set()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the store
        return getattr(self._blobs, name)

    def writer(self, kind: str, blob_id: str, offset: int) -> Any:  # noqa: ANN401 - a writer
        writer = self._blobs.writer(kind, blob_id, offset)
        commit = writer.commit

        def slow() -> int:
            self.waiting.set()
            assert self.open.wait(20)
            if self.failure is not None:
                raise self.failure
            size: int = commit()
            return size

        writer.commit = slow
        return writer


class Course:
    """Appends to a stream of a run in memory."""

    def __init__(self, **limits: Limit) -> None:
        self.stores = Stores(**limits)
        self.gate = Gate(self.stores.blobs)
        self.stores.streams.blobs = self.gate
        self.run = self.stores.run()
        self.stream = self.stores.add(self.run)
        self.rings: list[bool] = []

    def stored(self) -> list[int]:
        """Sizes of what is stored, in the order of appends."""
        return [blob.size for blob in self.stores.blobs.list("stream").blobs]

    def begin(
        self, length: int | None = None, tell: Callable[[bool], None] | None = None
    ) -> Appending:
        streams = self.stores.streams
        seen = self.now()
        taken = replace(seen, fence=seen.fence + 1, appending=True, length=length)
        return Appending(
            streams,
            streams.swap(seen, taken),
            Policy(),
            takes_items=None,
            terms=Terms(length, False, 1 << 40, ""),
            tell=tell or self.rings.append,
        )

    def now(self) -> StreamRecord:
        run = self.stores.runs.get(ALICE, self.run.id)
        return self.stores.streams.get(run, self.stream.id)

    def bytes(self) -> bytes:
        record = self.now()
        return self.stores.streams.stored(record).read(0, record.offset)


def test_bytes_are_taken_while_a_commit_waits_for_the_store() -> None:
    """The latency of a commit bounds what is acknowledged, not what is received."""
    course = Course()
    append = course.begin(len(GOOD))
    append.feed(memoryview(GOOD[:100]))
    assert course.rings == [False]
    course.gate.open.clear()
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(append.commit)
        assert course.gate.waiting.wait(20)
        for at in range(100, 2000, 100):
            append.feed(memoryview(GOOD[at : at + 100]))
        assert course.now().offset == 0
        course.gate.open.set()
        assert committing.result()
    # What came after the commit began is not acknowledged by it, and the next takes all of it.
    assert course.now().offset == 100
    assert append.commit()
    assert course.now().offset == 2000
    assert not append.commit()
    append.feed(memoryview(GOOD[2000:]))
    # All bytes are acknowledged with the end only.
    assert not append.commit()
    assert append.finish()
    assert append.commit(final=True)
    record = course.now()
    assert (record.complete, record.events, record.appending) == (True, 50, False)
    assert course.bytes() == GOOD


def test_enough_bytes_do_not_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runs.uploads.appending.COMMIT_BYTES", 1000)
    course = Course()
    append = course.begin()
    for at in range(0, 3000, 100):
        append.feed(memoryview(GOOD[at : at + 100]))
    assert course.rings == [False, True]
    append.commit()
    append.feed(memoryview(GOOD[3000:3100]))
    assert course.rings == [False, True, False]


def test_the_end_of_a_request_that_was_cut_off_completes_the_stream() -> None:
    course = Course()
    append = course.begin(len(GOOD))
    append.feed(memoryview(GOOD))
    append.commit(final=True)
    assert course.now().complete


def test_the_loser_of_a_fence_acknowledges_nothing() -> None:
    course = Course()
    first = course.begin()
    first.feed(memoryview(GOOD[:500]))
    first.commit()
    first.feed(memoryview(GOOD[500:900]))
    second = course.begin()
    with pytest.raises(UploadTakenError):
        first.commit()
    second.feed(memoryview(GOOD[500:]))
    first.close()
    second.finish()
    second.commit(final=True)
    assert course.bytes() == GOOD
    record = course.now()
    assert [extent.start for extent in record.extents] == [0, 500]


def test_every_place_of_a_takeover_gives_the_same_stream() -> None:
    whole = Course()
    append = whole.begin(len(GOOD))
    append.feed(memoryview(GOOD))
    append.finish()
    append.commit(final=True)
    for cut in range(1, len(GOOD), 37):
        course = Course()
        for start, stop in ((0, cut), (cut, len(GOOD))):
            append = course.begin(len(GOOD))
            append.feed(memoryview(GOOD[start:stop]))
            append.finish()
            append.commit(final=True)
            append.close()
        record = course.now()
        assert (record.complete, record.events) == (True, 50)
        assert record.digest == whole.now().digest
        assert record.cursor == whole.now().cursor


def test_a_store_that_fails_leaves_what_was_acknowledged() -> None:
    course = Course()
    append = course.begin()
    append.feed(memoryview(GOOD[:500]))
    append.commit()
    append.feed(memoryview(GOOD[500:900]))
    course.gate.failure = StoreFullError("the disk is full")
    for final in (False, True):
        with pytest.raises(StoreFullError):
            append.commit(final=final)
    append.abandon()
    append.close()
    record = course.now()
    assert (record.offset, record.appending) == (500, False)
    course.gate.failure = None
    append = course.begin(len(GOOD))
    append.feed(memoryview(GOOD[500:]))
    append.finish()
    append.commit(final=True)
    assert course.bytes() == GOOD


def test_a_quota_refuses_the_commit_that_exceeds_it() -> None:
    course = Course(stream=Limit("streams", 9, 600))
    append = course.begin()
    append.feed(memoryview(GOOD[:500]))
    append.commit()
    append.feed(memoryview(GOOD[500:900]))
    with pytest.raises(QuotaExceededError):
        append.commit()
    append.abandon()
    append.drop()
    assert course.now().offset == 500
    # What it refused takes no space beside the quota.
    assert course.stored() == [500]


def test_what_was_taken_over_leaves_no_more_than_was_acknowledged() -> None:
    course = Course()
    late = course.begin()
    late.feed(memoryview(GOOD[:500]))
    late.commit()
    append = course.begin()
    append.feed(memoryview(GOOD[500:900]))
    late.feed(memoryview(GOOD[500:]))
    with pytest.raises(UploadTakenError):
        late.commit(final=True)
    late.drop()
    append.commit(final=True)
    append.drop()
    assert course.bytes() == GOOD[:900]
    assert course.stored() == [500, 400]


def test_damaged_bytes_are_noticed_and_never_continued() -> None:
    course = Course()
    append = course.begin()
    append.feed(memoryview(GOOD[: HEADER + EVENT + 40]))
    append.commit(final=True)
    append.close()

    def damaged(*_: object) -> bytes:
        raise StoreDamagedError("the stored stream is damaged")

    course.stores.blobs.range = damaged  # type: ignore[method-assign, assignment]
    append = course.begin()
    with pytest.raises(StoreDamagedError):
        append.feed(memoryview(GOOD[HEADER + EVENT + 40 :]))
    append.commit(final=True)
    assert course.now().offset == HEADER + EVENT + 40


def test_a_fault_cuts_what_came_after_the_last_good_event() -> None:
    course = Course()
    bad = bytearray(GOOD)
    at = HEADER + 10 * EVENT + 12
    bad[at : at + 4] = (99).to_bytes(4, "little")
    append = course.begin()
    append.feed(memoryview(bytes(bad[: HEADER + 5 * EVENT + 20])))
    with pytest.raises(SampleRangeError):
        append.feed(memoryview(bytes(bad[HEADER + 5 * EVENT + 20 :])))
    append.commit(final=True)
    record = course.now()
    assert (record.offset, record.events) == (HEADER + 10 * EVENT, 10)
    assert record.fault is not None
    assert record.fault["code"] == "sample-range"
    assert course.bytes() == bytes(bad[: record.offset])


def digest(data: bytes, cuts: list[int]) -> object:
    hasher, at = ContentHasher(), 0
    for cut in [*cuts, len(data)]:
        hasher.update(memoryview(data[at:cut]))
        at = cut
        state = hasher.digest()
        hasher = ContentHasher(state, at)
        hasher.update(memoryview(data[hasher.start : at]))
        assert hasher.digest() == state
    return hasher.digest()


def test_any_cuts_give_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "GROUP", 64)
    chance = random.Random(1)  # noqa: S311 - the places of cuts
    for size in (0, 1, 63, 64, 65, 128, 1000):
        data = chance.randbytes(size)
        whole = digest(data, [])
        for _ in range(20):
            cuts = sorted(chance.randrange(size + 1) for _ in range(chance.randrange(4)))
            assert digest(data, cuts) == whole
        if size:
            assert digest(bytes([data[0] ^ 1]) + data[1:], []) != whole
            assert digest(data[:-1], []) != whole
