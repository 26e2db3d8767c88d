"""Places where stored loss streams can be cut between events."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from core.losses.events import StreamHeader
from core.losses.format import header_size
from core.losses.sections import find_boundary

_WINDOW = 1 << 18
"""Bytes that are searched for a cut at a time."""

Read = Callable[[int, int], bytes]
"""Returns the bytes of a stream between two offsets."""


def event_cuts(
    read: Read, size: int, header: StreamHeader, step: int, *, complete: bool = True
) -> Iterator[int]:
    """Yield offsets at which an event begins, the next at least ``step`` bytes after the last.

    The cuts follow from the bytes of the stream alone: those of its first part are cuts of the
    whole.

    Args:
        read: reads the stream.
        size: its bytes, as far as they are known.
        header: its header.
        step: bytes from one cut to the next, a multiple of 4.
        complete: whether these are all bytes. If not, the last window is not searched.
    """
    target = header_size(header.kind) + step
    while target < size:
        end = target + _WINDOW
        if end > size and not complete:
            return
        found = find_boundary(
            np.frombuffer(read(target, min(end, size)), np.uint8), header.float_width
        )
        if found is None:
            # Half a window on, so that two blocks that are cut apart are looked at together.
            target += _WINDOW // 2
            continue
        yield target + found
        # Boundaries are searched for word by word.
        target += found + step - (found & 3)
