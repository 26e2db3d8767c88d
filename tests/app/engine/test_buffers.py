"""The bounded memory that request bodies are read into."""

from __future__ import annotations

import pytest

from app.engine.buffers import Buffers
from app.engine.ledger import Ledger
from app.errors import BusyError, ShareExceededError
from app.tally import Column, Table

ALICE = "alice"


def pool(limit: int, share: int | None = None) -> Buffers:
    return Buffers(limit, 4096, Ledger(1 << 20, 1 << 20), share)


def test_no_more_are_out_than_there_are() -> None:
    buffers = pool(3)
    first = buffers.take(ALICE, 2)
    assert [len(buffer) for buffer in first] == [4096, 4096]
    with pytest.raises(BusyError):
        buffers.take("bob", 2)
    assert buffers.out == 2
    last = buffers.take(ALICE, 1)
    buffers.give_back(ALICE, first)
    buffers.give_back(ALICE, last)
    assert buffers.out == 0
    assert len(buffers.take(ALICE, 3)) == 3


def test_a_buffer_has_one_user() -> None:
    buffers = pool(50)
    taken = [*buffers.take(ALICE, 20), *buffers.take(ALICE, 20)]
    assert len({id(buffer) for buffer in taken}) == 40


def test_some_are_kept_for_the_next_request_and_others_are_not() -> None:
    buffers = pool(50)
    first = buffers.take(ALICE, 40)
    known = {id(buffer) for buffer in first}
    buffers.give_back(ALICE, first)
    again = buffers.take(ALICE, 40)
    assert 0 < len(known & {id(buffer) for buffer in again}) < 40


def test_what_was_given_back_can_still_be_looked_at() -> None:
    buffers = pool(20)
    taken = buffers.take(ALICE, 20)
    views = [memoryview(buffer) for buffer in taken]
    buffers.give_back(ALICE, taken)
    assert all(len(view) == 4096 for view in views)


def test_an_owner_has_its_share_and_leaves_the_rest_to_others() -> None:
    buffers = pool(6, share=4)
    taken = buffers.take(ALICE, 4)
    with pytest.raises(ShareExceededError):
        buffers.take(ALICE, 1)
    buffers.give_back("bob", buffers.take("bob", 2))
    buffers.give_back(ALICE, taken)
    buffers.give_back(ALICE, buffers.take(ALICE, 2))


def test_buffers_are_in_the_ledger() -> None:
    ledger = Ledger(1 << 20, 1 << 20)
    buffers = Buffers(6, 4096, ledger, share=4)
    taken = buffers.take(ALICE, 4)
    assert ledger._tally.of(ALICE) == 4 * 4096
    with pytest.raises(ShareExceededError):
        buffers.take(ALICE, 1)
    buffers.give_back(ALICE, taken)
    assert ledger.held == 0
    with ledger.hold("bob", 1 << 20, "json"), pytest.raises(BusyError):
        buffers.take(ALICE, 1)
    assert (ledger.held, buffers.out) == (0, 0)


def test_the_limit_and_the_share_are_those_of_all_processes() -> None:
    table = Table(2)
    first, second = (
        Buffers(4, 4096, Ledger(1 << 20, 1 << 20), 3, Column(table, process)) for process in (0, 1)
    )
    taken = first.take(ALICE, 2)
    with pytest.raises(ShareExceededError):
        second.take(ALICE, 2)
    second.take("bob", 2)
    with pytest.raises(BusyError):
        first.take("carol", 1)
    assert (first.out, second.out) == (2, 2)
    first.give_back(ALICE, taken)
    second.take("carol", 2)
