from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.budget import installed
from core.errors import CancelledError
from core.slices import SLICE, digest, grouped, slices, touched
from tests.scale import examples


class Leaving:
    """A budget of a client that leaves after so many checks."""

    held = 0
    hold = spend = release = renew = staticmethod(lambda *_: None)

    def __init__(self, checks: int) -> None:
        self.left = checks

    def check(self, _stage: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise CancelledError("the client left")


WHOLE = 1 << 40
"""Size of a slice that everything fits into."""


class Counting(Leaving):
    """A budget that counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(0)
        self.asked = 0

    def check(self, _stage: str) -> None:
        self.asked += 1


def passes(work: Callable[[], object], count: int) -> int:
    """How often work on so many elements goes through all of them in slices."""
    asked = []
    for size in (1, WHOLE):
        budget = Counting()
        with pytest.MonkeyPatch.context() as patch, installed(budget):
            patch.setattr(slices, "__defaults__", (size,))
            work()
        asked.append(budget.asked)
    return (asked[0] - asked[1]) // (count - 1)


def test_slices_cover_all_elements_once() -> None:
    assert list(slices(7, "test", 3)) == [(0, 3), (3, 6), (6, 7)]
    assert list(slices(0, "test")) == []


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 20))
def test_groups_are_taken_together_up_to_a_size(sizes: list[int], size: int) -> None:
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    ranges = list(grouped(starts, "test", size))
    assert [a for a, _ in ranges] == [0, *(b for _, b in ranges)][: len(ranges)]
    assert [b for _, b in ranges][-1:] == ([len(sizes)] if sizes else [])
    for a, b in ranges:
        assert starts[b] - starts[a] <= size or b == a + 1


def test_no_slice_is_begun_once_the_client_has_left() -> None:
    with installed(Leaving(3)):
        of_elements = slices(9, "test", 1)
        assert [next(of_elements)[0] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(CancelledError):
            next(of_elements)
        with pytest.raises(CancelledError):
            next(grouped(np.arange(9), "test", 1))


class Hashed:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.data = b""

    def update(self, data: memoryview, /) -> None:
        self.data += data


def test_many_bytes_are_hashed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.slices._HASHED", 3)
    whole = Hashed()
    digest(whole, b"0123456789", "test")
    assert whole.data == b"0123456789"
    with installed(Leaving(2)), pytest.raises(CancelledError):
        digest(Hashed(), b"0123456789", "test")


def test_memory_is_provided_in_slices() -> None:
    assert len(touched(3 * SLICE, "test")) == 3 * SLICE
    with installed(Leaving(2)), pytest.raises(CancelledError):
        touched(3 * SLICE, "test")
