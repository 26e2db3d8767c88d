from __future__ import annotations

import threading

from core.budget import UNLIMITED, Scope, current, installed


class Counting:
    """A budget that notes the bytes held."""

    def __init__(self) -> None:
        self.held = 0

    def check(self, stage: str) -> None:
        pass

    def spend(self, stage: str, items: int, seconds: float = 0.0) -> None:
        pass

    def hold(self, stage: str, nbytes: int) -> None:
        del stage
        self.held += nbytes

    def release(self, nbytes: int) -> None:
        self.held -= nbytes

    def renew(self) -> None:
        pass


def test_a_budget_is_current_within_its_block_and_thread() -> None:
    budget, seen = Counting(), []
    with installed(budget):
        assert current() is budget
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
    assert current() is UNLIMITED
    assert seen == [UNLIMITED]


def test_a_scope_releases_what_was_held_within() -> None:
    budget = Counting()
    with installed(budget):
        budget.hold("outside", 1)
        with Scope("block", 10) as inside:
            assert inside is budget
            inside.hold("more", 100)
            with Scope() as inner:
                inner.hold("inner", 1000)
            assert budget.held == 111
            inside.release(50)
        assert budget.held == 1


def test_without_a_budget_everything_is_allowed() -> None:
    with Scope("block", 1 << 60) as budget:
        budget.spend("stage", 1 << 60)
        budget.check("stage")
        budget.renew()
    assert budget is UNLIMITED
