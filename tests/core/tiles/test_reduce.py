"""Reductions against numpy, in any stretches."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from core.budget import installed
from core.errors import CancelledError, CoreError, OptionError, ShapeError
from core.slices import SLICE
from core.tiles.reduce import Partial, Reducer, expand_reduction, parse_reduction
from tests.core.test_slices import Leaving
from tests.scale import examples

DETECTORS = [
    {"disk": {"centre": [3.5, 4], "radius": 2.5}},
    {"annulus": {"centre": [3, 4], "inner": 1, "outer": 3}},
    {"rectangle": [[1, 5], [0, 9]]},
    {"point": [6, 2]},
]


def run(spec: dict[str, Any], frames: np.ndarray[Any, Any], cuts: list[int]) -> dict[str, Any]:
    sig = frames.shape[1:]
    reducer = Reducer(parse_reduction(spec, sig), sig, frames.dtype)
    ends = zip([0, *cuts], [*cuts, len(frames)], strict=True)
    parts = (reducer.partial(frames[a:b]) for a, b in ends if a < b)
    return reducer.finish(reducer.merge(parts, len(frames)), (len(frames),))


@pytest.mark.parametrize("seed", range(examples(40)))
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_reductions_are_what_numpy_says(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    frames = rng.normal(100, 20, (int(rng.integers(1, 40)), 8, 11)).astype(dtype)
    cuts = sorted(rng.integers(0, len(frames), int(rng.integers(0, 4)), endpoint=True).tolist())
    exact = frames.astype("f8")
    for op in ("sum", "mean", "std", "min", "max"):
        image = run({"op": op}, frames, cuts)[op]
        np.testing.assert_allclose(image, getattr(exact, op)(axis=0), rtol=1e-9, atol=1e-9)
        values = run({"op": op, "over": "pixels"}, frames, cuts)[op]
        np.testing.assert_allclose(values, getattr(exact, op)(axis=(1, 2)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("base", "width"), [(4e9, 1.0), (1e9, 1e-3), (-1e15, 2.0)])
def test_deviations_from_a_large_mean_are_exact(base: float, width: float) -> None:
    frames = base + width * np.random.default_rng(7).integers(0, 3, (90, 3, 4)).astype("f8")
    frames[:, 0, 0] = base + 0.1
    found = run({"op": "std"}, frames, [1, 30, 31, 60])["std"]
    assert found[0, 0] == 0
    centred = frames - frames[0]
    exact = (centred - centred.mean(0)).std(0)
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_of_a_nan_are_nan(op: str, dtype: str) -> None:
    """Wherever it is; infinities, whose sum is NaN too, have extremes."""
    rng = np.random.default_rng(2)
    frames = rng.normal(0, 1, (9, 8, 11)).astype(dtype)
    frames[0, 0, 0] = frames[3, 2, 5] = frames[8, 7, 10] = np.nan
    frames[5, 1, 1], frames[5, 6, 6], frames[6, 1, 1] = np.inf, -np.inf, -np.inf
    for cuts in ([], [1, 4], [3, 8]):
        image = run({"op": op}, frames, cuts)[op]
        np.testing.assert_array_equal(image, getattr(frames, op)(axis=0))
        values = run({"op": op, "over": "pixels"}, frames, cuts)[op]
        np.testing.assert_array_equal(values, getattr(frames, op)(axis=(1, 2)))


def test_detectors_and_centres() -> None:
    rng = np.random.default_rng(1)
    frames = rng.uniform(0, 9, (17, 8, 11)).astype("f4")
    frames[3] = 0
    y, x = np.indices((8, 11))
    masks = [
        np.hypot(y - 3.5, x - 4) <= 2.5,
        (np.hypot(y - 3, x - 4) >= 1) & (np.hypot(y - 3, x - 4) <= 3),
        (y >= 1) & (y < 5) & (x < 9),
        (y == 6) & (x == 2),
    ]
    exact = frames.astype("f8")
    found = run({"op": "virtual", "detectors": DETECTORS}, frames, [5, 9])
    for k, mask in enumerate(masks):
        np.testing.assert_allclose(found[f"detector_{k}"], exact[:, mask].sum(axis=1), rtol=1e-12)
    centre = run({"op": "com"}, frames, [5])
    total = exact.sum(axis=(1, 2))
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(centre["com_0"], (exact * y).sum(axis=(1, 2)) / total)
        np.testing.assert_allclose(centre["com_1"], (exact * x).sum(axis=(1, 2)) / total)
    assert np.isnan(centre["com_0"][3])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("form", [0, 1, 2, 3, "weights"])
def test_a_centre_of_mass_may_be_that_of_a_detector(form: int | str, dtype: str) -> None:
    rng = np.random.default_rng(7)
    frames = rng.uniform(1, 9000, (6, 8, 11)).astype(dtype)
    weights = rng.normal(2, 1, (8, 11))
    data = base64.b64encode(weights.tobytes()).decode()
    image = {"weights": {"dtype": "<f8", "shape": [8, 11], "data": data}}
    detector = image if isinstance(form, str) else DETECTORS[form]
    spec = {"op": "com", "detector": detector}
    parsed = parse_reduction(spec, (8, 11))
    # Callers then read frames as float64: the kernel's weights are of the type of these.
    assert parsed.fits_float32 == (form != "weights")
    exact = dtype == "f8" or parsed.fits_float32
    counts = parsed.detectors[0].weights((8, 11))
    frames[2, counts == 0] = np.nan
    found = run(spec, frames, [2])
    kept = np.where(counts == 0, 0, frames.astype("f8")) * counts
    for axis, grid in enumerate(np.indices((8, 11))):
        expected = (kept * grid).sum(axis=(1, 2)) / kept.sum(axis=(1, 2))
        np.testing.assert_allclose(found[f"com_{axis}"], expected, rtol=1e-9 if exact else 1e-6)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_outside_a_detector_does_not_count(odd: float, dtype: str) -> None:
    frames = np.random.default_rng(6).uniform(1, 9, (5, 8, 11)).astype(dtype)
    frames[1, 7, 10] = frames[2, 3, 4] = odd
    spec = {"op": "virtual", "detectors": DETECTORS}
    found = run(spec, frames, [2])
    for k, detector in enumerate(parse_reduction(spec, (8, 11)).detectors):
        inside = frames.astype("f8")[:, detector.weights((8, 11)) == 1].sum(axis=1)
        assert np.isfinite(inside[1])
        np.testing.assert_allclose(found[f"detector_{k}"], inside, rtol=1e-12)
    with np.errstate(invalid="ignore"):
        assert np.isnan(run({"op": "com"}, frames, [])["com_0"][[1, 2]]).all()


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"op": "median"},
        {"op": "sum", "over": "time"},
        {"op": "com", "over": "frames"},
        {"op": "com", "detectors": [{"point": [1, 1]}]},
        {"op": "com", "detector": [{"point": [1, 1]}]},
        {"op": "com", "detector": None},
        {"op": "sum", "detector": {"point": [1, 1]}},
        {"op": "sum", "detectors": []},
        {"op": "virtual"},
        {"op": "virtual", "detectors": []},
        {"op": "virtual", "detectors": ["disk"]},
        {"op": "virtual", "detectors": [{"blob": {}}]},
        {"op": "virtual", "detectors": [{"disk": {"centre": [1], "radius": 1}}]},
        {"op": "virtual", "detectors": [{"disk": {"centre": [1, 1], "radius": -1}}]},
        {"op": "virtual", "detectors": [{"disk": {"centre": [1, "x"], "radius": 1}}]},
        {"op": "virtual", "detectors": [{"disk": {"centre": [1, 1], "radius": 1, "w": 2}}]},
        {"op": "virtual", "detectors": [{"disk": {"center": [1, 1], "radius": 1}}]},
        {"op": "virtual", "detectors": [{"disk": {"centre": [-3, 5], "radius": 2}}]},
        {"op": "virtual", "detectors": [{"disk": {"centre": [9, 13], "radius": 3}}]},
        {"op": "virtual", "detectors": [{"annulus": {"centre": [1, 1], "inner": 3, "outer": 2}}]},
        {"op": "virtual", "detectors": [{"rectangle": [[0, 99], [0, 1]]}]},
        {"op": "virtual", "detectors": [{"rectangle": [[0, 2.5], [0, 1]]}]},
        {"op": "virtual", "detectors": [{"rectangle": [[False, 2], [0, 1]]}]},
        {"op": "virtual", "detectors": [{"point": [8, 0]}]},
        {"op": "virtual", "detectors": [{"point": [1.0, 1]}]},
        {"op": "virtual", "detectors": [{"point": [1, 1]}] * 65},
    ],
)
def test_what_cannot_be_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(CoreError) as caught:
        parse_reduction(spec, (8, 11))
    assert caught.value.code in {"option", "shape"}


def test_a_detector_beside_the_frame_is_named_by_its_members() -> None:
    disk = {"disk": {"radius": 2, "centre": [-3, 5]}}
    with pytest.raises(CoreError, match=r"a disk of centre \[-3, 5\], radius 2 is outside a frame"):
        parse_reduction({"op": "virtual", "detectors": [disk]}, (8, 11))


@pytest.mark.parametrize(
    "detector",
    [
        {"disk": {"centre": [2.5, 2.5], "radius": 0}},
        {"annulus": {"centre": [2.5, 2.5], "inner": 0.1, "outer": 0.2}},
    ],
)
def test_a_detector_between_pixels_is_no_map_of_zeros(detector: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match=r"of centre \[2.5, 2.5\], radius 0.* has no pixel"):
        run({"op": "virtual", "detectors": [detector]}, np.ones((2, 8, 11), "f4"), [])


def test_a_mean_of_whole_numbers_is_their_sum_divided() -> None:
    frames = np.random.default_rng(3).integers(0, 1 << 16, (37, 8, 11)).astype("f4")
    mean = run({"op": "mean"}, frames, [5, 20])["mean"]
    np.testing.assert_array_equal(mean, frames.sum(0, dtype="f8") / 37)


@pytest.mark.once
@pytest.mark.parametrize("spec", [{"op": "std", "over": "pixels"}, {"op": "com"}])
def test_small_frames_are_reduced_some_at_a_time(spec: dict[str, Any]) -> None:
    frames = np.zeros((40_000, 1, 1), "f4")
    with installed(Leaving(2)), pytest.raises(CancelledError):
        run(spec, frames, [])


def test_results_over_pixels_are_copied_once_and_some_at_a_time() -> None:
    sig = (1, 1)
    reducer = Reducer(parse_reduction({"op": "sum", "over": "pixels"}, sig), sig, np.dtype("f4"))
    values = np.arange(3 * SLICE, dtype="f8").reshape(-1, 1)
    ends = [0, 2 * SLICE + 1, 2 * SLICE + 2, len(values)]
    parts = [Partial(b - a, values[a:b]) for a, b in pairwise(ends)]
    looks = 3 + 1 + 1
    with installed(Leaving(looks)):
        whole = reducer.merge(parts, len(values))
    np.testing.assert_array_equal(whole.values, values)
    with installed(Leaving(looks - 1)), pytest.raises(CancelledError):
        reducer.merge(parts, len(values))
    assert reducer.merge([whole], len(values)) is whole


@pytest.mark.parametrize(
    ("detector", "said"),
    [
        ({"point": [48, 1]}, r"a point \[48, 1\] is not inside a frame of \[48, 48\]"),
        ({"rectangle": [[9, 3], [0, 5]]}, "no pixels: axis 0 starts at 9 and stops before 3"),
        ({"rectangle": [[0, 3], [5, 5]]}, "no pixels: axis 1 starts at 5 and stops before 5"),
        ({"annulus": {"centre": [1, 1], "outer": 3}}, "an annulus lacks inner: its members are"),
        ({"annulus": {"centre": [1, 1], "inner": None, "outer": 3}}, "inner has null, which"),
        ({"disk": {"centre": [1, 1]}}, "a disk lacks radius"),
        ({"disk": {"centre": [1, 1], "radius": -5}}, "a disk of radius -5 has no pixels: the"),
    ],
)
def test_what_is_wrong_with_a_detector(detector: dict[str, Any], said: str) -> None:
    with pytest.raises((OptionError, ShapeError), match=said):
        parse_reduction({"op": "virtual", "detectors": [detector]}, (48, 48))


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("com", {"op": "com"}),
        ("com:point:3,4", {"op": "com", "detector": {"point": [3, 4]}}),
        ("disk:3.5,4,2", {"disk": {"centre": [3.5, 4], "radius": 2}}),
        ("annulus:3,4,1,2", {"annulus": {"centre": [3, 4], "inner": 1, "outer": 2}}),
        ("rectangle:1,5,0,9", {"rectangle": [[1, 5], [0, 9]]}),
        ("point:3,4", {"point": [3, 4]}),
    ],
)
def test_reductions_in_short(text: str, spec: dict[str, Any]) -> None:
    spec = spec if "op" in spec else {"op": "virtual", "detectors": [spec]}
    assert expand_reduction(text, (8, 11)) == spec
    assert parse_reduction(spec, (8, 11)).op == spec["op"]
    assert "detectors" not in expand_reduction("sum", (8, 8, 8))
    disk = expand_reduction("disk:1,2,3,4", (8, 8, 8))["detectors"][0]["disk"]
    assert disk == {"centre": [1, 2, 3], "radius": 4}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("disc", "Did you mean disk:Y,X,RADIUS?"),
        ("ring", "Did you mean annulus:Y,X,INNER,OUTER?"),
        ("rect:1,2,3,4", "Did you mean rectangle:Y0,Y1,X0,X1?"),
        ("disk", "disk takes 3 numbers in frames of 2 axes, but 0 are given"),
        ("disk:1,2,3,4", "but 4 are given; annulus takes 4"),
        ("disk:1,2,3px", "'3px' in 'disk:1,2,3px' is not a number"),
        ("disk:1,2,nan", "radius has nan"),
        ("rectangle:1.5,2,3,4", "1.5, which is not a whole number"),
        ("com:8,8", "com takes no numbers, but has '8,8'"),
        ("sum:pixels", '{"op": "sum", "over": "pixels"}'),
        ("pixel:5,7", "Did you mean point:Y,X?"),
        ("point:5", "point takes 2 numbers in frames of 2 axes, but 1 are given"),
        ("disk:5,7", "point takes 2"),
        ("point:5.5,7", "5.5, which is not a whole number"),
        ("frame:5,7", "there is no detector 'frame'"),
        ("weights:spots.npy", 'Such as {"weights": {"dtype"'),
    ],
)
def test_what_is_wrong_with_a_reduction_in_short(text: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_reduction(expand_reduction(text, (8, 11)), (8, 11))
    assert said in str(caught.value)
