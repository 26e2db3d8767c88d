"""A page that is missing in a watched map costs the bytes, not the process."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from app.engine import bus_errors
from app.engine.bus_errors import watch
from core.tiles._kernels.correct import copy
from tests.server_process import ROOT

PAGE = mmap.PAGESIZE
SIZE = 100 * PAGE


def map_of(path: Path) -> npt.NDArray[np.uint8]:
    path.write_bytes(b"a" * SIZE)
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ), np.uint8)


def test_missing_pages_are_zeros_and_marked(tmp_path: Path) -> None:
    octets, other = map_of(tmp_path / "x"), map_of(tmp_path / "y")
    found, whole = watch(octets.ctypes.data, SIZE), watch(other.ctypes.data, SIZE)
    assert found is not None
    assert whole is not None
    os.truncate(tmp_path / "x", 50 * PAGE + 1)
    assert octets[: 50 * PAGE].all()
    assert found.missing() is None
    assert octets[70 * PAGE + 5] == 0
    assert found.missing() == 70 * PAGE + 5
    # What comes after is gone too; what comes before is missing by itself.
    assert not octets[50 * PAGE + 1 :].any()
    assert found.missing() == 51 * PAGE
    assert octets[: 50 * PAGE + 1].all()
    assert other.all()
    assert whole.missing() is None


def test_kernels_and_copies_on_many_threads_go_on(tmp_path: Path) -> None:
    octets = map_of(tmp_path / "x")
    octets.flags.writeable = False
    found = watch(octets.ctypes.data, SIZE)
    assert found is not None
    begun = threading.Barrier(9)
    starts = np.arange(0, SIZE, 1000)[:-1]

    def read(k: int) -> npt.NDArray[np.float32] | npt.NDArray[np.uint8]:
        begun.wait()
        while True:
            values = np.empty((len(starts), 1, 1000), np.float32)
            copy(octets, starts, 1000, values)
            copied = octets.copy()
            if found.missing() is not None:
                return values if k % 2 else copied

    with ThreadPoolExecutor(8) as pool:
        results = [pool.submit(read, k) for k in range(8)]
        begun.wait()
        os.truncate(tmp_path / "x", 0)
        assert all(set(np.unique(future.result())) <= {0, ord("a")} for future in results)
    assert not octets.any()


def test_rows_are_given_back_with_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    octets = map_of(tmp_path / "x")
    at = octets.ctypes.data
    handler = bus_errors._handler()
    rows = deque(handler._free.pop() for _ in range(3))
    with monkeypatch.context() as patch:
        patch.setattr(handler, "_free", rows)
        watches = [watch(at + k * PAGE, PAGE) for k in range(3)]
        assert None not in watches
        assert watch(at + 3 * PAGE, PAGE) is None
        os.truncate(tmp_path / "x", 0)
        assert octets[PAGE] == 0
        assert [found.missing() for found in watches if found] == [None, 0, None]
        del watches[1]
        # The row is as good as new.
        again = watch(at + 3 * PAGE, PAGE)
        assert again is not None
        assert again.missing() is None
        watches.clear()
        del again
    handler._free.extend(rows)
    assert len(rows) == 3


def test_a_handler_that_came_later_is_noticed(tmp_path: Path) -> None:
    octets = map_of(tmp_path / "x")
    found = watch(octets.ctypes.data, SIZE)
    assert found is not None
    assert found.is_in_force()
    ours, other = bus_errors._Action(), bus_errors._Action()
    bus_errors._sigaction(signal.SIGBUS, other, ours)
    try:
        assert not found.is_in_force()
        assert watch(octets.ctypes.data, SIZE) is None
    finally:
        bus_errors._sigaction(signal.SIGBUS, ours, None)
    assert found.is_in_force()


OTHERS = """
import faulthandler, mmap, os, sys
faulthandler.enable()
import numpy as np
from app.engine.bus_errors import watch
path = sys.argv[1]
def map_of():
    with open(path, "r+b") as file:
        file.truncate(1 << 20)
        return np.frombuffer(mmap.mmap(file.fileno(), 1 << 20, prot=mmap.PROT_READ), np.uint8)
mine, other = map_of(), map_of()
found = watch(mine.ctypes.data, 1 << 20)
os.truncate(path, 0)
assert mine.sum() == 0 and found.missing() == 0
print("alive", flush=True)
if sys.argv[2] == "sent":
    os.kill(os.getpid(), 7)
elif sys.argv[2] == "forgotten":
    other, mine, found = None, other, None
    print(mine[0])
else:
    print(other[0])
print("never", flush=True)
"""


@pytest.mark.parametrize("what", ["sent", "unwatched", "forgotten"])
def test_signals_of_others_go_to_the_handler_before(tmp_path: Path, what: str) -> None:
    (tmp_path / "x").write_bytes(b"")
    ended = subprocess.run(
        [sys.executable, "-c", OTHERS, str(tmp_path / "x"), what],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    assert ended.stdout == "alive\n"
    assert ended.returncode == -signal.SIGBUS
    # The handler before ours was Python's own, which tells where.
    assert "Fatal Python error: Bus error" in ended.stderr
