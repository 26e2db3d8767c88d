"""Codecs of single tiles."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from app.errors import NotAcceptableError
from app.tiles.encoding import tile_codec


@pytest.mark.parametrize("dtype", ["|u1", "<u2", ">f4", "<c16", "|V300"])
def test_values_come_back(dtype: str) -> None:
    blosc2 = pytest.importorskip("blosc2")
    octets = np.arange(4 * 6 * np.dtype(dtype).itemsize, dtype=np.uint8)
    values = octets.view(dtype).reshape(4, 6)
    for array in (values, values[::2, 1:]):
        chunk = tile_codec("blosc2")(array)
        assert blosc2.decompress2(chunk) == array.tobytes()


def test_counts_of_a_detector_shrink() -> None:
    pytest.importorskip("blosc2")
    counts = np.random.default_rng(1).poisson(3, (256, 256)).astype("<u2")
    assert len(tile_codec("blosc2")(counts)) < counts.nbytes / 2


def test_other_names_are_refused() -> None:
    with pytest.raises(NotAcceptableError, match="no codec 'zip'"):
        tile_codec("zip")


def test_without_the_library_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blosc2", None)
    with pytest.raises(NotAcceptableError, match="has no blosc2"):
        tile_codec("blosc2")
