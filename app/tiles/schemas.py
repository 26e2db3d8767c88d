"""The JSON of a view, as the OpenAPI document describes it."""

from __future__ import annotations

from typing import Any, get_args

from core.tiles.view import Casting, Missing

_NUMBERS = {"type": "array", "items": {"type": "integer"}}
VIEW: dict[str, dict[str, Any]] = {
    "select": {
        "type": "object",
        "description": "Positions of the scan, by one of: all; nav, [start, stop, step] for each"
        " axis; frames, a list of indices in this order; mask, base64 of np.packbits; shuffle, all"
        " in an order that a seed determines",
        "examples": [
            {"all": True},
            {"nav": [[0, 64], [10, 200, 5]]},
            {"frames": [3, 1, 1]},
            {"mask": "8A=="},
            {"shuffle": {"seed": 7}},
        ],
    },
    "sig": {
        "type": "array",
        "items": _NUMBERS,
        "description": "Pixels of a frame, [start, stop] for each of its axes; default: all",
        "examples": [[[32, 96], [32, 96]]],
    },
    "bin": {
        "type": "object",
        "description": "Positions (nav) and pixels (sig) along each axis that are summed into one",
        "examples": [{"nav": 2, "sig": 4}],
    },
    "tile_shape": _NUMBERS
    | {
        "description": "Shape of a tile, a length for each axis of the view; or the number of"
        " frames, then a length for each axis of a frame; default: about 2 MiB",
    },
    "target_bytes": {
        "type": "integer",
        "description": "Approximate size of a tile, instead of tile_shape",
    },
    "dtype": {
        "type": "string",
        "description": "numpy type of the values; default: that of the dataset, wider for sums of"
        " integers, floating for corrected integers",
        "examples": ["<f4"],
    },
    "casting": {
        "enum": [*get_args(Casting)],
        "default": "safe",
        "description": "What is made of values that dtype does not hold: safe, an error; wrap, the"
        " lowest bits; clip, the nearest one",
    },
    "corrections": {
        "type": "boolean",
        "default": True,
        "description": "Whether the dark, gain and excluded pixels of the dataset are applied",
    },
    "sync_offset": {
        "type": "integer",
        "description": "Frame at which the scan begins, of either sign; default: the dataset's",
    },
    "missing": {
        "enum": [*get_args(Missing)],
        "default": "skip",
        "description": "What becomes of positions without a frame: left out, zero or NaN",
    },
}
"""Schemas of the members of a view, all of which are optional."""
