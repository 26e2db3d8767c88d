"""How packed values become pixels: a table of decoders by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from .._jit import foreign_kernel
from ..arrays import Array, Octets
from ..errors import OptionError, ShapeError
from ._kernels.unpack import (
    K2_BLOCK,
    unfold,
    unpack_k2_sector,
    unpack_r1,
    unpack_r1_quad,
    unpack_r6,
    unpack_r6_quad,
    unpack_r12,
    unpack_r12_quad,
    unpack_r24,
    unpack_r24_quad,
)

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

    def frame_bytes(self, sig_shape: Shape) -> int:
        """Bytes of one frame's values in the file.

        Raises:
            ShapeError: frames of this shape cannot be packed so.
        """
        return self.bytes_of(sig_shape)

    def decode(self, raw: Octets, stride: int, out: Array, sig_shape: Shape) -> None:
        """Fill ``out``, (frames, pixels), from frames that begin ``stride`` bytes apart.

        ``raw`` is contiguous and begins with the first frame's values; behind the last
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


def _rows(sig_shape: Shape, group: int, bits: int) -> int:
    """Bytes of frames whose rows are whole groups of pixels."""
    if not sig_shape or min(sig_shape) < 1 or sig_shape[-1] % group:
        raise ShapeError(f"rows of frames of {sig_shape} are not whole groups of {group} pixels")
    return math.prod(sig_shape) * bits // 8


def _square(sig_shape: Shape, group: int, bits: int) -> int:
    """Bytes of frames of four square chips."""
    if len(sig_shape) != 2 or sig_shape[0] != sig_shape[1]:  # noqa: PLR2004 - rows and columns
        raise ShapeError(f"frames of {sig_shape} are not a square of four square chips")
    if sig_shape[1] % 2:
        raise ShapeError(f"frames of {sig_shape} are not two chips wide")
    return _rows((sig_shape[0] * 2, sig_shape[1] // 2), group, bits)


def _medipix(bits: int, dtype: str, single: Any, quad: Any) -> list[Decoder]:  # noqa: ANN401 - kernels of different pixels
    container = {1: 1, 6: 8, 12: 16, 24: 32}[bits]
    group = 64 // min(container, 16)

    def one(raw: Octets, stride: int, out: Array, _: Shape) -> None:
        single(raw, stride, out)

    def four(raw: Octets, stride: int, out: Array, sig_shape: Shape) -> None:
        quad(raw, stride, out, sig_shape[1] // 2)

    return [
        Decoder(f"mib_r{bits}", np.dtype(dtype), lambda s: _rows(s, group, container), one),
        Decoder(f"mib_r{bits}_quad", np.dtype(dtype), lambda s: _square(s, group, container), four),
    ]


def _frms6(binning: int) -> Decoder:
    def size(sig_shape: Shape) -> int:
        if len(sig_shape) != 2 or sig_shape[0] < 1 or sig_shape[0] % (2 * binning):  # noqa: PLR2004
            raise ShapeError(f"frames of {sig_shape} are not two halves of rows binned {binning}")
        return sig_shape[0] // binning * sig_shape[1] * 2

    def decode(raw: Octets, stride: int, out: Array, sig_shape: Shape) -> None:
        unfold(raw, stride, out, sig_shape[0] // (2 * binning), sig_shape[1], binning)

    return Decoder(f"frms6_bin{binning}", np.dtype("u2"), size, decode)


def _k2is() -> Decoder:
    def size(sig_shape: Shape) -> int:
        if sig_shape != (1860, 256):
            raise ShapeError(f"a sector has 1860 x 256 pixels, not {sig_shape}")
        return 32 * K2_BLOCK

    def decode(raw: Octets, stride: int, out: Array, _: Shape) -> None:
        unpack_k2_sector(raw, stride, out)

    return Decoder("k2is_sector", np.dtype("u2"), size, decode)


_decoders = {
    decoder.name: decoder
    for decoder in (
        *_medipix(1, "u1", unpack_r1, unpack_r1_quad),
        *_medipix(6, "u1", unpack_r6, unpack_r6_quad),
        *_medipix(12, "u2", unpack_r12, unpack_r12_quad),
        *_medipix(24, "u4", unpack_r24, unpack_r24_quad),
        *(_frms6(binning) for binning in (1, 2, 4)),
        _k2is(),
    )
}

DECODERS: Mapping[str, Decoder] = MappingProxyType(_decoders)
"""Every decoder by the name a recording has for it."""


def register(
    name: str,
    dtype: np.dtype[Any],
    frame_bytes: Callable[[Shape], int],
    function: Callable[..., None],
) -> Decoder:
    """Add a caller's own decoder to the table, for this process.

    ``function(raw, out, sig_shape)`` is called for every frame with its bytes, the
    pixels to fill (one dimension), and the shape as a tuple. It must compile with numba
    in nopython mode; a plain Python function is compiled here.

    Raises:
        OptionError: the name is taken.
    """
    call = foreign_kernel(function)

    def frames(raw: Octets, stride: int, size: int, out: Array, sig_shape: Shape) -> None:
        for f in range(out.shape[0]):
            call(raw[f * stride : f * stride + size], out[f], sig_shape)

    compiled = foreign_kernel(frames)

    def kernel(raw: Octets, stride: int, out: Array, sig_shape: Shape) -> None:
        compiled(raw, stride, frame_bytes(sig_shape), out, sig_shape)

    decoder = Decoder(name, np.dtype(dtype), frame_bytes, kernel)
    if _decoders.setdefault(name, decoder) is not decoder:
        raise OptionError(f"a decoder named {name!r} exists already")
    return decoder
