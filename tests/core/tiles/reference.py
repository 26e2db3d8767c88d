"""What a view should be, in plain numpy over the whole dataset in memory.

Knows nothing of tiles, files, ranges or kernels, and shares no code with them.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def corrected(frames: Array, dark: Array | None, gain: Array | None, bad: Array | None) -> Array:
    """float64, as exact as it gets."""
    made = frames.astype(np.complex128 if frames.dtype.kind == "c" else np.float64)
    if dark is not None:
        made = made - dark
    if gain is not None:
        made = made * gain
    if bad is None or not len(bad):
        return made
    mask = np.zeros(frames.shape[1:], bool)
    mask[tuple(bad.T)] = True
    whole = made.copy()
    for pixel in {tuple(p) for p in bad.tolist()}:
        window = tuple(slice(max(i - 1, 0), i + 2) for i in pixel)
        good = ~mask[window]
        made[(slice(None), *pixel)] = whole[(slice(None), *window)][:, good].mean(axis=1)
    return made


def positions(spec: dict[str, Any], scan: tuple[int, ...], order: Array | None) -> Array:
    """Flat positions in the shape they are asked for."""
    flat = np.arange(int(np.prod(scan))).reshape(scan)
    ((form, given),) = spec.items()
    if form == "all":
        return flat
    if form == "frames":
        return np.array(given)
    if form == "mask":
        bits = np.unpackbits(np.frombuffer(base64.b64decode(given), np.uint8))
        return np.flatnonzero(bits[: flat.size])
    if form == "nav":
        return flat[tuple(slice(*each) for each in given)]
    assert order is not None
    return order


def block_sums(values: Array, axes: range, step: int) -> Array:
    for axis in axes:
        shape = list(values.shape)
        shape[axis : axis + 1] = [shape[axis] // step, step]
        values = values.reshape(shape).sum(axis=axis + 1)
    return values


def view(
    data: Array,
    scan: tuple[int, ...],
    spec: dict[str, Any],
    *,
    sync: int = 0,
    flat: bool = False,
    dark: Array | None = None,
    gain: Array | None = None,
    bad: Array | None = None,
    order: Array | None = None,
) -> Array:
    """The whole view before it is converted: exact integers, or float64."""
    sync = spec.get("sync_offset", sync)
    where = positions(spec.get("select", {"all": True}), scan, order)
    frames = where + sync
    there = (frames >= 0) & (frames < len(data))
    missing = spec.get("missing", "skip")
    if missing == "skip" and not there.all():
        frames = frames[there].reshape(-1)
        there = np.ones(frames.shape, bool)
    if flat:
        frames, there = frames.reshape(-1), there.reshape(-1)
    used = spec.get("corrections", True) and any(x is not None for x in (dark, gain, bad))
    values = corrected(data, dark, gain, bad) if used else data
    sums = spec.get("bin", {})
    if sums and values.dtype.kind in "biu":
        values = values.astype(object)
    elif sums:
        values = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
    picked = values[np.where(there, frames, 0)]
    picked[~there] = 0
    crop = spec.get("sig")
    if crop is not None:
        window = tuple(slice(*pair) for pair in crop)
        picked = picked[(slice(None),) * frames.ndim + window]
    nav, sig = frames.ndim, picked.ndim - frames.ndim
    picked = block_sums(picked, range(nav), sums.get("nav", 1))
    picked = block_sums(picked, range(nav, nav + sig), sums.get("sig", 1))
    if missing == "nan":
        gone = block_sums((~there).astype(int), range(nav), sums.get("nav", 1)) > 0
        if gone.any():
            wide = np.complex128 if picked.dtype.kind == "c" else np.float64
            picked = picked.astype(wide)
            picked[gone] = np.nan
    return picked


def shuffled(size: int, seed: int) -> Array:
    """Sort positions by their keys in one go; see :mod:`core.tiles.shuffled`."""
    with np.errstate(over="ignore"):
        x = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(seed)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return np.argsort(x, kind="stable").astype(np.int64)
