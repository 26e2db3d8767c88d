"""Sliding windows."""

from __future__ import annotations

from core.iterate.window import Window
from tests.core.iterate.drain import at, first
from tests.core.iterate.items import TEN, Counter


def test_windows() -> None:
    assert first(Window(TEN, width=4, stride=3), 9) == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    kept = Window(TEN, width=4, stride=3, partial="keep")
    assert first(kept, 9) == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9], [9]]
    assert kept.schema[0].ragged
    assert first(Window(TEN, width=1, stride=9), 9) == [[0], [9]]
    assert first(Window(Counter(), width=2, partial="keep"), 2) == [[0, 1], [1, 2]]
    assert at(Window(TEN, width=2, stride=4), 2, 0) == [[8, 9], [0, 1]]
    two = Window(Window(TEN, width=2), width=2)
    assert first(two, 1) == [[[0, 1], [1, 2]]]
