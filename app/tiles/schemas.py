"""The JSON of a view, as the OpenAPI document describes it."""

from __future__ import annotations

_TEXTS = {
    "select": 'Positions of the scan, one of {"all": true}, {"nav": [[start, stop, step], …]} for'
    ' each axis, {"frames": [3, 1, 1]} in this order, {"mask": base64 of np.packbits} and'
    ' {"shuffle": {"seed": 7}}',
    "sig": "Pixels of a frame, [start, stop] for each axis, such as [[32, 96], [0, 64]]",
    "bin": 'Positions and pixels along each axis that are summed: {"nav": 2, "sig": 4}',
    "tile_shape": "Shape of a tile, a length for each axis of the view; or the number of frames,"
    " then a length for each axis of a frame; default: about 2 MiB",
    "target_bytes": "Approximate size of a tile, instead of tile_shape",
    "dtype": "numpy type of the values, such as <f4; default: that of the dataset, wider for sums"
    " of integers, floating for corrected integers",
    "casting": "What is made of values that dtype does not hold: safe (the default), an error;"
    " wrap, the lowest bits; clip, the nearest that it holds",
    "corrections": "Whether the dark, gain and excluded pixels of the dataset apply: true or false",
    "sync_offset": "Frame at which the scan begins, of either sign; default: the dataset's",
    "missing": "Positions without a frame: skip (the default), zero or nan",
}
VIEW = {name: {"description": text} for name, text in _TEXTS.items()}
"""Schemas of the members of a view, all of which are optional."""
