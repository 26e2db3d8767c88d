"""The bounded memory that request bodies are read into."""

from __future__ import annotations

import pytest

from app.engine.buffers import Buffers
from app.errors import BusyError


def test_no_more_are_out_than_there_are() -> None:
    buffers = Buffers(3, 4096)
    first = buffers.take(2)
    assert [len(buffer) for buffer in first] == [4096, 4096]
    with pytest.raises(BusyError):
        buffers.take(2)
    assert buffers.out == 2
    last = buffers.take(1)
    buffers.give_back(first)
    buffers.give_back(last)
    assert buffers.out == 0
    assert len(buffers.take(3)) == 3


def test_a_buffer_has_one_user() -> None:
    buffers = Buffers(50, 4096)
    taken = [*buffers.take(20), *buffers.take(20)]
    assert len({id(buffer) for buffer in taken}) == 40


def test_some_are_kept_for_the_next_request_and_others_are_not() -> None:
    buffers = Buffers(50, 4096)
    first = buffers.take(40)
    known = {id(buffer) for buffer in first}
    buffers.give_back(first)
    again = buffers.take(40)
    assert 0 < len(known & {id(buffer) for buffer in again}) < 40


def test_what_was_given_back_can_still_be_looked_at() -> None:
    buffers = Buffers(20, 4096)
    taken = buffers.take(20)
    views = [memoryview(buffer) for buffer in taken]
    buffers.give_back(taken)
    assert all(len(view) == 4096 for view in views)
