"""The table of decoders of packed pixels, and how a caller adds one."""

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
"""Every decoder by the name a recording has for it."""


def register(
    name: str,
    dtype: np.dtype[Any],
    frame_bytes: Callable[[Shape], int],
    function: Callable[..., None],
) -> Decoder:
    """Add a caller's own decoder to the table, for this process.

    ``function(raw, out, sig_shape)`` is called for every frame with its bytes, the
    pixels to fill (one dimension), and the shape as a tuple. It must compile with numba
    in nopython mode; a plain Python function is compiled here.

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
