"""Heads under quotas: the suite of every store, and what is admitted and noted."""

from __future__ import annotations

import pytest

from app.errors import QuotaExceededError
from app.state.admission import NOTED, AdmittedHeads
from app.state.base import Head, HeadExistsError, HeadMissingError, StoreFullError
from app.state.memory import MemoryStateStore
from app.state.quotas import Limit, Quotas, all_of_operator, head_meter
from tests.app.state.suite import MakeStore, StateStoreSuite


class Touched(MemoryStateStore):
    """A store that counts notes of use."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []
        self.fails = False

    def touch(self, kind: str, head_id: str) -> None:
        if self.fails:
            raise StoreFullError("the disk is full")
        super().touch(kind, head_id)
        self.touched.append(head_id)


def owners(head: Head) -> list[str]:
    return head.value.decode().split()


def admitted(heads: MemoryStateStore, count: int = 2) -> AdmittedHeads:
    meter = head_meter(heads, "view", owners)
    return AdmittedHeads(
        heads, Quotas({"view": (Limit("views", count, 1000), meter)}), owners, ["view"]
    )


class TestAdmitted(StateStoreSuite):
    durable = False

    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda: AdmittedHeads(MemoryStateStore(), Quotas({}), all_of_operator, ["view"])

    def test_what_is_used_is_not_deleted(self, store: object) -> None:
        """Notes are rare here: see below."""


def test_owners_have_quotas() -> None:
    store = admitted(MemoryStateStore())
    store.create("view", "a", b"alice bob")
    store.create("view", "b", b"alice")
    with pytest.raises(QuotaExceededError):
        store.create("view", "c", b"alice")
    with pytest.raises(QuotaExceededError):
        store.create("view", "c", b"bob alice")
    # Heads of other kinds need have no owners.
    made = store.create("dataset", "c", b"\xff")
    store.compare_and_swap(made, b"\xfe")
    # What exists asks for nothing more.
    with pytest.raises(HeadExistsError):
        store.create("view", "a", b"alice bob")
    seen = store.create("view", "c", b"bob")
    with pytest.raises(QuotaExceededError):
        store.compare_and_swap(seen, b"bob alice")
    assert store.compare_and_swap(seen, b"bob carol").value == b"bob carol"
    store.delete("view", "b")
    store.create("view", "d", b"alice")


def test_a_read_is_noted_once_an_hour() -> None:
    heads = Touched()
    now = [0.0]
    store = AdmittedHeads(heads, Quotas({}), all_of_operator, [], lambda: now[0])
    now[0] = store.create("view", "x", b"").used
    for _ in range(3):
        store.get("view", "x")
    assert heads.touched == []
    now[0] += NOTED + 1
    for _ in range(3):
        store.get("view", "x")
        store.touch("view", "x")
    assert heads.touched == ["x"]
    now[0] += NOTED + 1
    store.touch("view", "x")
    assert heads.touched == ["x", "x"]


def test_what_is_deleted_is_forgotten() -> None:
    heads = Touched()
    store = AdmittedHeads(heads, Quotas({}), all_of_operator, [])
    store.create("view", "x", b"")
    store.touch("view", "x")
    store.delete("view", "x")
    with pytest.raises(HeadMissingError):
        store.touch("view", "x")


def test_what_can_be_read_is_read_where_nothing_can_be_written() -> None:
    heads = Touched()
    store = AdmittedHeads(heads, Quotas({}), all_of_operator, [], lambda: 1e12)
    store.create("view", "x", b"1")
    heads.fails = True
    assert store.get("view", "x").value == b"1"
    store.touch("view", "x")
