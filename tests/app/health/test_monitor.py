"""The parts of a worker, over time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from app.health import monitor as module
from app.health.monitor import Monitor, Part, StallCheck, problems_of
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
