"""Virtual detectors: regions of the frame whose pixels are summed, or weights for all of them."""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..arrays import Array, Floats
from ..errors import OptionError, ShapeError, names_hint, shown
from .view import check_members, from_base64, parse_dtype

ROUND = {
    "disk": ("a disk", ("centre", "radius")),
    "annulus": ("an annulus", ("centre", "inner", "outer")),
}
"""Detectors about a centre: what messages call them, and their members."""
_WIDEST = 8
"""Bytes of a weight: more are not exact in float64."""
WEIGHTS_HINT = (
    'Such as {"weights": {"dtype": "<f4", "shape": [128, 128], "data": …}}, with base64 of a value'
    " per pixel, in C order"
)


@dataclass(frozen=True, slots=True)
class Detector:
    """A virtual detector: a region of the frame whose pixels are summed, or weights of all."""

    kind: Literal["disk", "annulus", "rectangle", "point", "weights"]
    centre: tuple[float, ...] = ()
    inner: float = 0.0
    outer: float = 0.0
    box: tuple[tuple[int, int], ...] = ()
    dtype: str = ""
    octets: bytes = b""
    """Weights of this dtype, in C order."""

    @property
    def fits_float32(self) -> bool:
        """Whether no weight is rounded as float32."""
        if self.kind != "weights":
            return True
        image = self._image((-1,))
        with np.errstate(over="ignore"):
            return bool((image.astype(np.float32) == image).all())

    def _image(self, shape: tuple[int, ...]) -> Array:
        return np.frombuffer(self.octets, self.dtype).reshape(shape)

    def weights(self, sig_shape: tuple[int, ...]) -> Floats:
        """Return 1 for each pixel of the detector and 0 elsewhere, or its weights, shape sig_shape.

        A disk or annulus contains the pixels whose distance r from the centre satisfies
        inner <= r <= outer.

        Raises:
            ShapeError: no pixel does.
        """
        if self.kind == "weights":
            return self._image(sig_shape).astype(np.float64)
        if self.kind in {"rectangle", "point"}:
            mask = np.zeros(sig_shape)
            mask[tuple(slice(*pair) for pair in self.box)] = 1.0
            return mask
        grids = np.indices(sig_shape, np.float64)
        squares = sum((grid - c) ** 2 for grid, c in zip(grids, self.centre, strict=True))
        mask = np.asarray((squares >= self.inner**2) & (squares <= self.outer**2), np.float64)
        if not mask.any():
            radii = f"{self.inner:g} to {self.outer:g}" if self.kind == "annulus" else self.outer
            raise ShapeError(
                f"{ROUND[self.kind][0]} of centre {list(self.centre)}, radius {radii} has no"
                " pixel: their centres are at whole numbers",
                hint="Make it larger; a point is for one pixel",
            )
        return mask


def parse_detector(item: Any, sig_shape: tuple[int, ...]) -> Detector:  # noqa: ANN401 - JSON
    """Parse a detector from JSON values, such as ``{"point": [y, x]}``; see ``parse_reduction``.

    Raises:
        OptionError: a member is unknown, missing or of the wrong type.
        ShapeError: the detector is outside of a frame of this shape, or its weights do not fit it.
    """
    if not isinstance(item, Mapping) or len(item) != 1:
        raise OptionError("a detector is an object with one member: its form")
    ((kind, value),) = item.items()
    axes = len(sig_shape)
    if kind == "point":
        box = tuple((i, i + 1) for i in _indices(value, axes, "point"))
        return Detector("point", box=_inside(box, sig_shape, f"point {list(value)}"))
    if kind == "rectangle":
        if not isinstance(value, Sequence) or len(value) != axes:
            raise OptionError(f"a rectangle needs [start, stop] for each of {axes} axes")
        pairs = [_indices(pair, 2, "rectangle") for pair in value]
        box = tuple((low, high) for low, high in pairs)
        return Detector(
            "rectangle", box=_inside(box, sig_shape, f"rectangle {list(map(list, box))}")
        )
    if kind == "weights":
        return _weights(value, sig_shape)
    if kind not in ROUND:
        hint = names_hint(kind, (*ROUND, "rectangle", "point", "weights"))
        raise OptionError(f"there is no detector {kind!r}", hint=hint)
    return _round_detector(kind, value, sig_shape)


