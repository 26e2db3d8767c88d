"""Arrays that take memory where they are written to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.untouched import zeros

DTYPE = np.dtype([("event", "<i4"), ("loss", "<f8")])


@pytest.mark.parametrize("count", [0, 1, 1000, 100_000])
def test_they_are_zeros_that_can_be_written(count: int) -> None:
    rows = zeros(count, DTYPE)
    assert (rows.shape, rows.dtype) == ((count,), DTYPE)
    assert not rows["event"].any()
    rows["event"] = 7
    assert (rows["event"] == 7).all()


def test_what_is_not_written_takes_no_memory() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    # Large enough for the allocator to keep memory that it hands out again.
    used = [np.ones(1 << 22, np.uint8) for _ in range(4)]
    del used
    before = resident()
    rows = zeros(1 << 26, np.dtype(np.uint8))
    rows[:4096] = 1
    assert resident() - before < 1 << 20
