"""What the processes of a service hold together, in all and by owner.

A limit of the service is kept by processes that know nothing of each other. So each counts what
it holds in a column of its own, in memory that all share, and whoever wants more adds up the row:

                         key  │ process 0 │ process 1 │ process 2 │
    requests of all           │     3     │     0     │    12     │     15 of 1,024
    requests of alice   a81f… │     3     │     0     │     9     │     12 of 716
    memory of all             │   40 MiB  │     0     │    1 GiB  │   1064 of 2,048 MiB
    memory of alice     07c2… │     0     │     0     │    1 GiB  │   1024 of 1,433 MiB

Adding up and adding are one step under a lock in the same memory: a *robust* mutex, which takes
less than a microsecond, and which the kernel releases when its holder dies, wherever it was.
There is nothing to mend then. A number is the sum of its row and is kept nowhere else, so the
death of a process is the zeroing of its column, which the supervisor does when it notes the end.

The row of an owner is one of the eight places that the hash of its name allows, and is its own
for as long as any process holds something for it. Should all eight be taken by others, it shares a
row with all who found none: together they may hold what one may, so limits hold in any case.

Processes are forked from the one that made the table, so that all of them see the same memory and
hash alike.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections import Counter

MEMORY, REQUESTS, BUFFERS, DECODERS, DECODING = range(5)
"""Kinds of what is held."""
_KINDS = 5
_WAYS = 8
"""Places of an owner."""
_SETS = 2048
_WORD = 8
_MUTEX_WORDS = 16
NOTES = 8
"""Numbers that any process may set, under the lock."""
BUCKETS = 16384
"""Pairs of numbers for whoever limits rates."""
MOST = 1 << 62
"""More than anybody holds."""
_SHARED = _ROBUST = _RECURSIVE = 1
"""Attributes of a mutex."""

_quick, _slow = ctypes.PyDLL(None), ctypes.CDLL(None)
"""The library of the system, called with the interpreter's lock and without it."""
for _name in ("pthread_mutex_trylock", "pthread_mutex_unlock", "pthread_mutex_consistent"):
    getattr(_quick, _name).argtypes = [ctypes.c_void_p]
_slow.pthread_mutex_lock.argtypes = [ctypes.c_void_p]


class Mutex:
    """A lock among the threads of several processes, released by the kernel with its holder.

    It may be taken again by the thread that has it: a collection of garbage can come at any time,
    and release what a forgotten request held.

    Args:
        address: of ``_MUTEX_WORDS`` words in memory that the processes share.
    """

    def __init__(self, address: int) -> None:
        attributes = ctypes.create_string_buffer(64)
        _quick.pthread_mutexattr_init(attributes)
        _quick.pthread_mutexattr_setpshared(attributes, _SHARED)
        _quick.pthread_mutexattr_setrobust(attributes, _ROBUST)
        _quick.pthread_mutexattr_settype(attributes, _RECURSIVE)
        self._mutex = ctypes.c_void_p(address)
        _check(_quick.pthread_mutex_init(self._mutex, attributes))
        self._try, self._unlock = _quick.pthread_mutex_trylock, _quick.pthread_mutex_unlock

    def __enter__(self) -> None:
        code = self._try(self._mutex)
        if code == errno.EBUSY:
            # Without the interpreter's lock, which the holder may be waiting for.
            code = _slow.pthread_mutex_lock(self._mutex)
        if code:
            _check(0 if code == errno.EOWNERDEAD else code)
            _quick.pthread_mutex_consistent(self._mutex)

    def __exit__(self, *failure: object) -> None:
        self._unlock(self._mutex)


def _check(code: int) -> None:
    if code:
        raise OSError(code, os.strerror(code))


