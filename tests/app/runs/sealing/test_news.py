"""What wakes those who look for jobs."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from app.runs.sealing.news import News
from app.state.notices import Notices

_LONG = 60.0
_NAME = "jobs"


def test_news_wake_once() -> None:
    news = News(_NAME)
    news.set()
    news.set()
    news.wait(_LONG)
    before = time.monotonic()
    news.wait(0.05)
    assert time.monotonic() - before >= 0.05
    threading.Timer(0.05, news.set).start()
    news.wait(_LONG)


def test_what_another_process_tells_wakes_once(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    news = News(_NAME, notices)
    news.listen()
    pid = os.fork()
    if not pid:
        News(_NAME, notices).tell()
        os._exit(0)
    os.waitpid(pid, 0)
    before = time.monotonic()
    news.wait(_LONG)
    assert time.monotonic() - before < _LONG
    before = time.monotonic()
    news.wait(0.05)
    assert time.monotonic() - before >= 0.05


def test_what_is_told_of_others_does_not_wake(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    news = News(_NAME, notices)
    assert news.listen()
    notices.give("another")
    before = time.monotonic()
    news.wait(0.05)
    assert time.monotonic() - before >= 0.05
    notices.give("another")
    notices.give(_NAME)
    news.wait(_LONG)
    assert time.monotonic() - before < _LONG


def test_who_cannot_hear_others_hears_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Notices, "listen", refuse)
    monkeypatch.setattr(Notices, "give", refuse)
    news = News(_NAME, Notices(tmp_path))
    assert not news.listen()
    news.tell()
    before = time.monotonic()
    news.wait(_LONG)
    assert time.monotonic() - before < _LONG


def test_the_end_of_a_process_wakes() -> None:
    news = News(_NAME)
    with subprocess.Popen(["sleep", str(_LONG)]) as process, subprocess.Popen(["true"]) as gone:
        gone.wait()
        with news.watching([gone.pid, process.pid]):
            threading.Timer(0.05, process.kill).start()
            before = time.monotonic()
            news.wait(_LONG)
            assert time.monotonic() - before < _LONG
    # It is watched no more.
    before = time.monotonic()
    news.wait(0.05)
    assert time.monotonic() - before >= 0.05
