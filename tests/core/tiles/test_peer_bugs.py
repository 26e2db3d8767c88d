"""What a widely used reader of such files gets wrong, and what numpy says it should be.

Each test is about one way in which libertem 0.16 gives wrong values, or none at all, for
headerless files and numpy's own; ``tests.compat.libertem_differential`` shows them live.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from core.errors import OptionError, ShapeError
from core.tiles.corrections import Corrections
from core.tiles.frames import FileFrames
from core.tiles.plan import make_plan
from core.tiles.reader import TileReader
from core.tiles.recording import Hints
from core.tiles.view import parse_view
from tests.core.tiles import files, reference
from tests.core.tiles.files import Ranges

Array = npt.NDArray[Any]

GAIN = np.full((8, 8), 2.0, np.float32)
WAYS = pytest.mark.parametrize("in_place", [False, True], ids=["read", "mapped"])


class Dataset:
    """Frames in one or more headerless files, or one of numpy's."""

    def __init__(
        self,
        contents: Sequence[bytes],
        sig: tuple[int, ...],
        dtype: str | None,
        *,
        scan: tuple[int, ...] | None = None,
        in_place: bool = False,
    ) -> None:
        named = {f"frames_{k:03d}": content for k, content in enumerate(contents)}
        stored = None if dtype is None else np.dtype(dtype)
        hints = Hints(dtype=stored, nav_shape=scan, sig_shape=sig)
        self.recording = files.read(named, hints, "raw" if dtype else "npy")
        self._ranges = Ranges(contents, in_place=in_place)

    def tiles(self, spec: dict[str, Any], corrections: Corrections | None = None) -> list[Array]:
        """All tiles of a view, kept until the last was read."""
        plan = make_plan(self.recording, parse_view(spec))
        source = FileFrames(self.recording, self._ranges)
        reader = TileReader(plan, self.recording, source, corrections)
        return [reader.read(plan.tile(k)) for k in range(plan.tiles)]


def npy(values: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


@WAYS
def test_1_byte_orders_of_one_process_do_not_mix(in_place: bool) -> None:
    rng = np.random.default_rng(1)
    types = [">u2", ">u4", ">u8", "<u2", ">u4", ">u2", ">i2", ">f4", ">f8", ">i4", ">i8"]
    for read in ("<f4", "<f8"):
        for name in types:
            values = rng.integers(0, 127, (6, 5, 4)).astype(name)
            values.view(np.uint8)[...] &= 0x3F  # other values if the bytes are turned otherwise
            dataset = Dataset([values.tobytes()], (5, 4), name, in_place=in_place)
            made = np.concatenate(dataset.tiles({"dtype": read, "tile_shape": [4, 5, 4]}))
            np.testing.assert_array_equal(made, values.astype(read), err_msg=f"{name} as {read}")


@WAYS
@pytest.mark.parametrize("name", [">i2", ">i4", ">i8"])
@pytest.mark.parametrize("read", ["<f4", "<f8", "<i8"])
def test_2_signed_big_endian_values_keep_their_sign(name: str, read: str, in_place: bool) -> None:
    limits = np.iinfo(name)
    line = np.array([-1, -300, 0, 1, 300, limits.min, limits.max, -32768], name)
    values = np.tile(line, (3, 2, 1))
    for content, dtype in ((values.tobytes(), name), (npy(values), None)):
        (made,) = Dataset([content], (2, 8), dtype, in_place=in_place).tiles({"dtype": read})
        np.testing.assert_array_equal(made, values.astype(read))


@WAYS
@pytest.mark.parametrize("name", ["<f2", ">f2", ">f4", ">f8", ">c8", ">c16"])
def test_3_floats_of_any_order_and_width_are_read(name: str, in_place: bool) -> None:
    dtype = np.dtype(name)
    rng = np.random.default_rng(3)
    values = rng.normal(0, 9, (5, 3, 4)).astype("f8")
    if dtype.kind == "c":
        values = values + 1j * rng.normal(0, 9, values.shape)
    values.reshape(-1)[:3] = np.nan, np.inf, -0.0
    values = values.astype(dtype)
    reads = ["<c8", "<c16"] if dtype.kind == "c" else ["<f2", "<f4", "<f8"]
    for content, given in ((values.tobytes(), name), (npy(values), None)):
        dataset = Dataset([content], (3, 4), given, in_place=in_place)
        for read in reads:
            (made,) = dataset.tiles({"dtype": read})
            np.testing.assert_array_equal(made, values.astype(read))


@WAYS
@pytest.mark.parametrize("extra", [0, 1, 2, 3, 63, 64, 65, 96, 126, 127])
def test_4_any_bytes_behind_the_last_frame_are_left_alone(extra: int, in_place: bool) -> None:
    values = np.arange(4 * 8 * 8, dtype="<u2").reshape(4, 8, 8)
    dataset = Dataset([values.tobytes() + b"\xee" * extra], (8, 8), "<u2", in_place=in_place)
    assert dataset.recording.frames == 4
    assert bool(dataset.recording.notes) is bool(extra)
    for spec in ({}, {"dtype": "<f4"}, {"tile_shape": [3, 5, 8]}):
        made = dataset.tiles(spec)
        assert sum(tile.size for tile in made) == values.size
        if "tile_shape" not in spec:
            np.testing.assert_array_equal(made[0], values)


@WAYS
@pytest.mark.parametrize("depth", range(1, 12))
@pytest.mark.parametrize("read", ["<u2", "<f4"])
def test_5_tiles_go_on_across_files(depth: int, read: str, in_place: bool) -> None:
    values = np.arange(21 * 8 * 8, dtype="<u2").reshape(21, 8, 8)
    parts = [values[:10], values[10:13], values[13:]]
    contents = [part.tobytes() for part in parts]
    dataset = Dataset(contents, (8, 8), "<u2", in_place=in_place)
    made = dataset.tiles({"dtype": read, "tile_shape": [depth, 8, 8]})
    assert [len(tile) for tile in made] == [min(depth, 21 - at) for at in range(0, 21, depth)]
    np.testing.assert_array_equal(np.concatenate(made), values.astype(read))


@WAYS
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8])
def test_9_excluded_pixels_are_right_where_tiles_end(rows: int, in_place: bool) -> None:
    rng = np.random.default_rng(9)
    values = rng.integers(0, 500, (3, 8, 8)).astype("<u2")
    bad = np.array([(3, 3), (4, 4), (0, 0), (7, 7), (4, 0), (3, 1)])
    dark = rng.normal(5, 2, (8, 8)).astype("f4")
    gain = rng.uniform(0.5, 2, (8, 8)).astype("f4")
    dataset = Dataset([values.tobytes()], (8, 8), "<u2", in_place=in_place)
    wanted = reference.corrected(values, dark, gain, bad)
    for columns in (8, 3):
        spec = {"dtype": "<f4", "tile_shape": [2, rows, columns]}
        made = dataset.tiles(spec, Corrections((8, 8), dark, gain, bad))
        whole = np.zeros((3, 8, 8), "f4")
        plan = make_plan(dataset.recording, parse_view(spec))
        for k, tile in enumerate(made):
            whole[tuple(slice(*pair) for pair in plan.tile(k).box)] = tile
        np.testing.assert_allclose(whole, wanted, rtol=1e-5)


