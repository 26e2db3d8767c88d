from __future__ import annotations

import threading
from pathlib import Path

import pytest

from app.engine.request_budget import current_owner
from app.errors import BusyError
from app.runs.sealing.lease import while_wanted
from app.runs.watching import News
from app.state.notices import Notices
from core.budget import current
from core.errors import CancelledError


def test_work_goes_on_while_nobody_can_say_and_ends_once_it_is_not_wanted() -> None:
    asked: list[int] = []
    gone, stopped, begun = threading.Event(), threading.Event(), threading.Event()

    def is_wanted() -> bool:
        asked.append(1)
        if len(asked) == 1:
            raise BusyError("the store does not answer")
        return not begun.is_set()

    with while_wanted("alice", is_wanted, gone, stopped, News("run"), 0.001):
        assert current_owner() == "alice"
        current().check("test")
        begun.set()
        assert gone.wait(10)
        count = len(asked)
        with pytest.raises(CancelledError):
            current().check("test")
    # Nobody asks again, and the first time did not count as an answer.
    assert len(asked) == count > 1


def test_news_of_its_run_end_work_at_once(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    gone, stopped = threading.Event(), threading.Event()
    wanted = [True]
    with while_wanted("alice", lambda: wanted[0], gone, stopped, News("run", notices), 60.0):
        wanted.clear()
        wanted.append(False)
        notices.give("run")
        assert gone.wait(10)


def test_work_ends_with_the_server() -> None:
    gone, stopped = threading.Event(), threading.Event()
    with while_wanted("alice", lambda: True, gone, stopped, News("run"), 60.0):
        stopped.set()
        with pytest.raises(CancelledError):
            current().check("test")
    assert not gone.is_set()
