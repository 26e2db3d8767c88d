"""Compressing tiles one by one, for clients that ask for it by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from app.errors import NotAcceptableError

Codec = Callable[[npt.NDArray[Any]], bytes]

CODECS = ("blosc2",)


def tile_codec(name: str) -> Codec:
    """A codec by its name.

    ``blosc2`` shuffles bits and compresses them with lz4: detector counts come to a
    quarter at the speed of a disk. What it makes is a blosc2 chunk that says the rest.

    Raises:
        NotAcceptableError: there is none of this name, or its library is not installed.
    """
    if name not in CODECS:
        raise NotAcceptableError(
            f"there is no codec {name[:40]!r}", hint=f"There is {', '.join(CODECS)}"
        )
    try:
        blosc2 = import_module("blosc2")
    except ImportError as e:
        raise NotAcceptableError(
            "this server has no blosc2", hint="Install the extra blosc2, or leave codec out"
        ) from e

    def compress(values: npt.NDArray[Any]) -> bytes:
        made: bytes = blosc2.compress2(
            np.ascontiguousarray(values).reshape(-1).view(np.uint8).data,
            typesize=min(values.dtype.itemsize, 255),
            codec=blosc2.Codec.LZ4,
            filters=[blosc2.Filter.BITSHUFFLE],
            clevel=5,
        )
        return made

    return compress