def test_10_lists_and_masks_are_told_apart_by_name() -> None:
    values = np.arange(4 * 2 * 2, dtype="<u2").reshape(4, 2, 2)
    dataset = Dataset([values.tobytes()], (2, 2), "<u2")
    (listed,) = dataset.tiles({"select": {"frames": [3, 1, 1]}})
    np.testing.assert_array_equal(listed, values[[3, 1, 1]])
    bits = base64.b64encode(np.packbits([False, True, True, False]).tobytes()).decode()
    (masked,) = dataset.tiles({"select": {"mask": bits}})
    np.testing.assert_array_equal(masked, values[1:3])
    with pytest.raises(OptionError):
        dataset.tiles({"select": [3, 1, 1]})
    with pytest.raises(OptionError):
        dataset.tiles({"select": {"mask": [3, 1, 1]}})
    with pytest.raises(OptionError):
        dataset.tiles({"select": {"frames": [True, False, True]}})
    longer = base64.b64encode(np.packbits([True] * 9).tobytes()).decode()
    with pytest.raises(ShapeError):
        dataset.tiles({"select": {"mask": longer}})


@WAYS
@pytest.mark.parametrize("read", ["<u2", "<f4"])
def test_11_tiles_may_be_kept(read: str, in_place: bool) -> None:
    rng = np.random.default_rng(11)
    values = rng.integers(0, 60_000, (16, 8, 8)).astype(">u2")
    dataset = Dataset([values.tobytes()], (8, 8), ">u2", in_place=in_place)
    kept = dataset.tiles({"dtype": read, "tile_shape": [4, 8, 8]})
    assert len(kept) == 4
    np.testing.assert_array_equal(np.concatenate(kept), values.astype(read))
    spec = {"dtype": "<f4", "tile_shape": [4, 8, 8]}
    gained = dataset.tiles(spec, Corrections((8, 8), None, GAIN))
    np.testing.assert_array_equal(np.concatenate(gained), values.astype("f4") * GAIN)
