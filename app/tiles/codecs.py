"""Codecs that compress tiles one by one, chosen by the client."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numpy as np

from app.errors import NotAcceptableError
from core.arrays import Array

Codec = Callable[[Array], bytes]

CODECS = ("blosc2",)


def tile_codec(name: str) -> Codec:
    """Return the codec of this name.

    ``blosc2`` shuffles bits and compresses them with lz4, which shrinks detector counts to
    a quarter at the speed of a disk. Its output is a self-describing blosc2 chunk.

    Raises:
        NotAcceptableError: there is no such codec, or its library is not installed.
    """
    if name not in CODECS:
        raise NotAcceptableError(
            f"there is no codec {name[:40]!r}", hint=f"Use {', '.join(CODECS)}"
        )
    try:
        blosc2 = import_module("blosc2")
    except ImportError as e:
        raise NotAcceptableError(
            "this server has no blosc2", hint="Install the extra blosc2, or omit codec"
        ) from e

    def compress(values: Array) -> bytes:
        chunk: bytes = blosc2.compress2(
            np.ascontiguousarray(values).reshape(-1).view(np.uint8).data,
            typesize=min(values.dtype.itemsize, 255),
            codec=blosc2.Codec.LZ4,
            filters=[blosc2.Filter.BITSHUFFLE],
            clevel=5,
        )
        return chunk

    return compress
