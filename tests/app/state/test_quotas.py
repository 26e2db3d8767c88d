"""Quotas hold exactly, whoever stores at the same time; and what is admitted and noted."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from app.errors import QuotaExceededError, problem_of
from app.retention import make_quotas
from app.settings import Settings
from app.state.base import (
    RecordExistsError,
    RecordMissingError,
    StateStore,
    StoreError,
    StoreFullError,
    Usage,
)
from app.state.quotas import NOTED, AdmittedRecords, Limit, Quotas, refuse
from app.state.sqlite import SqliteStateStore
from tests.app.state.memory import MemoryStateStore
from tests.app.state.suite import MakeStore, StateStoreSuite
from tests.server_process import ROOT

LIMIT = Limit("views", 10, 1000)
QUOTAS = Quotas({"view": LIMIT})

_RACER = """
import sys
from pathlib import Path
from tests.app.state.test_quotas import store_until_refused
from app.state.sqlite import SqliteStateStore

store = SqliteStateStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
print(store_until_refused(store, sys.argv[2]))
"""


def store_until_refused(store: StateStore, name: str) -> int:
    """Store records of one owner until five are refused; return how many were stored."""
    records = AdmittedRecords(store, QUOTAS)
    refused = stored = 0
    while refused < 5:
        try:
            records.create("view", f"alice.{name}{stored + refused}", b"1")
        except QuotaExceededError:
            refused += 1
        else:
            stored += 1
    return stored


def admission(count: int, nbytes: int, usage: Usage) -> None:
    admit = QUOTAS.admission("view", count, nbytes)
    assert admit is not None
    admit(usage)


def test_what_fits_is_admitted_and_what_does_not_is_refused() -> None:
    admission(1, 5, Usage(10, 1000))
    with pytest.raises(QuotaExceededError, match="may have 10 views"):
        admission(1, 5, Usage(11, 1000))
    with pytest.raises(QuotaExceededError, match="1000 bytes of views"):
        admission(1, 5, Usage(10, 1001))
    with pytest.raises(QuotaExceededError, match="1000 bytes of views"):
        admission(0, 1, Usage(10, 1001))


def test_refusals_name_a_setting() -> None:
    settings = Settings()
    limits = [
        f"{limit.name}.{unit}"
        for limit in make_quotas(settings).limits.values()
        for unit in ("count", "bytes")
    ]
    found = set()
    for limit in [*limits, "spools.bytes"]:
        with pytest.raises(QuotaExceededError) as caught:
            refuse(limit, 1, 1, retry_after=1)
        found.add(caught.value.members["setting"])
    quotas = {name for name in Settings.model_fields if name.startswith("quota_")}
    assert found == {f"THALWEG_{name.upper()}" for name in quotas}


def test_what_adds_nothing_is_admitted_beyond_a_limit() -> None:
    admission(0, 0, Usage(11, 1001))
    admission(0, -1, Usage(11, 1001))
    admission(1, 0, Usage(10, 1001))


def test_kinds_without_a_limit_are_admitted() -> None:
    assert QUOTAS.admission("dataset", 1, 1 << 60) is None


def test_threads_that_race_store_as_much_as_is_allowed() -> None:
    for _ in range(20):
        store = MemoryStateStore()
        with ThreadPoolExecutor(4) as pool:
            stored = pool.map(lambda name: store_until_refused(store, name), "abcd")  # noqa: B023
            assert sum(stored) == LIMIT.count
        assert len(store.list("view").records) == LIMIT.count


def test_processes_that_race_store_as_much_as_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    SqliteStateStore(path).close()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for name in "ab"
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    stored = [int(racer.communicate()[0]) for racer in racers]
    assert sum(stored) == LIMIT.count
    store = SqliteStateStore(path)
    assert len(store.list("view").records) == LIMIT.count
    # A restart forgets nothing, and what is deleted makes room.
    assert store_until_refused(store, "c") == 0
    store.delete("view", store.list("view").records[0].id)
    assert store_until_refused(store, "d") == 1
    store.close()


class Touched(MemoryStateStore):
    """A store that counts notes of use."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []
        self.fails = False

    def touch(self, kind: str, record_id: str) -> None:
        if self.fails:
            raise StoreFullError("the disk is full")
        super().touch(kind, record_id)
        self.touched.append(record_id)


def admitted(records: StateStore, count: int = 2, nbytes: int = 1000) -> AdmittedRecords:
    return AdmittedRecords(records, Quotas({"view": Limit("views", count, nbytes)}))


