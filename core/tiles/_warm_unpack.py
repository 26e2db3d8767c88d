"""Calls every unpacking kernel once, so that it is compiled before it is needed."""

from __future__ import annotations

import numpy as np

from .decoders import DECODERS

SHAPES = {
    "mib_r1_quad": (128, 128),
    "frms6_bin1": (4, 2),
    "frms6_bin2": (4, 2),
    "frms6_bin4": (8, 2),
    "k2is_sector": (1860, 256),
}
"""Frames that can be packed each way; the others take any of four rows of whole words."""


def warm() -> None:
    """Decode one frame of zeros with every built-in decoder."""
    for name, decoder in DECODERS.items():
        shape = SHAPES.get(name, (16, 16) if name.endswith("_quad") else (1, 64))
        size = decoder.frame_bytes(shape)
        out = np.empty((1, shape[0] * shape[1]), decoder.dtype)
        decoder.decode(np.zeros(size, np.uint8), size, out, shape)