def _round_detector(kind: str, value: Any, sig_shape: tuple[int, ...]) -> Detector:  # noqa: ANN401 - JSON
    name, members = ROUND[kind]
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} is an object with the members {', '.join(members)}")
    check_members(value, members, name)
    if missing := [member for member in members if member not in value]:
        raise OptionError(f"{name} lacks {missing[0]}: its members are {', '.join(members)}")
    centre = _numbers(value.get("centre"), len(sig_shape), f"the centre of {name}")
    inner, outer = 0.0, 0.0
    if kind == "disk":
        (outer,) = _numbers([value.get("radius")], 1, "radius")
    else:
        inner, outer = (_numbers([value[name]], 1, name)[0] for name in members[1:])
    if not 0 <= inner <= outer:
        needs = f"from {inner:g} to {outer:g} has no pixels: 0 <= inner <= outer is required"
        if kind == "disk":
            needs = f"of radius {outer:g} has no pixels: the radius must not be negative"
        raise OptionError(f"{name} {needs}")
    beside = (max(-c, c - (n - 1), 0.0) for c, n in zip(centre, sig_shape, strict=True))
    if math.hypot(*beside) > outer:
        place = ", ".join(f"{member} {value[member]}" for member in members)
        raise ShapeError(f"{name} of {place} is outside a frame of {list(sig_shape)}")
    return Detector("disk" if kind == "disk" else "annulus", centre, inner, outer)


def _weights(value: Any, sig_shape: tuple[int, ...]) -> Detector:  # noqa: ANN401 - JSON
    if not isinstance(value, Mapping):
        raise OptionError("weights must be an object", hint=WEIGHTS_HINT)
    check_members(value, ("dtype", "shape", "data"), "weights")
    if missing := [name for name in ("dtype", "shape", "data") if value.get(name) is None]:
        raise OptionError(f"weights lack {missing[0]}", hint=WEIGHTS_HINT)
    dtype = np.dtype(parse_dtype(value["dtype"]))
    if dtype.kind == "c" or dtype.itemsize > _WIDEST:
        hint = f"Give real numbers of at most {_WIDEST} bytes, such as <f8"
        raise OptionError(f"weights are {dtype.name}", hint=hint)
    shape = value["shape"]
    # 8.0 and true equal whole numbers.
    if shape != list(sig_shape) or any(type(n) is not int for n in shape):
        told = shown(shape) if isinstance(shape, list) else "of another form"
        raise ShapeError(
            f"weights have the shape {told}, but frames of the view {list(sig_shape)}",
            hint="Give a value per pixel of what sig and bin leave of a frame",
        )
    octets = _decoded(value["data"])
    needed = math.prod(sig_shape) * dtype.itemsize
    if len(octets) != needed:
        raise ShapeError(
            f"weights have {len(octets)} bytes, but {shape} of {dtype.name} are {needed}",
            hint="Send the values in C order, without a header",
        )
    if dtype.kind == "b" and max(octets) > 1:
        raise OptionError("weights of true and false have bytes other than 1 and 0")
    image = np.frombuffer(octets, dtype)
    if wrong := np.count_nonzero(~np.isfinite(image)):
        hint = "Give 0 to pixels that do not count"
        raise OptionError(f"weights are not finite at {wrong:,} pixels", hint=hint)
    if not image.any():
        raise OptionError("weights are 0 at every pixel")
    return Detector("weights", dtype=dtype.str, octets=octets)


def _decoded(data: Any) -> bytes:  # noqa: ANN401 - JSON
    if not isinstance(data, str):
        raise OptionError("data of weights is not a string of base64", hint=WEIGHTS_HINT)
    try:
        return from_base64(data)
    except (binascii.Error, ValueError) as e:
        hint = "Send it in one line, in the usual alphabet, as base64 -w0 writes it"
        raise OptionError("data of weights is not base64", hint=hint) from e


def _numbers(values: Any, count: int, name: str) -> tuple[float, ...]:  # noqa: ANN401 - JSON
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != count:
        raise OptionError(f"{name} needs {count} numbers")
    for number in values:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise OptionError(f"{name} has {shown(number)}, which is not a number")
        if not math.isfinite(number) or abs(number) > 1e9:  # noqa: PLR2004
            raise OptionError(f"{name} has {shown(number)}, which is outside any frame")
    return tuple(float(number) for number in values)


def _indices(values: Any, count: int, name: str) -> tuple[int, ...]:  # noqa: ANN401 - JSON
    """Return whole numbers: half a pixel is refused, not cut off."""
    _numbers(values, count, name)
    for number in values:
        if not isinstance(number, int):
            raise OptionError(f"{name} has {shown(number)}, which is not a whole number")
    return tuple(values)


def _inside(
    box: tuple[tuple[int, int], ...], sig_shape: tuple[int, ...], name: str
) -> tuple[tuple[int, int], ...]:
    for axis, ((low, high), length) in enumerate(zip(box, sig_shape, strict=True)):
        if low >= high:
            hint = "Give where each axis starts and stops: [[y0, y1], [x0, x1]] or Y0,Y1,X0,X1"
            text = f"a {name} has no pixels: axis {axis} starts at {low} and stops before {high}"
            raise ShapeError(text, hint=hint)
        if low < 0 or high > length:
            raise ShapeError(f"a {name} is not inside a frame of {list(sig_shape)}")
    return box
