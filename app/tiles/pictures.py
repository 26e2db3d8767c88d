"""Arrays as PNG images."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from app.errors import InvalidOptionError
from core.arrays import Array, Floats
from core.budget import current

MAPS = ("gray", "viridis")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GRAY, _RGB = 0, 2
_PIXEL_BYTES = 48
"""Memory of a pixel while its value is scaled and drawn in gray."""
_COLOUR_BYTES = 112
"""The same beyond that of its value, in colours."""

_VIRIDIS = np.array(
    [
        [0.2777273272234177, 0.005407344544966578, 0.3340998053353061],
        [0.1050930431085774, 1.404613529898575, 1.384590162594685],
        [-0.3308618287255563, 0.214847559468213, 0.09509516302823659],
        [-4.634230498983486, -5.799100973351585, -19.33244095627987],
        [6.228269936347081, 14.17993336680509, 56.69055260068105],
        [4.776384997670288, -13.74514537774601, -65.35303263337234],
        [-5.435455855934631, 4.645852612178535, 26.3124352495832],
    ]
)
"""Coefficients, by ascending power of a value in 0 to 1, of red, green and blue.

They approximate matplotlib's viridis.
"""


def scaled(values: Array, low: float, high: float) -> Floats:
    """Scale values linearly between two percentiles to 0 to 1; NaN becomes 0.

    Args:
        values: array of any shape.
        low: percentile mapped to 0.
        high: percentile mapped to 1.

    Raises:
        BudgetExceededError: the picture needs too much memory.
    """
    current().hold("picture", _PIXEL_BYTES * values.size)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.zeros(values.shape)
    bottom, top = np.percentile(finite, [low, high])
    span = top - bottom if top > bottom else 1.0
    with np.errstate(invalid="ignore"):
        result: Floats = np.clip((values - bottom) / span, 0.0, 1.0)
    return np.nan_to_num(result, nan=0.0)


def check_map(colours: str) -> None:
    """Check that there is a colour map.

    Raises:
        InvalidOptionError: there is none of this name.
    """
    if colours not in MAPS:
        raise InvalidOptionError(
            f"there is no colour map {colours[:40]!r}",
            hint=f"Use {' or '.join(MAPS)}",
            option="map",
        )


def png(values: Floats, colours: str) -> bytes:
    """Encode values in 0 to 1, shape (rows, columns), as a PNG image.

    Args:
        values: the pixels.
        colours: a name from ``MAPS``.

    Raises:
        InvalidOptionError: there is no such colour map, or the array has not two axes.
    """
    check_map(colours)
    if values.ndim != 2:  # noqa: PLR2004
        raise InvalidOptionError(
            f"a result of shape {list(values.shape)} is not an image, which has two axes",
            option="over",
        )
    rows, columns = values.shape
    if colours == "gray":
        kind, pixels = _GRAY, np.rint(values * 255).astype(np.uint8).reshape(rows, -1)
    else:
        current().hold("picture", _COLOUR_BYTES * values.size)
        powers = values[..., None] ** np.arange(len(_VIRIDIS))
        colour = np.clip(powers @ _VIRIDIS, 0, 1)
        kind, pixels = _RGB, np.rint(colour * 255).astype(np.uint8).reshape(rows, -1)
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), pixels], axis=1)
    head = struct.pack(">IIBBBBB", columns, rows, 8, kind, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + check
