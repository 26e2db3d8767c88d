"""Arrays of a file or store: coordinates that are evenly spaced."""

from __future__ import annotations

import numpy as np

from core.tiles.formats.arrays import linear


def test_coordinates() -> None:
    assert linear(np.array([1.0, 1.5, 2.0])) == (0.5, 1.0)
    assert linear(np.array([3])) == (1.0, 3.0)
    assert linear(np.array([1.0, 2.0, 4.0])) is None
    assert linear(np.array([1.0, np.nan])) is None
    assert linear(np.array(["a"])) is None
