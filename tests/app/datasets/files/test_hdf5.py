"""What reading boxes of a chunked array takes."""

from __future__ import annotations

import numpy as np

from app.datasets.files.hdf5 import divide, effort_of


def test_effort_counts_values_and_what_is_decoded_for_them() -> None:
    dtype, chunks = np.dtype("<u2"), (2, 10)
    inside = effort_of([((2, 4), (10, 20))], chunks, dtype)
    assert (inside.nbytes, inside.work) == (40, 40)
    # 2 x 2 chunks are touched by 2 x 2 values, one by a single value.
    across = effort_of([((1, 3), (9, 11)), ((0, 1), (5, 6))], chunks, dtype)
    assert (across.nbytes, across.work) == (2 * (4 + 1), 2 * (80 + 20))


def test_boxes_lie_one_after_the_other() -> None:
    octets = np.arange(20, dtype="u1")
    one, two = divide(octets, [((0, 2), (0, 3)), ((4, 5), (1, 5))], np.dtype("<u2"))
    assert one.tobytes() + two.tobytes() == octets.tobytes()
    assert (one.shape, two.shape) == ((2, 3), (1, 4))
