"""Detector corrections: dark image, gain image and excluded pixels."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, Indices
from ..errors import RepairError, ShapeError
from .plan import Box

_CACHED_BOXES = 1024
"""Boxes whose parts are kept. Tiles come in turn, so keeping the first ones beats keeping the
last ones; a client chooses how many there are."""


_NEAR = (0.5, 2.0)
"""Bounds of the mean of a gain image."""


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """An excluded pixel and the good pixels next to it."""

    pixel: tuple[int, ...]
    neighbours: Indices
    """Coordinates, shape (k, axes of a frame), k >= 1."""


def check_finite(image: Array, name: str, source: str | None = None) -> Array:
    """Return a correction image, whose file is ``source``.

    Raises:
        ShapeError: a value is NaN, infinite or no number.
    """
    if image.dtype.kind not in "biufc":
        raise ShapeError(f"{name} has values that are not numbers", source=source)
    if len(wrong := np.argwhere(~np.isfinite(image))):
        raise ShapeError(
            f"{name} is {image[tuple(wrong[0])]} at {wrong[0].tolist()}, and not finite at"
            f" {len(wrong):,} pixels",
            hint="Make them finite, and exclude these pixels",
            source=source,
        )
    return image


class Corrections:
    """Corrections of every frame: ``(value - dark) x gain``, then repair of excluded pixels.

    An excluded pixel becomes the mean of its neighbours (at most 1 away along each axis) that
    are not excluded themselves. Neighbours come from the whole frame, even from beyond the
    border of a tile, so the tiling does not affect values.

    Args:
        sig_shape: shape of a frame.
        dark: dark image, shape sig_shape; None for 0.
        gain: gain image, shape sig_shape; None for 1.
        excluded: coordinates of excluded pixels, shape (k, len(sig_shape)); None for none.

    Raises:
        ShapeError: an image has the wrong shape or values that are not finite, or an excluded
            pixel is outside the frame.
        RepairError: an excluded pixel has only excluded neighbours.
    """

    def __init__(
        self,
        sig_shape: tuple[int, ...],
        dark: Array | None = None,
        gain: Array | None = None,
        excluded: Array | None = None,
    ) -> None:
        self._sig_shape = sig_shape
        self._dark = self._checked(dark, "dark")
        self._gain = self._checked(gain, "gain")
        self._patches = self._patched(excluded)
        self._scales_by_box: dict[tuple[Box, str], tuple[Array, Array]] = {}
        self._patches_by_box: dict[Box, list[Patch]] = {}

    def __bool__(self) -> bool:
        return bool(self._patches) or self.scales

    @property
    def scales(self) -> bool:
        """Whether there is a dark or gain image."""
        return self._dark is not None or self._gain is not None

    @property
    def gain_is_dark(self) -> bool:
        """Whether dark and gain look interchanged: gains are near 1 on average."""
        if self._dark is None or self._gain is None:
            return False
        dark, gain = (abs(float(image.real.mean())) for image in (self._dark, self._gain))
        return not _NEAR[0] < gain < _NEAR[1] and _NEAR[0] < dark < _NEAR[1]

    @property
    def is_complex(self) -> bool:
        """Whether the dark or gain image is complex."""
        return any(a is not None and a.dtype.kind == "c" for a in (self._dark, self._gain))

    def _checked(self, array: Array | None, name: str) -> Array | None:
        if array is None:
            return None
        if array.shape != self._sig_shape:
            raise ShapeError(
                f"{name} has shape {list(array.shape)}, but a frame has {list(self._sig_shape)}"
            )
        return check_finite(array, name)

    def _patched(self, excluded: Array | None) -> list[Patch]:
        if excluded is None or not len(excluded):
            return []
        shape = self._sig_shape
        if excluded.ndim != 2 or excluded.shape[1] != len(shape):  # noqa: PLR2004
            raise ShapeError(f"excluded pixels need {len(shape)} coordinates each")
        pixels = np.asarray(excluded, np.int64)
        outside = ((pixels < 0) | (pixels >= np.array(shape))).any(axis=1)
        if outside.any():
            wrong = pixels[outside][0].tolist()
            raise ShapeError(f"the excluded pixel {wrong} is outside a frame of {list(shape)}")
        bad = {tuple(map(int, pixel)) for pixel in pixels}
        return [self._patch(pixel, bad) for pixel in sorted(bad)]

    def _patch(self, pixel: tuple[int, ...], bad: set[tuple[int, ...]]) -> Patch:
        around = itertools.product(*((i - 1, i, i + 1) for i in pixel))
        neighbours = (
            neighbour
            for neighbour in around
            if all(0 <= i < n for i, n in zip(neighbour, self._sig_shape, strict=True))
        )
        good = [neighbour for neighbour in neighbours if neighbour not in bad]
        if not good:
            raise RepairError(
                f"pixel {list(pixel)} is excluded, and so are all of its neighbours",
                hint="A larger area has nothing to be repaired from: leave it out of sums by a"
                " detector with weights of 0 there",
            )
        return Patch(pixel, np.array(good, np.int64))

    def halo(self, box: Box) -> Box:
        """Extend a box by the neighbours of the excluded pixels in it."""
        low = [start for start, _ in box]
        high = [stop for _, stop in box]
        for patch in self._patches_in(box):
            low = np.minimum(low, patch.neighbours.min(axis=0)).tolist()
            high = np.maximum(high, patch.neighbours.max(axis=0) + 1).tolist()
        return tuple(zip(low, high, strict=True))

    def _patches_in(self, box: Box) -> list[Patch]:
        if not self._patches:
            return self._patches
        patches = self._patches_by_box.get(box)
        if patches is None:
            patches = [
                patch
                for patch in self._patches
                if all(a <= i < b for i, (a, b) in zip(patch.pixel, box, strict=True))
            ]
            if len(self._patches_by_box) < _CACHED_BOXES:
                self._patches_by_box[box] = patches
        return patches

    def cut(self, box: Box, dtype: np.dtype[Any]) -> tuple[Array, Array] | None:
        """Crop dark and gain to a box, contiguous, in this dtype; None if there is neither."""
        if not self.scales:
            return None
        scales = self._scales_by_box.get((box, dtype.str))
        if scales is None:
            selection = tuple(slice(a, b) for a, b in box)
            shape = tuple(b - a for a, b in box)
            dark = np.zeros(shape, dtype) if self._dark is None else self._dark[selection]
            gain = np.ones(shape, dtype) if self._gain is None else self._gain[selection]
            scales = (np.ascontiguousarray(dark, dtype), np.ascontiguousarray(gain, dtype))
            if len(self._scales_by_box) < _CACHED_BOXES:
                self._scales_by_box[box, dtype.str] = scales
        return scales

    def repair(self, values: Array, halo: Box, box: Box) -> None:
        """Repair the excluded pixels of ``box`` in place.

        Args:
            values: corrected frames, shape (n, *shape of halo).
            halo: the pixels in ``values``.
            box: the part of them to repair.
        """
        corner = np.array([start for start, _ in halo])
        dtype = np.result_type(values.dtype, np.float64)
        # Repairs read good pixels only, so their order does not matter.
        for patch in self._patches_in(box):
            around = tuple((patch.neighbours - corner).T)
            mean = values[(slice(None), *around)].mean(axis=1, dtype=dtype)
            values[(slice(None), *(np.array(patch.pixel) - corner))] = mean
