"""Reductions of a view: over its frames to an image, or over pixels to a map of the scan.

A reduction computes partial results over fixed stretches of frames and merges them in order.
The result is therefore the same to the last bit on any number of threads, and a reduction can
resume after any stretch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ..arrays import Array, Floats
from ..errors import OptionError, ShapeError, names_hint, shown
from ..slices import SLICE, slices
from ._kernels.reduce import LANES, frame_moments, pixel_moments, pixel_sums, weighted_sums
from .detectors import ROUND, WEIGHTS_HINT, Detector, parse_detector
from .view import check_members

Op = Literal["sum", "mean", "std", "min", "max", "virtual", "com"]
Over = Literal["frames", "pixels"]

MAX_DETECTORS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """The result of one stretch of frames, to be merged with that of the next."""

    frames: int
    values: Floats
    """Over frames: mean, sum of squared deviations, min, max, and what the rounded mean lacks,
    shape (5, pixels); for ``sum`` and ``mean`` the sums, shape (1, pixels). Over pixels: the final
    values, shape (frames, columns)."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction request."""

    op: Op
    over: Over
    detectors: tuple[Detector, ...] = ()

    @property
    def fits_float32(self) -> bool:
        """Whether weights are exact in float32; those of a centre are multiplied by places."""
        if self.op == "com" and any(detector.kind == "weights" for detector in self.detectors):
            return False
        return all(detector.fits_float32 for detector in self.detectors)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the values per frame, each of which becomes a map of the scan."""
        if self.op == "virtual":
            return tuple(f"detector_{k}" for k in range(len(self.detectors)))
        if self.op == "com":
            return ("com_0", "com_1", "com_2")
        return (self.op,)


_OPS = get_args(Op)
_OVER = frozenset({"sum", "mean", "std", "min", "max"})
"""Those that go over frames or pixels."""
_OF_SUMS = frozenset({"sum", "mean"})
"""Those that need only sums."""
_SHORT = {
    "disk": "Y,X,RADIUS",
    "annulus": "Y,X,INNER,OUTER",
    "rectangle": "Y0,Y1,X0,X1",
    "point": "Y,X",
}
"""Detectors that can be written as a word with numbers, and these in frames of two axes."""
_PICTURE = 2
_IN_JSON = "Give a coordinate, or a pair, per axis of a frame instead of Y and X"
_ALSO = {"disc": "disk", "circle": "disk", "ring": "annulus", "box": "rectangle", "pixel": "point"}


def expand_reduction(text: str, sig_shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the JSON values of a reduction in short: its op, or a detector as ``disk:Y,X,RADIUS``.

    With ``com:`` before a detector it is the centre of mass of its pixels.

    Raises:
        OptionError: there is no such detector, or it has other numbers.
    """
    form, colon, listed = text.strip().partition(":")
    if not colon and form not in _SHORT:
        return {"op": form}
    if form == "com" and listed.partition(":")[0] in _SHORT:
        (detector,) = expand_reduction(listed, sig_shape)["detectors"]
        return {"op": "com", "detector": detector}
    if form not in _SHORT:
        if form in _OPS:
            hint = "Of the pixels of a detector it is com:disk:Y,X,RADIUS"
            hint = f'In JSON: {{"op": "{form}", "over": "pixels"}}' if form in _OVER else hint
            raise OptionError(f"{form} takes no numbers, but has {listed[:40]!r}", hint=hint)
        raise OptionError(f"there is no detector {form[:40]!r}", hint=_suggest(form))
    axes, parts = len(sig_shape), listed.split(",") if listed else []
    needed = {"disk": axes + 1, "annulus": axes + 2, "rectangle": 2 * axes, "point": axes}
    if len(parts) != needed[form]:
        others = [f"; {name} takes {n}" for name, n in needed.items() if n == len(parts)]
        raise OptionError(
            f"{form} takes {needed[form]} numbers in frames of {axes} axes, but {len(parts)} are"
            f" given{''.join(others)}",
            hint=f"Write {form}:{_SHORT[form]}" if axes == _PICTURE else _IN_JSON,
        )
    numbers = [_number(part, text) for part in parts]
    value: Any = numbers
    if form == "rectangle":
        value = [numbers[k : k + 2] for k in range(0, len(numbers), 2)]
    elif form in ROUND:
        sizes = zip(ROUND[form][1][1:], numbers[axes:], strict=True)
        value = {"centre": numbers[:axes], **dict(sizes)}
    return {"op": "virtual", "detectors": [{form: value}]}


def _number(part: str, text: str) -> float:
    try:
        return int(part) if part.strip("+- ").isdecimal() else float(part)
    except ValueError:
        raise OptionError(f"{part[:40]!r} in {text[:80]!r} is not a number") from None


