"""The bytes of a stream that may be needed again: in memory, then on disk."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator

from ..transport.requests import BLOCK

_IN_MEMORY = 64 << 20
"""Bytes held in memory by default: four parts of the default size."""


class Window:
    """A range of a stream that grows at its end and is released from its beginning.

    Bytes lie in blocks of 1 MiB. Once they exceed the memory meant for them, the oldest
    blocks move to a temporary file. One thread may add and read while another releases.

    Args:
        in_memory: limit of the bytes in memory.
    """

    def __init__(self, in_memory: int = _IN_MEMORY) -> None:
        self._limit = max(in_memory // BLOCK, 2)
        self._blocks: dict[int, bytearray] = {}
        self._spilled: dict[int, int] = {}
        self._free_slots: list[int] = []
        self._spare: list[bytearray] = []
        self._slots = 0
        self._spill_fd = -1
        self._lock = threading.Lock()
        self.start = 0
        self.stop = 0

    def room(self) -> memoryview:
        """Memory for the next bytes; never empty."""
        index, used = divmod(self.stop, BLOCK)
        with self._lock:
            if index not in self._blocks:
                if len(self._blocks) >= self._limit:
                    self._spill(min(self._blocks))
                self._blocks[index] = self._spare.pop() if self._spare else bytearray(BLOCK)
            return memoryview(self._blocks[index])[used:]

    def added(self, count: int) -> None:
        """Account for bytes that were written into the room."""
        self.stop += count

    def views(self, start: int, stop: int) -> Iterator[memoryview]:
        """The bytes of a range, in pieces of at most 1 MiB.

        A piece is valid until the next one is asked for.
        """
        at = start
        while at < stop:
            index, begin = divmod(at, BLOCK)
            end = min(BLOCK, begin + stop - at)
            yield memoryview(self._block(index))[begin:end]
            at += end - begin

    def release(self, offset: int) -> None:
        """Bytes before this offset will not be needed again."""
        with self._lock:
            self.start = max(self.start, min(offset, self.stop))
            first = self.start // BLOCK
            for index in [i for i in self._blocks if i < first]:
                block = self._blocks.pop(index)
                if len(self._spare) < self._limit:
                    self._spare.append(block)
            for index in [i for i in self._spilled if i < first]:
                self._free_slots.append(self._spilled.pop(index))

    def close(self) -> None:
        """Release memory and disk."""
        with self._lock:
            self._blocks.clear()
            self._spare.clear()
            self._spilled.clear()
            if self._spill_fd >= 0:
                os.close(self._spill_fd)
                self._spill_fd = -1

    def _block(self, index: int) -> bytearray:
        with self._lock:
            if index in self._blocks:
                return self._blocks[index]
            block = bytearray(BLOCK)
            os.preadv(self._spill_fd, [block], self._spilled[index] * BLOCK)
            return block

    def _spill(self, index: int) -> None:
        if self._spill_fd < 0:
            with tempfile.TemporaryFile(buffering=0) as file:
                self._spill_fd = os.dup(file.fileno())
        if not self._free_slots:
            self._free_slots.append(self._slots)
            self._slots += 1
        slot = self._free_slots.pop()
        block = self._blocks.pop(index)
        view = memoryview(block)
        while view:
            written = os.pwrite(self._spill_fd, view, slot * BLOCK + BLOCK - len(view))
            view = view[written:]
        self._spilled[index] = slot
        self._spare.append(block)
