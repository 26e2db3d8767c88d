"""When the next process of a place is started."""

from __future__ import annotations

import os
import signal

import pytest

from app.server.board import Board
from app.server.place import SILENT_TICKS, STARTING_TICKS, Place


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
