"""Decoders of packed pixels: their interface, and checks of the arrays they work on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._jit import foreign_kernel
from ..arrays import Array, Octets
from ..errors import ShapeError

Shape = tuple[int, ...]
Kernel = Callable[[Octets, int, Array, Shape], None]
"""``kernel(raw, stride, out, sig_shape)`` decodes frames ``stride`` bytes apart into ``out``."""


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """A packing of pixels, with the kernel that unpacks them."""

    name: str
    dtype: np.dtype[Any]
    """Dtype of the decoded pixels."""
    frame_bytes: Callable[[Shape], int]
    """Returns the packed size in bytes of a frame of a shape; a ShapeError if there is none."""
    kernel: Kernel
    sample_shape: Shape | None = None
    """Shape of a small frame for the warm-up; None for decoders of a caller."""

    def decode(self, raw: Octets, stride: int, out: Array, sig_shape: Shape) -> None:
        """Decode frames that begin ``stride`` bytes apart.

        Args:
            raw: contiguous bytes, beginning with the values of the first frame; may end with
                those of the last. Keep it writable: a read-only array needs a kernel
                specialisation of its own, which numba compiles on first use.
            stride: bytes between the beginnings of two frames.
            out: pixels to fill, shape (frames, pixels), in the decoder's dtype.
            sig_shape: shape of a frame.

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
                f"{self.name} decodes contiguous bytes to a C-contiguous (frames, {pixels}) array "
                f"of {self.dtype}, not {raw.shape} of {raw.dtype} to {out.shape} of {out.dtype}"
            )
        frames = len(out)
        if frames and len(raw) < (frames - 1) * stride + size:
            raise ShapeError(
                f"{len(raw)} bytes hold fewer than {frames} frames of {size} bytes, {stride} apart"
            )
        if frames:
            self.kernel(raw, stride, out, sig_shape)


def make_decoder(
    name: str,
    dtype: np.dtype[Any],
    frame_bytes: Callable[[Shape], int],
    function: Callable[..., None],
) -> Decoder:
    """Make a decoder of a caller's function, compiled when it first decodes.

    Args:
        name: name of the decoder in recordings and messages.
        dtype: dtype of the decoded pixels.
        frame_bytes: returns the packed size in bytes of a frame of a shape.
        function: ``function(raw, out, sig_shape)`` decodes a frame: its bytes, shape (n,),
            the pixels to fill, shape (pixels,), and the shape of the frame as a tuple. It
            must compile with numba in nopython mode; a plain Python function is compiled
            here.
    """
    call = foreign_kernel(function)

    def frames(raw: Octets, stride: int, size: int, out: Array, sig_shape: Shape) -> None:
        for f in range(out.shape[0]):
            call(raw[f * stride : f * stride + size], out[f], sig_shape)

    compiled = foreign_kernel(frames)

    def kernel(raw: Octets, stride: int, out: Array, sig_shape: Shape) -> None:
        compiled(raw, stride, frame_bytes(sig_shape), out, sig_shape)

    return Decoder(name, np.dtype(dtype), frame_bytes, kernel)
