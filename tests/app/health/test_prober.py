"""Checks that may hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from app.health import prober
from app.health.prober import Check, Prober


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
        monkeypatch.setattr(prober, "PATIENCE", -1.0)
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
