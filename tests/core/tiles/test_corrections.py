"""Corrections, crop by crop."""

from __future__ import annotations

import sys

import numpy as np

from core.tiles.corrections import Corrections


def test_however_many_boxes_are_read_few_are_kept() -> None:
    side = 64
    gain = np.arange(side * side, dtype=np.float64).reshape(side, side)
    corrections = Corrections((side, side), None, gain, np.array([[0, 0], [40, 41]]))
    pixels = [((y, y + 1), (x, x + 1)) for y in range(side) for x in range(side)]
    for _ in range(2):
        for box in pixels:
            (y, _), (x, _) = box
            scales = corrections.cut(box, np.dtype(np.float32))
            assert scales is not None
            assert [array.item() for array in scales] == [0, gain[y, x]]
            repaired = (y, x) in {(0, 0), (40, 41)}
            assert (corrections.halo(box) != box) == repaired
    caches = (corrections._scales_by_box, corrections._patches_by_box)
    assert all(0 < len(cache) < len(pixels) for cache in caches)
    assert sum(map(sys.getsizeof, caches)) < 1 << 20
