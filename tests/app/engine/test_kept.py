"""Values are kept as long as they fit, and given up where memory is short."""

from __future__ import annotations

import pytest

from app.engine.ledger import Kept, Ledger
from app.errors import BusyError


class Maker:
    """Makes values, and counts how often."""

    def __init__(self, kept: Kept[str]) -> None:
        self.kept = kept
        self.made: list[str] = []

    def get(self, key: str, nbytes: int) -> str:
        def make() -> tuple[str, int]:
            self.made.append(key)
            return key.upper(), nbytes

        return self.kept.get(key, make)


def test_what_was_used_last_is_kept_as_far_as_it_fits() -> None:
    ledger = Ledger(1000, 1000)
    maker = Maker(Kept(ledger, 100, purpose="test"))
    for key, nbytes in (("a", 40), ("b", 40), ("a", 40), ("c", 40), ("a", 40), ("b", 40)):
        assert maker.get(key, nbytes) == key.upper()
    assert maker.made == ["a", "b", "c", "b"]
    assert ledger.purposes().get("test", 0) == 80
    maker.get("large", 500)
    assert ledger.purposes().get("test", 0) == 500


def test_a_number_of_values_is_kept() -> None:
    maker = Maker(Kept(Ledger(1000, 1000), 1000, count=2))
    for key in ("a", "b", "c", "a"):
        maker.get(key, 1)
    assert maker.made == ["a", "b", "c", "a"]


def test_a_value_that_is_forgotten_or_fails_is_made_again() -> None:
    ledger = Ledger(1000, 1000)
    maker = Maker(Kept(ledger, 1000, purpose="test"))
    maker.get("a", 10)
    maker.kept.forget("a")
    maker.kept.forget("never there")
    assert ledger.purposes().get("test", 0) == 0
    maker.get("a", 10)
    assert maker.made == ["a", "a"]

    def fail() -> tuple[str, int]:
        raise ValueError("no value")

    with pytest.raises(ValueError, match="no value"):
        maker.kept.get("b", fail)


def test_the_ledger_gets_room_back_and_values_without_room_are_not_kept() -> None:
    ledger = Ledger(100, 100)
    maker = Maker(Kept(ledger, 100, purpose="test"))
    maker.get("a", 60)
    with ledger.hold("somebody", 80, "work"):
        assert ledger.purposes().get("test", 0) == 0
        assert maker.get("a", 60) == "A"
        assert ledger.purposes().get("test", 0) == 0
        with pytest.raises(BusyError):
            ledger.hold("another", 30, "work")
