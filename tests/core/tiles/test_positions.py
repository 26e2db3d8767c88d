"""Selections at the edge of a scan."""

from __future__ import annotations

import numpy as np
import pytest

from core.errors import SelectionError, ShapeError
from core.tiles import positions
from core.tiles.positions import Lattice, Listed, Stretch, present, resolve
from core.tiles.view import Every, Frames, Grid, Mask, Select
from tests.scale import examples

SCAN = (2, 5)


def test_the_last_position_is_there_and_none_follows_it() -> None:
    assert resolve(Frames.of((9, 0)), SCAN).box((0,), (2,)).tolist() == [9, 0]
    for index in (10, 11):
        with pytest.raises(SelectionError, match=f"index {index} is selected"):
            resolve(Frames.of((index, 0)), SCAN)


def test_a_mask_has_a_bit_for_each_position_and_none_after() -> None:
    mask = np.zeros(16, bool)
    mask[9] = True
    assert resolve(Mask(np.packbits(mask).tobytes()), SCAN).box((0,), (1,)).tolist() == [9]
    for after in (10, 15):
        mask[:] = False
        mask[[0, after]] = True
        with pytest.raises(ShapeError, match="after its last position"):
            resolve(Mask(np.packbits(mask).tobytes()), SCAN)
    for size in (1, 3):
        with pytest.raises(ShapeError, match="needs 2"):
            resolve(Mask(b"\x80" + bytes(size - 1)), SCAN)
    with pytest.raises(SelectionError, match="selects nothing"):
        resolve(Mask(bytes(2)), SCAN)


def test_a_slice_may_end_where_its_axis_does() -> None:
    assert resolve(Grid(((1, 2, 1), (0, 5, 4))), SCAN).box((0, 0), (1, 2)).tolist() == [[5, 9]]
    with pytest.raises(SelectionError, match="axis 1"):
        resolve(Grid(((1, 2, 1), (0, 6, 4))), SCAN)
    with pytest.raises(ShapeError, match="1 axes"):
        resolve(Grid(((0, 2, 1),)), SCAN)


@pytest.mark.parametrize(
    "select", [Every(), Grid(((0, 2, 1), (1, 5, 2))), Frames.of((7, 0, 7)), Mask(b"\x52\x40")]
)
def test_positions_are_picked_as_a_box_has_them(select: Select) -> None:
    positions = resolve(select, SCAN)
    chosen = [positions, present(positions, 8, -1)]
    for each in chosen:
        assert isinstance(each, Lattice | Stretch | Listed)
        box = each.box((0,) * len(each.shape), each.shape).reshape(-1)
        places = np.array([len(box) - 1, 0, 0])
        assert each.pick(places).tolist() == box[places].tolist()


def test_any_part_of_a_mask_is_that_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "_BLOCK", 4)
    monkeypatch.setattr(positions, "_BITS", 32)
    monkeypatch.setattr(positions, "_SLICE", 16)
    rng = np.random.default_rng(4)
    for _ in range(examples(200)):
        size = int(rng.integers(1, 500))
        chosen = rng.random(size) < float(rng.choice([0.01, 0.5, 0.99]))
        begin = int(rng.integers(0, size))
        chosen[begin : begin + int(rng.integers(0, 200))] = rng.random() < 0.5
        chosen[rng.integers(0, size)] = True
        mask = Mask(np.packbits(chosen).tobytes())
        listed = np.flatnonzero(chosen)
        monkeypatch.setattr(positions, "_LISTED", size)
        assert isinstance(resolve(mask, (size,)), Listed)
        monkeypatch.setattr(positions, "_LISTED", 0)
        found: positions.Positions | None = resolve(mask, (size,))
        assert found is not None
        for _ in range(3):
            assert found.shape == listed.shape
            assert found.extremes() == (listed[0], listed[-1])
            for _ in range(5):
                first = int(rng.integers(0, len(listed)))
                last = int(rng.integers(first, len(listed))) + 1
                assert found.box((first,), (last,)).tolist() == listed[first:last].tolist()
            low, high = sorted(rng.integers(-5, size + 5, 2).tolist())
            listed = listed[(listed >= low) & (listed < high)]
            found = found.within(low, high)
            if found is None:
                assert not len(listed)
                break


def test_stretches_of_a_lattice_are_cut_by_what_they_hold() -> None:
    lattice = resolve(Grid(((1, 9, 3), (0, 7, 2))), (9, 8))
    assert isinstance(lattice, Lattice)
    flat = [8 * y + x for y in (1, 4, 7) for x in (0, 2, 4, 6)]
    for first in range(len(flat)):
        for last in range(first + 1, len(flat) + 1):
            held = flat[first:last]
            stretch = Stretch(lattice, first, last)
            assert stretch.extremes() == (held[0], held[-1])
            for low in range(0, 72, 7):
                for high in (low, low + 1, low + 20, 72):
                    found, expected = (
                        stretch.within(low, high),
                        [i for i in held if low <= i < high],
                    )
                    assert (found is None) == (not expected)
                    if found is not None:
                        assert found.box((0,), found.shape).tolist() == expected
