"""The ledger of memory that requests hold."""

from __future__ import annotations

import threading

import pytest

from app.engine.ledger import Ledger
from app.errors import BusyError, ShareExceededError, TooLargeError, problem_of
from app.tally import Column, Table


def test_what_is_released_can_be_held_again() -> None:
    ledger = Ledger(100, 100)
    with ledger.hold("alice", 60, "bodies") as hold:
        assert (ledger.held, ledger._tally.of("alice")) == (60, 60)
        assert ledger.purposes() == {"bodies": 60}
        hold.grow(40)
        hold.shrink(70)
        assert (ledger.held, hold.nbytes, ledger.peak) == (30, 30, 100)
    hold.release()
    assert (ledger.held, ledger.owners, ledger.purposes().get("bodies", 0)) == (0, 0, 0)
    ledger.hold("bob", 100, "bodies").release()


def test_a_peak_counts_from_when_it_began() -> None:
    ledger = Ledger(limit=100, share=100)
    with ledger.hold("ann", 10, "bodies"):
        ledger.hold("ann", 80, "bodies").release()
        assert ledger.peak == 90
        ledger.peak = ledger.held
        assert ledger.peak == 10
        ledger.hold("ann", 5, "bodies").release()
    assert ledger.peak == 15


def test_an_owner_that_holds_its_share_is_told_so_and_others_are_served() -> None:
    ledger = Ledger(100, 50)
    ledger.hold("alice", 40, "bodies")
    with pytest.raises(ShareExceededError) as caught:
        ledger.hold("alice", 11, "json")
    problem = problem_of(caught.value)
    assert (problem.status, problem.code, problem.retry_after) == (429, "share-exceeded", 1)
    assert problem.members["setting"] == "THALWEG_OWNER_SHARE"
    assert (problem.members["limit"], problem.members["allowed"]) == ("json", 50)
    ledger.hold("bob", 50, "json")
    assert ledger.refused == {"json": 1}
    assert ledger.held == 90


def test_a_full_ledger_is_busy_for_everybody() -> None:
    ledger = Ledger(100, 60)
    ledger.hold("alice", 60, "bodies")
    hold = ledger.hold("bob", 30, "bodies")
    with pytest.raises(BusyError) as caught:
        hold.grow(11)
    problem = problem_of(caught.value)
    assert (problem.status, problem.retry_after) == (503, 1)
    assert problem.members["setting"] == "THALWEG_MEMORY_LIMIT"
    assert (hold.nbytes, ledger.held) == (30, 90)


def test_what_could_never_fit_is_too_large_and_not_worth_a_retry() -> None:
    ledger = Ledger(100, 50)
    with pytest.raises(TooLargeError):
        ledger.hold("alice", 51, "bodies")
    with ledger.hold("alice", 40, "bodies") as hold, pytest.raises(TooLargeError):
        hold.grow(11)
    assert ledger.refused == {"bodies": 2}
    assert ledger.held == 0


def test_threads_count_exactly() -> None:
    ledger = Ledger(1 << 30, 1 << 30)

    def work(owner: str) -> None:
        for _ in range(500):
            with ledger.hold(owner, 3, "bodies") as hold:
                hold.grow(4)

    threads = [threading.Thread(target=work, args=(f"owner {n % 2}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (ledger.held, ledger.owners, ledger.purposes().get("bodies", 0)) == (0, 0, 0)


def test_a_refusal_names_the_setting_that_would_help_and_sizes_that_can_be_read() -> None:
    for share, setting in ((1 << 30, "THALWEG_OWNER_SHARE"), (4 << 30, "THALWEG_MEMORY_LIMIT")):
        ledger = Ledger(4 << 30, share)
        with pytest.raises(TooLargeError, match=r"needs 4\.5 GiB of memory") as caught:
            ledger.hold("alice", 9 << 29, "sealing")
        assert problem_of(caught.value).members["setting"] == setting


def test_the_limit_and_the_shares_are_those_of_all_processes() -> None:
    table = Table(2)
    first, second = Ledger(100, 60, Column(table, 0)), Ledger(100, 60, Column(table, 1))
    first.hold("alice", 50, "bodies")
    with pytest.raises(ShareExceededError):
        second.hold("alice", 11, "bodies")
    hold = second.hold("bob", 40, "json")
    with pytest.raises(BusyError):
        second.hold("carol", 11, "json")
    assert (first.held, second.held, second.purposes().get("bodies", 0)) == (90, 90, 0)
    hold.release()
    table.clear(0)
    assert second.held == 0


def test_what_other_processes_keep_to_save_time_is_given_up_where_memory_is_lacking() -> None:
    table = Table(2)
    first, second = Ledger(100, 100, Column(table, 0)), Ledger(100, 100, Column(table, 1))
    kept = [first.hold("", 30, "kept"), first.hold("", 30, "kept")]

    def give_up() -> bool:
        if kept:
            kept.pop().release()
            return True
        return False

    first.reclaims.append(give_up)
    first.relieve()
    assert first.held == 60
    with pytest.raises(BusyError):
        second.hold("alice", 50, "bodies")
    first.relieve()
    second.hold("alice", 50, "bodies")
    kept.append(first.hold("", 30, "kept"))
    first.relieve()
    assert len(kept) == 1
