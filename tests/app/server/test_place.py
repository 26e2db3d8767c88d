"""A process's place: its attempts, its memory as the supervisor sees it, and why it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.server.board import Board
from app.server.place import (
    SILENT_TICKS,
    STARTING_TICKS,
    Place,
    Watched,
    count_memory_kills,
    describe_end,
)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which tests set."""
    clock = [1000.0]
    monkeypatch.setattr("app.server.place.time.monotonic", lambda: clock[0])
    return clock


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_process_that_was_ready(
    now: list[float],
) -> None:
    kept = Place(Board().workers[0])
    pauses = [kept.replace(0) for _ in range(40)]
    assert pauses == [*(0.05 * 2**n for n in range(10)), *([30.0] * 30)]
    assert kept.due == now[0] + 30
    kept.slot.beat()
    now[0] += 100
    assert kept.replace(0) == 0
    kept.slot.clear()
    assert kept.replace(0) == 0.05


def test_the_fifth_in_ten_seconds_is_replaced_after_a_pause(now: list[float]) -> None:
    kept = Place(Board().workers[0])
    kept.slot.beat()
    pauses = []
    for _ in range(5):
        pauses.append(kept.replace(0))
        now[0] += 2.4
    assert pauses == [0, 0, 0, 0, 0.05]
    now[0] += 0.5
    assert kept.replace(0) == 0


def silence(kept: Place) -> int:
    """Ticks after which the process counts as hanging."""
    return next(tick for tick in range(1, 1000) if kept.tick())


def test_a_process_is_silent_until_it_comes_starts_and_beats() -> None:
    kept = Place(Board(("front",)).workers[0])
    assert not any(kept.tick() for _ in range(1000))
    kept.begin(0)
    kept.ordered = True
    assert silence(kept) == SILENT_TICKS + 1
    pid = os.fork()
    if not pid:
        signal.pause()
    try:
        kept.arrive(pid, None)
        assert silence(kept) == STARTING_TICKS + 1
        assert "begin to serve" in kept.silence()
        kept.slot.beat()
        assert silence(kept) == SILENT_TICKS + 2
        assert "stood still" in kept.silence()
        kept.slot.rest()
        assert not any(kept.tick() for _ in range(1000))
    finally:
        kept.kill("hung")
        kept.leave()
        os.waitpid(pid, 0)


def test_a_process_without_lanes_may_load_for_as_long_as_it_takes() -> None:
    kept = Place(Board().workers[0])
    kept.begin(0)
    kept.pid = os.getpid()
    assert not any(kept.tick() for _ in range(1000))


@pytest.mark.parametrize("worker", [True, False])
def test_whoever_has_answered_requests_is_replaced_at_once(
    now: list[float], *, worker: bool
) -> None:
    """The acceptor and the template answer none; what the workers do counts for them."""
    board = Board()
    kept = Place(board.workers[0] if worker else board.acceptor)
    pauses = []
    for number in range(8):
        kept.begin(answered=number)
        kept.slot.beat()
        if worker:
            kept.slot.note_running(1)
            kept.slot.note_running(0)
        pauses.append(kept.replace(number + 1))
        kept.slot.clear()
        now[0] += 0.1
    assert not any(pauses)


MIB = 1 << 20
ALLOWED = 32 * MIB

TAKE = """
import mmap, sys
shared = mmap.mmap(-1, 64 << 20)
held = []
for line in sys.stdin:
    what, size = line.split()
    if what == "own":
        held.append(b"x" * int(size))
    else:
        shared.write(b"x" * int(size))
    print("done", flush=True)
"""


def test_what_is_its_alone_counts_from_the_beginning_on() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def take(what: str, size: int) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{what} {size}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        take("own", 2 * ALLOWED)
        watched = Watched(process.pid, ALLOWED)
        assert not watched.is_over()
        take("shared", ALLOWED + MIB)
        assert not watched.is_over()
        take("own", ALLOWED // 2)
        assert not watched.is_over()
        take("own", ALLOWED // 2 + MIB)
        assert watched.is_over()
        process.kill()
        process.wait()
        assert not watched.is_over()
        watched.close()


def test_looking_costs_little() -> None:
    """Twenty looks in a second at a dozen processes: less than half a hundredth of a core."""
    with subprocess.Popen(["sleep", "60"]) as process:
        watched = [Watched(process.pid, ALLOWED) for _ in range(12)]
        begin = time.process_time()
        for _ in range(20):
            for each in watched:
                each.is_over()
        assert time.process_time() - begin < 0.005
        process.kill()
        for each in watched:
            each.close()


@pytest.mark.parametrize(
    ("code", "out_of_memory", "reason", "hint"),
    [
        (0, False, "exit 0", None),
        (3, True, "exit 3", None),
        (-9, False, "SIGKILL", "somebody sent it"),
        (-9, True, "SIGKILL", "lack of memory"),
        (-7, False, "SIGBUS", "mapped file"),
        (-11, True, "SIGSEGV", "native code"),
        (-15, False, "SIGTERM", None),
        (-99, False, "signal 99", None),
    ],
)
def test_an_end_has_a_name_and_a_hint(
    code: int, out_of_memory: bool, reason: str, hint: str | None
) -> None:
    end = describe_end(code, out_of_memory=out_of_memory)
    assert end.reason == reason
    assert (end.hint is None) == (hint is None)
    assert (hint or "") in (end.hint or "")


def test_kills_for_memory_are_counted_where_the_kernel_tells_them(tmp_path: Path) -> None:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    assert count_memory_kills(root, proc) == 0
    (proc / "self").mkdir(parents=True)
    (proc / "vmstat").write_text("pgfault 7\noom_kill 2\n")
    (proc / "self" / "cgroup").write_text("0::/a/b\n")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "memory.events").write_text("oom 9\noom_kill 3\noom_group_kill 0\n")
    assert count_memory_kills(root, proc) == 5
    (root / "memory").mkdir()
    (root / "memory" / "memory.oom_control").write_text("oom_kill_disable 0\noom_kill 1\n")
    assert count_memory_kills(root, proc) == 6
    (proc / "vmstat").write_text("oom_kill many\n")
    assert count_memory_kills(root, proc) == 4
