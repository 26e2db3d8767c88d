"""What every store of records must do: a suite for each backend to subclass.

A subclass gives the fixture ``make_store``, which opens the same store again with each
call; ``durable`` says whether what was written is there when all of them are closed.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from app.state.base import (
    MAX_PAGE,
    MAX_VALUE,
    Record,
    RecordConflictError,
    RecordExistsError,
    RecordInvalidError,
    RecordMissingError,
    StateStore,
    StoreError,
    Usage,
)
from tests.scale import examples

MakeStore = Callable[[], StateStore]
_kinds = (f"machine{k}" for k in itertools.count())
IDS = st.sampled_from(["a", "a1", "a10", "a2", "a-b", "a.b", "a_b", "A", "b", "ab", "0", "z" * 200])
VALUES = st.binary(max_size=40)


def every(store: StateStore, kind: str, prefix: str = "", limit: int = 100) -> list[Record]:
    """All records of a list, page by page."""
    found: list[Record] = []
    after: str | None = ""
    while after is not None:
        page = store.list(kind, prefix, after, limit)
        assert len(page.records) <= limit
        found += page.records
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
        self.model: dict[str, Record] = {}
        self.stale: list[Record] = []

    @rule(record_id=IDS, value=VALUES)
    def create(self, record_id: str, value: bytes) -> None:
        if record_id in self.model:
            with pytest.raises(RecordExistsError):
                self.store.create(self.kind, record_id, value)
            return
        record = self.store.create(self.kind, record_id, value)
        assert (record.value, record.generation) == (value, 1)
        self.model[record_id] = record

    @rule(record_id=IDS)
    def get(self, record_id: str) -> None:
        if record_id in self.model:
            assert self.store.get(self.kind, record_id) == self.model[record_id]
        else:
            with pytest.raises(RecordMissingError):
                self.store.get(self.kind, record_id)

    @rule(record_id=IDS, value=VALUES)
    def swap(self, record_id: str, value: bytes) -> None:
        if (seen := self.model.get(record_id)) is None:
            return
        record = self.store.compare_and_swap(seen, value)
        assert record == replace(seen, value=value, generation=seen.generation + 1)
        self.model[record_id] = record
        self.stale.append(seen)

    @rule(data=st.data(), deleting=st.booleans())
    def swap_what_is_stale(self, data: st.DataObject, deleting: bool) -> None:
        if not self.stale:
            return
        seen = data.draw(st.sampled_from(self.stale))
        error = RecordConflictError if seen.id in self.model else RecordMissingError
        if deleting:
            with pytest.raises(error):
                self.store.delete(self.kind, seen.id, seen)
        else:
            with pytest.raises(error):
                self.store.compare_and_swap(seen, b"never")

    @rule(record_id=IDS, careful=st.booleans())
    def delete(self, record_id: str, careful: bool) -> None:
        if record_id not in self.model:
            with pytest.raises(RecordMissingError):
                self.store.delete(self.kind, record_id)
            return
        seen = self.model.pop(record_id)
        self.store.delete(self.kind, record_id, seen if careful else None)
        self.stale.append(seen)

    @rule(prefix=st.sampled_from(["", "a", "a1", "a-", "b", "z" * 200]), limit=st.integers(1, 4))
    def list(self, prefix: str, limit: int) -> None:
        expected = [record for key, record in sorted(self.model.items()) if key.startswith(prefix)]
        assert every(self.store, self.kind, prefix, limit) == expected

    @rule()
    def reopen(self) -> None:
        if self.durable:
            self.store.close()
            self.store = self.make_store()

    def teardown(self) -> None:
        assert every(self.store, self.kind) == [record for _, record in sorted(self.model.items())]
        if self.durable:
            self.store.close()


class StateStoreSuite:
    """Subclass it as ``Test…`` with a fixture ``make_store``."""

    durable: ClassVar[bool] = True

    @pytest.fixture
    def make_store(self) -> MakeStore:
        raise NotImplementedError

    @pytest.fixture
    def store(self, make_store: MakeStore) -> StateStore:
        return make_store()

    def test_any_calls_do_what_they_do_to_a_dictionary(self, make_store: MakeStore) -> None:
        durable = self.durable

        class Bound(Machine):
            def __init__(self) -> None:
                super().__init__(make_store, durable=durable)

        run_state_machine_as_test(
            Bound,
            settings=settings(
                max_examples=examples(25),
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

    def test_kinds_are_apart(self, store: StateStore) -> None:
        store.create("view", "x", b"1")
        store.create("dataset", "x", b"2")
        assert store.get("view", "x").value == b"1"
        store.delete("view", "x")
        assert [record.value for record in every(store, "dataset")] == [b"2"]
        assert every(store, "view") == []

    def test_a_head_made_again_is_another(self, store: StateStore) -> None:
        seen = store.create("view", "x", b"same")
        store.delete("view", "x")
        again = store.create("view", "x", b"same")
        assert again.generation == seen.generation
        assert again.nonce != seen.nonce
        with pytest.raises(RecordConflictError):
            store.compare_and_swap(seen, b"lost")
        with pytest.raises(RecordConflictError):
            store.delete("view", "x", seen)
        assert store.get("view", "x") == again

    def test_equal_values_are_a_change_too(self, store: StateStore) -> None:
        seen = store.create("view", "x", b"same")
        store.compare_and_swap(seen, b"same")
        with pytest.raises(RecordConflictError):
            store.compare_and_swap(seen, b"same")

    @pytest.mark.parametrize("value", [b"", b"\x00", bytes(range(256)), b"x" * MAX_VALUE])
    def test_values_are_any_bytes(self, store: StateStore, value: bytes) -> None:
        record = store.create("view", "x", value)
        assert record.value == value
        assert store.get("view", "x").value == value
        assert store.compare_and_swap(record, value).value == value

    def test_too_large_a_value_is_refused(self, store: StateStore) -> None:
        with pytest.raises(RecordInvalidError):
            store.create("view", "x", bytes(MAX_VALUE + 1))
        record = store.create("view", "x", b"")
        with pytest.raises(RecordInvalidError):
            store.compare_and_swap(record, bytes(MAX_VALUE + 1))
        assert store.get("view", "x") == record

    @pytest.mark.parametrize(
        "record_id",
        ["", ".", "..", ".x", "-x", "a/b", "a\\b", "a b", "a\n", "a\x00", "é", "%", "٣", "a" * 201],
    )
    def test_ids_no_store_takes(self, store: StateStore, record_id: str) -> None:
        seen = Record("view", record_id, b"", 1, "0")
        for call in (
            lambda: store.create("view", record_id, b""),
            lambda: store.get("view", record_id),
            lambda: store.compare_and_swap(seen, b""),
            lambda: store.delete("view", record_id),
            lambda: store.list("view", after=record_id or "%"),
            lambda: store.list("view", prefix=record_id or "%"),
        ):
            with pytest.raises(RecordInvalidError):
                call()

    @pytest.mark.parametrize("kind", ["", "View", "1x", "a-b", "a" * 33, "a\n"])
    def test_kinds_no_store_takes(self, store: StateStore, kind: str) -> None:
        with pytest.raises(RecordInvalidError):
            store.create(kind, "x", b"")
        with pytest.raises(RecordInvalidError):
            store.list(kind)

    @pytest.mark.parametrize("limit", [0, -1, MAX_PAGE + 1])
    def test_pages_no_store_gives(self, store: StateStore, limit: int) -> None:
        with pytest.raises(RecordInvalidError):
            store.list("view", limit=limit)

    def test_pages_follow_each_other(self, store: StateStore) -> None:
        ids = [f"p{k}" for k in range(23)]
        for record_id in ids:
            store.create("view", record_id, record_id.encode())
        for limit in (1, 7, 22, 23, 24):
            assert [record.id for record in every(store, "view", "p", limit)] == sorted(ids)
        assert store.list("view", limit=23).after is None
        page = store.list("view", limit=5)
        # Going on does not need the record the page ended with.
        assert page.after is not None
        store.delete("view", page.after)
        rest = store.list("view", after=page.after).records
        assert [record.id for record in rest] == sorted(ids)[5:]

    def test_what_is_used_is_not_deleted(self, store: StateStore) -> None:
        begun = time.time()
        record = store.create("view", "x", b"1")
        store.create("view", "y", b"1")
        assert begun <= record.used <= time.time()
        assert store.get("view", "x").used == record.used
        later = time.time()
        store.touch("view", "x")
        with pytest.raises(RecordConflictError):
            store.delete("view", "x", unused_since=later)
        assert store.get("view", "x") == record
        swapped = store.compare_and_swap(record, b"2")
        assert store.get("view", "x").used >= later
        with pytest.raises(RecordConflictError):
            store.delete("view", "x", swapped, unused_since=later)
        store.delete("view", "y", unused_since=later)
        assert [found.id for found in every(store, "view")] == ["x"]
        with pytest.raises(RecordMissingError):
            store.touch("view", "y")

    def test_of_many_who_saw_the_same_one_wins(self, store: StateStore) -> None:
        seen = store.create("view", "x", b"")
        ready = threading.Barrier(8)

        def swap(k: int) -> bool:
            ready.wait()
            try:
                store.compare_and_swap(seen, b"%d" % k)
            except RecordConflictError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(swap, range(8)))
        assert won.count(True) == 1
        assert store.get("view", "x").value == b"%d" % won.index(True)

    def test_of_many_who_create_one_wins(self, store: StateStore) -> None:
        ready = threading.Barrier(8)

        def create(k: int) -> bool:
            ready.wait()
            try:
                store.create("view", "x", b"%d" % k)
            except RecordExistsError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(create, range(8)))
        assert won.count(True) == 1
        assert store.get("view", "x").value == b"%d" % won.index(True)

    def test_increments_of_many_threads_are_all_counted(self, store: StateStore) -> None:
        store.create("view", "n", b"0")
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda _: increment(store, "view", "n", 25), range(4)):
                pass
        record = store.get("view", "n")
        assert (record.value, record.generation) == (b"100", 101)

    def test_usage_is_counted_by_kind_and_space(self, store: StateStore) -> None:
        seen: list[Usage] = []

        def refuse(usage: Usage) -> None:
            seen.append(usage)
            raise ZeroDivisionError

        def usage_with(kind: str, record_id: str, size: int) -> Usage:
            with pytest.raises(ZeroDivisionError):
                store.create(kind, record_id, b"", size=size, admit=refuse)
            return seen.pop()

        record = store.create("view", "a.x", b"12345", admit=seen.append)
        assert (seen.pop(), record.size) == (Usage(1, 5), 5)
        assert store.get("view", "a.x").size == 5
        store.create("view", "a.y", b"", size=100)
        store.create("view", "b.x", b"1")
        store.create("view", "x", b"123")
        store.create("input", "a.x", b"")
        with pytest.raises(RecordExistsError):
            store.create("view", "a.x", b"123", admit=refuse)
        assert usage_with("view", "a.z", 7) == Usage(3, 112)
        assert usage_with("view", "y", 7) == Usage(2, 10)
        swapped = store.compare_and_swap(record, b"1234567", admit=seen.append)
        assert (seen.pop(), swapped.size) == (Usage(2, 107), 7)
        with pytest.raises(ZeroDivisionError):
            store.compare_and_swap(swapped, b"", admit=refuse)
        assert seen.pop() == Usage(2, 100)
        assert store.get("view", "a.x") == swapped
        with pytest.raises(RecordConflictError):
            store.compare_and_swap(record, b"", admit=refuse)
        swapped = store.compare_and_swap(swapped, b"1234567", size=50, admit=seen.append)
        assert (seen.pop(), swapped.size) == (Usage(2, 150), 50)
        store.compare_and_swap(swapped, b"1234567")
        store.delete("view", "a.y")
        assert usage_with("view", "a.z", 0) == Usage(2, 7)
        store.delete("view", "a.x")
        assert usage_with("view", "a.z", 1) == Usage(1, 1)
        assert not seen

    def test_two_openings_see_each_other(self, make_store: MakeStore) -> None:
        if not self.durable:
            pytest.skip("opened once")
        one, other = make_store(), make_store()
        seen = one.create("view", "x", b"1")
        assert other.get("view", "x") == seen
        swapped = other.compare_and_swap(seen, b"2")
        assert one.get("view", "x") == swapped
        with pytest.raises(RecordConflictError):
            one.compare_and_swap(seen, b"3")

    def test_what_was_written_is_there_when_all_are_closed(self, make_store: MakeStore) -> None:
        if not self.durable:
            pytest.skip("ends with its process")
        store = make_store()
        record = store.compare_and_swap(store.create("view", "x", b"1"), b"2")
        store.close()
        assert make_store().get("view", "x") == record

    def test_a_closed_store_says_so(self, store: StateStore) -> None:
        record = store.create("view", "x", b"")
        store.close()
        store.close()
        for call in (
            lambda: store.create("view", "y", b""),
            lambda: store.get("view", "x"),
            lambda: store.compare_and_swap(record, b""),
            lambda: store.list("view"),
            lambda: store.touch("view", "x"),
            lambda: store.delete("view", "x"),
        ):
            with pytest.raises(StoreError, match="closed"):
                call()


def increment(store: StateStore, kind: str, record_id: str, times: int) -> None:
    """Add to a decimal number, trying again whenever another was first."""
    for _ in range(times):
        while True:
            record = store.get(kind, record_id)
            try:
                store.compare_and_swap(record, b"%d" % (int(record.value) + 1))
            except RecordConflictError:
                continue
            break
