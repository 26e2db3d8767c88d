"""What the processes of a service see of each other."""

from __future__ import annotations

import os

import pytest

from app.server.board import MAX_REPORT, Board
from app.tally import MEMORY, Tally


def test_what_one_process_publishes_another_reads() -> None:
    board = Board(["", ""])
    first, second = board.workers
    assert [slot.index for slot in (board.supervisor, first, second)] == [-1, 0, 1]
    assert (first.report(), first.beaten) == (None, 0)
    child = os.fork()
    if not child:
        first.beat()
        first.note_asked()
        first.publish({"from": os.getpid()})
        Tally(first.column, MEMORY, 10, 10).add("alice", 3)
        os._exit(0)
    os.waitpid(child, 0)
    assert first.report() == {"from": child}
    assert first.beaten > 0
    assert board.asked > 0
    assert (second.report(), second.beaten, board.supervisor.report()) == (None, 0, None)
    held = Tally(second.column, MEMORY, 10, 10)
    assert held.of("alice") == 3
    first.clear()
    assert (first.report(), first.beaten, held.of("alice")) == (None, 0, 0)


def test_what_is_known_of_a_process_is_forgotten_with_it() -> None:
    slot = Board().workers[0]
    assert (slot.has_begun, slot.running, slot.answered) == (False, 0, 0)
    slot.beat()
    slot.rest()
    assert (slot.has_begun, slot.beaten) == (True, 0)
    for count in (1, 2, 1, 2, 0):
        slot.note_running(count)
    assert (slot.running, slot.answered) == (0, 2)
    slot.clear()
    assert (slot.has_begun, slot.running, slot.answered) == (False, 0, 0)


def test_a_report_may_fill_its_page_and_no_more() -> None:
    board = Board(["", ""])
    first, second = board.workers
    second.publish("second")
    first.publish("x" * (MAX_REPORT - 2))
    assert first.report() == "x" * (MAX_REPORT - 2)
    with pytest.raises(ValueError, match="does not fit"):
        first.publish("x" * (MAX_REPORT - 1))
    assert second.report() == "second"


def test_half_a_report_is_none() -> None:
    slot = Board().workers[0]
    slot.publish({"a": 1})
    slot._memory[slot._memory.tobytes().index(b'{"a"') + 1] ^= 1
    assert slot.report() is None


def test_requests_that_are_expected_count_as_running() -> None:
    slot = Board().workers[0]
    slot.expect(2)
    assert slot.running == 2
    slot.note_running(1)
    assert slot.running == 3
    slot.expect(-2)
    assert (slot.running, slot.expected) == (1, 0)
    slot.clear()
    assert slot.running == 0
