# mypy: disable-error-code="import-not-found, misc"
"""Memory through which large tensors reach the main process of a DataLoader.

torch makes a file for each tensor of a worker, whose pages are new to both processes, and sends its
descriptor over a socket: that takes longer than to read the tensor. The pages of a *room* are used
again and again, and nothing but its place is sent::

    worker   takes a free room, fills it, sends its place ──▶ main   maps it: a tensor
             ◀──────────────── marks it as free, once nobody has the tensor any more

The file is that of a dataset, and open before its workers are forked: it has the same number in all
of them. A room is used by the worker that has claimed it; others claim it when that one has ended.
Where none is left, a tensor goes the usual way.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

_MOST = 256 << 20
"""Bytes of all rooms of a dataset; those that were never used take no memory."""
_ROOMS = 128
_PAGE = mmap.ALLOCATIONGRANULARITY
_SIZE, _OWNERS = 0, slice(1, 1 + _ROOMS)
"""Of the numbers in the first page: bytes of a room, and which process has claimed each."""
_STATE, _TICKET, _TENSOR = 0, slice(8, 16), 64
"""Of the bytes of a room: its state, how many tensors it has held, and where they begin."""
_FREE, _SENT, _OPEN = range(3)

Place = tuple[int, int, int, int, int]
"""Number and inode of the file, first byte and size of the room, and its ticket."""


class _Lease(mmap.mmap):
    """A room, mapped by the process that has its tensor."""

    process = 0

    def __del__(self) -> None:
        # What a process that was forked meanwhile has is only a copy of the lease.
        if self.process == os.getpid():
            self[_STATE] = _FREE


class Rooms:
    """The rooms of a dataset, in the process that made it and in those forked from it."""

    def __init__(self) -> None:
        self._file = os.memfd_create("thalweg-rooms")
        weakref.finalize(self, os.close, self._file)
        os.ftruncate(self._file, _PAGE + _MOST)
        # Mapped once: when a map is closed, so is a descriptor, and with it goes the lock.
        self._octets = np.frombuffer(mmap.mmap(self._file, _PAGE + _MOST), np.uint8)
        self._numbers = self._octets[:_PAGE].view(np.int64)
        self._own: set[int] = set()

    @classmethod
    def where_possible(cls) -> Rooms | None:
        """New ones, where the system has files in memory."""
        return cls() if hasattr(os, "memfd_create") else None

    def put(self, octets: Any, largest: int) -> Place | None:  # noqa: ANN401 - an array of bytes
        """Fill a free room; None if there is none. For one thread at a time.

        Args:
            octets: of a tensor.
            largest: bytes of the largest tensor that comes with it, for the size of the rooms.
        """
        if not self._numbers[_SIZE]:
            with self._locked():
                needed = 1 << (_TENSOR + largest - 1).bit_length()
                self._numbers[_SIZE] = self._numbers[_SIZE] or max(needed, _PAGE)
        size = int(self._numbers[_SIZE])
        if _TENSOR + len(octets) > size:
            return None
        number = next((k for k in self._own if self._room(k)[_STATE] == _FREE), None)
        if number is None and (number := self._claim()) is None:
            return None
        room = self._room(number)
        room[_TENSOR : _TENSOR + len(octets)] = octets
        ticket = _stamp(room)
        room[_STATE] = _SENT
        return self._file, os.fstat(self._file).st_ino, _PAGE + number * size, size, ticket

    def _room(self, number: int) -> Any:  # noqa: ANN401 - an array of bytes
        size = int(self._numbers[_SIZE])
        return self._octets[_PAGE:][number * size : (number + 1) * size]

    def _claim(self) -> int | None:
        """Claim a room that no process uses; None if there is none."""
        with self._locked():
            owners = self._numbers[_OWNERS][: _MOST // int(self._numbers[_SIZE])]
            for number, owner in enumerate(owners.tolist()):
                # Another process that had this one's id has ended, too.
                unused = owner in {0, os.getpid()} or not _is_alive(owner)
                if number in self._own or not unused:
                    continue
                # What a worker that has ended sent last may be opened just now.
                _stamp(self._room(number))
                if self._room(number)[_STATE] != _OPEN:
                    owners[number] = os.getpid()
                    self._own.add(number)
                    return number
        return None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        import fcntl  # noqa: PLC0415 - which Windows lacks

        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


def tensor_in(place: Place, dtype: Any, shape: tuple[int, ...]) -> Any:  # noqa: ANN401 - of torch
    """The tensor in a room, which is free again once nothing refers to its memory.

    Raises:
        RuntimeError: the dataset is gone, or the worker, and another one has the room.
    """
    file, inode, offset, size, ticket = place
    try:
        is_same = os.fstat(file).st_ino == inode
        lease = _Lease(file, size, offset=offset) if is_same else None
    except OSError as e:
        raise RuntimeError(f"a batch that a worker has sent cannot be mapped: {e}") from e
    if lease is not None:
        lease[_STATE] = _OPEN
    if lease is None or int.from_bytes(lease[_TICKET], "little") != ticket:
        raise RuntimeError("a batch is gone, as is the dataset or the worker that it comes from")
    lease.process = os.getpid()
    flat = torch.frombuffer(lease, dtype=dtype, count=math.prod(shape), offset=_TENSOR)
    return flat.reshape(shape)


def _stamp(room: Any) -> int:  # noqa: ANN401 - an array of bytes
    """Give a room another ticket, which is returned: the place of what was in it is void."""
    tickets = room[_TICKET].view(np.int64)
    tickets += 1
    return int(tickets[0])


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
