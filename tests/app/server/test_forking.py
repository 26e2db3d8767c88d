"""Processes that are forked: whose children they are, what they heed, and when they end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.server.lanes.small import ending
from tests.server_process import children_of

ROOT = Path(__file__).parents[3]

SCRIPT = """
import json, os, signal, socket, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from app.server.forking import adopt_orphans, fork, fork_for

kept = []
ours, theirs = socket.socketpair()

def tell(**what):
    os.write(1, json.dumps({"pid": os.getpid(), "parent": os.getppid(), **what}).encode() + b"\\n")

def sleep():
    heeded = [n for n in (1, 2, 15) if signal.getsignal(n) == signal.SIG_DFL]
    tell(heeds=heeded, closed=ours.fileno() < 0)
    time.sleep(60)

def template():
    tell()
    fork_for(ancestor, sleep)
    time.sleep(60)

def leave():
    sys.exit(7)

def leave_threads():
    kept.append(ThreadPoolExecutor(1))
    kept[0].submit(time.sleep, 0.2)
    threading.Thread(target=lambda: (time.sleep(0.2), tell(thread=True))).start()
    return 8

def fail():
    raise ValueError("a fault")

ancestor = os.getpid()
adopt_orphans()
pid = fork(globals()[sys.argv[1]], ours.close)
tell()
tell(code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
time.sleep(60)
"""


class Family:
    """A process, and the lines that it and its descendants tell."""

    def __init__(self, run: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, run],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def lines(self, count: int) -> list[dict[str, Any]]:
        assert self.process.stdout is not None
        told = [json.loads(self.process.stdout.readline()) for _ in range(count)]
        return sorted(told, key=lambda line: int(line["pid"]))


@contextlib.contextmanager
def family(run: str) -> Iterator[Family]:
    started = Family(run)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def test_a_child_heeds_what_its_parent_passes_on_and_ends_with_it() -> None:
    with family("sleep") as here:
        parent, child = here.lines(2)
        assert child["parent"] == parent["pid"]
        assert (child["heeds"], child["closed"]) == ([signal.SIGTERM], True)
        with ending([child["pid"]]):
            here.process.kill()


@pytest.mark.parametrize(("run", "code"), [("leave", 7), ("fail", 1)])
def test_how_a_child_ends_is_its_exit_code(run: str, code: int) -> None:
    with family(run) as here:
        assert code in [line.get("code") for line in here.lines(2)]


def test_a_child_waits_for_its_threads_and_ends_those_of_executors() -> None:
    with family("leave_threads") as here:
        told = here.lines(3)
    assert [line["thread"] for line in told if "thread" in line] == [True]
    assert [line["code"] for line in told if "code" in line] == [8]


def test_a_process_for_an_ancestor_outlives_who_forked_it_and_ends_with_the_ancestor() -> None:
    with family("template") as here:
        ancestor, template, process = here.lines(3)
        assert process["parent"] == ancestor["pid"]
        assert process["heeds"] == [signal.SIGTERM]
        with ending([template["pid"]]):
            os.kill(template["pid"], signal.SIGKILL)
        assert process["pid"] in children_of(ancestor["pid"])
        with ending([process["pid"]]):
            here.process.kill()
