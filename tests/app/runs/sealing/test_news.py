"""What wakes those who look for jobs."""

from __future__ import annotations

import subprocess
import threading
import time

from app.runs.sealing.news import News

_LONG = 60.0


def test_news_wake_once() -> None:
    news = News()
    news.set()
    news.set()
    news.wait(_LONG)
    before = time.monotonic()
    news.wait(0.05)
    assert time.monotonic() - before >= 0.05
    threading.Timer(0.05, news.set).start()
    news.wait(_LONG)


def test_the_end_of_a_process_wakes() -> None:
    news = News()
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
