"""Quotas: what an owner has is what the stores hold, whoever put it there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from app.errors import QuotaExceededError, problem_of
from app.state.base import Head
from app.state.blob_files import FileBlobStore
from app.state.blobs import BlobInfo
from app.state.memory import MemoryStateStore
from app.state.quotas import (
    OPERATOR,
    Limit,
    Quotas,
    Usage,
    all_of_operator,
    blob_meter,
    head_meter,
)
from app.state.sqlite import SqliteStateStore

LIMIT = Limit("views", 10, 1000)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Stored:
    """What is stored, and how often it was read."""

    def __init__(self, **usage: Usage) -> None:
        self.usage = dict(usage)
        self.readings = 0

    def __call__(self) -> Mapping[str, Usage]:
        self.readings += 1
        return self.usage


def admit(quotas: Quotas, owner: str, kind: str, nbytes: int) -> None:
    with quotas.admit(owner, kind, nbytes):
        pass


def test_what_fits_is_admitted_and_what_does_not_is_refused() -> None:
    stored = Stored(alice=Usage(9, 100))
    quotas = Quotas({"view": (LIMIT, stored)})
    admit(quotas, "alice", "view", 900)
    with pytest.raises(QuotaExceededError, match="1000 bytes of views"):
        admit(quotas, "alice", "view", 901)
    stored.usage["alice"] = Usage(10, 0)
    with pytest.raises(QuotaExceededError, match="may have 10 views") as caught:
        admit(quotas, "alice", "view", 0)
    problem = problem_of(caught.value)
    assert (problem.status, problem.code) == (429, "quota-exceeded")
    assert problem.members["limit"] == "views.count"
    assert problem.members["allowed"] == problem.members["used"] == 10
    assert problem.retry_after
    # Others have their own.
    admit(quotas, "bob", "view", 1000)


def test_kinds_without_a_limit_are_admitted() -> None:
    admit(Quotas({}), "alice", "view", 1 << 60)


def test_a_reading_is_used_for_a_moment_with_what_came_since() -> None:
    clock, stored = Clock(), Stored()
    quotas = Quotas({"view": (LIMIT, stored)}, 1, clock)
    for _ in range(10):
        admit(quotas, "alice", "view", 10)
    assert stored.readings == 1
    clock.now += 3
    admit(quotas, "bob", "view", 10)
    assert stored.readings == 2


def test_before_a_refusal_the_stores_are_read() -> None:
    stored = Stored()
    quotas = Quotas({"view": (LIMIT, stored)}, 1, Clock())
    for _ in range(10):
        admit(quotas, "alice", "view", 1)
    stored.usage["alice"] = Usage(10, 10)
    with pytest.raises(QuotaExceededError):
        admit(quotas, "alice", "view", 1)
    stored.usage["alice"] = Usage(9, 9)
    admit(quotas, "alice", "view", 1)


def test_what_is_being_stored_counts() -> None:
    stored = Stored()
    quotas = Quotas({"view": (Limit("views", 2, 100), stored)}, 1, Clock())
    with quotas.admit("alice", "view", 1):
        with quotas.admit("alice", "view", 1), pytest.raises(QuotaExceededError):
            admit(quotas, "alice", "view", 1)
        with pytest.raises(ZeroDivisionError), quotas.admit("alice", "view", 1):
            raise ZeroDivisionError
        admit(quotas, "bob", "view", 1)
    assert quotas._storing == {}


def first_letter(thing: Head | BlobInfo) -> list[str]:
    return [thing.id[0]]


def test_heads_are_measured_by_owner() -> None:
    heads = MemoryStateStore()
    for k in range(1500):
        heads.create("view", f"{'ab'[k % 2]}{k}", bytes(k % 2))
    heads.create("dataset", "c", b"1")
    assert head_meter(heads, "view", first_letter)() == {
        "a": Usage(750, 0),
        "b": Usage(750, 750),
    }
    assert head_meter(heads, "view", all_of_operator)() == {OPERATOR: Usage(1500, 750)}


def test_blobs_are_measured_by_owner(tmp_path: Path) -> None:
    blobs = FileBlobStore(tmp_path)
    for k in range(5):
        blobs.put("input", f"{'ab'[k % 2]}{k}", bytes(k))
    assert blob_meter(blobs, "input", first_letter)() == {"a": Usage(3, 6), "b": Usage(2, 4)}


def test_workers_keep_to_one_limit_and_a_restart_forgets_nothing(tmp_path: Path) -> None:
    def worker() -> tuple[Quotas, SqliteStateStore]:
        heads = SqliteStateStore(tmp_path / "state")
        return Quotas({"view": (LIMIT, head_meter(heads, "view", all_of_operator))}, 3), heads

    workers = [worker(), worker(), worker()]
    made: list[str] = []

    def make(k: int) -> None:
        quotas, heads = workers[k % 3]
        with quotas.admit(OPERATOR, "view", 1):
            made.append(heads.create("view", f"v{k}", b"1").id)

    for k in range(10):
        make(k)
    for k in range(10, 13):
        with pytest.raises(QuotaExceededError):
            make(k)
    assert len(made) == 10
    for _, heads in workers:
        heads.close()
    quotas, heads = worker()
    with pytest.raises(QuotaExceededError):
        admit(quotas, OPERATOR, "view", 1)
    heads.delete("view", "v3")
    admit(quotas, OPERATOR, "view", 1)
    heads.close()
