"""The table of decoders of packed pixels, which callers can extend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from .._jit import foreign_kernel
from ..arrays import Array, Octets
from ..errors import OptionError
from .formats import FORMATS
from .packing import Decoder, Shape

_decoders = {decoder.name: decoder for form in FORMATS.values() for decoder in form.decoders}

DECODERS: Mapping[str, Decoder] = MappingProxyType(_decoders)
"""All decoders, by the name used in recordings."""


def register(
    name: str,
    dtype: np.dtype[Any],
    frame_bytes: Callable[[Shape], int],
    function: Callable[..., None],
) -> Decoder:
    """Add a decoder to the table of this process.

    Args:
        name: name of the decoder in recordings.
        dtype: dtype of the decoded pixels.
        frame_bytes: returns the packed size in bytes of a frame of a shape.
        function: ``function(raw, out, sig_shape)`` decodes a frame: its bytes, shape (n,),
            the pixels to fill, shape (pixels,), and the shape of the frame as a tuple. It
            must compile with numba in nopython mode; a plain Python function is compiled
            here.

    Raises:
        OptionError: the name is taken.
    """
    call = foreign_kernel(function)

    def frames(raw: Octets, stride: int, size: int, out: Array, sig_shape: Shape) -> None:
        for f in range(out.shape[0]):
            call(raw[f * stride : f * stride + size], out[f], sig_shape)

    compiled = foreign_kernel(frames)

    def kernel(raw: Octets, stride: int, out: Array, sig_shape: Shape) -> None:
        compiled(raw, stride, frame_bytes(sig_shape), out, sig_shape)

    decoder = Decoder(name, np.dtype(dtype), frame_bytes, kernel)
    if _decoders.setdefault(name, decoder) is not decoder:
        raise OptionError(f"a decoder named {name!r} exists already")
    return decoder
