"""A supervisor and workers without a server: who is started, replaced, given up and killed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

SCRIPT = """
import json, os, signal, socket, sys, time
import structlog
from app.server import place, supervisor
from app.server.board import Board

structlog.configure(
    processors=[structlog.processors.JSONRenderer()],
    logger_factory=structlog.WriteLoggerFactory(sys.stdout),
)
supervisor._TICK, place._FIRST_PAUSE, place.SILENT_TICKS = 0.02, 0.001, 20

def tell(**what):
    os.write(1, json.dumps(what).encode() + b"\\n")

def obey(slot):
    '''Say hello, and end as told through a file of commands.'''
    slot.beat()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    tell(pid=os.getpid(), worker=slot.index)
    while True:
        slot.beat()
        time.sleep(0.01)

def crash(slot):
    slot.beat()
    os._exit(5)

def answer_and_crash(slot):
    slot.beat()
    slot.note_running(1)
    slot.note_running(0)
    os._exit(5)

def rest_and_end(slot):
    slot.beat()
    slot.rest()

def refuse(slot):
    sys.exit(4)

def refuse_when_told(slot):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(2))
    slot.publish({"refused": "a setting cannot be"})
    tell(pid=os.getpid(), worker=slot.index)
    while True:
        time.sleep(0.01)

def fail(slot):
    raise ValueError("a fault")

def stay(slot):
    slot.beat()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell(pid=os.getpid(), worker=slot.index)
    while True:
        slot.beat()
        time.sleep(0.01)

def obey_late(slot):
    obey(slot)

if sys.argv[1] == "obey_late":
    fork, refusals = supervisor.fork, iter("ab")

    def fork_late(function, close):
        if next(refusals, None):
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork(function, close)

    supervisor.fork = fork_late

def clean_up(pid):
    raise FileNotFoundError(pid)

board = Board([""] * int(sys.argv[2]))
kept = supervisor.Supervisor(board, globals()[sys.argv[1]], [], float(sys.argv[3]))
# What is cleaned up after a worker may be gone already.
kept.on_end = clean_up
code = kept.run()
tell(ends=(board.supervisor.report() or {}).get("ends"))
sys.exit(code)
"""


class Family:
    """A supervisor in a process, and the lines that it and its workers print."""

    def __init__(self, run: str, workers: int = 1, stop_seconds: float = 30) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, run, str(workers), str(stop_seconds)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, self.process.stderr and self.process.stderr.read()
        line: dict[str, Any] = json.loads(text)
        return line

    def hello(self) -> int:
        """The pid of the next worker that starts."""
        pid: int = self.line()["pid"]
        return pid

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        out, _ = self.process.communicate(timeout=30)
        return self.process.returncode, [json.loads(line) for line in out.splitlines()]


@contextlib.contextmanager
def family(run: str, workers: int = 1, stop_seconds: float = 30) -> Iterator[Family]:
    started = Family(run, workers, stop_seconds)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def gone(pid: int) -> bool:
    """Wait for the end of a process that is not our child; whether it came."""
    with contextlib.suppress(ProcessLookupError):
        end = os.pidfd_open(pid)
        try:
            return bool(select.select([end], [], [], 20)[0])
        finally:
            os.close(end)
    return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_the_only_worker_is_replaced_and_the_log_says_why(number: signal.Signals) -> None:
    with family("obey") as here:
        first = here.hello()
        os.kill(first, number)
        died = here.line()
        reason = "exit 0" if number == signal.SIGTERM else number.name
        assert (died["event"], died["pid"], died["reason"]) == ("worker died", first, reason)
        assert here.hello() != first
        here.process.terminate()
        assert here.end() == (0, [{"ends": {reason: 1}}])


def test_the_other_worker_stays() -> None:
    with family("obey", workers=2) as here:
        first, second = here.hello(), here.hello()
        os.kill(second, signal.SIGABRT)
        assert here.line()["reason"] == "SIGABRT"
        assert here.hello() not in {first, second}
        os.kill(first, 0)
        here.process.terminate()
        assert here.end()[0] == 0


def test_a_worker_that_keeps_dying_is_started_after_longer_and_longer_pauses() -> None:
    with family("crash") as here:
        pauses = [here.line()["pause"] for _ in range(9)]
    assert pauses == [0, 0, 0, 0, *(0.001 * 2**n for n in range(5))]


@pytest.mark.parametrize("run", ["answer_and_crash", "rest_and_end"])
def test_what_was_ready_is_replaced_at_once(run: str) -> None:
    """A few times; again and again if it has answered requests."""
    with family(run) as here:
        ends = [here.line()["pause"] for _ in range(8 if run == "answer_and_crash" else 4)]
    assert not any(ends)


def test_a_machine_that_has_no_room_for_a_process_is_asked_again() -> None:
    with family("obey_late") as here:
        told = [here.line() for _ in range(2)]
        assert [line["event"] for line in told] == ["no worker could be started"] * 2
        assert [line["pause"] for line in told] == [0.001, 0.002]
        here.hello()
        here.process.terminate()
        assert here.end()[0] == 0


@pytest.mark.parametrize(("run", "code"), [("refuse", 4), ("fail", 1)])
def test_what_cannot_start_at_all_is_given_up(run: str, code: int) -> None:
    with family(run, workers=2) as here:
        ended, lines = here.end()
    assert ended == code
    assert lines[0]["event"] == "the service cannot start"
    assert lines[-1] == {"ends": None}


def test_what_all_workers_refuse_is_said_once() -> None:
    with family("refuse_when_told", workers=3) as here:
        pids = [here.hello() for _ in range(3)]
        # It learns of all at the same time.
        here.process.send_signal(signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        assert all(gone(pid) for pid in pids)
        here.process.send_signal(signal.SIGCONT)
        assert here.process.wait(30) == 2
        assert here.process.stderr is not None
        assert here.process.stderr.read() == "thalweg-server: a setting cannot be\n"


def test_a_worker_that_hangs_is_replaced() -> None:
    with family("obey") as here:
        first = here.hello()
        os.kill(first, signal.SIGSTOP)
        died = here.line()
        assert (died["pid"], died["reason"]) == (first, "hung")
        assert "event loop" in died["hint"]
        assert here.hello() != first


def test_a_worker_that_does_not_end_is_killed() -> None:
    with family("stay", stop_seconds=0.1) as here:
        pid = here.hello()
        here.process.terminate()
        code, lines = here.end()
    assert code == 0
    assert lines[0] == {
        "event": "workers did not end and were killed",
        "pids": [pid],
    }
    assert gone(pid)


def test_workers_end_with_their_supervisor() -> None:
    with family("stay", workers=2) as here:
        pids = here.hello(), here.hello()
        here.process.kill()
        assert all(gone(pid) for pid in pids)


def test_only_the_supervisor_heeds_the_terminal() -> None:
    """A terminal sends SIGINT to all; workers get one SIGTERM for it, not two signals."""
    with family("obey") as here:
        pid = here.hello()
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGHUP)
        os.kill(pid, 0)
        here.process.send_signal(signal.SIGINT)
        assert here.end() == (0, [{"ends": None}])
        assert gone(pid)


@pytest.mark.parametrize(("workers", "code"), [(1, -signal.SIGHUP), (2, 0)])
def test_a_hangup_ends_one_worker_as_ever_and_several_ignore_it(workers: int, code: int) -> None:
    with family("obey", workers=workers) as here:
        for _ in range(workers):
            here.hello()
        here.process.send_signal(signal.SIGHUP)
        if workers > 1:
            here.process.terminate()
        assert here.end()[0] == code
