"""Waiting for runs to change."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from app.runs import watching
from app.runs.watching import News, Watch
from app.state.notices import Listener, Notices, file_of


def test_an_announcement_from_any_thread_wakes_who_follows_that_run() -> None:
    async def main() -> None:
        watch = Watch(interval=60.0)
        followers = [watch.follow(run) for run in ("a", "a", "b")]
        waiting = [asyncio.ensure_future(follower.changed()) for follower in followers]
        await asyncio.sleep(0)
        thread = threading.Thread(target=watch.announce, args=("a",))
        thread.start()
        await asyncio.gather(*waiting[:2])
        thread.join()
        assert not waiting[2].done()
        watch.announce("nobody")
        waiting[2].cancel()
        await asyncio.wait({waiting[2]})

    asyncio.run(main())


def test_what_changes_before_one_waits_is_not_missed() -> None:
    async def main() -> None:
        watch = Watch(interval=60.0)
        follower = watch.follow("a")
        watch.announce("a")
        await follower.changed()
        again = asyncio.ensure_future(follower.changed())
        await asyncio.sleep(0.01)
        assert not again.done()
        follower.close()
        watch.announce("a")
        await asyncio.sleep(0.01)
        assert not again.done()
        again.cancel()
        follower.close()

    asyncio.run(main())


def test_without_an_announcement_it_is_time_to_look_again() -> None:
    async def main() -> None:
        await Watch(interval=0.0).follow("a").changed()

    asyncio.run(main())


def test_what_another_process_announces_wakes_at_once(tmp_path: Path) -> None:
    notices = Notices(tmp_path / "notices")
    go = os.pipe()
    pid = os.fork()
    if not pid:
        os.read(go[0], 1)
        Watch(notices).announce("a")
        os._exit(0)

    async def main() -> float:
        watch = Watch(notices)
        first, second, third = (watch.follow(run) for run in ("a", "a", "b"))
        assert file_of("a") != file_of("b")
        others = asyncio.ensure_future(third.changed())
        os.write(go[1], b"x")
        begin = time.monotonic()
        await first.changed()
        await second.changed()
        seconds = time.monotonic() - begin
        assert not others.done()
        others.cancel()
        # Its own announcements wake it as well.
        watch.announce("a")
        await first.changed()
        for follower in (first, second, third):
            follower.close()
        assert watch.seconds == watching.INTERVAL, "who follows nothing hears nothing"
        return seconds

    assert asyncio.run(main()) < watching.LOOK_SECONDS / 2
    os.waitpid(pid, 0)


def test_all_look_where_notices_were_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        watch = Watch(Notices(tmp_path))
        follower = watch.follow("a")
        monkeypatch.setattr(Listener, "hear", lambda _: None)
        watch.announce("b")
        await follower.changed()
        follower.close()

    asyncio.run(asyncio.wait_for(main(), watching.LOOK_SECONDS / 2))


def test_where_nothing_can_be_heard_one_looks_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Listener:
        raise OSError

    async def main() -> None:
        watch = Watch(Notices(tmp_path))
        monkeypatch.setattr(Notices, "listen", refuse)
        follower = watch.follow("a")
        assert watch.seconds == watching.INTERVAL
        watch.announce("a")
        await follower.changed()
        monkeypatch.setattr(Notices, "give", refuse)
        watch.announce("a")
        await follower.changed()
        follower.close()

    asyncio.run(main())


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
