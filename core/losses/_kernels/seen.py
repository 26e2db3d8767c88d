"""Which events and blocks have been met: bitmap of event ids, table of block ids.

Event ids are positive int32. One bit each, in pages of 4,096 ids that exist only
where ids occur: 1.2 MB for ten million consecutive ids, 256 MB for the worst set.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import inlined, kernel, subkernel
from ...arrays import Indices, Octets
from .layout import SEEN_PAGE_BITS, ZERO

_IN_PAGE = (1 << SEEN_PAGE_BITS) - 1

NO_PAGE = -1
NEW = 0
SEEN = 1


@subkernel
def test_event(event: int, directory: npt.NDArray[np.int32], pages: Octets) -> int:
    """Whether an event id is marked: NEW, SEEN, or NO_PAGE if its page must be made.

    Args:
        event: id, at least 1.
        directory: page number of each range of ids, 0 where none exists yet; it may end before
            the last range.
        pages: one row per page; row 0 is unused.
    """
    slot = event >> SEEN_PAGE_BITS
    page = directory[slot] if slot < len(directory) else 0
    if page == 0:
        return NO_PAGE
    bit = event & _IN_PAGE
    return SEEN if pages[page, bit >> 3] & (1 << (bit & 7)) else NEW


@kernel
def mark_event(event: int, directory: npt.NDArray[np.int32], pages: Octets) -> None:
    """Mark an event id whose page exists."""
    bit = event & _IN_PAGE
    pages[directory[event >> SEEN_PAGE_BITS], bit >> 3] |= np.uint8(1 << (bit & 7))


@inlined
def add_block(ident: int, serial: int, table: Indices) -> bool:
    """Put a block id into the event's hash table; return False if it was there.

    Args:
        ident: item or summary id, at least 1.
        serial: the event's stamp; entries with another stamp count as free, so that
            the table need not be cleared between events.
        table: open addressing, a power of two in length, at most half full.
    """
    mask = len(table) - 1
    slot = ((ident * 1540483477) >> 15) & mask
    entry = (serial << 32) | ident
    while True:
        held = table[slot]
        if held == entry:
            return False
        if held >> 32 != serial:
            table[slot] = entry
            return True
        slot = (slot + 1) & mask


@kernel
def fill_table(log: npt.NDArray[np.int32], count: int, serial: int, table: Indices) -> None:
    """Put the first ``count`` logged block ids into a table of zeros."""
    for i in range(count):
        add_block(ZERO + log[i], serial, table)
