"""Places where readers of compressed files stopped, with decoders that can go on from there.

They are kept only to save time: in the ledger, nobody's, and given up, the oldest first, where
memory is short. The window of a zstd decoder alone may take 128 MiB.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any

from app.engine.ledger import Hold, Ledger
from app.errors import ServiceError

_NOBODY = ""
_PURPOSE = "cached"
_PER_FILE = 4
"""Places that are kept of a file."""
_STATE_BYTES = 64 << 10
"""Memory of a decoder besides its window."""


@dataclass(slots=True)
class Cursor:
    """A decompressor and its position, as a checkpoint or between two reads.

    Bytes taken from the file but not decoded are in ``undecoded``, decoded bytes not yet
    returned in ``unread``.
    """

    decoder: Any
    """None at the start of a gzip member or zstd frame."""
    offset: int = 0
    """Offset in the file after ``undecoded``."""
    at: int = 0
    """Offset in the decoded bytes before ``unread``."""
    undecoded: bytes = b""
    unread: bytes = b""
    window: int = 0
    """Bytes of the widest zstd window so far, which whoever reads holds."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.window + _STATE_BYTES + len(self.undecoded) + len(self.unread)


@dataclass(slots=True, eq=False)
class _Kept:
    file: weakref.ref[object]
    cursor: Cursor
    hold: Hold | None


class Cursors:
    """The cursors of all files of a process; a cursor belongs to one reader at a time.

    Args:
        ledger: charged for them; None for no bound.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger
        self._kept: list[_Kept] = []
        self._lock = threading.Lock()
        if ledger is not None:
            ledger.reclaims.append(self._forget)

    def take(self, file: object, low: int, high: int) -> Cursor | None:
        """Remove and return the last cursor of a file between two bytes, or None."""
        with self._lock:
            found = [k for k in self._kept if k.file() is file and low <= k.cursor.at <= high]
            if not found:
                return None
            nearest = max(found, key=lambda kept: kept.cursor.at)
            self._kept.remove(nearest)
        if nearest.hold is not None:
            nearest.hold.release()
        return nearest.cursor

    def give(self, file: object, cursor: Cursor) -> None:
        """Keep a cursor, unless there is no memory for it."""
        hold = None
        if self._ledger is not None:
            try:
                hold = self._ledger.hold(_NOBODY, cursor.nbytes, _PURPOSE)
            except ServiceError:
                return
        with self._lock:
            self._kept.append(_Kept(weakref.ref(file), cursor, hold))
            own = [kept for kept in self._kept if kept.file() is file]
            dropped = [kept for kept in self._kept if kept.file() is None] + own[:-_PER_FILE]
            self._kept = [kept for kept in self._kept if kept not in dropped]
        for kept in dropped:
            if kept.hold is not None:
                kept.hold.release()

    def _forget(self) -> bool:
        """Give up the oldest cursor; return whether there was one."""
        with self._lock:
            if not self._kept:
                return False
            kept = self._kept.pop(0)
        if kept.hold is not None:
            kept.hold.release()
        return True
