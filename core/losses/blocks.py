"""Where blocks lie in the bytes of a stream, without reading what is in them."""

from __future__ import annotations

import numpy as np

from ..arrays import Indices
from .events import Event, StreamHeader
from .format import SPECIALS, block_header_size, pair_size


def block_sizes(event: Event, header: StreamHeader) -> Indices:
    """Bytes of each block of an event in its stream, shape (blocks,)."""
    pair = pair_size(header.float_width)
    fixed = block_header_size(header.kind, header.float_width) + pair
    sizes: Indices = np.diff(event.starts) * pair + fixed
    return sizes


def whole_blocks(octets: bytes | memoryview, header: StreamHeader) -> int:
    """Bytes of the whole blocks that some bytes begin with.

    Only ends are looked for: whether the blocks are right is up to a reader. A block of
    more pairs than its stream can have is not whole.

    Args:
        octets: bytes of a stream, from the first byte of a block on.
        header: of the stream.
    """
    words = np.frombuffer(octets, "<i4", count=len(octets) // 4)
    head = block_header_size(header.kind, header.float_width) // 4
    pair = pair_size(header.float_width) // 4
    longest = pair * (header.len_sample + SPECIALS + 1)
    begin = 0
    while True:
        first = begin + head
        ends = np.flatnonzero(words[first : first + longest : pair] == 0)
        if not len(ends) or first + pair * (int(ends[0]) + 1) > len(words):
            return 4 * begin
        begin = first + pair * (int(ends[0]) + 1)
