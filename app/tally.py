"""What the processes of a service hold together, in all and by owner.

A limit of the service is kept by processes that know nothing of each other. So each counts what
it holds in a column of its own, in memory that all share, and whoever wants more adds up the row:

                         key  │ process 0 │ process 1 │ process 2 │
    requests of all           │     3     │     0     │    12     │     15 of 1,024
    requests of alice   a81f… │     3     │     0     │     9     │     12 of 716
    memory of all             │   40 MiB  │     0     │    1 GiB  │   1064 of 2,048 MiB
    memory of alice     07c2… │     0     │     0     │    1 GiB  │   1024 of 1,433 MiB

Nobody waits for anybody. A process first adds to its own column, and then adds up: of two that
would exceed a limit together, the one that is later sees what the other one has added, takes back
its own and is refused. A lock would do without that, but a process that loses its core while it
holds one keeps all others waiting until it has a core again, for tens of milliseconds on a busy
machine. A number is the sum of its row and is kept nowhere else, so the death of a process is the
zeroing of its column, which the supervisor does when it notes the end.

The row of an owner is in one of the eight places that the hash of its name allows, and stays there
until another owner needs the place while nobody holds anything in it. Who takes a place writes its
key, and then sees whether the row is empty; who adds to a row sees afterwards whether the key is
still the same: one of the two notices the other. Should all eight be in use, an owner shares a row
with all who found none: together they may hold what one may.

Places, and whatever else is changed by several processes, have a lock in the same memory, a
*robust* mutex: the kernel releases it when its holder dies, wherever it was.

Processes are forked from the one that made the table, so that all of them see the same memory and
hash alike.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading

MEMORY, REQUESTS, BUFFERS, DECODERS, DECODING = range(5)
"""Kinds of what is held."""
_KINDS = 5
_WAYS = 8
"""Places of an owner."""
_SETS = 2048
_WORD = 8
_MUTEX_WORDS = 16
NOTES = 8
"""Numbers that any process may set."""
BUCKETS = 16384
"""Pairs of numbers for whoever limits rates."""
_REMEMBERED = 4096
"""Owners whose row a process remembers, besides those for whom it holds something."""
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
        lock: must be held by whoever takes places, or changes notes or buckets.
        fence: a lock of this process, for its effect on the processor.
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
        self.fence = threading.Lock()
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


class _Row:
    """Where an owner is counted, as its process knows.

    Attributes:
        key: of the owner.
        row: where it is.
        held: what this process holds for the owner.
        is_sure: whether the row was seen to be the owner's since it has been added to.
    """

    __slots__ = ("held", "is_sure", "key", "row")

    def __init__(self, key: int) -> None:
        self.key = key
        self.row = 0
        self.held = 0
        self.is_sure = False


class Tally:
    """How much of one kind all processes hold; its process counts its own. Thread-safe.

    Args:
        column: that of this process; default: there are no others.
        kind: of what.
        limit: maximum of all owners.
        share: maximum of one owner.
    """

    def __init__(self, column: Column | None, kind: int, limit: int, share: int) -> None:
        column = column or Column(Table())
        self.limit = limit
        self.share = share
        self._table = column.table
        self._is_alone = column.table.processes == 1
        self._kind = kind
        self._cells = column.table.cells
        self._width = column.table.width
        self._own = column.process + 1
        self._all = kind * self._width
        self._crowd = (_KINDS + kind) * self._width
        self._rows: dict[str, _Row] = {}
        # A collection of garbage may release something in the middle of a change.
        self._lock = threading.RLock()

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
        return sum(slot.held > 0 for slot in list(self._rows.values()))

    def of(self, owner: str) -> int:
        """What an owner holds."""
        slot = self._rows.get(owner) or _Row(self._key(owner))
        row = slot.row if slot.held else self._find(slot.key)
        return (
            sum(self._cells[row + 1 : row + self._width]) if row != self._crowd or slot.held else 0
        )

    def add(self, owner: str, count: int) -> int:
        """Add to what an owner holds if it fits, and return -1; else what it would hold."""
        with self._lock:
            slot = self._rows.get(owner) or self._remember(owner)
            if not slot.held:
                slot.is_sure = self._is_alone
                if self._cells[slot.row] != slot.key:
                    slot.row = self._place(slot.key)
            own = self._excess(slot.row, count)
            if own >= 0:
                return own
            self._change(slot, count)
        while not self._is_alone:
            # To release a lock and to take it again keeps the processor from reading what others
            # have written before they can read what we have.
            with self._lock:
                if slot.is_sure or slot.row == self._crowd or self._cells[slot.row] == slot.key:
                    slot.is_sure = True
                    own = self._excess(slot.row, 0)
                    if own >= 0:
                        self._change(slot, -count)
                    return own
                self._move(slot)
        return -1

    def remove(self, owner: str, count: int) -> None:
        """Remove from what an owner holds."""
        with self._lock:
            self._change(self._rows[owner], -count)

    def _excess(self, row: int, count: int) -> int:
        """Return what an owner would hold, if that is too much; else -1."""
        cells, width = self._cells, self._width
        own = sum(cells[row + 1 : row + width]) + count
        return own if own > self.share or self.total + count > self.limit else -1

    def _change(self, slot: _Row, count: int) -> None:
        slot.held += count
        self._cells[slot.row + self._own] += count
        self._cells[self._all + self._own] += count

    def _move(self, slot: _Row) -> None:
        """Count what an owner holds in another row, as another owner has taken this one."""
        self._cells[slot.row + self._own] -= slot.held
        slot.row = self._place(slot.key)
        self._cells[slot.row + self._own] += slot.held

    def _key(self, owner: str) -> int:
        return hash((self._kind, owner)) or 1

    def _remember(self, owner: str) -> _Row:
        if len(self._rows) >= _REMEMBERED:
            for known, row in list(self._rows.items()):
                if not row.held:
                    del self._rows[known]
        slot = self._rows[owner] = _Row(self._key(owner))
        return slot

    def _place(self, key: int) -> int:
        """Return the row of a key: the one it has, a place that it takes, or that of the crowd."""
        cells, width = self._cells, self._width
        with self._table.lock:
            row = self._find(key)
            if row != self._crowd:
                return row
            # Those that nobody has had come first.
            for row in sorted(self._places(key), key=lambda row: cells[row] != 0):
                if any(cells[row + 1 : row + width]):
                    continue
                before, cells[row] = cells[row], key
                for _ in range(2):
                    # As above.
                    with self._table.fence:
                        pass
                if not any(cells[row + 1 : row + width]):
                    return row
                cells[row] = before
        return self._crowd

    def _places(self, key: int) -> range:
        first = (2 * _KINDS + key % _SETS * _WAYS) * self._width
        return range(first, first + _WAYS * self._width, self._width)

    def _find(self, key: int) -> int:
        """Return where the row of a key is; that of the crowd if it has none."""
        places = self._places(key)
        keys = self._cells[places.start : places.stop : self._width].tolist()
        return places[keys.index(key)] if key in keys else self._crowd
