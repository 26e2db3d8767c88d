"""Kernels entered without a look at the types of their arguments."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from core._entries import _describe, _type, entry_point
from core.losses._kernels.seen import fill_table
from tests.scale import PURE_PYTHON

pytestmark = [
    pytest.mark.skipif(PURE_PYTHON, reason="there are no kernels"),
    pytest.mark.once,
]


def test_an_entry_point_does_what_the_kernel_does() -> None:
    logged, by_kernel, by_entry = np.array([3, 5], np.int32), *np.zeros((2, 8), np.int64)
    fill_table(logged, 2, 1, by_kernel)
    entry_point(fill_table, logged, 2, 1, by_entry)(logged, 2, 1, by_entry)
    assert by_kernel.any()
    assert by_entry.tolist() == by_kernel.tolist()


class Pair(NamedTuple):
    one: object
    two: object


def test_an_entry_point_is_compiled_for_the_types_that_its_kernel_finds() -> None:
    aligned = np.dtype([("a", "u1"), ("b", "f8")], align=True)
    packed = np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [0, 8]})
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    values = [
        *(np.zeros(shape, code) for shape in (3, (2, 3)) for code in ("i4", "f8", aligned, packed)),
        np.zeros((2, 3), order="F"),
        np.zeros((4, 4))[::2, ::2],
        frozen,
        Pair(np.zeros(1), 3),
        Pair(np.zeros(1), np.zeros(2)),
        (np.zeros(1), (frozen, 2.5)),
        *(1, 1 << 63, True, None, 2.5, np.int32(1)),
    ]

    for value in values:
        assert _type(_describe(value)) == cast("Any", fill_table).typeof_pyval(value), value
