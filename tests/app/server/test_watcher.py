"""The memory of a process, as the supervisor sees it."""

from __future__ import annotations

import subprocess
import sys
import time

from app.server.watcher import Watched

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
