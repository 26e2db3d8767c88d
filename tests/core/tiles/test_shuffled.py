"""A shuffle that is found window by window is the one that is sorted in one go."""

from __future__ import annotations

import numpy as np
import pytest

from core.budget import installed
from core.errors import CancelledError, SelectionError
from core.tiles import positions, shuffled
from core.tiles.positions import present, resolve
from core.tiles.shuffled import Shuffled
from core.tiles.view import MAX_SELECTED, Shuffle
from tests.core.tiles import reference
from tests.core.tiles.test_plan import plan
from tests.scale import PURE_PYTHON, SOAK, examples


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have windows of about 50 positions; return the windows sorted so far."""
    monkeypatch.setattr(shuffled, "WINDOW", 50)
    monkeypatch.setattr(shuffled, "_SLICE", 64)
    monkeypatch.setattr(shuffled, "_BUCKET_BITS", 4)
    monkeypatch.setattr(positions, "_LISTED", 10)
    sort, sorted_so_far = shuffled._Order.window, []

    def counted(order: shuffled._Order, number: int) -> shuffled.Window:
        sorted_so_far.append(number)
        return sort(order, number)

    monkeypatch.setattr(shuffled._Order, "window", counted)
    return sorted_so_far


def test_any_part_of_an_order_is_that_of_the_whole(passes: list[int]) -> None:
    rng = np.random.default_rng(3)
    for _ in range(examples(100)):
        size, seed = int(rng.integers(1, 700)), int(rng.integers(0, 2**64, dtype=np.uint64))
        sync, frames = int(rng.integers(-size, size)), int(rng.integers(1, 2 * size))
        whole = reference.shuffled(size, seed)
        order = resolve(Shuffle(seed), (size,))
        low, high = max(-sync, 0), min(frames - sync, size)
        if low >= high:
            with pytest.raises(SelectionError, match="no selected position has a frame"):
                present(order, frames, sync)
            continue
        kept = present(order, frames, sync).for_reader()
        whole = whole[(whole >= low) & (whole < high)]
        assert kept.shape == whole.shape
        assert kept.extremes() == (whole.min(), whole.max())
        for _ in range(5):
            begin = int(rng.integers(0, len(whole)))
            end = int(rng.integers(begin, len(whole))) + 1
            assert kept.box((begin,), (end,)).tolist() == whole[begin:end].tolist()
    assert passes


def test_who_reads_in_order_sorts_each_window_once(passes: list[int]) -> None:
    made = plan(1000, (1000,), select={"shuffle": {"seed": 1}}, target_bytes=6)
    whole = reference.shuffled(1000, 1)
    one, other = made.for_reader(), made.for_reader()
    for k in range(made.tiles):
        tile, following = made.tile(k), made.tile(min(k + 1, made.tiles - 1))
        one.frames_of(following)
        start = tile.origin[0]
        assert (one.frames_of(tile)[:, 0] == whole[start : start + tile.shape[0]]).all()
        far = made.tile(made.tiles - 1 - k)
        start = far.origin[0]
        assert (other.frames_of(far)[:, 0] == whole[start : start + far.shape[0]]).all()
    windows = len(made.for_reader().positions._order.windows[0])  # type: ignore[attr-defined]
    assert 10 <= windows <= 20
    # One went forwards and one backwards, and where they met they had the same ones.
    assert 2 * windows - 4 <= len(passes) <= 2 * windows


def test_readers_side_by_side_share_what_they_sort(passes: list[int]) -> None:
    made = plan(1000, (1000,), select={"shuffle": {"seed": 1}}, target_bytes=6)
    readers = [made.for_reader() for _ in range(6)]
    for k in range(made.tiles):
        for reader in readers:
            reader.frames_of(made.tile(k))
    assert passes == sorted(set(passes))


class _Counting:
    """A budget that is cancelled after some checks, and knows the most that was held."""

    def __init__(self, checks: int) -> None:
        self.checks = checks
        self.held = self.most = 0

    def check(self, stage: str) -> None:
        assert stage == "shuffle"
        self.checks -= 1
        if self.checks < 0:
            raise CancelledError("gone")

    def spend(self, stage: str, items: int, seconds: float = 0.0) -> None:
        raise NotImplementedError

    def hold(self, stage: str, nbytes: int) -> None:
        assert stage == "shuffle"
        self.held += nbytes
        self.most = max(self.most, self.held)

    def release(self, nbytes: int) -> None:
        self.held -= nbytes

    def renew(self) -> None:
        raise NotImplementedError


def test_a_cancelled_shuffle_stops_at_the_next_slice(passes: list[int]) -> None:
    for checks in range(32):
        budget = _Counting(checks)
        with installed(budget), pytest.raises(CancelledError):
            Shuffled.of(5, 0, 1000).box((0,), (1,))
        assert budget.held == 0
    assert len(passes) == 16


@pytest.mark.skipif(PURE_PYTHON, reason="a minute without kernels")
def test_a_long_shuffle_is_planned_at_once_and_read_in_bounded_memory() -> None:
    size, scan = (MAX_SELECTED, (1 << 14, 1 << 14)) if SOAK else (1 << 24, (1 << 12, 1 << 12))
    budget = _Counting(1000)
    with installed(budget):
        made = plan(size, scan, select={"shuffle": {"seed": 7}})
        assert budget.checks == 1000
        frames = made.frames_of(made.tile(0))
    # Before each of four slices, of which all keys are counted, then some collected.
    assert budget.checks <= 1000 - 2 * 4
    assert len(np.unique(frames)) == made.tile_shape[0]
    assert budget.most < 30 << 20
    assert made.positions.nbytes < 10 << 20


def test_a_shuffle_has_a_longest() -> None:
    assert plan(MAX_SELECTED, (MAX_SELECTED,), select={"shuffle": {"seed": 7}}).tiles == 256
    with pytest.raises(SelectionError, match="too large to be shuffled"):
        plan(MAX_SELECTED + 1, (MAX_SELECTED + 1,), select={"shuffle": {"seed": 7}})
