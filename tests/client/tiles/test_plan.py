from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client import Plan, ProtocolError

ABOUT: dict[str, Any] = {
    "shape": [4, 3, 5],
    "nav_shape": [4],
    "sig_shape": [3, 5],
    "dtype": "<u2",
    "tile_shape": [3, 2, 5],
    "grid": [2, 2, 1],
    "tiles": 4,
    "nbytes": 120,
    "sync_offset": 0,
}

plans = st.lists(
    st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    min_size=1,
    max_size=4,
).map(
    lambda axes: Plan(
        tuple(n for n, _ in axes[:1]),
        tuple(n for n, _ in axes[1:]),
        np.dtype("<u2"),
        tuple(t for _, t in axes),
    )
)


@given(plans)
def test_tiles_cover_the_view_in_order(plan: Plan) -> None:
    seen = np.zeros(plan.shape, int)
    flat = np.arange(math.prod(plan.shape), dtype="<u2").reshape(plan.shape)
    octets = flat.tobytes()
    offset = 0
    for index, box in enumerate(plan.boxes()):
        assert (box.index, box.offset) == (index, offset)
        offset += box.nbytes
        seen[box.slices] += 1
        made = b"".join(octets[at : at + n] for at, n in plan.runs(box))
        assert made == flat[box.slices].tobytes()
    assert seen.min() == seen.max() == 1
    assert offset == plan.nbytes


@given(plans, st.integers(1, 9))
def test_stretches_cover_the_tiles(plan: Plan, parts: int) -> None:
    stretches = plan.stretches(parts)
    assert [i for stretch in stretches for i in stretch] == list(range(plan.tiles))
    assert len(stretches) == min(parts, plan.tiles)


def test_whole_tiles_are_one_run() -> None:
    plan = Plan((10, 10), (4, 4), np.dtype("<f4"), (1, 3, 4, 4))
    assert [len(list(plan.runs(box))) for box in plan.boxes()] == [1] * 40


def test_crumbs_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"16,384 tiles of .* give one such as \(1, 1, 4, 4\)"):
        Plan((64, 32), (4, 4), np.dtype("<f4"), (1, 1, 2, 1)).warn_of_crumbs()
    Plan((64, 32), (4, 4), np.dtype("<f4"), (1, 32, 4, 4)).warn_of_crumbs()


def test_a_plan_of_an_answer() -> None:
    plan = Plan.parse(ABOUT)
    assert (plan.shape, plan.tiles, plan.nbytes) == ((4, 3, 5), 4, 120)
    assert plan.largest == plan.box(0).nbytes == 60
    for index in (-1, 4):
        with pytest.raises(IndexError):
            plan.box(index)


@pytest.mark.parametrize(
    "lie",
    [
        {"shape": [4, 3, 6]},
        {"tiles": 5},
        {"nbytes": 121},
        {"grid": [2, 2, 2]},
        {"tile_shape": [5, 2, 5]},
        {"tile_shape": [3, 2]},
        {"tile_shape": "325"},
        {"tile_shape": [0, 2, 5]},
        {"nav_shape": None},
        {"nav_shape": [4.0]},
        {"nav_shape": ["4"]},
        {"nav_shape": [-4]},
        {"nav_shape": [1 << 70]},
        {"nav_shape": [1] * 99},
        {"dtype": "|O", "nbytes": 480},
        {"dtype": "<U4", "nbytes": 960},
        {"dtype": "u2,u2", "nbytes": 240},
        {"dtype": "(2,)u2"},
        {"dtype": 5},
        {"dtype": "nonsense"},
        {
            "nav_shape": [1 << 40],
            "tile_shape": [1 << 40, 3, 5],
            "shape": [1 << 40, 3, 5],
            "grid": [1, 1, 1],
            "tiles": 1,
            "nbytes": 30 << 40,
        },
    ],
)
def test_plans_that_lie(lie: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        Plan.parse(ABOUT | lie)


def of_length(length: int, tile: int) -> Plan:
    grid = -(-length // tile)
    shape = {"shape": [length], "nav_shape": [length], "sig_shape": [], "tile_shape": [tile]}
    return Plan.parse(ABOUT | shape | {"grid": [grid], "tiles": grid, "nbytes": 2 * length})


def test_a_tile_has_at_most_a_gibibyte() -> None:
    most = 1 << 29
    assert of_length(most, most).largest == 1 << 30
    with pytest.raises(ProtocolError, match="larger than any service"):
        of_length(most + 1, most + 1)


def test_a_view_has_at_most_so_many_values() -> None:
    assert of_length(1 << 62, 5).shape == (1 << 62,)
    with pytest.raises(ProtocolError, match="nav_shape cannot be"):
        of_length((1 << 62) + 1, 5)


def test_a_view_has_at_most_so_many_axes() -> None:
    for axes, words in ((32, None), (33, "has no tile_shape")):
        shape = [1] * axes
        about: dict[str, Any] = {"shape": shape, "tile_shape": shape, "grid": shape}
        about |= {"nav_shape": shape[1:], "sig_shape": [1], "tiles": 1, "nbytes": 2}
        if words is None:
            assert Plan.parse(ABOUT | about).tiles == 1
        else:
            with pytest.raises(ProtocolError, match=words):
                Plan.parse(ABOUT | about)
