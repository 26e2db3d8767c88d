"""The order of a view's frames, frozen: tokens, entity tags and addresses of tiles rest on it."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import numpy as np
import pytest

from core.arrays import Indices
from core.tiles.plan import Plan
from core.tiles.positions import resolve
from core.tiles.view import Shuffle
from tests.core.tiles.test_plan import plan
from tests.scale import PURE_PYTHON, SOAK

MOST = 2**64 - 1
ORDERS = [
    (1, 0, "af5570f5a1810b7a"),
    (1, MOST, "af5570f5a1810b7a"),
    (2, 0, "4cbbd8ca5215b8d1"),
    (2, MOST, "9d34149fbd1fe777"),
    (3, 0, "b3db6650e4598ca5"),
    (3, 7, "23e8d60b496f9e37"),
    (3, 2**40 + 3, "53afea624a503a0b"),
    (97, 0, "1f00ff72275bdf26"),
    (97, 7, "8e62cc47de446980"),
    (97, MOST, "f51c845aa436f82a"),
    (4096, 2**40 + 3, "20ed5c0f9d418ceb"),
    (65_537, 7, "1ad79c1b94eb2501"),
    (65_537, MOST, "b9e822b7683ed5ae"),
    (1 << 20, 7, "01aeb6b117eec158"),
    ((1 << 20) + 1, 7, "7771a6cff8a6ba98"),
    ((1 << 20) + 7, MOST, "76e9302e6a6adf0d"),
    (4_194_301, MOST, "d586fa9f4a458024"),
]
LONG = [(1 << 26, 7, "2d5c289ea28c09f5"), ((1 << 24) + 43, MOST, "74d9a32e5812ac5b")]
VIEWS: list[tuple[int, tuple[int, ...], dict[str, Any], str]] = [
    (5000, (50, 101), {"select": {"shuffle": {"seed": 3}}}, "(5000,) e9bd9027bd6805e2"),
    (
        5000,
        (50, 101),
        {"select": {"shuffle": {"seed": 3}}, "sync_offset": 1001},
        "(3999,) 6a8c08228ee89809",
    ),
    (
        5000,
        (50, 101),
        {"select": {"shuffle": {"seed": 3}}, "sync_offset": -997},
        "(4053,) e1dd70db4d3dbbfb",
    ),
    (
        5000,
        (50, 101),
        {"select": {"shuffle": {"seed": 3}}, "sync_offset": 77, "missing": "zero"},
        "(5050,) d4a9f8bd48881d5f",
    ),
    (
        5000,
        (50, 100),
        {"select": {"shuffle": {"seed": 8}}, "bin": {"nav": 10}},
        "(500,) 553dfdc47fd89efa",
    ),
    (5000, (50, 101), {"select": {"nav": [[3, 50, 4], [1, 101, 3]]}}, "(12, 34) 8cdf39706c5afddd"),
    (4000, (50, 101), {"select": {"nav": [[3, 50, 4], [1, 101, 3]]}}, "(326,) 2c816378f2f80491"),
    (
        4000,
        (50, 101),
        {"select": {"nav": [[3, 50, 4], [1, 101, 3]]}, "sync_offset": -900},
        "(340,) 4aaabe052f85bb96",
    ),
    (
        4000,
        (10, 5, 101),
        {"select": {"nav": [[1, 10, 2], [0, 5, 1], [7, 99, 9]]}},
        "(215,) de8d8f1a001b92b7",
    ),
    (4000, (10, 5, 101), {"tile_shape": [37, 1, 1]}, "(4000,) f222201c5bedc561"),
    (4000, (10, 5, 101), {"tile_shape": [37, 1, 1], "missing": "zero"}, "(5050,) 09d174b04e90c430"),
    (
        4000,
        (10, 5, 101),
        {
            "select": {"nav": [[1, 10, 2], [0, 5, 1], [7, 99, 9]]},
            "tile_shape": [37, 1, 1],
            "missing": "zero",
        },
        "(275,) 246ad28710aaa004",
    ),
    (4000, (50, 101), {"select": {"frames": [4000, 3999, 0, 3999, 5049]}}, "(3,) 349d8259f02ac65a"),
    (
        4000,
        (50, 101),
        {
            "select": {"frames": [4000, 3999, 0, 3999, 5049]},
            "sync_offset": 5,
            "missing": "zero",
        },
        "(5,) c1a9feba68546b38",
    ),
    (4000, (50, 101), {"select": {"mask": "MASK"}}, "(1100,) 11a95956414989e2"),
    (4000, (50, 101), {"select": {"mask": "MASK"}, "sync_offset": 500}, "(934,) 87dac9fc8f40fe39"),
    (
        4000,
        (50, 101),
        {"select": {"mask": "MASK"}, "sync_offset": -500},
        "(1099,) 68c86a2d4c6b21ce",
    ),
    (
        4000,
        (50, 101),
        {"select": {"mask": "MASK"}, "sync_offset": 500, "missing": "zero"},
        "(1451,) 340d276da1fe4f79",
    ),
]


def mask() -> str:
    """Return a mask of 50 by 101 positions, about a third of them set, some stretches empty."""
    index = np.arange(5050)
    chosen = (index * 2654435761 % 2**32 < 2**32 // 3) & (index // 700 != 2)
    return base64.b64encode(np.packbits(chosen).tobytes()).decode()


def digest(order: Indices) -> str:
    return hashlib.sha256(np.ascontiguousarray(order).astype("<i8").tobytes()).hexdigest()[:16]


def order_of(size: int, seed: int) -> str:
    return digest(resolve(Shuffle(seed), (size,)).box((0,), (size,)))


def frames_of(made: Plan) -> Indices:
    return np.concatenate([made.frames_of(made.tile(k)).reshape(-1) for k in range(made.tiles)])


@pytest.mark.parametrize(("size", "seed", "expected"), ORDERS)
def test_the_order_of_a_shuffle_is_frozen(size: int, seed: int, expected: str) -> None:
    if PURE_PYTHON and size > 1 << 14:
        pytest.skip("takes a minute without kernels")
    assert order_of(size, seed) == expected


@pytest.mark.skipif(not SOAK or PURE_PYTHON, reason="takes seconds and hundreds of megabytes")
@pytest.mark.parametrize(("size", "seed", "expected"), LONG)
def test_the_order_of_a_long_shuffle_is_frozen(size: int, seed: int, expected: str) -> None:
    assert order_of(size, seed) == expected


@pytest.mark.parametrize("case", range(len(VIEWS)))
def test_the_frames_of_a_view_are_frozen(case: int) -> None:
    frames, scan, spec, expected = VIEWS[case]
    if spec.get("select", {}).get("mask"):
        spec = {**spec, "select": {"mask": mask()}}
    for target in (2, 514, 1 << 20):
        sized = spec if "tile_shape" in spec else {**spec, "target_bytes": target}
        made = plan(frames, scan, **sized)
        assert f"{made.nav_shape} {digest(frames_of(made))}" == expected
