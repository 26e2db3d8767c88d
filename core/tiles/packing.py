"""How packed values become pixels: what a decoder is, and the shapes of what it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, Octets
from ..errors import ShapeError

Shape = tuple[int, ...]
Kernel = Callable[[Octets, int, Array, Shape], None]
"""``kernel(raw, stride, out, sig_shape)``: frames ``stride`` bytes apart into ``out``."""


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """One way to pack pixels."""

    name: str
    dtype: np.dtype[Any]
    """Of the pixels."""
    bytes_of: Callable[[Shape], int]
    """Bytes of a frame of a shape in the file."""
    kernel: Kernel
    sample_shape: Shape | None = None
    """Shape of a small frame, of which the warm-up decodes one; None for a caller's own."""

    def frame_bytes(self, sig_shape: Shape) -> int:
        """Bytes of one frame's values in the file.

        Raises:
            ShapeError: frames of this shape cannot be packed so.
        """
        return self.bytes_of(sig_shape)

    def decode(self, raw: Octets, stride: int, out: Array, sig_shape: Shape) -> None:
        """Fill ``out``, (frames, pixels), from frames that begin ``stride`` bytes apart.

        ``raw`` is contiguous and begins with the first frame's values; after the last
        frame's values nothing need follow. A ``raw`` that cannot be written to makes
        another specialisation of the kernel be compiled.

        Raises:
            ShapeError: the arrays do not fit the frames.
        """
        size = self.frame_bytes(sig_shape)
        pixels = math.prod(sig_shape)
        fits = (
            raw.ndim == 1
            and raw.dtype == np.uint8
            and raw.flags.c_contiguous
            and out.ndim == 2  # noqa: PLR2004 - frames, pixels
            and out.dtype == self.dtype
            and out.flags.c_contiguous
            and out.shape[1] == pixels
            and stride >= 0
        )
        if not fits:
            raise ShapeError(
                f"{self.name} makes a C-contiguous (frames, {pixels}) array of {self.dtype} from "
                f"contiguous bytes, not {out.shape} of {out.dtype} from {raw.shape} of {raw.dtype}"
            )
        frames = len(out)
        if frames and len(raw) < (frames - 1) * stride + size:
            raise ShapeError(
                f"{len(raw)} bytes hold less than {frames} frames of {size} bytes, {stride} apart"
            )
        if frames:
            self.kernel(raw, stride, out, sig_shape)


def rows_bytes(sig_shape: Shape, group: int, bits: int) -> int:
    """Bytes of frames whose rows are whole groups of pixels."""
    if not sig_shape or min(sig_shape) < 1 or sig_shape[-1] % group:
        raise ShapeError(f"rows of frames of {sig_shape} are not whole groups of {group} pixels")
    return math.prod(sig_shape) * bits // 8


def square_bytes(sig_shape: Shape, group: int, bits: int) -> int:
    """Bytes of frames of four square chips."""
    if len(sig_shape) != 2 or sig_shape[0] != sig_shape[1]:  # noqa: PLR2004 - rows and columns
        raise ShapeError(f"frames of {sig_shape} are not a square of four square chips")
    if sig_shape[1] % 2:
        raise ShapeError(f"frames of {sig_shape} are not two chips wide")
    return rows_bytes((sig_shape[0] * 2, sig_shape[1] // 2), group, bits)
