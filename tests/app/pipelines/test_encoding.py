"""Payloads of batches: no copies, and no memory but their own."""

from __future__ import annotations

import numpy as np

from app.pipelines.streaming import _compact


def test_an_array_is_sent_from_its_own_memory() -> None:
    array = np.arange(100)
    assert _compact(array) is array
    most = array[:60]
    assert _compact(most) is most


def test_a_small_part_of_an_array_does_not_keep_the_rest() -> None:
    array = np.arange(100)
    part = _compact(array[:8])
    assert part.base is None
    assert part.tolist() == list(range(8))


def test_an_array_with_gaps_is_copied_once() -> None:
    array = np.arange(100).reshape(10, 10)[:, :9]
    copy = _compact(array)
    assert copy.flags.c_contiguous
    assert (copy == array).all()
