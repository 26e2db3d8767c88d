"""Decoders of raw Medipix pixels, as the chips send them to Merlin."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import Array, Octets
from .._kernels.unpack import (
    unpack_r1,
    unpack_r1_quad,
    unpack_r6,
    unpack_r6_quad,
    unpack_r12,
    unpack_r12_quad,
    unpack_r24,
    unpack_r24_quad,
)
from ..packing import Decoder, Shape, rows_bytes, square_bytes

CONTAINER = {1: 1, 6: 8, 12: 16, 24: 32}
"""Stored bits per pixel, by counter depth."""


def _chips(bits: int, dtype: str, single: Any, quad: Any) -> tuple[Decoder, ...]:  # noqa: ANN401 - kernels of different pixels
    container = CONTAINER[bits]
    group = 64 // min(container, 16)
    side = (2 * group, 2 * group)

    def one(raw: Octets, stride: int, out: Array, _: Shape) -> None:
        single(raw, stride, out)

    def four(raw: Octets, stride: int, out: Array, sig_shape: Shape) -> None:
        quad(raw, stride, out, sig_shape[1] // 2)

    def one_bytes(sig_shape: Shape) -> int:
        return rows_bytes(sig_shape, group, container)

    def four_bytes(sig_shape: Shape) -> int:
        return square_bytes(sig_shape, group, container)

    pixel = np.dtype(dtype)
    return (
        Decoder(f"mib_r{bits}", pixel, one_bytes, one, (1, 64)),
        Decoder(f"mib_r{bits}_quad", pixel, four_bytes, four, side),
    )


DECODERS = (
    *_chips(1, "u1", unpack_r1, unpack_r1_quad),
    *_chips(6, "u1", unpack_r6, unpack_r6_quad),
    *_chips(12, "u2", unpack_r12, unpack_r12_quad),
    *_chips(24, "u4", unpack_r24, unpack_r24_quad),
)
"""Decoders for one chip and for four, by counter depth."""
