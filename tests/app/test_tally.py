"""What several processes hold together."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from app import tally as tally_module
from app.tally import MEMORY, REQUESTS, Column, Table, Tally


def forked(work: Callable[[], object]) -> int:
    """Start work in a process of its own; return its pid."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def of(table: Table, process: int, limit: int = 100, share: int = 100) -> Tally:
    return Tally(Column(table, process), MEMORY, limit, share)


def is_empty(table: Table) -> bool:
    return not any(table.cells.tolist())


def test_processes_hold_no_more_than_the_limit_together_and_an_owner_its_share() -> None:
    table = Table(3)
    here = of(table, 0, share=60)

    def there() -> None:
        tally = of(table, 1, share=60)
        assert tally.add("alice", 50) == -1
        assert tally.add("bob", 20) == -1
        tally.remove("bob", 10)

    assert ended(forked(there)) == 0
    assert (here.of("alice"), here.of("bob"), here.total, here.here) == (50, 10, 60, 0)
    assert here.add("alice", 11) == 61, "the share is that of all processes"
    assert here.add("carol", 41) == 41, "so is the limit"
    assert here.add("carol", 40) == -1
    assert Tally(Column(table, 2), REQUESTS, 1, 1).add("alice", 1) == -1, "kinds are apart"
    table.clear(1)
    assert (here.of("alice"), here.of("carol"), here.total) == (0, 40, 40)
    here.remove("carol", 40)
    table.clear(2)
    assert is_empty(table)


def test_racing_processes_never_exceed_the_limit() -> None:
    table = Table(4)

    def race(process: int) -> None:
        tally, owner, added = of(table, process, 10, 7), f"owner {process % 2}", 0
        for turn in range(3000):
            with tally.lock:
                if tally.add(owner, 1) < 0:
                    added += 1
                assert tally.total <= 10
                assert tally.of(owner) <= 7
            if added and turn % 3:
                with tally.lock:
                    tally.remove(owner, 1)
                added -= 1
        with tally.lock:
            tally.remove(owner, added)

    pids = [forked(lambda process=process: race(process)) for process in range(4)]  # type: ignore[misc]
    assert [ended(pid) for pid in pids] == [0, 0, 0, 0]
    assert is_empty(table)


@pytest.mark.parametrize("half", ["nothing", "key", "count"])
def test_the_lock_of_a_process_that_was_killed_is_free_and_what_it_held_is_gone(half: str) -> None:
    table = Table(2)
    here = of(table, 0)
    assert here.add("bob", 1) == -1

    def there() -> None:
        tally = of(table, 1)
        tally.add("alice", 30)
        with tally.lock:
            if half != "nothing":
                row = tally._claimed("carol")
            if half == "count":
                table.cells[row + 2] += 5
            os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(there)) == -signal.SIGKILL
    with here.lock:
        assert here.of("alice") == 30
    table.clear(1)
    assert (here.of("alice"), here.of("carol"), here.total) == (0, 0, 1)
    with here.lock:
        here.remove("bob", 1)
    assert is_empty(table)


def test_a_thread_waits_for_another_process_and_lets_other_threads_run() -> None:
    table = Table(2)
    locked, done = os.pipe(), os.pipe()

    def there() -> None:
        with table.lock:
            os.write(locked[1], b"x")
            os.read(done[0], 1)

    pid = forked(there)
    os.read(locked[0], 1)

    def wait() -> None:
        with table.lock:
            pass

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    os.write(done[1], b"x")
    thread.join()
    assert ended(pid) == 0


def test_what_a_collection_releases_in_the_middle_of_a_change_is_released() -> None:
    tally = of(Table(), 0)
    with tally.lock:
        tally.add("alice", 2)
    with tally.lock, tally.lock:
        tally.remove("alice", 2)
    assert tally.total == 0


def test_owners_that_find_no_place_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "_SETS", 1)
    table = Table(2)
    tally, other = of(table, 0, share=5), of(table, 1, share=5)
    owners = [f"owner {number}" for number in range(8)]
    assert [tally.add(owner, 2) for owner in owners] == [-1] * 8
    assert tally.add("late", 3) == -1
    assert other.add("later", 3) == 6, "they may hold together what one may"
    assert other.add("later", 2) == -1
    tally.remove(owners[0], 2)
    assert tally.add("late", 1) == 6, "and stay where they are until they hold nothing"
    for owner in owners[1:]:
        tally.remove(owner, 2)
    tally.remove("late", 3)
    other.remove("later", 2)
    assert other.add("later", 5) == -1
    other.remove("later", 5)
    assert is_empty(table)
    assert (tally.owners, other.owners) == (0, 0)
