"""Fill values as the specification of zarr writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.decoding.wire import RefusedError
from app.decoding.worker.zarr import fill_value, open_subject

SOUND: list[tuple[str, Any, Any]] = [
    ("bool", True, True),
    ("<u8", 2**64 - 1, 2**64 - 1),
    ("<i2", -3, -3),
    ("<f4", 1.5, 1.5),
    ("<f8", 3, 3.0),
    ("<f2", "Infinity", np.inf),
    ("<f4", "-Infinity", -np.inf),
    ("<f4", "0x3fc00000", 1.5),
    ("<c8", [1, "Infinity"], complex(1, np.inf)),
]


@pytest.mark.parametrize(("dtype", "value", "expected"), SOUND)
def test_fill_values(dtype: str, value: object, expected: object) -> None:
    found = fill_value(value, np.dtype(dtype))
    assert found == expected
    assert found.dtype == np.dtype(dtype)


def test_a_fill_value_may_be_no_number() -> None:
    assert np.isnan(fill_value("NaN", np.dtype("f4")))
    exact = np.array([0x7FC00001], "u4").view("f4")[0]
    assert fill_value("0x7fc00001", np.dtype("<f4")).tobytes() == exact.tobytes()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("bool", 1),
        ("<u1", 256),
        ("<u1", -1),
        ("<i4", 1.5),
        ("<i4", None),
        ("<f4", "1.5"),
        ("<f4", "0x00"),
        ("<f8", None),
        ("<c8", 1),
        ("<c8", [1, 2, 3]),
        ("<c8", [[1], 2]),
        ("<f4", ["NaN"]),
        ("<f4", {}),
    ],
)
def test_what_is_no_fill_value(dtype: str, value: object) -> None:
    with pytest.raises(RefusedError, match="does not fit the array's dtype"):
        fill_value(value, np.dtype(dtype))


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"chunk_grid": 3}'])
def test_metadata_that_is_none(text: str) -> None:
    with pytest.raises(RefusedError, match="metadata is invalid"):
        open_subject("zarr", {"metadata": text, "dtype": "<u2"}, ())
