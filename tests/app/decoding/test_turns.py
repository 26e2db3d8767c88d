"""Whose turn it is at the decoders, without any."""

from __future__ import annotations

import pytest

from app.decoding.turns import DecoderTurns
from app.tally import Column, Table


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def take(turns: DecoderTurns, owner: str) -> bool:
    """Ask, and take a worker if it is one's turn."""
    turn = turns.join(owner)
    got = turns.is_next(turn)
    if got:
        turns.take(owner)
    turns.leave(owner, turn)
    return got


def test_who_is_alone_gets_all_workers(clock: Clock) -> None:
    turns = DecoderTurns(3, clock)
    assert [take(turns, "ann") for _ in range(4)] == [True, True, True, False]
    turns.give_back("ann")
    assert take(turns, "ann")


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_one_worker_is_left_to_others_while_one_of_them_has_asked(
    clock: Clock, workers: int
) -> None:
    turns = DecoderTurns(workers, clock)
    assert take(turns, "bob")
    turns.give_back("bob")
    clock.now += 59.9
    assert [take(turns, "ann") for _ in range(workers)] == [True] * (workers - 1) + [False]
    assert turns.has_share("ann")
    assert not turns.has_share("bob")
    assert take(turns, "bob")
    # A minute after he gave it back, she may have that too.
    clock.now += 1000
    turns.give_back("bob")
    clock.now += 59.9
    assert not take(turns, "ann")
    clock.now += 0.1
    assert take(turns, "ann")


def test_one_who_waits_is_company_however_long_ago_it_came(clock: Clock) -> None:
    turns = DecoderTurns(2, clock)
    turns.join("bob")
    clock.now += 1000
    ann = turns.join("ann")
    turns.take("ann")
    turns.leave("ann", ann)
    assert turns.has_share("ann")


def test_nothing_is_left_for_requests_outside_of_any(clock: Clock) -> None:
    turns = DecoderTurns(2, clock)
    assert take(turns, "")
    turns.give_back("")
    assert [take(turns, "ann") for _ in range(2)] == [True, True]
    other = DecoderTurns(2, clock)
    assert take(other, "ann")
    assert take(other, "")
    assert not take(other, "")


def test_a_single_worker_is_left_to_nobody(clock: Clock) -> None:
    turns = DecoderTurns(1, clock)
    assert take(turns, "bob")
    turns.give_back("bob")
    assert take(turns, "ann")
    assert turns.has_share("ann")


def test_the_fewest_held_go_first_then_the_longest_wait(clock: Clock) -> None:
    turns = DecoderTurns(4, clock)
    places = [(owner, turns.join(owner)) for owner in ("ann", "ann", "bob", "cid", "bob")]
    assert turns.waiting == 5
    order = []
    while places:
        (following,) = [place for place in places if turns.is_next(place[1])]
        owner, turn = following
        turns.take(owner)
        turns.leave(owner, turn)
        places.remove(following)
        order.append(owner)
        if len(order) == 4:
            turns.give_back("cid")
    assert order == ["ann", "bob", "cid", "ann", "bob"]
    assert turns.waiting == 0


def test_owners_and_workers_are_those_of_all_processes(clock: Clock) -> None:
    table = Table(2)
    here, there = (DecoderTurns(3, clock, Column(table, process)) for process in (0, 1))
    assert take(there, "bob")
    assert [take(here, "ann") for _ in range(3)] == [True, True, False]
    assert not take(there, "ann")
    assert (here.held, there.held) == (3, 3)
    there.give_back("bob")
    table.clear(1)
    clock.now += 60
    assert take(here, "ann")
    assert here.held == 3


def test_of_many_who_asked_one_is_company_for_each(clock: Clock) -> None:
    turns = DecoderTurns(2, clock)
    for owner in ("ann", "bob", "cid", "cid", "bob"):
        assert take(turns, owner)
        turns.give_back(owner)
        clock.now += 10
    clock.now += 20
    for owner, company in (("ann", True), ("bob", True), ("cid", True)):
        assert take(turns, owner)
        assert turns.has_share(owner) == company
        turns._held.remove(owner, 1)
    for owner in ("ann", "bob", "cid"):
        assert turns._has_company(owner)


def test_one_who_keeps_asking_does_not_keep_others_present(clock: Clock) -> None:
    turns = DecoderTurns(2, clock)
    for owner in ("ann", "bob"):
        assert take(turns, owner)
        turns.give_back(owner)
    clock.now += 30
    assert take(turns, "ann")
    clock.now += 31
    assert take(turns, "ann")
