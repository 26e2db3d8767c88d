"""Another process compiles its share of the kernels; where it cannot, nothing else changes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.command import engine
from app.command.main import main
from app.engine import warmup
from core.warmup import Task
from tests.app.server.lanes.small import ending

TAKES = """
import os, sys
with open(int(sys.argv[2]), "rb", buffering=0) as queue, open({path!r}, "ab", buffering=0) as log:
    while number := queue.read(1):
        log.write(number)
        {then}
"""
"""Another process that takes tasks, and notes them."""


@pytest.mark.parametrize("then", ["pass", "os._exit(3)"])
def test_each_task_is_of_one_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, then: str
) -> None:
    path = tmp_path / "taken"
    path.touch()
    monkeypatch.setattr(warmup, "_APART", TAKES.format(path=str(path), then=then))
    mine = []
    for number in warmup._claim(50):
        mine.append(number)
        deadline = time.monotonic() + 10
        while not path.stat().st_size and time.monotonic() < deadline:
            time.sleep(0.01)
    theirs = list(path.read_bytes())
    assert mine
    assert theirs
    assert sorted(mine + theirs) == list(range(50))


def test_without_another_process_all_tasks_are_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert list(warmup._claim(5)) == [0, 1, 2, 3, 4]


def test_the_other_process_does_the_tasks_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    listed = [Task(name, lambda name=name: used.append(name)) for name in "abcd"]  # type: ignore[misc]
    monkeypatch.setattr(warmup, "tasks", lambda: listed)
    reads, writes = os.pipe()
    os.write(writes, bytes([3, 1]))
    os.close(writes)
    warmup.compile_claimed(reads)
    assert used == ["d", "b"]


STARTER = """
from app.command import engine
from app.command.main import main
from app.engine import warmup
warmup._APART = "import os, time; print(os.getpid(), file=sys.stderr); time.sleep(60)"
list(warmup._claim(1))
"""


def test_the_other_process_ends_with_its_starter() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stderr=subprocess.PIPE, cwd=Path(__file__).parents[3]
    ) as starter:
        assert starter.stderr is not None
        pid = int(starter.stderr.readline())
        with ending([pid]):
            starter.kill()


def test_kernels_are_compiled_for_the_process_that_was_forked_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[str] = []
    listed = [Task(name, lambda name=name: used.append(name)) for name in "abcd"]  # type: ignore[misc]
    monkeypatch.setattr(warmup, "tasks", lambda: listed)
    monkeypatch.setattr(warmup, "_claim", lambda count: [count - 1, 0])
    monkeypatch.setattr(warmup, "is_build_published", lambda: True)
    assert warmup.compiling() is None
    monkeypatch.setattr(warmup, "is_build_published", lambda: False)
    compiles = warmup.compiling()
    assert compiles is not None
    compiles()
    assert used == ["d", "a"]


def test_requests_wait_until_the_kernels_are_ready() -> None:
    warm_up = warmup.WarmUp()
    problems = [warm_up.problem()]
    warm_up.on_loaded = lambda: problems.append(warm_up.problem())
    warm_up._run()
    assert problems == ["kernels are being compiled"] * 2
    assert warm_up.problem() is None


def test_compiling_is_announced_by_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "warm_kernels", lambda: {"losses": 1.5})
    monkeypatch.setattr(warmup, "is_build_published", lambda: False)
    assert main(["warmup"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"compiling kernels: .*about \d+ s on this machine, once", first)
    assert others == ["    1.50 s  losses", "    1.50 s  total"]
    monkeypatch.setattr(warmup, "is_build_published", lambda: True)
    assert main(["warmup"]) == 0
    assert "compiling" not in capsys.readouterr().out
