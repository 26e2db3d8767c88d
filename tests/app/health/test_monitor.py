"""The parts of a worker, over time, and checks that may hang."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
import structlog

from app.health import monitor as module
from app.health.monitor import Check, Monitor, Part, Prober, StallCheck, problems_of
from app.server.board import Board


def test_parts_tell_since_when_and_the_board_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 100.0, 200.0])
    monkeypatch.setattr("app.health.monitor.time.time", lambda: next(now))
    problem: dict[str, str | None] = {"loop": None, "store": None}
    board = Board()
    seen: list[Mapping[str, Part]] = []
    monitor = Monitor(
        {"loop": lambda: problem["loop"]},
        {"store": lambda: problem["store"]},
        board,
        board.workers[0],
        seen.append,
    )
    monitor._prober.start()
    try:
        parts = asyncio.run(monitor.fresh_parts())
        assert parts == {"loop": Part(None, 100.0), "store": Part(None, 100.0)}
        assert board.asked > 0
        problem["loop"] = "stands still"
        asyncio.run(monitor.fresh_parts())
        problem["loop"] = "still stands still"
        parts = asyncio.run(monitor.fresh_parts())
        assert parts["loop"] == Part("still stands still", 200.0)
    finally:
        monitor.close()
    assert len(seen) == 3
    report = board.workers[0].report()
    assert report["parts"]["loop"] == {
        "status": "failing",
        "since": "1970-01-01T00:03:20Z",
        "detail": "still stands still",
    }
    assert problems_of(report["parts"]) == {"loop": "still stands still"}


def test_an_answer_does_not_wait_for_a_disk_that_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr(module, "_WAIT", 0.01)
    free = threading.Event()
    board = Board()
    monitor = Monitor(
        {}, {"store": lambda: str(free.wait(20))}, board, board.workers[0], lambda _: None
    )
    monitor._prober.start()
    parts = asyncio.run(monitor.fresh_parts())
    assert parts["store"].problem == "not checked yet"
    free.set()
    monitor.close()


def test_a_wait_fails_above_its_limit() -> None:
    seconds = [0.0]
    check = StallCheck(lambda: seconds[0], 2.0, "calls wait for")
    assert check() is None
    seconds[0] = 2.5
    assert check() == "calls wait for 2.5 s"


@contextmanager
def probing(**checks: Check) -> Iterator[Prober]:
    here = Prober(checks)
    here.start()
    try:
        yield here
    finally:
        here.close()


def test_results_are_those_of_the_last_round() -> None:
    answers = iter(["full", None])
    with probing(disk=lambda: next(answers)) as here:
        assert here.problems() == {"disk": "not checked yet"}
        here.ask(0).result(20)
        assert here.problems() == {"disk": "full"}
        here.ask(60).result(20)
        assert here.problems() == {"disk": "full"}
        here.ask(0).result(20)
        assert here.problems() == {"disk": None}


def test_who_asks_during_a_round_waits_for_it() -> None:
    begun, free = threading.Event(), threading.Event()
    rounds: list[int] = []

    def check() -> None:
        rounds.append(1)
        begun.set()
        free.wait(20)

    with probing(disk=check) as here:
        first = here.ask(0)
        begun.wait(20)
        second = here.ask(0)
        assert not second.done()
        free.set()
        first.result(20)
        second.result(20)
    assert len(rounds) == 1


def test_a_check_that_hangs_has_failed_and_the_others_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free, begun = threading.Event(), threading.Event()
    hang = False

    def check() -> str | None:
        if hang:
            begun.set()
            free.wait(20)
        return None

    with probing(spool=lambda: None, store=check) as here:
        here.ask(0).result(20)
        assert here.problems() == {"spool": None, "store": None}
        hang = True
        here.ask(0)
        begun.wait(20)
        monkeypatch.setattr(module, "PATIENCE", -1.0)
        problems = here.problems()
        monkeypatch.undo()
        assert problems["spool"] is None
        assert str(problems["store"]).startswith("the store has not answered for")
        free.set()


def test_a_check_with_a_fault_fails_alone() -> None:
    def faulty() -> None:
        raise ZeroDivisionError

    with structlog.testing.capture_logs() as logs, probing(a=faulty, b=lambda: None) as here:
        here.ask(0).result(20)
        assert here.problems() == {"a": "the a cannot be checked: ZeroDivisionError", "b": None}
    assert [log["part"] for log in logs] == ["a"]
