"""What every store of blobs must do: a suite for each backend to subclass.

A subclass gives the fixture ``make_store``, which opens the same store again with each
call; ``durable`` says whether what was written is there when all of them are closed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from app.state.base import MAX_PAGE, RecordConflictError, RecordInvalidError, StoreError
from app.state.blobs import BlobConflictError, BlobInfo, BlobMissingError, BlobStore
from tests.scale import examples

MakeStore = Callable[[], BlobStore]
_kinds = (f"machine{k}" for k in itertools.count())
IDS = st.sampled_from(["a", "a1", "a10", "a2", "a-b", "a.b", "a_b", "A", "b", "ab", "0", "z" * 200])
SIZES = st.integers(0, 60) | st.integers(0, 2_500_000)


def pattern(size: int) -> bytes:
    """Bytes that depend on how many they are."""
    return np.random.default_rng(size).bytes(size)


def every(store: BlobStore, kind: str, prefix: str = "", limit: int = 100) -> list[BlobInfo]:
    """All blobs of a list, page by page."""
    found: list[BlobInfo] = []
    after: str | None = ""
    while after is not None:
        page = store.list(kind, prefix, after, limit)
        assert len(page.blobs) <= limit
        found += page.blobs
        after = page.after
    return found


class Machine(RuleBasedStateMachine):
    """Any calls in any order do what they do to a dictionary."""

    def __init__(self, make_store: MakeStore, *, durable: bool) -> None:
        super().__init__()
        self.make_store = make_store
        self.durable = durable
        self.store = make_store()
        self.kind = next(_kinds)
        self.model: dict[str, bytes] = {}

    @rule(blob_id=IDS, size=SIZES)
    def put(self, blob_id: str, size: int) -> None:
        data = pattern(size)
        known = self.model.get(blob_id)
        if known is not None and known != data:
            with pytest.raises(BlobConflictError) as caught:
                self.store.put(self.kind, blob_id, data)
            assert caught.value.size == len(known)
            return
        assert self.store.put(self.kind, blob_id, data) == (known is None)
        assert self.store.put(self.kind, blob_id, data) is False
        self.model[blob_id] = data

    @rule(blob_id=IDS, size=SIZES)
    def append(self, blob_id: str, size: int) -> None:
        data = pattern(size)
        whole = self.model.get(blob_id, b"")
        assert self.store.append(self.kind, blob_id, len(whole), data) == len(whole) + len(data)
        self.model[blob_id] = whole + data

    @rule(blob_id=IDS, off=st.integers(-3, 3))
    def append_elsewhere(self, blob_id: str, off: int) -> None:
        known = self.model.get(blob_id)
        offset = len(known or b"") + off
        if not off or offset < 0:
            return
        error = BlobMissingError if known is None else BlobConflictError
        with pytest.raises(error):
            self.store.append(self.kind, blob_id, offset, b"never")

    @rule(blob_id=IDS, share=st.floats(0, 1), length=st.integers(0, 2_000_000))
    def range(self, blob_id: str, share: float, length: int) -> None:
        if (known := self.model.get(blob_id)) is None:
            with pytest.raises(BlobMissingError):
                self.store.range(self.kind, blob_id)
            with pytest.raises(BlobMissingError):
                self.store.info(self.kind, blob_id)
            with pytest.raises(BlobMissingError):
                self.store.touch(self.kind, blob_id)
            return
        start = int(share * (len(known) + 2))
        assert (
            self.store.range(self.kind, blob_id, start, start + length)
            == (known[start : start + length])
        )
        assert self.store.range(self.kind, blob_id) == known
        assert self.store.info(self.kind, blob_id).size == len(known)

    @rule(blob_id=IDS, share=st.floats(0, 1.2))
    def trim(self, blob_id: str, share: float) -> None:
        if (known := self.model.get(blob_id)) is None:
            with pytest.raises(BlobMissingError):
                self.store.trim(self.kind, blob_id, 0)
            return
        size = int(share * len(known))
        self.store.trim(self.kind, blob_id, size)
        left = self.store.info(self.kind, blob_id).size
        assert min(size, len(known)) <= left <= len(known)
        self.model[blob_id] = known[:left]

    @rule(blob_id=IDS)
    def delete(self, blob_id: str) -> None:
        if blob_id not in self.model:
            with pytest.raises(BlobMissingError):
                self.store.delete(self.kind, blob_id)
            return
        del self.model[blob_id]
        self.store.delete(self.kind, blob_id)

    @rule(prefix=st.sampled_from(["", "a", "a1", "a-", "b", "z" * 200]), limit=st.integers(1, 4))
    def list(self, prefix: str, limit: int) -> None:
        expected = sorted((i, len(d)) for i, d in self.model.items() if i.startswith(prefix))
        found = every(self.store, self.kind, prefix, limit)
        assert [(blob.id, blob.size) for blob in found] == expected

    @rule()
    def reopen(self) -> None:
        if self.durable:
            self.store.close()
            self.store = self.make_store()

    def teardown(self) -> None:
        assert [blob.id for blob in every(self.store, self.kind)] == sorted(self.model)
        for blob_id, data in self.model.items():
            assert self.store.range(self.kind, blob_id) == data
        if self.durable:
            self.store.close()


class BlobStoreSuite:
    """Subclass it as ``Test…`` with a fixture ``make_store``."""

    durable: ClassVar[bool] = True

    @pytest.fixture
    def make_store(self) -> MakeStore:
        raise NotImplementedError

    @pytest.fixture
    def store(self, make_store: MakeStore) -> BlobStore:
        return make_store()

    def test_any_calls_do_what_they_do_to_a_dictionary(self, make_store: MakeStore) -> None:
        durable = self.durable

        class Bound(Machine):
            def __init__(self) -> None:
                super().__init__(make_store, durable=durable)

        run_state_machine_as_test(
            Bound,
            settings=settings(
                max_examples=examples(10),
                stateful_step_count=20,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

    def test_kinds_are_apart(self, store: BlobStore) -> None:
        store.put("input", "x", b"1")
        store.put("partial", "x", b"22")
        assert store.range("input", "x") == b"1"
        store.delete("input", "x")
        assert [blob.size for blob in every(store, "partial")] == [2]
        assert every(store, "input") == []

    @pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 9 << 20])
    def test_contents_are_any_bytes(self, store: BlobStore, size: int) -> None:
        data = pattern(size)
        assert store.put("input", "x", memoryview(data))
        assert store.append("run", "x", 0, bytearray(data)) == size
        for kind in ("input", "run"):
            assert store.range(kind, "x") == data
            assert store.range(kind, "x", size // 2) == data[size // 2 :]
            assert store.range(kind, "x", size) == b""
            assert store.range(kind, "x", size + 5, size + 9) == b""
            assert store.range(kind, "x", 3, 2) == b""
            assert [blob.size for blob in every(store, kind)] == [size]

    def test_a_writer_shows_what_is_committed_and_drops_the_rest(self, store: BlobStore) -> None:
        writer = store.writer("run", "x", 0)
        assert writer.commit() == 0
        data = pattern(2_500_000)
        assert [writer.write(data), writer.write(b"")] == [len(data)] * 2
        assert store.range("run", "x") == b""
        assert writer.commit() == len(data)
        assert writer.write(memoryview(b"more")) == len(data) + 4
        assert store.range("run", "x") == data
        writer.close()
        writer.close()
        for call in (writer.commit, lambda: writer.write(b"1")):
            with pytest.raises(StoreError, match="closed"):
                call()
        assert store.info("run", "x").size == len(data)
        other = store.writer("run", "x", len(data))
        other.write(b"other")
        other.commit()
        other.close()
        assert store.append("run", "x", len(data) + 5, b"s") == len(data) + 6
        assert store.range("run", "x", len(data)) == b"others"
        store.delete("run", "x")

    def test_a_writer_begins_where_the_blob_ends(self, store: BlobStore) -> None:
        with pytest.raises(BlobMissingError):
            store.writer("run", "x", 5)
        store.append("run", "x", 0, b"12345")
        for offset in (0, 6):
            with pytest.raises(BlobConflictError) as caught:
                store.writer("run", "x", offset)
            assert caught.value.size == 5
        with pytest.raises(RecordInvalidError):
            store.writer("run", "x", -1)

    def test_what_is_trimmed_ends_where_an_append_did(self, make_store: MakeStore) -> None:
        store = make_store()
        other = make_store() if self.durable else store
        parts = [pattern(size) for size in (700, 1, 1_100_000, 20)]
        ends = list(itertools.accumulate(map(len, parts)))
        data = b"".join(parts)
        for end, part in zip(ends, parts, strict=True):
            store.append("run", "x", end - len(part), part)
        for end in (ends[3] + 5, ends[3], ends[2], ends[0], 0):
            assert other.range("run", "x") == data[: len(other.range("run", "x"))]
            store.trim("run", "x", end)
            assert store.info("run", "x").size == min(end, ends[3])
            assert other.range("run", "x") == data[:end]
        # Others that knew its pieces read those that it has now.
        assert store.append("run", "x", 0, parts[2]) == len(parts[2])
        assert other.range("run", "x") == parts[2]
        with pytest.raises(RecordInvalidError):
            store.trim("run", "x", -1)

    def test_commits_and_writes_at_once_lose_nothing(self, store: BlobStore) -> None:
        writer = store.writer("run", "x", 0)
        parts = [pattern(k) for k in range(1, 200)]
        stop = threading.Event()

        def commit() -> list[int]:
            sizes = []
            while not stop.is_set():
                sizes.append(writer.commit())
                assert store.range("run", "x", 0, sizes[-1]) == b"".join(parts)[: sizes[-1]]
            return sizes

        with ThreadPoolExecutor(1) as pool:
            committing = pool.submit(commit)
            for part in parts:
                writer.write(part)
            stop.set()
            sizes = committing.result()
        assert sizes == sorted(sizes)
        assert writer.commit() == sum(map(len, parts))
        writer.close()
        assert store.range("run", "x") == b"".join(parts)

    def test_an_array_is_stored_as_its_bytes(self, store: BlobStore) -> None:
        values = memoryview(b"abcdefgh").cast("I")
        store.put("input", "x", values)
        store.append("run", "x", 0, values)
        assert store.append("run", "x", 8, values) == 16
        assert store.range("input", "x") == b"abcdefgh"
        assert store.range("run", "x") == b"abcdefgh" * 2

    @pytest.mark.parametrize(
        "blob_id",
        ["", ".", "..", ".x", "-x", "a/b", "../x", "a\\b", "a b", "a\n", "a\x00", "é", "a" * 201],
    )
    def test_ids_no_store_takes(self, store: BlobStore, blob_id: str) -> None:
        for call in (
            lambda: store.put("input", blob_id, b""),
            lambda: store.append("input", blob_id, 0, b""),
            lambda: store.range("input", blob_id),
            lambda: store.info("input", blob_id),
            lambda: store.touch("input", blob_id),
            lambda: store.trim("input", blob_id, 0),
            lambda: store.delete("input", blob_id),
            lambda: store.list("input", after=blob_id or "%"),
            lambda: store.list("input", prefix=blob_id or "%"),
        ):
            with pytest.raises(RecordInvalidError):
                call()

    @pytest.mark.parametrize("kind", ["", ".", "..", "../x", "a/b", "Input", "1x", "a" * 33, "a\n"])
    def test_kinds_no_store_takes(self, store: BlobStore, kind: str) -> None:
        with pytest.raises(RecordInvalidError):
            store.put(kind, "x", b"")
        with pytest.raises(RecordInvalidError):
            store.list(kind)

    def test_offsets_no_store_takes(self, store: BlobStore) -> None:
        with pytest.raises(RecordInvalidError):
            store.append("run", "x", -1, b"")
        store.put("run", "x", b"1")
        with pytest.raises(RecordInvalidError):
            store.range("run", "x", -1)

    @pytest.mark.parametrize("limit", [0, -1, MAX_PAGE + 1])
    def test_pages_no_store_gives(self, store: BlobStore, limit: int) -> None:
        with pytest.raises(RecordInvalidError):
            store.list("input", limit=limit)

    def test_pages_follow_each_other(self, store: BlobStore) -> None:
        ids = [f"p{k}" for k in range(23)] + ["P", "p", "pp"]
        for blob_id in ids:
            store.put("input", blob_id, blob_id.encode())
        for limit in (1, 7, 25, 26, 27):
            assert [blob.id for blob in every(store, "input", "", limit)] == sorted(ids)
        assert store.list("input", limit=26).after is None
        page = store.list("input", limit=5)
        # Going on does not need the blob the page ended with.
        assert page.after is not None
        store.delete("input", page.after)
        rest = store.list("input", after=page.after).blobs
        assert [blob.id for blob in rest] == sorted(ids)[5:]

    def test_a_list_is_right_while_others_change_it(self, store: BlobStore) -> None:
        lasting = [f"{k:02d}" for k in range(0, 60, 2)]
        for blob_id in lasting:
            store.put("input", blob_id, b"x")
        stopped = threading.Event()

        def change() -> None:
            k = 0
            while not stopped.is_set():
                blob_id = f"{k % 60 | 1:02d}"
                store.put("input", blob_id, b"y")
                store.delete("input", blob_id)
                k += 7

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(change)
            for _ in range(examples(20)):
                found = [blob.id for blob in every(store, "input", limit=4)]
                assert found == sorted(set(found))
                assert set(lasting) <= set(found)
            stopped.set()
            running.result()

    def test_times_tell_of_writing_and_of_use(self, store: BlobStore) -> None:
        store.put("input", "x", b"1")
        first = store.info("input", "x")
        assert first.used >= first.modified - 1
        store.touch("input", "x", first.used - 5000)
        old = store.info("input", "x")
        assert abs(first.used - 5000 - old.used) < 0.001
        assert old.modified == first.modified
        store.range("input", "x")
        store.list("input")
        assert store.info("input", "x").used == old.used
        store.touch("input", "x")
        assert store.info("input", "x").used >= first.used
        assert every(store, "input") == [store.info("input", "x")]

    def test_what_is_used_is_not_deleted(self, store: BlobStore) -> None:
        store.put("input", "x", b"1")
        used = store.info("input", "x").used
        with pytest.raises(RecordConflictError):
            store.delete("input", "x", unused_since=used - 1)
        assert store.range("input", "x") == b"1"
        store.delete("input", "x", unused_since=used + 1)
        with pytest.raises(BlobMissingError):
            store.info("input", "x")

    def test_one_that_is_made_again_is_another(self, store: BlobStore) -> None:
        for size in (3_000_000, 10, 2_000_000):
            data = pattern(size)
            store.append("run", "x", 0, data[: size // 2])
            store.append("run", "x", size // 2, data[size // 2 :])
            assert store.range("run", "x") == data
            store.delete("run", "x")

    def test_of_many_who_put_one_creates(self, store: BlobStore) -> None:
        for turn in range(examples(10)):
            ready = threading.Barrier(6)

            def put(_: int, ready: threading.Barrier = ready, name: str = f"x{turn}") -> bool:
                ready.wait()
                return store.put("input", name, b"the same" * 1000)

            with ThreadPoolExecutor(6) as pool:
                assert list(pool.map(put, range(6))).count(True) == 1
            assert store.range("input", f"x{turn}") == b"the same" * 1000

    def test_of_many_who_append_at_one_offset_one_succeeds(self, store: BlobStore) -> None:
        for size in range(examples(10)):
            ready = threading.Barrier(6)

            def append(k: int, ready: threading.Barrier = ready, at: int = size) -> bool:
                ready.wait()
                try:
                    store.append("run", "x", at, b"%d" % k)
                except BlobConflictError as e:
                    return e.size != at + 1
                return True

            with ThreadPoolExecutor(6) as pool:
                won = list(pool.map(append, range(6)))
            assert won.count(True) == 1
            assert store.range("run", "x", size) == b"%d" % won.index(True)

    def test_appends_of_many_threads_are_all_there(self, store: BlobStore) -> None:
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda k: append_lines(store, "run", "x", k, 25), range(4)):
                pass
        lines = store.range("run", "x").split()
        assert sorted(lines) == sorted(b"%d-%d" % (k, n) for k in range(4) for n in range(25))

    def test_readers_see_whole_appends(self, store: BlobStore) -> None:
        piece = pattern(700_000)
        store.append("run", "x", 0, b"")
        ended = threading.Event()

        def read() -> None:
            seen = 0
            while not ended.is_set():
                found = store.range("run", "x", seen)
                assert not len(found) % len(piece)
                assert found == piece * (len(found) // len(piece))
                seen += len(found)

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for k in range(examples(12)):
                store.append("run", "x", k * len(piece), piece)
            ended.set()
            for reader in readers:
                reader.result()

    def test_two_openings_see_each_other(self, make_store: MakeStore) -> None:
        if not self.durable:
            pytest.skip("opened once")
        one, other = make_store(), make_store()
        for k in range(10):
            assert (one, other)[k % 2].append("run", "x", 3 * k, b"%03d" % k) == 3 * k + 3
            assert (other, one)[k % 2].range("run", "x", 3 * k) == b"%03d" % k
        one.delete("run", "x")
        with pytest.raises(BlobMissingError):
            other.range("run", "x")
        assert other.append("run", "x", 0, b"again") == 5
        assert one.range("run", "x") == b"again"

    def test_what_was_written_is_there_when_all_are_closed(self, make_store: MakeStore) -> None:
        if not self.durable:
            pytest.skip("ends with its process")
        store = make_store()
        store.put("input", "x", b"1" * 5_000_000)
        store.append("run", "x", 0, b"2")
        store.append("run", "x", 1, b"3")
        store.close()
        again = make_store()
        assert again.range("input", "x") == b"1" * 5_000_000
        assert again.range("run", "x") == b"23"

    def test_a_closed_store_says_so(self, store: BlobStore) -> None:
        store.put("input", "x", b"")
        store.close()
        store.close()
        for call in (
            lambda: store.put("input", "y", b""),
            lambda: store.append("input", "x", 0, b""),
            lambda: store.range("input", "x"),
            lambda: store.info("input", "x"),
            lambda: store.touch("input", "x"),
            lambda: store.list("input"),
            lambda: store.delete("input", "x"),
        ):
            with pytest.raises(StoreError, match="closed"):
                call()


def append_lines(store: BlobStore, kind: str, blob_id: str, who: int, times: int) -> None:
    """Append lines, trying again at another offset whenever another was first."""
    size = 0
    for n in range(times):
        while True:
            try:
                size = store.append(kind, blob_id, size, b"%d-%d\n" % (who, n))
            except BlobConflictError as e:
                size = e.size
                continue
            except BlobMissingError:
                size = 0
                continue
            break
