"""Time in which a worker waits for the service is not its own."""

from __future__ import annotations

import os
import socket
import time

import pytest

from app.decoding.watch import TimeUpError, Watch


def test_a_rest_is_not_counted() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch = Watch(ours, os.getpid(), 0.2, 300)
        with watch.resting():
            time.sleep(0.3)
        watch()
        time.sleep(0.3)
        with pytest.raises(TimeUpError, match=r"took more than 0.2 seconds"):
            watch()


def test_cpu_time_is_counted_apart() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch, end = Watch(ours, os.getpid(), 300, 0.05), time.process_time() + 0.1
        while time.process_time() < end:
            pass
        with pytest.raises(TimeUpError, match="CPU time"):
            watch()
