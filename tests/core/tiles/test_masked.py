"""Masks of which nobody lists all positions."""

from __future__ import annotations

import numpy as np
import pytest

from core.tiles import masked, positions
from core.tiles.positions import Listed, resolve
from core.tiles.view import Mask
from tests.scale import examples


def test_any_part_of_a_mask_is_that_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked, "_BLOCK", 4)
    monkeypatch.setattr(masked, "_BITS", 32)
    monkeypatch.setattr(masked, "_SLICE", 16)
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
