"""Rows wait in order, in memory and on disk, and are gone when they should be."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.ledger import Ledger
from app.errors import QuotaExceededError, StorageFullError, TooLargeError
from app.losses.spool import Item, Mark, Spool, Spools, Table
from app.state.base import StoreError
from app.state.presence import Presence
from app.state.reservations import LEASE, Reservations
from core.losses.events import Position
from tests.descriptors import nothing_left_open

DTYPE = np.dtype([("EventId", "<i4"), ("Loss", "<f8")])


def rows(count: int, first: int = 0) -> Table:
    made = np.zeros(count, DTYPE)
    made["EventId"] = np.arange(first, first + count)
    return Table("melt", made)


def mark(offset: int) -> Mark:
    return Mark(Position(None, offset))


def drain(spool: Spool) -> list[Item]:
    taken = []
    while (item := spool.take()) is not None:
        taken.append(item)
    return taken


def ids(items: list[Item]) -> list[int]:
    return [i for item in items if isinstance(item, Table) for i in item.rows["EventId"].tolist()]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path, memory=1000, limit=100_000)
    yield made
    made.close()


def test_rows_come_back_in_order_from_memory_and_disk(spool: Spool) -> None:
    for k in range(40):
        spool.put([rows(10, 10 * k), mark(k)])
    assert spool.waiting == 40 * 120
    items = drain(spool)
    assert ids(items) == list(range(400))
    assert [i.position.offset for i in items if isinstance(i, Mark)] == list(range(40))
    assert spool.waiting == 0


def test_the_file_has_no_name_and_is_used_again(spool: Spool, tmp_path: Path) -> None:
    for _ in range(50):
        spool.put([rows(500)])
        assert list(tmp_path.iterdir()) == []
        assert ids(drain(spool)) == list(range(500))
    assert spool._file is not None
    assert os.fstat(spool._file._fd).st_size <= 2 * rows(500).rows.nbytes


def test_the_file_begins_anew_only_when_nothing_is_on_its_way_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are being written while the last ones before them are taken stay whole."""
    spool = Spool(tmp_path, memory=0, limit=100_000)
    taken: list[Item | None] = []

    def write(descriptor: int, data: memoryview, offset: int) -> int:
        if not taken:
            taken.append(spool.take())
        return real(descriptor, data, offset)

    real = os.pwrite
    spool.put([rows(10, 0)])
    monkeypatch.setattr(os, "pwrite", write)
    spool.put([rows(10, 10)])
    spool.put([rows(10, 20)])
    spool.put([rows(10, 30)])
    assert ids([item for item in taken if item is not None]) == list(range(10))
    assert ids(drain(spool)) == list(range(10, 40))
    spool.close()


def test_rows_of_an_event_that_is_not_whole_can_be_dropped(spool: Spool) -> None:
    spool.put([rows(5), mark(1), rows(200, 100), rows(3, 900)])
    last = spool.drop_open()
    assert last is not None
    assert last.position.offset == 1
    assert ids(drain(spool)) == list(range(5))
    spool.put([rows(5)])
    assert spool.drop_open() is None
    assert drain(spool) == []
    assert spool.waiting == 0


def test_too_many_rows_are_refused(spool: Spool) -> None:
    spool.put([rows(8000)])
    with pytest.raises(TooLargeError):
        spool.put([rows(8000)])


def test_the_file_counts_in_a_quota_until_it_is_closed(tmp_path: Path) -> None:
    reservations = Reservations(Presence(), 2 * LEASE)
    spools = Spools(tmp_path, 1000, 1 << 40, reservations, Ledger(1 << 20, 1 << 20))
    size = LEASE // DTYPE.itemsize - 10
    one, other = spools.new("alice"), spools.new("alice")
    one.put([rows(80)])
    assert reservations._reserved == {}
    one.put([rows(size)])
    other.put([rows(size)])
    with pytest.raises(QuotaExceededError):
        other.put([rows(100)])
    spools.new("bob").put([rows(100)])
    assert reservations._reserved == {"alice": 2 * LEASE, "bob": LEASE}
    # A file does not shrink when its rows are taken.
    drain(one)
    with pytest.raises(QuotaExceededError):
        other.put([rows(100)])
    one.close()
    other.put([rows(100)])
    other.close()
    assert reservations._reserved == {"bob": LEASE}


def test_a_disk_that_fails_is_not_called_full(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "missing", memory=0, limit=10_000)
    with pytest.raises(StoreError, match="No such file"):
        spool.put([rows(1)])
    spool.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_called_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def write(_fd: int, _data: object, _at: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", write)
    spool = Spool(tmp_path, memory=0, limit=10_000)
    with pytest.raises(StorageFullError):
        spool.put([rows(1)])
    spool.close()


def test_closing_gives_the_file_back(tmp_path: Path) -> None:
    with nothing_left_open():
        spool = Spool(tmp_path, memory=0, limit=10_000)
        spool.put([rows(10)])
        spool.close()
        spool.close()


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=40), st.integers(0, 900))
def test_one_thread_puts_while_another_takes(
    tmp_path_factory: pytest.TempPathFactory, puts: list[tuple[int, bool]], memory: int
) -> None:
    spool = Spool(tmp_path_factory.getbasetemp(), memory, 10**9)
    taken: list[Item] = []
    done = threading.Event()

    def take() -> None:
        while True:
            finished = done.is_set()
            taken.extend(drain(spool))
            if finished:
                return

    thread = threading.Thread(target=take)
    thread.start()
    at = 0
    for count, marked in puts:
        spool.put([rows(count, at), *([mark(at)] if marked else [])])
        at += count
    done.set()
    thread.join()
    assert ids(taken) == list(range(at))
    spool.close()


def test_rows_that_may_not_wait_in_memory_wait_on_the_disk(tmp_path: Path) -> None:
    ledger = Ledger(3000, 3000)
    spool = Spool(tmp_path, 1 << 20, 1 << 30, None, ledger.hold("alice", 0, "rows"))
    tables: list[Item] = [rows(100, 100 * k) for k in range(4)]
    spool.put(tables)
    assert ledger.held == 2 * rows(100).rows.nbytes
    assert ids(drain(spool)) == list(range(400))
    assert ledger.held == 0
    spool.put(tables)
    spool.close()
    assert ledger.held == 0
