from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import pytest

from core import _vectors
from core._jit import foreign_kernel
from core._vectors import GROUP

F = TypeVar("F", bound=Callable[..., Any])


def callable_from_python(function: F) -> F:
    def call(*args: Any) -> Any:  # noqa: ANN401
        return function(*args)

    return cast("F", foreign_kernel(call))


separate = callable_from_python(_vectors.separate)
shifted_sums = callable_from_python(_vectors.shifted_sums)
ask_for = callable_from_python(_vectors.ask_for)
widths = pytest.mark.parametrize("width", [4, 8])


@widths
@pytest.mark.parametrize("ends", [(), (0,), (1, 2), (30, 31), (31,), (5, 17)])
def test_pairs_are_separated_and_those_before_an_end_counted(
    width: int, ends: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(len(ends))
    pairs = np.zeros(GROUP, [("sidx", "<i4"), ("bits", f"<i{width}")])
    pairs["sidx"] = rng.choice([-5, -1, 1, 2**31 - 1, -(2**31)], GROUP)
    pairs["sidx"][list(ends)] = 0
    pairs["bits"] = rng.integers(-(2 ** (8 * width - 1)), 2 ** (8 * width - 1), GROUP)
    words = np.append(np.ones(3, np.int32), pairs.view(np.int32))
    words.flags.writeable = False
    sidx, bits = np.full(GROUP + 8, 9, np.int32), np.full(GROUP + 8, 9, f"i{width}")
    assert separate(words, 3, sidx, bits, 5) == min([*ends, GROUP])
    np.testing.assert_array_equal(sidx[5:-3], pairs["sidx"])
    np.testing.assert_array_equal(bits[5:-3], pairs["bits"])
    assert {*sidx[:5].tolist(), *sidx[-3:].tolist(), *bits[:5].tolist(), *bits[-3:].tolist()} == {9}


def sums_of_lanes(values: list[float], shift: float) -> tuple[float, float]:
    lanes = [[0.0] * GROUP, [0.0] * GROUP]
    for i, value in enumerate(values):
        lanes[0][i % GROUP] += value - shift
        lanes[1][i % GROUP] += (value - shift) * (value - shift)
    while len(lanes[0]) > 1:
        half = len(lanes[0]) // 2
        lanes = [[x + y for x, y in zip(s[:half], s[half:], strict=True)] for s in lanes]
    return lanes[0][0], lanes[1][0]


@widths
@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 63, 64, 500])
def test_sums_have_the_last_bit_of_a_loop_over_lanes(width: int, n: int) -> None:
    rng = np.random.default_rng(n)
    # Numbers beyond the values would show in a sum.
    values = np.append(10 ** rng.uniform(-9, 9, n), np.full(GROUP, np.nan)).astype(f"f{width}")
    for shift in (0.0, 0.1, 1e7):
        expected = sums_of_lanes(values[:n].tolist(), shift)
        assert shifted_sums(values[:n], shift) == expected


@pytest.mark.parametrize("index", [0, 2, -1, 1 << 40])
def test_what_is_asked_for_need_not_exist(index: int) -> None:
    values = np.arange(3)
    values.flags.writeable = False
    ask_for(values, index)
    assert values.tolist() == [0, 1, 2]
