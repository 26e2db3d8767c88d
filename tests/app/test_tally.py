"""What several processes hold together."""

from __future__ import annotations

import os
import signal
import threading
import traceback
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
        except Exception:  # noqa: BLE001 - it is the test's, in another process
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def of(table: Table, process: int, limit: int = 100, share: int = 100) -> Tally:
    return Tally(Column(table, process), MEMORY, limit, share)


def is_empty(table: Table) -> bool:
    rows = range(0, len(table.cells), table.width)
    return not any(any(table.cells[row + 1 : row + table.width]) for row in rows)


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

    def note(change: int) -> float:
        with table.lock:
            table.notes[0] += change
            return table.notes[0]

    def race(process: int) -> None:
        tally, owner, added = of(table, process, 10, 7), f"owner {process % 2}", 0
        for turn in range(3000):
            if tally.add(owner, 1) < 0:
                added += 1
                # Noted after it was added, and no more before it is removed.
                assert note(1) <= 10
            if added and turn % 3:
                note(-1)
                tally.remove(owner, 1)
                added -= 1
        note(-added)
        tally.remove(owner, added)

    pids = [forked(lambda process=process: race(process)) for process in range(4)]  # type: ignore[misc]
    assert [ended(pid) for pid in pids] == [0, 0, 0, 0]
    assert is_empty(table)


def test_racing_owners_keep_what_they_hold_where_places_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tally_module, "_SETS", 1)
    monkeypatch.setattr(tally_module, "_REMEMBERED", 6)
    table = Table(3)

    def race(process: int) -> None:
        tally = of(table, process, 1 << 30, 1 << 30)

        def work(thread: int) -> None:
            for turn in range(1500):
                owner = f"owner {(thread + turn) % 11}"
                assert tally.add(owner, 1) == -1
                assert tally.add(owner, 2) == -1
                assert tally.of(owner) >= 3
                tally.remove(owner, 3)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (tally.here, tally.owners) == (0, 0)

    pids = [forked(lambda process=process: race(process)) for process in range(3)]  # type: ignore[misc]
    assert [ended(pid) for pid in pids] == [0, 0, 0]
    assert is_empty(table)


def test_two_that_would_exceed_the_limit_together_are_not_both_admitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(2)
    here, there = of(table, 0), of(table, 1)
    change = here._change

    def meanwhile(mine: object, count: int) -> None:
        monkeypatch.undo()
        # It has looked by now, and not added yet.
        assert there.add("bob", 60) == -1
        change(mine, count)  # type: ignore[arg-type]

    monkeypatch.setattr(here, "_change", meanwhile)
    assert here.add("alice", 60) == 60
    assert (here.of("alice"), here.total) == (0, 60)


def test_one_whose_place_is_taken_meanwhile_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(2)
    here, there = of(table, 0), of(table, 1)
    assert here.add("alice", 1) == -1
    here.remove("alice", 1)
    row, change = here._rows["alice"].row, here._change

    def meanwhile(mine: object, count: int) -> None:
        monkeypatch.undo()
        table.cells[row] = there._key("bob")
        assert there.add("bob", 7) == -1
        change(mine, count)  # type: ignore[arg-type]

    monkeypatch.setattr(here, "_change", meanwhile)
    assert here.add("alice", 5) == -1
    assert here._rows["alice"].row != row
    assert (here.of("alice"), there.of("alice"), there.of("bob"), here.total) == (5, 5, 7, 12)
    here.remove("alice", 5)
    there.remove("bob", 7)
    assert is_empty(table)


@pytest.mark.parametrize("half", ["nothing", "place", "count"])
def test_the_lock_of_a_process_that_was_killed_is_free_and_what_it_held_is_gone(half: str) -> None:
    table = Table(2)
    here = of(table, 0)
    assert here.add("bob", 1) == -1

    def there() -> None:
        tally = of(table, 1)
        tally.add("alice", 30)
        with table.lock:
            if half != "nothing":
                row = tally._place(tally._key("carol"))
            if half == "count":
                table.cells[row + 2] += 5
            os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(there)) == -signal.SIGKILL
    with table.lock:
        assert here.of("alice") == 30
    table.clear(1)
    assert (here.of("alice"), here.of("carol"), here.total) == (0, 0, 1)
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


def test_what_a_collection_releases_in_the_middle_of_a_change_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(2)
    tally = of(table, 0)
    tally.add("bob", 2)
    excess = tally._excess

    def collected(row: int, count: int) -> int:
        monkeypatch.undo()
        with table.lock, table.lock:
            tally.remove("bob", 2)
        return excess(row, count)

    monkeypatch.setattr(tally, "_excess", collected)
    assert tally.add("alice", 1) == -1
    assert (tally.of("bob"), tally.total) == (0, 1)


def test_owners_that_find_no_place_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "_SETS", 1)
    table = Table(2)
    tally, other = of(table, 0, share=5), of(table, 1, share=5)
    owners = [f"owner {number}" for number in range(8)]
    assert [tally.add(owner, 2) for owner in owners] == [-1] * 8
    assert tally.add("late", 3) == -1
    assert other.add("later", 3) == 6, "they may hold together what one may"
    assert other.add("later", 2) == -1
    assert (tally.of("late"), other.of("late"), tally.of(owners[0])) == (5, 0, 2)
    tally.remove(owners[0], 2)
    assert tally.add("late", 1) == 6, "and stay where they are until they hold nothing"
    for owner in owners[1:]:
        tally.remove(owner, 2)
    tally.remove("late", 3)
    assert tally.add("late", 3) == -1
    assert (tally.of("late"), other.of("late"), other.of("later")) == (3, 3, 2)
    tally.remove("late", 3)
    other.remove("later", 2)
    assert is_empty(table)
    assert (tally.owners, other.owners) == (0, 0)
