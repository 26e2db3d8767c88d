"""Weights of the pixels as virtual detectors, against numpy; other detectors: test_reduce.py."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from core.errors import OptionError, ShapeError
from core.tiles.detectors import parse_detector
from core.tiles.reduce import Reducer, parse_reduction


def weights_of(image: npt.NDArray[Any], **other: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    data = base64.b64encode(image.tobytes()).decode()
    return {"weights": {"dtype": image.dtype.str, "shape": [*image.shape], "data": data, **other}}


@pytest.mark.parametrize("dtype", ["?", "u1", "<i2", ">u4", "<i8", "<f2", "<f4", ">f8"])
def test_pixels_count_by_their_weights(dtype: str) -> None:
    rng = np.random.default_rng(3)
    frames = rng.normal(100, 20, (9, 8, 131))
    images = [rng.integers(0, 2, (8, 131)).astype(dtype) for _ in range(2)]
    if dtype not in {"?", "u1", ">u4"}:
        images[1] = (images[1] - rng.integers(0, 9, (8, 131))).astype(dtype)
    frames[4, images[0] == 0] = np.nan
    reduction = parse_reduction(
        {"op": "virtual", "detectors": [*map(weights_of, images)]}, (8, 131)
    )
    reducer = Reducer(reduction, (8, 131), np.dtype("f8"))
    found = reducer.finish(reducer.partial(frames), (3, 3))
    for k, image in enumerate(images):
        terms = np.where(image == 0, 0, frames * image.astype("f8"))
        expected = terms.sum((1, 2)).reshape(3, 3)
        np.testing.assert_allclose(found[f"detector_{k}"], expected, rtol=1e-12, atol=1e-9)
    assert np.isfinite(found["detector_0"]).all()


def test_weights_say_whether_float32_rounds_them() -> None:
    exact = np.array([[1.5, -3], [0, 1 << 24]])
    for image in (exact, exact.astype("<i8"), exact > 0):
        assert parse_detector(weights_of(image), (2, 2)).fits_float32
    for image in (exact + 1e-9, exact.astype("<i8") + 1, exact * 1e300):
        assert not parse_detector(weights_of(image), (2, 2)).fits_float32
    assert parse_detector({"point": [1, 1]}, (2, 2)).fits_float32


ONES = np.ones((2, 3), "<f4")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"weights": [[1, 1, 1]] * 2}, "weights must be an object"),
        (weights_of(ONES.astype("<f16")), "weights are (float128|longdouble)"),
        (weights_of(ONES, shape=(2, 3)), "of another form"),
        (weights_of(ONES, data="AAAA\nAAAA"), "not base64"),
        ({"weights": {"dtype": "<f4", "shape": [2, 3]}}, "weights lack data"),
        (weights_of(ONES, shape=None), "weights lack shape"),
        (weights_of(ONES, shape=[2.0, 3.0]), r"the shape \[2.0, 3.0\], but frames"),
        (weights_of(ONES, shape=[True, 3]), r"the shape \[True, 3\], but frames"),
        (weights_of(ONES.astype("?"), data="AQIBAQEB"), "bytes other than 1 and 0"),
        (weights_of(ONES, dtype="\0"), r"dtype is '\\x00', which is no type"),
        (weights_of(ONES, size=6), "weights has no member 'size'"),
        (weights_of(ONES, dtype="text"), "dtype is 'text', which is no type"),
        (weights_of(ONES, data=7), "not a string of base64"),
        (weights_of(ONES, data="AA=A"), "not base64"),
        (weights_of(ONES, data="AAAA"), r"have 3 bytes, but \[2, 3\] of float32 are 24"),
        (weights_of(ONES.astype("<c8")), "weights are complex64"),
        (weights_of(ONES.reshape(3, 2)), r"the shape \[3, 2\], but frames of the view \[2, 3\]"),
        (weights_of(ONES.reshape(6)), r"shape \[6\], but"),
        (weights_of(ONES * np.nan), "not finite at 6 pixels"),
        (weights_of(ONES * 0), "0 at every pixel"),
    ],
)
def test_what_is_wrong_with_weights(spec: dict[str, Any], said: str) -> None:
    with pytest.raises((OptionError, ShapeError), match=said):
        parse_detector(spec, (2, 3))


def test_of_several_detectors_the_wrong_one_is_named() -> None:
    spec = {"op": "virtual", "detectors": [{"point": [0, 0]}, weights_of(ONES * np.nan)]}
    with pytest.raises(OptionError, match=r"^detectors\[1\]: weights are not finite at 6 pixels"):
        parse_reduction(spec, (2, 3))
    with pytest.raises(OptionError, match="a reduction lacks op"):
        parse_reduction(weights_of(ONES), (2, 3))
