from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.client import ProtocolError
from app.client.pipelines.layout import Layout
from app.client.transport.frames import parse_dtype


def test_types() -> None:
    assert parse_dtype([["a", "<i4"], ["b", [["c", "<f4", [2, 3]]]]]) == np.dtype(
        [("a", "<i4"), ("b", [("c", "<f4", (2, 3))])]
    )
    wrong: Any
    for wrong in (None, 3, [], [["a"]], [3], "O", "(2,)f4", [["a", "V0"]], ["a", "b"], "x" * 99):
        with pytest.raises(ProtocolError):
            parse_dtype(wrong)
    with pytest.raises(ProtocolError):
        Layout.parse("x")


TWO = Layout.parse(
    [
        {"name": "m", "dtype": "<f4", "shape": [2, 3]},
        {"name": "p", "dtype": "<i8", "shape": [-1]},
    ]
)
FIRST: dict[str, Any] = {
    "name": "m",
    "dtype": "<f4",
    "shape": [2, 2, 3],
    "offset": 0,
    "nbytes": 48,
}
SECOND: dict[str, Any] = {"name": "p", "dtype": "<i8", "shape": [2, 5], "offset": 64, "nbytes": 80}


@pytest.mark.parametrize(
    "change",
    [
        {"rows": [False, 2]},
        {"rows": [2, 0]},
        {"rows": [-2, 0]},
        {"rows": (0, 2)},
        {"arrays": [FIRST]},
        {"arrays": (FIRST, SECOND)},
        {"arrays": [[], SECOND]},
        {"arrays": [FIRST | {"name": "data"}, SECOND]},
        {"arrays": [FIRST | {"dtype": "<i4"}, SECOND]},
        {"arrays": [FIRST | {"shape": [2, 3, 2]}, SECOND]},
        {"arrays": [FIRST | {"shape": [2, 2, 3, 1]}, SECOND]},
        {"arrays": [FIRST | {"shape": (2, 2, 3)}, SECOND]},
        {"arrays": [FIRST | {"nbytes": 52}, SECOND]},
        {"arrays": [FIRST | {"offset": 8}, SECOND]},
        {"arrays": [FIRST, SECOND | {"offset": 48}]},
        {"arrays": [FIRST, SECOND | {"shape": [2, -5], "nbytes": -80}]},
    ],
)
def test_arrays_that_cannot_be_of_a_batch(change: dict[str, Any]) -> None:
    header = {"rows": [0, 2], "arrays": [FIRST, SECOND]}
    TWO.check(header, 144)
    for size in (143, 145):
        with pytest.raises(ProtocolError, match="of 144 bytes"):
            TWO.check(header, size)
    with pytest.raises(ProtocolError):
        TWO.check(header | change, 144)


def test_the_largest_array() -> None:
    wide = [{"name": "x", "dtype": "|u1", "shape": [1 << 31]}]
    assert Layout.parse(wide).fields[0].shape == (1 << 31,)
    for shape in ([(1 << 31) + 1], [1 << 30, 3], [1] * 32, [True]):
        with pytest.raises(ProtocolError):
            Layout.parse([wide[0] | {"shape": shape}])
    assert len(Layout.parse([wide[0] | {"shape": [1] * 31}]).fields[0].shape) == 31
