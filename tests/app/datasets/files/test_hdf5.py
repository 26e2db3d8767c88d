"""What reading boxes of a chunked array takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.datasets.files.hdf5 import (
    _check_inside,
    _description,
    _stretches,
    divide,
    effort_of,
)
from core.errors import FormatError


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


def described(**members: object) -> dict[str, Any]:
    return {
        "name": "data",
        "shape": [4, 6],
        "chunks": [2, 3],
        "dtype": "<u2",
        "offset": None,
        "axes": [
            {"name": "y", "size": 4, "unit": None, "coordinates": 0},
            {"name": "x", "size": 6, "unit": "nm", "coordinates": 3},
        ],
    } | members


LINE = np.array([1.0, 3.0, 5.0]).view("u1")


def test_a_description_is_what_the_worker_says() -> None:
    found = _description(described(offset=2048), LINE)
    assert (found.name, found.info.shape, found.info.chunks) == ("data", (4, 6), (2, 3))
    assert (found.info.dtype, found.offset) == (np.dtype("<u2"), 2048)
    y, x = found.axes
    assert (y.name, y.size, y.unit, y.scale, y.offset) == ("y", 4, None, 1, 0)
    assert (x.name, x.size, x.unit, x.scale, x.offset) == ("x", 6, "nm", 2, 1)
    # Nothing is read of an empty array, so that chunks of nothing do no harm.
    assert _description(described(shape=[0, 6], chunks=[0, 3]), LINE).info.chunks == (0, 3)


LIES: list[dict[str, Any]] = [
    {"chunks": [2]},
    {"chunks": [2, 3, 1]},
    {"chunks": [2, 0]},
    {"chunks": [2, -3]},
    {"shape": [4, 1 << 63]},
    {"shape": [1] * 33, "chunks": [1] * 33},
    {"dtype": "O"},
    {"dtype": "<u2,<u2"},
    {"offset": -1},
    {"name": "x" * 4097},
    {"axes": []},
    {"axes": [{"name": "y", "size": 4, "unit": None, "coordinates": 4}]},
]


class OneFile:
    """A set of a file of 100 bytes."""

    def name(self, file: int) -> str:
        return f"{file}.h5"

    def size(self, _file: int) -> int:
        return 100


@pytest.mark.parametrize(
    ("stretches", "message"),
    [
        ([(12, 0), (12, 24)], None),
        ([(12, 76), (12, 0)], None),
        ([(12, 0), (12, 77)], "end at byte 101, but the file at byte 100"),
        ([(12, 0), (12, 1 << 62)], "but the file at byte 100"),
        ([(12, 0), (12, 23)], "chunks of the array 'data' overlap"),
        ([(12, 8), (12, 8)], "chunks of the array 'data' overlap"),
        ([(12, 0), (11, 24)], ValueError),
        ([(25, 0), (-1, 60)], ValueError),
        ([(12, -24), (12, 0)], ValueError),
    ],
)
def test_values_lie_inside_of_the_file_and_apart(
    stretches: list[tuple[int, int]], message: str | type[Exception] | None
) -> None:
    found = _description(described(), LINE)

    def check() -> None:
        octets = np.array(stretches, np.int64).reshape(-1).view("u1")
        assert _stretches(found.info, {}, octets) == stretches
        _check_inside(OneFile(), 0, found, stretches)  # type: ignore[arg-type]

    if message is None:
        check()
    elif isinstance(message, str):
        with pytest.raises(FormatError, match=message) as caught:
            check()
        assert caught.value.hint
    else:
        with pytest.raises(message):
            check()


@pytest.mark.parametrize("lie", LIES)
def test_a_description_that_contradicts_itself_is_refused(lie: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        _description(described(**lie), LINE)
