"""Where blocks lie in the bytes of a stream, without reading what is in them."""

from __future__ import annotations

import numpy as np

from ..arrays import Indices
from .events import Event, StreamHeader
from .format import block_header_size, pair_size


def block_sizes(event: Event, header: StreamHeader) -> Indices:
    """Bytes of each block of an event in its stream, shape (blocks,)."""
    pair = pair_size(header.float_width)
    fixed = block_header_size(header.kind, header.float_width) + pair
    sizes: Indices = np.diff(event.starts) * pair + fixed
    return sizes
