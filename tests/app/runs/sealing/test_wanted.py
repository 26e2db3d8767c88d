from __future__ import annotations

import threading

import pytest

from app.engine.inheriting import current_owner
from app.errors import BusyError
from app.runs.sealing.wanted import while_wanted
from core.budget import current
from core.errors import CancelledError


def test_work_goes_on_while_nobody_can_say_and_ends_once_it_is_not_wanted() -> None:
    asked: list[int] = []
    gone, stopped = threading.Event(), threading.Event()

    def is_wanted() -> bool:
        asked.append(1)
        if len(asked) == 1:
            raise BusyError("the store does not answer")
        return len(asked) < 3

    with while_wanted("alice", is_wanted, gone, stopped, pause=0.001):
        assert current_owner() == "alice"
        current().check("test")
        assert gone.wait(10)
        with pytest.raises(CancelledError):
            current().check("test")
    assert len(asked) == 3


def test_work_ends_with_the_server() -> None:
    gone, stopped = threading.Event(), threading.Event()
    with while_wanted("alice", lambda: True, gone, stopped):
        stopped.set()
        with pytest.raises(CancelledError):
            current().check("test")
    assert not gone.is_set()