class Table:
    """The memory of all tallies.

    Args:
        processes: number of processes, each with a column.

    Attributes:
        processes: as above.
        lock: must be held by whoever changes anything, and by ``Tally.add``.
        cells: the rows: a key, and a number for each process.
        notes: ``NOTES`` numbers for anything, such as times.
        buckets: ``BUCKETS`` keys, and then as many times.
    """

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes
        self.width = processes + 1
        rows = 2 * _KINDS + _SETS * _WAYS
        counts = (_MUTEX_WORDS, rows * self.width, NOTES, 2 * BUCKETS)
        ends = [sum(counts[: i + 1]) * _WORD for i in range(len(counts))]
        memory = mmap.mmap(-1, ends[-1])
        self.lock = Mutex(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
        view = memoryview(memory)
        self.cells = view[ends[0] : ends[1]].cast("q")
        self.notes = view[ends[1] : ends[2]].cast("d")
        self.buckets = view[ends[2] : ends[3]]

    def clear(self, process: int) -> None:
        """Forget what a process held that has ended."""
        cells, width = self.cells, self.width
        with self.lock:
            for row, number in enumerate(cells[process + 1 :: width].tolist()):
                if number:
                    cells[row * width + process + 1] = 0
            for row, key in enumerate(cells[::width].tolist()):
                at = row * width
                if key and not any(cells[at + 1 : at + width]):
                    # Nobody holds anything there, or its holder died before it counted.
                    cells[at] = 0


class Column:
    """A process's part of a table.

    Args:
        table: the table.
        process: its number.
    """

    def __init__(self, table: Table, process: int = 0) -> None:
        self.table = table
        self.process = process

    def clear(self) -> None:
        """Forget what the process held, as it has ended."""
        self.table.clear(self.process)


class Tally:
    """How much of one kind all processes hold; its process counts its own.

    Args:
        column: that of this process; default: there are no others.
        kind: of what.
        limit: maximum of all owners.
        share: maximum of one owner.

    Attributes:
        lock: must be held to add and remove.
    """

    def __init__(self, column: Column | None, kind: int, limit: int, share: int) -> None:
        column = column or Column(Table())
        self.limit = limit
        self.share = share
        self.lock = column.table.lock
        self._kind = kind
        self._cells = column.table.cells
        self._width = column.table.width
        self._own = column.process + 1
        self._all = kind * self._width
        self._crowd_row = (_KINDS + kind) * self._width
        self._rows: dict[str, int] = {}
        """Rows of the owners for whom this process holds something."""
        self._crowd: Counter[str] = Counter()
        """What it holds for owners that share a row."""

    @property
    def total(self) -> int:
        """What all owners hold."""
        return sum(self._cells[self._all + 1 : self._all + self._width])

    @property
    def here(self) -> int:
        """What all owners hold in this process."""
        return self._cells[self._all + self._own]

    @property
    def owners(self) -> int:
        """Number of owners that hold something in this process."""
        return len(self._rows)

    def of(self, owner: str) -> int:
        """What an owner holds."""
        row = self._rows.get(owner) or self._find(hash((self._kind, owner)) or 1)
        return sum(self._cells[row + 1 : row + self._width])

    def add(self, owner: str, count: int) -> int:
        """Add to what an owner holds if it fits, and return -1; else what it would hold."""
        cells, width = self._cells, self._width
        row = self._rows.get(owner) or self._claimed(owner)
        own = sum(cells[row + 1 : row + width]) + count
        if own > self.share or self.total + count > self.limit:
            self._settle(owner, row)
            return own
        cells[row + self._own] += count
        cells[self._all + self._own] += count
        if row == self._crowd_row:
            self._crowd[owner] += count
        return -1

    def remove(self, owner: str, count: int) -> None:
        """Remove from what an owner holds."""
        cells, row = self._cells, self._rows[owner]
        cells[row + self._own] -= count
        cells[self._all + self._own] -= count
        if row == self._crowd_row:
            self._crowd[owner] -= count
        self._settle(owner, row)

    def _claimed(self, owner: str) -> int:
        key = hash((self._kind, owner)) or 1
        row = self._rows[owner] = self._find(key)
        if row != self._crowd_row:
            self._cells[row] = key
        return row

    def _settle(self, owner: str, row: int) -> None:
        """Forget an owner's row if this process holds nothing for it; free it if none does."""
        if row == self._crowd_row:
            if self._crowd[owner]:
                return
            del self._crowd[owner]
        elif self._cells[row + self._own]:
            return
        elif not any(self._cells[row + 1 : row + self._width]):
            self._cells[row] = 0
        del self._rows[owner]

    def _find(self, key: int) -> int:
        """Return where the row of a key is, or may be."""
        width = self._width
        first = (2 * _KINDS + key % _SETS * _WAYS) * width
        keys = self._cells[first : first + _WAYS * width : width].tolist()
        if key in keys:
            return first + keys.index(key) * width
        return first + keys.index(0) * width if 0 in keys else self._crowd_row
