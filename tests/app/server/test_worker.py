from __future__ import annotations

import subprocess
import sys
import threading

from app.server.worker import end_after, hanging
from tests.server_process import ROOT

HANGS = """
import logging, threading
from app.server.worker import end_after
logging.basicConfig(level=logging.INFO)

def wait_for_ever():
    threading.Event().wait()

threading.Thread(target=wait_for_ever, name="stuck").start()
end_after(0.2)
"""


def test_a_process_that_hangs_says_where_and_ends() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGS],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    assert ended.returncode == 70
    assert "thread 'stuck' is at " in ended.stderr
    assert "wait_for_ever" in ended.stderr


def test_a_timer_that_is_cancelled_ends_nothing() -> None:
    timer = end_after(3600)
    timer.cancel()
    timer.join(20)
    assert not timer.is_alive()


def test_daemons_and_the_thread_that_asks_do_not_hang() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait, name=f"t{k}", daemon=k == 1) for k in range(2)]
    for thread in threads:
        thread.start()
    lines = [line for line in hanging() if "'t" in line]
    stop.set()
    assert len(lines) == 1
    assert lines[0].startswith("thread 't0' is at ")
