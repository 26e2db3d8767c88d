"""Waiting for runs to change."""

from __future__ import annotations

import asyncio
import threading

from app.runs.watching import Watch


def test_an_announcement_from_any_thread_wakes_who_waits_for_that_run() -> None:
    async def main() -> None:
        watch = Watch(interval=60.0)
        waiting = [asyncio.ensure_future(watch.changed(run)) for run in ("a", "a", "b")]
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


def test_without_an_announcement_it_is_time_to_look_again() -> None:
    asyncio.run(Watch(interval=0.0).changed("a"))
    asyncio.run(Watch(interval=60.0).changed("a", 0.0))