def _suggest(word: str) -> str:
    """Return a hint for a word that names no reduction."""
    if word == "weights":
        return WEIGHTS_HINT
    hint = names_hint(_ALSO.get(word, word), (*_OPS, *_SHORT))
    for form, numbers in _SHORT.items():
        hint = hint.replace(form, f"{form}:{numbers}")
    return hint


def is_over_pixels(spec: Mapping[str, Any] | str) -> bool:
    """Whether a reduction, in short or as JSON values, has a result for each position."""
    if isinstance(spec, str):
        return spec.strip() not in _OVER
    return spec.get("over") == "pixels" or spec.get("op") not in _OVER


def parse_reduction(spec: Mapping[str, Any], sig_shape: tuple[int, ...]) -> Reduction:
    """Parse a reduction from JSON values.

    ``{"op": "sum|mean|std|min|max", "over": "frames|pixels"}``, ``{"op": "com"}``, of a detector
    ``{"op": "com", "detector": …}``, or ``{"op": "virtual", "detectors": […]}``. Detectors are
    ``{"disk": {"centre": [y, x], "radius": r}}``, ``{"annulus": {"centre", "inner", "outer"}}``,
    ``{"rectangle": [[y0, y1], [x0, x1]]}``, ``{"point": [y, x]}`` and
    ``{"weights": {"dtype", "shape", "data": base64 of a value per pixel}}``.

    Raises:
        OptionError: a member is unknown, missing or of the wrong type.
        ShapeError: a detector is not inside a frame of this shape.
    """
    op = spec.get("op")
    if op is None:
        raise OptionError("a reduction lacks op", hint=f"Give one of {', '.join(_OPS)}")
    if op not in _OPS:
        raise OptionError(f"there is no reduction {str(op)[:80]!r}", hint=_suggest(str(op)))
    known = {"op", "over"} if op in _OVER else {"op"}
    known |= {"virtual": {"detectors"}, "com": {"detector"}}.get(op, set())
    check_members(spec, sorted(known), f"a reduction {op!r}")
    over = spec.get("over", "frames" if "over" in known else "pixels")
    if over not in get_args(Over):
        raise OptionError(f"over is {shown(over)}", hint=names_hint(str(over), get_args(Over)))
    detectors: tuple[Detector, ...] = ()
    if op == "virtual":
        items = spec.get("detectors")
        if not isinstance(items, Sequence) or isinstance(items, str) or not items:
            raise OptionError("virtual needs detectors, an array of at least one")
        if len(items) > MAX_DETECTORS:
            raise OptionError(f"there are {len(items)} detectors, more than {MAX_DETECTORS}")
        detectors = tuple(_detector(k, items, sig_shape) for k in range(len(items)))
    if op == "com" and len(sig_shape) > 3:  # noqa: PLR2004
        raise ShapeError("com needs frames of up to 3 axes")
    if "detector" in spec and op == "com":
        detectors = (parse_detector(spec["detector"], sig_shape),)
    return Reduction(op, over, detectors)


def _detector(k: int, items: Sequence[Any], sig_shape: tuple[int, ...]) -> Detector:
    try:
        return parse_detector(items[k], sig_shape)
    except (OptionError, ShapeError) as e:
        if len(items) > 1:
            e.args = (f"detectors[{k}]: {e.message}",)
        raise