class TestAdmitted(StateStoreSuite):
    durable = False

    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda: AdmittedRecords(MemoryStateStore(), Quotas({}))

    def test_what_is_used_is_not_deleted(self, store: object) -> None:
        """Notes are rare here: see below."""


def test_owners_have_quotas() -> None:
    store = admitted(MemoryStateStore())
    store.create("view", "alice.a", b"1")
    store.create("view", "alice.b", b"1")
    with pytest.raises(QuotaExceededError, match="may have 2 views") as caught:
        store.create("view", "alice.c", b"1")
    problem = problem_of(caught.value)
    assert (problem.status, problem.code) == (429, "quota-exceeded")
    assert problem.members["limit"] == "views.count"
    assert problem.members["allowed"] == problem.members["used"] == 2
    assert problem.retry_after
    # Other owners and other kinds have their own.
    store.create("view", "bob.c", b"1")
    made = store.create("dataset", "alice.c", b"1" * 2000)
    store.compare_and_swap(made, b"2" * 3000)
    # What exists asks for nothing more.
    with pytest.raises(RecordExistsError):
        store.create("view", "alice.a", b"1")
    store.delete("view", "alice.b")
    store.create("view", "alice.d", b"1")


def test_bytes_have_a_quota_too() -> None:
    store = admitted(MemoryStateStore(), 10, 100)
    large = store.create("view", "alice.a", b"1", size=60)
    with pytest.raises(QuotaExceededError, match="100 bytes of views") as caught:
        store.create("view", "alice.b", bytes(41))
    assert problem_of(caught.value).members["used"] == 60
    small = store.create("view", "alice.b", bytes(40))
    with pytest.raises(QuotaExceededError):
        store.compare_and_swap(small, bytes(41))
    assert store.get("view", "alice.b") == small
    store.compare_and_swap(large, bytes(59))
    small = store.compare_and_swap(small, bytes(41))
    # Less is possible even where a limit was lowered since.
    lowered = admitted(store, 1, 10)
    small = lowered.compare_and_swap(small, bytes(20))
    with pytest.raises(QuotaExceededError):
        lowered.compare_and_swap(small, bytes(21))
    lowered.delete("view", "alice.b")


def test_a_read_is_noted_once_an_hour() -> None:
    records = Touched()
    now = [0.0]
    store = AdmittedRecords(records, Quotas({}), lambda: now[0])
    now[0] = store.create("view", "x", b"").used
    for _ in range(3):
        store.get("view", "x")
    assert records.touched == []
    now[0] += NOTED + 1
    for _ in range(3):
        store.get("view", "x")
        store.touch("view", "x")
    assert records.touched == ["x"]
    now[0] += NOTED + 1
    store.touch("view", "x")
    assert records.touched == ["x", "x"]


def test_what_is_deleted_is_forgotten() -> None:
    records = Touched()
    store = AdmittedRecords(records, Quotas({}))
    store.create("view", "x", b"")
    store.touch("view", "x")
    store.delete("view", "x")
    with pytest.raises(RecordMissingError):
        store.touch("view", "x")


def test_what_can_be_read_is_read_where_nothing_can_be_written() -> None:
    records = Touched()
    store = AdmittedRecords(records, Quotas({}), lambda: 1e12)
    store.create("view", "x", b"1")
    records.fails = True
    assert store.get("view", "x").value == b"1"
    store.touch("view", "x")


def test_each_operation_is_noted_with_how_it_ended() -> None:
    noted: list[tuple[str, bool]] = []

    def note(operation: str, seconds: float, failed: bool) -> None:
        assert seconds >= 0
        noted.append((operation, failed))

    inner = MemoryStateStore()
    records = AdmittedRecords(inner, Quotas({}), note=note)
    record = records.create("view", "a", b"1")
    assert records.get("view", "a").value == b"1"
    record = records.compare_and_swap(record, b"2")
    records.touch("view", "a")
    assert records.list("view").records[0].value == b"2"
    records.delete("view", "a", record)
    with pytest.raises(RecordMissingError):
        records.get("view", "a")
    expected = ["create", "get", "swap", "touch", "list", "delete", "get"]
    assert noted == [(name, False) for name in expected]

    inner.touch = Mock(side_effect=StoreError("the disk is gone"))  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        records.touch("view", "a")
    assert noted[-1] == ("touch", True)
    records.close()
