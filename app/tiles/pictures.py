"""Arrays as PNG images."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from app.errors import InvalidOptionError
from core.arrays import Array, Floats
from core.budget import current
from core.slices import slices

MAPS = ("gray", "viridis")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GRAY, _RGB = 0, 2
_PIXEL_BYTES = 24
"""Memory of a pixel while its value is scaled and drawn."""
_TOGETHER = 1 << 17
"""Pixels that are drawn at once."""

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
    flat = values.reshape(-1)
    finite, count = np.empty(flat.size, flat.dtype), 0
    for a, b in slices(flat.size, "picture"):
        kept = flat[a:b][np.isfinite(flat[a:b])]
        finite[count : count + kept.size] = kept
        count += kept.size
    finite = finite[:count]
    result = np.zeros(values.shape)
    if not finite.size:
        return result
    current().check("picture")
    (bottom,) = np.percentile(finite, [low], overwrite_input=True)
    current().check("picture")
    (top,) = np.percentile(finite, [high], overwrite_input=True)
    del finite
    span = top - bottom if top > bottom else 1.0
    with np.errstate(invalid="ignore"):
        for a, b in slices(flat.size, "picture"):
            inside = np.clip((flat[a:b] - bottom) / span, 0.0, 1.0)
            result.reshape(-1)[a:b] = np.nan_to_num(inside, nan=0.0)
    return result


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
    packer, data = zlib.compressobj(6), []
    for a, b in slices(rows, "picture", max(_TOGETHER // max(columns, 1), 1)):
        pixels = values[a:b] if colours == "gray" else _coloured(values[a:b])
        lines = np.zeros((b - a, 1 + pixels[0].size), np.uint8)
        lines[:, 1:] = np.rint(pixels * 255).astype(np.uint8).reshape(b - a, -1)
        data.append(packer.compress(lines.tobytes()))
    data.append(packer.flush())
    kind = _GRAY if colours == "gray" else _RGB
    head = struct.pack(">IIBBBBB", columns, rows, 8, kind, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", b"".join(data)), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in parts)


def _coloured(values: Floats) -> Floats:
    """Red, green and blue of values, each from 0 to 1."""
    colours: Floats = np.clip(values[..., None] ** np.arange(len(_VIRIDIS)) @ _VIRIDIS, 0, 1)
    return colours


def _chunk(name: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + check
