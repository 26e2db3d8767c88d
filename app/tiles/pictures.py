"""Arrays as PNG images."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from app.errors import InvalidOptionError
from core.arrays import Array, Floats
from core.budget import current
from core.errors import names_hint
from core.slices import slices

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GRAY, _RGB, _ALPHA = 0, 2, 4
_PIXEL_BYTES = 24
"""Memory of a pixel while its value is scaled and drawn."""
_TOGETHER = 1 << 17
"""Pixels that are drawn at once."""

_COLOURS = {
    "viridis": "44015448186a472d7b4240863b528b33638d2c728e26828e21918c"
    "1fa08828ae803fbc735ec96284d44baddc30d8e219fde725",
    "magma": "0000040a08221d114736106b51127c6a1c818326819c2e7fb73779"
    "d0416fe75263f56b5cfc8961fea772fec488fde2a3fcfdbf",
    "inferno": "0000040b0724210c4a3d096557106e71196e8a226aa32c61bc3754"
    "d24644e45a31f1731df98e09fcac11f9cb35f2ea69fcffa4",
    "plasma": "0d08873105974c02a16600a77e03a89511a1aa2395bc3587cc4778"
    "da5a6ae66c5cf0804ef89540fdac33fdc527f8df25f0f921",
    "cividis": "00224e002e6a1a386f32436d434e6c535a6d61656f6f70737d7c78"
    "8c88789b9476aba072bcae6ccdbb63dec958f0d846fee838",
    "coolwarm": "3b4cc04e68d86282ea779af78db0fea3c2feb9d0f9ccd9eddddcdc"
    "ecd3c5f5c4acf7b093f4987aeb7d62dd5f4bca3b37b40426",
}
"""Red, green and blue of seventeen evenly spaced values, after Matplotlib's maps of these names."""
MAPS = ("gray", *_COLOURS)


def scaled(values: Array, low: float, high: float, *, log: bool = False) -> Floats:
    """Scale values linearly between two percentiles to 0 to 1; NaN stays NaN.

    Args:
        values: array of any shape.
        low: percentile mapped to 0.
        high: percentile mapped to 1.
        log: whether to scale their logarithms; values that have none become 0.

    Raises:
        InvalidOptionError: there is nothing to show.
        BudgetExceededError: the picture needs too much memory.
    """
    current().hold("picture", _PIXEL_BYTES * values.size)
    flat = values.reshape(-1)
    finite, count = np.empty(flat.size, np.float64 if log else flat.dtype), 0
    for a, b in slices(flat.size, "picture"):
        levels = _levels(flat[a:b], log=log)
        kept = levels[np.isfinite(levels)]
        finite[count : count + kept.size] = kept
        count += kept.size
    finite = finite[:count]
    if not finite.size:
        raise InvalidOptionError(
            f"the result has no {'positive' if log else 'finite'} value: there is nothing to show",
            hint="Show it with scale=linear" if log else "Frames that hold NaN have no finite sum",
            option="scale" if log else "reduction",
        )
    result = np.zeros(values.shape)
    current().check("picture")
    (bottom,) = np.percentile(finite, [low], overwrite_input=True)
    current().check("picture")
    (top,) = np.percentile(finite, [high], overwrite_input=True)
    del finite
    span = top - bottom if top > bottom else 1.0
    with np.errstate(invalid="ignore"):
        for a, b in slices(flat.size, "picture"):
            inside = np.clip((_levels(flat[a:b], log=log) - bottom) / span, 0.0, 1.0)
            inside[np.isnan(inside) & ~np.isnan(flat[a:b])] = 0.0
            result.reshape(-1)[a:b] = inside
    return result


def _levels(values: Array, *, log: bool) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(values, dtype=np.float64) if log else values


def check_map(colours: str) -> None:
    """Check that there is a colour map.

    Raises:
        InvalidOptionError: there is none of this name.
    """
    if colours not in MAPS:
        raise InvalidOptionError(
            f"there is no colour map {colours[:40]!r}",
            hint=names_hint(colours[:40], MAPS),
            option="map",
        )


def png(values: Floats, colours: str) -> bytes:
    """Encode values in 0 to 1, shape (rows, columns), as a PNG image; NaN is transparent.

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
    has_gaps = bool(np.isnan(values).any())
    for a, b in slices(rows, "picture", max(_TOGETHER // max(columns, 1), 1)):
        levels = np.nan_to_num(values[a:b])[..., None]
        pixels = levels if colours == "gray" else _coloured(levels[..., 0], colours)
        if has_gaps:
            pixels = np.concatenate([pixels, ~np.isnan(values[a:b, :, None])], axis=-1)
        lines = np.zeros((b - a, 1 + pixels[0].size), np.uint8)
        lines[:, 1:] = np.rint(pixels * 255).astype(np.uint8).reshape(b - a, -1)
        data.append(packer.compress(lines.tobytes()))
    data.append(packer.flush())
    kind = (_GRAY if colours == "gray" else _RGB) + _ALPHA * has_gaps
    head = struct.pack(">IIBBBBB", columns, rows, 8, kind, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", b"".join(data)), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in parts)


def _coloured(values: Floats, colours: str) -> Floats:
    """Red, green and blue of values, each from 0 to 1."""
    steps = np.frombuffer(bytes.fromhex(_COLOURS[colours]), np.uint8).reshape(-1, 3) / 255
    places = np.linspace(0, 1, len(steps))
    return np.stack([np.interp(values, places, steps[:, k]) for k in range(3)], axis=-1)


def _chunk(name: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + check
