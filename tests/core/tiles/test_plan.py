"""Views that just fit the data, and those that just do not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core.errors import CastingError, SelectionError, ShapeError
from core.tiles.plan import Plan, make_plan
from core.tiles.recording import Extent, Recording
from core.tiles.view import parse_view


def recording(frames: int, nav_shape: tuple[int, ...]) -> Recording:
    return Recording(
        format="raw",
        extents=(Extent(file=0, offset=0, frames=frames, stride=2),),
        sig_shape=(1, 1),
        nav_shape=nav_shape,
        dtype=np.dtype("u2"),
        stored=np.dtype("<u2"),
        frame_bytes=2,
    )


def plan(frames: int, nav_shape: tuple[int, ...], **spec: Any) -> Plan:  # noqa: ANN401
    return make_plan(recording(frames, nav_shape), parse_view(spec))


@pytest.mark.parametrize("missing", ["skip", "zero"])
def test_a_scan_may_begin_at_any_frame_there_is(missing: str) -> None:
    for sync in (-8, -5, 5):
        made = plan(6, (3, 3), sync_offset=sync, missing=missing)
        assert made.sync_offset == sync
    for sync in (-10, -9, 6, 7):
        with pytest.raises(SelectionError, match=r"no position of .3, 3. with a frame, of 6"):
            plan(6, (3, 3), sync_offset=sync, missing=missing)


def test_there_is_no_tile_after_the_last() -> None:
    made = plan(6, (2, 3), tile_shape=[1, 2, 1, 1])
    assert [made.tile(k).origin[:2] for k in range(4)] == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert [made.tile(k).nbytes for k in range(4)] == [4, 2, 4, 2]
    assert [made.tile(k).offset for k in range(4)] == [0, 4, 6, 10]
    for index in (-1, 4):
        with pytest.raises(SelectionError, match=f"no tile {index}"):
            made.tile(index)


def test_a_part_of_a_frame_may_reach_its_border() -> None:
    assert plan(6, (6,), sig=[[0, 1], [0, 1]]).sig_shape == (1, 1)
    for sig in ([[0, 2], [0, 1]], [[0, 1], [0, 2]]):
        with pytest.raises(SelectionError, match="sig goes to 2"):
            plan(6, (6,), sig=sig)
    with pytest.raises(ShapeError):
        plan(6, (6,), sig=[[0, 1]])


def test_depth_in_frames_goes_over_rows_of_the_scan() -> None:
    made = plan(12, (3, 4), tile_shape=[5, 1, 1])
    assert made.nav_shape == (12,)
    assert [made.frames_of(made.tile(k)).reshape(-1).tolist() for k in range(3)] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [10, 11],
    ]
    picked = plan(12, (3, 4), tile_shape=[2, 1, 1], select={"nav": [[0, 3, 2], [1, 4]]})
    assert [picked.frames_of(picked.tile(k)).reshape(-1).tolist() for k in range(3)] == [
        [1, 2],
        [3, 9],
        [10, 11],
    ]
    with pytest.raises(ShapeError, match="does not go with bin"):
        plan(12, (2, 6), tile_shape=[1, 1, 1], bin={"nav": 2})


def test_a_tile_has_at_most_64_mebibytes() -> None:
    side = 1 << 12
    large = replace(recording(4, (4,)), sig_shape=(side, side), frame_bytes=2 * side * side)
    assert make_plan(large, parse_view({"tile_shape": [2, side, side]})).tile(0).nbytes == 64 << 20
    for tile_shape in ([3, side, side], [4, side, side]):
        with pytest.raises(ShapeError, match="more than"):
            make_plan(large, parse_view({"tile_shape": tile_shape}))
    assert make_plan(large, parse_view({"target_bytes": 1 << 40})).tile(0).nbytes == 64 << 20


def test_a_tile_is_summed_from_at_most_a_gibibyte() -> None:
    side = 1 << 12
    large = replace(recording(64, (64,)), sig_shape=(side, side), frame_bytes=2 * side * side)
    made = make_plan(large, parse_view({"bin": {"nav": 64}, "tile_shape": [1, side, side // 2]}))
    assert made.tiles == 2
    with pytest.raises(ShapeError, match="is summed from"):
        make_plan(large, parse_view({"bin": {"nav": 64}, "tile_shape": [1, side, side]}))


def test_frames_that_are_missing_are_none() -> None:
    made = plan(4, (6,), missing="zero", sync_offset=-1, tile_shape=[6, 1, 1])
    assert made.frames_of(made.tile(0)).reshape(-1).tolist() == [-1, 0, 1, 2, 3, -1]
    assert not made.complete
    later = plan(4, (6,), missing="zero", sync_offset=1, tile_shape=[6, 1, 1])
    assert later.frames_of(later.tile(0)).reshape(-1).tolist() == [1, 2, 3, -1, -1, -1]
    assert plan(6, (6,), missing="zero").complete
    skipped = plan(4, (6,), missing="skip", sync_offset=-1, tile_shape=[6, 1, 1])
    assert skipped.frames_of(skipped.tile(0)).reshape(-1).tolist() == [0, 1, 2, 3]
    assert skipped.complete
    for integers, floats in (("<u4", "<f8"), ("<i8", "<f8"), ("|u1", "<f4"), ("<i2", "<f4")):
        with pytest.raises(CastingError, match=rf"cannot be NaN in {re.escape(integers)}") as e:
            plan(4, (6,), missing="nan", dtype=integers)
        assert e.value.hint == f"Leave dtype out, or request '{floats}'"
    for given, dtype in ((None, "<f4"), ("<f8", "<f8")):
        assert plan(4, (6,), missing="nan", dtype=given).dtype == np.dtype(dtype)


def test_sums_are_as_wide_as_it_takes() -> None:
    whole = {"tile_shape": [1, 1, 1]}
    for stored, view, made in (
        ("u1", {"bin": {"nav": 2}}, "<u4"),
        (">i2", {"bin": {"nav": 2}}, "<i4"),
        ("u4", {"bin": {"nav": 2}}, "<u8"),
        ("f4", {"bin": {"nav": 2}}, "<f4"),
        ("u1", {"bin": {"nav": 2}, "dtype": "u1"}, "|u1"),
        (">u2", {}, "<u2"),
        (">u4", {"missing": "nan"}, "<f8"),
        ("u1", {"bin": {"nav": 2}, "missing": "nan"}, "<f8"),
        ("c8", {}, "<c8"),
    ):
        found = replace(recording(6, (6,)), dtype=np.dtype(stored))
        assert make_plan(found, parse_view({**whole, **view})).dtype.str == made


def test_the_parts_of_a_tile_have_its_frames_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("core.tiles.plan._PART", 8)
    views: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((4, 6), {"tile_shape": [3, 5, 1, 1]}),
        ((2, 30), {"tile_shape": [2, 30, 1, 1]}),
        ((1, 5, 12), {"tile_shape": [1, 2, 11, 1, 1]}),
        ((60,), {"tile_shape": [31, 1, 1]}),
        ((4, 6), {"tile_shape": [17, 1, 1]}),
        ((4, 12), {"bin": {"nav": 2}, "tile_shape": [2, 6, 1, 1]}),
        ((9, 9), {"bin": {"nav": 3}, "tile_shape": [2, 2, 1, 1]}),
    ]
    for scan, spec in views:
        made = plan(int(np.prod(scan)), scan, **spec)
        for tile in map(made.tile, range(made.tiles)):
            parts = list(made.parts(tile))
            frames = [made.frames_of(part) for part in parts]
            assert (np.concatenate(frames) == made.frames_of(tile)).all()
            assert all(part.size <= 8 or len(part) == 1 for part in frames)
            assert (len(parts) == 1) == (parts[0] is tile)


def test_a_table_of_tiles_has_what_each_tile_has() -> None:
    for spec in ({"tile_shape": [3, 5, 1, 1]}, {"tile_shape": [5, 1, 1]}, {}):
        made = plan(24, (4, 6), **spec)
        tiles = [made.tile(k) for k in range(made.tiles)]
        table = made.table()
        axes = range(len(made.shape))
        names = [f"{name}_{axis}" for axis in axes for name in ("origin", "shape")]
        assert list(table) == ["tile", "offset", "nbytes", *names]
        for name in ("offset", "nbytes"):
            assert table[name].tolist() == [getattr(tile, name) for tile in tiles]
        assert table["tile"].tolist() == list(range(made.tiles))
        for axis in axes:
            assert table[f"origin_{axis}"].tolist() == [tile.origin[axis] for tile in tiles]
            assert table[f"shape_{axis}"].tolist() == [tile.shape[axis] for tile in tiles]
