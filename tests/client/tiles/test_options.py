"""What is said of a view in Python, as the contract has it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client.tiles.requests import ViewSpec, dataset_spec

MASK = np.array([[True, False, True], [False, False, True]])


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {}),
        ({"select": {"all": True}, "dtype": None}, {"select": {"all": True}}),
        ({"frames": [3, 1, 1]}, {"select": {"frames": [3, 1, 1]}}),
        ({"frames": np.array([3, 1], "u2")}, {"select": {"frames": [3, 1]}}),
        ({"frames": range(2, 4)}, {"select": {"frames": [2, 3]}}),
        ({"nav": slice(1, None)}, {"select": {"nav": [[1, 10, 1], [0, 20, 1]]}}),
        ({"nav": (slice(-3, -1), slice(1, None, 5))}, {"select": {"nav": [[7, 9, 1], [1, 20, 5]]}}),
        ({"nav": [(1, 4), (2, 9, 3)]}, {"select": {"nav": [[1, 4, 1], [2, 9, 3]]}}),
        ({"nav": (1, 4)}, {"select": {"nav": [[1, 2, 1], [4, 5, 1]]}}),
        ({"nav": np.int64(-1)}, {"select": {"nav": [[9, 10, 1], [0, 20, 1]]}}),
        ({"nav": (3, slice(5))}, {"select": {"nav": [[3, 4, 1], [0, 5, 1]]}}),
        ({"shuffle": np.int64(7)}, {"select": {"shuffle": {"seed": 7}}}),
        ({"sig": (slice(8), slice(2, 6))}, {"sig": [[0, 8], [2, 6]]}),
        ({"bin": {"nav": np.int8(2)}, "casting": "clip"}, {"bin": {"nav": 2}, "casting": "clip"}),
        ({"tile_shape": (np.int64(4), 8)}, {"tile_shape": [4, 8]}),
        ({"dtype": np.float32, "missing": "nan"}, {"dtype": "<f4", "missing": "nan"}),
        ({"dtype": ">i2", "corrections": False}, {"dtype": ">i2", "corrections": False}),
        ({"sync_offset": -3, "target_bytes": 9}, {"sync_offset": -3, "target_bytes": 9}),
    ],
)
def test_options(options: Any, wanted: dict[str, Any]) -> None:  # noqa: ANN401
    assert ViewSpec(options).json((10, 20), (8, 8)) == wanted


@pytest.mark.parametrize(
    "options",
    [
        {"frames": [1], "mask": MASK},
        {"frames": [0.5]},
        {"frames": [True, False]},
        {"frames": 5},
        {"mask": [0, 1]},
        {"nav": slice(None, None, -1)},
        {"nav": slice(0, 5, 0)},
        {"nav": [slice(1)] * 3},
        {"nav": [(1, 2, 3, 4)]},
        {"sig": slice(0, 8, 2)},
        {"nav": (1, 2, 3)},
        {"sig": (2, 6)},
    ],
)
def test_options_that_cannot_be(options: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=r"exclude|list|mask|forward|slice|start|steps|axes"):
        ViewSpec(options).json((10, 20), (8, 8))


@pytest.mark.parametrize(
    "options", [{"shuffle": 1.5}, {"shuffle": True}, {"shuffle": "7"}, {"nav": True}, {"nav": 0.5}]
)
def test_what_is_no_integer_is_named(options: Any) -> None:  # noqa: ANN401
    value = repr(next(iter(options.values())))
    with pytest.raises(TypeError, match=rf"(shuffle|an index) is {value}, not an integer"):
        ViewSpec(options).json((10, 20), (8, 8))


def test_masks_have_the_shape_of_the_scan() -> None:
    wanted = {"select": {"mask": base64.b64encode(b"\xa4").decode()}}
    assert ViewSpec({"mask": MASK}).json(MASK.shape, (8, 8)) == wanted
    with pytest.raises(ValueError, match=r"the mask has the shape \(6,\), and the scan \(2, 3\)"):
        ViewSpec({"mask": MASK.ravel()}).json((2, 3), (8, 8))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"nav": (10, 0)}, "positions are 0 to 9"),
        ({"nav": (0, -21)}, "positions are 0 to 19"),
        ({"nav": slice(0, 11)}, "nav goes to 11 along axis 0, which has a length of 10"),
        ({"nav": (0, slice(-21, None))}, "nav goes to -21 along axis 1, which has a length of 20"),
        ({"nav": [(0, 4), (2, 21)]}, "nav goes to 21 along axis 1"),
        ({"sig": (slice(None), slice(0, 9))}, "sig goes to 9 along axis 1"),
    ],
)
def test_positions_that_the_scan_lacks(options: Any, found: str) -> None:  # noqa: ANN401
    with pytest.raises(IndexError, match=found):
        ViewSpec(options).json((10, 20), (8, 8))


def test_unknown_options() -> None:
    with pytest.raises(TypeError, match=r"an index or a slice per axis; dataset\[\[0, 5\], 7\]"):
        ViewSpec({"nav": ([0, 10], [3, 9])})
    with pytest.raises(TypeError, match="colour"):
        ViewSpec({"colour": 1})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(TypeError, match="dtype is 'uint12', which is no type: try '<f4'"):
        ViewSpec({"dtype": "uint12"})


def test_the_shape_is_needed_for_slices_only() -> None:
    assert ViewSpec({"nav": slice(3)}).needs_shape
    assert not ViewSpec({"frames": [3], "bin": {"sig": 2}}).needs_shape


def test_what_is_said_of_a_dataset() -> None:
    for wrong in ("scan.npy", [Path("scan.npy")]):
        with pytest.raises(TypeError, match=r"scan.npy.* describes no dataset: give register\("):
            dataset_spec(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dtype is 'uint12', which is no type"):
        dataset_spec(files=["a"], dtype="uint12")
    spec = {"files": [Path("a.raw")], "dtype": np.uint16, "nav_shape": (2, np.int64(3))}
    assert dataset_spec(spec | {"glob": None}) == {
        "files": ["a.raw"],
        "dtype": "<u2",
        "nav_shape": [2, 3],
    }
