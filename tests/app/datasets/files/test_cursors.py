"""Decoders that readers left are in the ledger, and given up where memory is short."""

from __future__ import annotations

import pytest

from app.datasets.files.seekable import Cursor, Cursors
from app.engine.ledger import Ledger

MIB = 1 << 20


class File:
    """Something that cursors belong to."""


def test_what_is_kept_is_charged_until_it_is_taken() -> None:
    ledger, file = Ledger(100 * MIB, 100 * MIB), File()
    cursors = Cursors(ledger)
    cursor = Cursor(None, at=10, window=8 * MIB, unread=b"abc")
    cursors.give(file, cursor)
    assert ledger.held >= 8 * MIB + 3
    assert cursors.take(File(), 0, 100) is None
    assert cursors.take(file, 11, 100) is None
    assert cursors.take(file, 0, 9) is None
    assert cursors.take(file, 0, 10) is cursor
    assert ledger.held == 0


def test_the_nearest_is_taken() -> None:
    cursors, file = Cursors(), File()
    for at in (3, 7, 5):
        cursors.give(file, Cursor(None, at=at))
    found = [cursors.take(file, 0, 6), cursors.take(file, 0, 6)]
    assert [cursor and cursor.at for cursor in found] == [5, 3]


@pytest.mark.parametrize("purpose", ["others", "cursors"])
def test_the_oldest_is_given_up_for_who_needs_the_memory(purpose: str) -> None:
    ledger, file = Ledger(100 * MIB, 100 * MIB), File()
    cursors = Cursors(ledger)
    for at in (1, 2):
        cursors.give(file, Cursor(None, at=at, window=40 * MIB))
    if purpose == "others":
        ledger.hold("somebody", 40 * MIB, "requests")
        assert cursors.take(file, 1, 1) is None
    assert cursors.take(file, 2, 2) is not None


def test_what_has_no_room_is_not_kept() -> None:
    ledger, file = Ledger(10 * MIB, 10 * MIB), File()
    cursors = Cursors(ledger)
    cursors.give(file, Cursor(None, window=20 * MIB))
    assert ledger.held == 0
    assert cursors.take(file, 0, 0) is None


def test_four_are_kept_of_a_file_and_none_of_one_that_is_gone() -> None:
    ledger, file, gone = Ledger(100 * MIB, 100 * MIB), File(), File()
    cursors = Cursors(ledger)
    cursors.give(gone, Cursor(None, window=50 * MIB))
    del gone
    for at in range(6):
        cursors.give(file, Cursor(None, at=at))
    assert ledger.held < MIB
    assert [cursors.take(file, at, at) is not None for at in range(6)] == [False] * 2 + [True] * 4