class Reducer:
    """Computes and merges partial results of one reduction.

    Args:
        reduction: the reduction.
        sig_shape: shape of the frames.
        dtype: dtype of the frames, float32 or float64.
    """

    def __init__(
        self, reduction: Reduction, sig_shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self._reduction = reduction
        self._sig_shape = sig_shape
        self._pixels = math.prod(sig_shape)
        self._weights = self._make_weights(dtype)

    def _make_weights(self, dtype: np.dtype[Any]) -> Array:
        if self._reduction.op == "virtual":
            rows = [d.weights(self._sig_shape).reshape(-1) for d in self._reduction.detectors]
            return np.ascontiguousarray(rows, dtype)
        if self._reduction.op == "com":
            grids = np.indices(self._sig_shape, np.float64).reshape(len(self._sig_shape), -1)
            weights = np.ones(self._pixels)
            for detector in self._reduction.detectors:
                weights = detector.weights(self._sig_shape).reshape(-1)
            return np.ascontiguousarray([weights, *(weights * grid for grid in grids)], dtype)
        return np.zeros((0, 0), dtype)

    def partial(self, frames: Array) -> Partial:
        """Reduce frames of shape (n, *sig_shape) in the dtype of the reducer."""
        flat = frames.reshape(len(frames), self._pixels)
        if self._reduction.over == "frames":
            return Partial(len(flat), self._over_frames(flat))
        return Partial(len(flat), self._over_pixels(flat))

    def _over_frames(self, frames: Array) -> Floats:
        if self._reduction.op in _OF_SUMS:
            total = np.zeros((1, self._pixels))
            pixel_sums(frames, total[0])
            return total
        state = np.zeros((5, self._pixels))
        state[2] = np.inf
        state[3] = -np.inf
        pixel_moments(frames, state[0], state[1], state[2], state[3], state[4])
        return state

    def _over_pixels(self, frames: Array) -> Floats:
        lanes = np.zeros(LANES)
        if self._reduction.op in {"virtual", "com"}:
            sums = np.zeros((len(frames), len(self._weights)))
            for a, b in self._slices(frames):
                weighted_sums(frames[a:b], self._weights, lanes, sums[a:b])
            return sums if self._reduction.op == "virtual" else _centres(sums)
        moments = np.zeros((len(frames), 4))
        squares = np.zeros(LANES)
        for a, b in self._slices(frames):
            frame_moments(frames[a:b], lanes, squares, moments[a:b])
        column = {"sum": 0, "mean": 0, "std": 1, "min": 2, "max": 3}[self._reduction.op]
        values = moments[:, column]
        if self._reduction.op == "mean":
            values = values / self._pixels
        elif self._reduction.op == "std":
            values = np.sqrt(values / self._pixels)
        return np.ascontiguousarray(values.reshape(-1, 1))

    def _slices(self, frames: Array) -> Iterator[tuple[int, int]]:
        """Frames to work on between two looks at the budget; small ones take longer than theirs."""
        items = max(self._pixels, LANES) * max(len(self._weights), 1)
        return slices(len(frames), "reduce", max(SLICE // items, 1))

    def merge(self, parts: Iterable[Partial], frames: int) -> Partial:
        """Merge the results of stretches that follow each other.

        Args:
            parts: the results, one at least; each is taken once the one before has been merged.
            frames: number of frames of all stretches.

        Raises:
            WorkStoppedError: the budget is used up, or nobody waits for the result.
        """
        if self._reduction.over == "pixels":
            return self._join(parts, frames)
        return functools.reduce(self._merge_two, parts)

    def _join(self, parts: Iterable[Partial], frames: int) -> Partial:
        # Joining two at a time would copy the first results again with each of the others.
        joined: Floats | None = None
        first = 0
        for part in parts:
            if part.frames == frames:
                return part
            if joined is None:
                joined = np.empty((frames, part.values.shape[1]))
            for a, b in slices(part.frames, "reduce"):
                joined[first + a : first + b] = part.values[a:b]
            first += part.frames
        assert joined is not None  # noqa: S101 - there is one at least
        return Partial(frames, joined)

    def _merge_two(self, first: Partial, second: Partial) -> Partial:
        """Merge the images of two stretches, ``first`` before ``second``.

        Means and squared deviations are merged as in Chan, Golub and LeVeque (1983).
        """
        frames = first.frames + second.frames
        a, b = first.values, second.values
        if self._reduction.op in _OF_SUMS:
            return Partial(frames, a + b)
        merged = np.empty_like(a)
        d = b[0] - a[0] + (b[4] - a[4])
        share = second.frames / frames
        merged[0] = a[0]
        merged[4] = a[4] + d * share
        merged[1] = a[1] + b[1] + d * d * first.frames * share
        np.minimum(a[2], b[2], out=merged[2])
        np.maximum(a[3], b[3], out=merged[3])
        return Partial(frames, merged)

    def finish(self, whole: Partial, nav_shape: tuple[int, ...]) -> dict[str, Floats]:
        """Return the final results by name: an image of sig_shape, or maps of nav_shape."""
        reduction = self._reduction
        if reduction.over == "pixels":
            columns = whole.values.T
            names = reduction.columns[: len(columns)]
            return {n: c.reshape(nav_shape) for n, c in zip(names, columns, strict=True)}
        row = {"sum": 0, "mean": 0, "std": 1, "min": 2, "max": 3}[reduction.op]
        values = whole.values[row]
        if reduction.op in {"mean", "std"}:
            values = values / whole.frames
        if reduction.op == "std":
            values = np.sqrt(values)
        return {reduction.op: values.reshape(self._sig_shape)}


def _centres(sums: Floats) -> Floats:
    """Divide the first moments by the total; NaN where the total is 0 or infinite."""
    total = np.where(np.isinf(sums[:, :1]) | (sums[:, :1] == 0), np.nan, sums[:, :1])
    centres: Floats = sums[:, 1:] / total
    return np.ascontiguousarray(centres)
