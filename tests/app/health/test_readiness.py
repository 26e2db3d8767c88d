"""One worker answers for all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from app.health import readiness as module
from app.health.monitor import Monitor
from app.health.readiness import Readiness
from app.server.board import Board

OK = {"kernels": {"status": "ok", "since": "then"}}
COLD = {"kernels": {"status": "failing", "since": "then", "detail": "kernels are being compiled"}}
FULL = {"disk": {"status": "failing", "since": "then", "detail": "the disk is full"}}


class Crew:
    """The second of three workers, and what the others say."""

    def __init__(self, *lanes: str) -> None:
        self.board = Board(lanes or [""] * 3)
        self.problem: str | None = None
        first, own, third = self.board.workers
        self.others = first, third
        self.monitor = Monitor({"store": lambda: self.problem}, {}, self.board, own, lambda _: None)
        self.monitor._prober.start()
        self.poisoned = 0
        self.readiness = Readiness(self.monitor, self.board, own, lambda: self.poisoned)

    def say(self, index: int, parts: dict[str, Any]) -> None:
        slot = self.board.workers[index]
        slot.beat()
        slot.publish({"parts": parts})

    def ask(self, *, draining: bool = False) -> dict[str, Any]:
        return asyncio.run(self.readiness.describe(draining=draining))


@pytest.fixture
def crew() -> Iterator[Crew]:
    here = Crew()
    yield here
    here.monitor.close()


def test_all_must_have_started(crew: Crew) -> None:
    crew.say(0, OK)
    answer = crew.ask()
    assert answer["status"] == "not ready"
    assert answer["reasons"] == ["worker 2: it has not started"]
    crew.board.templates[0].publish("kernels are being compiled, once on this machine")
    assert crew.ask()["reasons"] == ["worker 2: kernels are being compiled, once on this machine"]
    crew.board.templates[0].publish(None)
    crew.say(2, COLD)
    assert crew.ask()["reasons"] == ["worker 2: kernels are being compiled"]
    crew.say(2, OK)
    answer = crew.ask()
    assert answer["status"] == "ready"
    assert "reasons" not in answer
    assert answer["workers"] == [{"worker": n, "status": "ready"} for n in range(3)]
    assert answer["parts"]["store"]["status"] == "ok"


def test_a_part_that_fails_is_named_wherever_it_is(crew: Crew) -> None:
    crew.say(0, OK)
    crew.say(2, FULL)
    crew.problem = "the store is damaged"
    answer = crew.ask(draining=True)
    assert answer["reasons"] == [
        "the store is damaged",
        "worker 2: the disk is full",
        "the server is shutting down",
    ]
    assert answer["parts"]["store"]["detail"] == "the store is damaged"


def test_a_worker_that_does_not_beat_makes_the_group_say_so(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew.say(0, OK)
    crew.say(2, OK)
    assert crew.ask()["status"] == "ready"
    later = time.monotonic() + 7
    monkeypatch.setattr("app.health.readiness.time.monotonic", lambda: later)
    crew.board.workers[2].publish({"parts": OK})
    reasons = crew.ask()["reasons"]
    assert reasons == [f"worker {n}: its event loop has stood still for 7 s" for n in (0, 2)]


def test_a_worker_may_be_replaced_but_not_for_long(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew.say(0, OK)
    crew.say(2, OK)
    assert crew.ask()["status"] == "ready"
    crew.board.workers[2].clear()
    answer = crew.ask()
    assert answer["status"] == "ready"
    assert answer["workers"][2]["status"] == "being replaced"
    crew.say(2, COLD)
    assert crew.ask()["status"] == "ready"
    crew.say(2, FULL)
    assert crew.ask()["reasons"] == ["worker 2: the disk is full"]
    crew.board.workers[2].clear()
    later = time.monotonic() + 11
    monkeypatch.setattr("app.health.readiness.time.monotonic", lambda: later)
    monkeypatch.setattr(module, "_SILENCE", 60)
    assert crew.ask()["reasons"] == ["worker 2: it has not started"]


def test_a_lane_needs_a_worker_that_is_ready() -> None:
    crew = Crew("long", "front", "long")
    try:
        assert crew.ask()["reasons"] == [f"worker {n}, long: it has not started" for n in (0, 2)]
        crew.say(0, OK)
        crew.say(2, OK)
        answer = crew.ask()
        assert answer["status"] == "ready"
        assert answer["workers"][1] == {"worker": 1, "lane": "front", "status": "ready"}
        crew.board.workers[2].clear()
        assert crew.ask()["status"] == "ready"
        crew.board.workers[0].clear()
        assert crew.ask()["reasons"] == ["all workers of the lane long are being replaced"]
        crew.say(0, OK)
        assert crew.ask()["status"] == "ready"
    finally:
        crew.monitor.close()


def test_poisoned_jobs_are_shown_and_make_nothing_unready(crew: Crew) -> None:
    for index in (0, 2):
        crew.say(index, OK)
    assert "poisoned_jobs" not in crew.ask()
    crew.poisoned = 2
    answer = crew.ask()
    assert (answer["status"], answer["poisoned_jobs"]) == ("ready", 2)
