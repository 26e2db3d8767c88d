"""A body in memory while it arrives, of a size that nobody knows yet.

A ``bytearray`` that grows is moved now and then: tens of megabytes are copied in one go, and the
event loop stands still for 20 to 70 ms. So what is more than a little is kept in pieces that never
move, and becomes one in a thread::

    add ──▶ first, at most 1 MiB
       └──▶ piece │ piece │ piece │ pie…        mappings of 1 MiB each
                  take, in a thread: first += piece, which is then unmapped

A piece is a mapping of its own, so that a page costs memory once it is written, and is given back
to the system when its piece ends, however the heap looks.
"""

from __future__ import annotations

import mmap
from collections import deque

from core.budget import current

PIECE_BYTES = 1 << 20


class Pieces:
    """The bytes of a body so far."""

    __slots__ = ("_first", "_free", "_pieces")

    def __init__(self) -> None:
        self._first = bytearray()
        self._pieces: deque[mmap.mmap] = deque()
        self._free = 0
        """Bytes of the last piece that are not written yet."""

    def __len__(self) -> int:
        return len(self._first) + len(self._pieces) * PIECE_BYTES - self._free

    @property
    def is_short(self) -> bool:
        """Whether ``take`` has next to nothing to do."""
        return not self._pieces

    def add(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        if not self._pieces and len(self._first) + len(data) <= PIECE_BYTES:
            self._first += data
            return
        at = 0
        while at < len(data):
            if not self._free:
                self._pieces.append(mmap.mmap(-1, PIECE_BYTES))
                self._free = PIECE_BYTES
            count = min(self._free, len(data) - at)
            begin = PIECE_BYTES - self._free
            self._pieces[-1][begin : begin + count] = data[at : at + count]
            self._free -= count
            at += count

    def take(self) -> bytearray:
        """Return all bytes, which are no longer kept here.

        Raises:
            WorkStoppedError: nobody waits for them any more.
        """
        whole, last = self._first, PIECE_BYTES - self._free
        self._first, self._free = bytearray(), 0
        budget = current()
        while self._pieces:
            budget.check("body")
            piece = self._pieces.popleft()
            with piece:
                whole += piece if self._pieces else piece[:last]
        return whole

    def clear(self) -> None:
        """Give the memory back."""
        self._first, self._free = bytearray(), 0
        while self._pieces:
            self._pieces.popleft().close()
