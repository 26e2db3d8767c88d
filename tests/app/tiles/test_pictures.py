"""Arrays as PNG images."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt
import pytest

from app.errors import InvalidOptionError
from app.tiles.pictures import MAPS, png, scaled
from core.budget import installed
from core.errors import CancelledError
from core.slices import SLICE
from tests.core.test_slices import Leaving


def pixels_of(data: bytes) -> npt.NDArray[np.uint8]:
    """The pixels of an image, read from the PNG standard's description."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = {}, 8
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        (check,) = struct.unpack_from(">I", data, at + 8 + size)
        assert check == zlib.crc32(name + body)
        chunks[name] = body
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    columns, rows, depth, kind, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, rest) == (8, [0, 0, 0])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(rows, -1)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(rows, columns, {0: 1, 2: 3, 4: 2, 6: 4}[kind])


def test_gray_values_come_back() -> None:
    values = np.linspace(0, 1, 12).reshape(3, 4)
    assert np.array_equal(pixels_of(png(values, "gray"))[..., 0], np.rint(values * 255))


@pytest.mark.parametrize("colours", ["gray", "viridis"])
def test_positions_without_a_value_are_transparent(colours: str) -> None:
    values = np.random.default_rng(5).random((4, 6))
    opaque = pixels_of(png(values, colours))
    holes = values.copy()
    holes[1, 2] = holes[3] = np.nan
    drawn = pixels_of(png(holes, colours))
    np.testing.assert_array_equal(drawn[..., -1], np.where(np.isnan(holes), 0, 255))
    kept = ~np.isnan(holes)
    np.testing.assert_array_equal(drawn[kept][:, :-1], opaque[kept])


def test_colours_go_from_dark_blue_to_yellow() -> None:
    dark, middle, light = pixels_of(png(np.array([[0.0, 0.5, 1.0]]), "viridis"))[0].astype(int)
    assert np.abs(dark - [68, 1, 84]).max() < 5
    assert np.abs(middle - [33, 145, 140]).max() < 5
    assert np.abs(light - [253, 231, 37]).max() < 5


@pytest.mark.parametrize("name", [name for name in MAPS if name != "gray"])
def test_maps_are_as_matplotlib_has_them(name: str) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    values = np.linspace(0, 1, 101)
    drawn = pixels_of(png(values.reshape(1, -1), name))[0] / 255
    assert np.abs(drawn - matplotlib.colormaps[name](values)[:, :3]).max() < 0.06


def test_logarithms_fill_the_scale() -> None:
    values = np.array([0.0, -1.0, 1.0, 10.0, 100.0, np.nan])
    expected = [0, 0, 0, 0.5, 1, np.nan]
    np.testing.assert_array_equal(scaled(values, 0, 100, log=True), expected)


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="no colour map"):
        png(np.zeros((2, 2)), "jet")
    for shape in ((4,), (2, 2, 2)):
        with pytest.raises(InvalidOptionError, match="not an image"):
            png(np.zeros(shape), "gray")


def test_values_between_percentiles_fill_the_scale() -> None:
    values = np.arange(101.0)
    assert np.array_equal(scaled(values, 0, 100), values / 100)
    assert np.allclose(scaled(values, 10, 90), np.clip((values - 10) / 80, 0, 1))


def test_values_that_are_not_finite_do_not_stretch_the_scale() -> None:
    values = np.array([0.0, 1.0, 2.0, np.nan, np.inf, -np.inf])
    np.testing.assert_array_equal(scaled(values, 0, 100), [0, 0.5, 1, np.nan, 1, 0])


def test_equal_values_are_the_bottom_of_the_scale() -> None:
    assert scaled(np.full((2, 2), 7.0), 1, 99).tolist() == [[0, 0], [0, 0]]


def test_pictures_are_drawn_some_lines_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).random((700, 400))
    for colours in ("gray", "viridis"):
        drawn = png(values, colours)
        with monkeypatch.context() as patch:
            patch.setattr("app.tiles.pictures._TOGETHER", 1 << 40)
            assert png(values, colours) == drawn
        with installed(Leaving(2)), pytest.raises(CancelledError):
            png(values, colours)


def test_values_are_scaled_some_at_a_time() -> None:
    values = np.random.default_rng(4).normal(0, 1, (1100, 1000))
    values[::7, 3], values[5, 5], values[6, 6] = np.nan, np.inf, -np.inf
    finite = values[np.isfinite(values)]
    bottom, top = np.percentile(finite, [1, 99])
    with np.errstate(invalid="ignore"):
        expected = np.clip((values - bottom) / (top - bottom), 0, 1)
    np.testing.assert_array_equal(scaled(values, 1, 99), expected)
    # Two slices are looked for finite values, and scaled; each percentile is a look.
    for looks in range(6):
        with installed(Leaving(looks)), pytest.raises(CancelledError):
            scaled(values, 1, 99)


def test_finite_values_are_taken_between_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    isfinite = np.isfinite

    def take(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        taken.append(values.size)
        found: npt.NDArray[np.bool_] = isfinite(values)
        return found

    monkeypatch.setattr(np, "isfinite", take)
    with installed(Leaving(1)), pytest.raises(CancelledError):
        scaled(np.zeros(2 * SLICE), 1, 99)
    assert taken == [SLICE]


@pytest.mark.parametrize(("value", "log"), [(np.nan, False), (np.inf, False), (0.0, True)])
def test_a_picture_of_nothing_is_refused(value: float, log: bool) -> None:
    with pytest.raises(InvalidOptionError, match="there is nothing to show"):
        scaled(np.full((2, 2), value), 1, 99, log=log)
