"""Maps that lose pages: zeros and a mark instead of the end of the process.

The kernel sends SIGBUS to a thread that touches a page it cannot provide: one beyond the end of
a file that was cut, or one that the disk cannot deliver. By default that ends the process. It is
also the most precise of signals: it stops the very instruction that touched the page, and runs
that instruction again once the handler returns. So our handler lays a page of zeros there and
marks the map; the thread goes on, and whoever read the map looks for the mark before the bytes
count::

    thread    ──── touches a page ─┐                     ┌─ reads zeros ──── looks: the map is cut
    kernel                         └ SIGBUS ┐           ┌┘
    handler                                 └ a row has ┘
                                              the page?
                                              zeros from it to the end of the map, and the mark

    row       first byte of the map │ end │ mark        a row for each watched map: Python code
                                                        fills it, the handler searches it; the
                                                        mark is the address, or 0

Zeros replace the rest of the map, so that thousands of missing pages cost one signal. They stay
for as long as the map: no later reader takes them for bytes of the file, as the mark stays too.

The handler is machine code, made when the first map is watched. It calls mmap(2) and nothing of
the interpreter: the thread may or may not hold the interpreter's lock. A SIGBUS that belongs to no
map, or that somebody sent, goes to the handler that was there before, which usually ends the
process. If another part of the program installs a handler of its own later, maps are no longer
watched, and :func:`watch` says so.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import signal
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from core.machine_code import MachineCode

_ROWS = 8192
"""Maximum number of maps watched at a time in a process."""
_FIXED = 0x10
"""MAP_FIXED, which Python has no name for."""
_SA_SIGINFO = 4
_libc = ctypes.CDLL(None, use_errno=True)


class _Action(ctypes.Structure):
    """``struct sigaction`` of the C libraries of Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_sigaction = _libc.sigaction
_sigaction.argtypes = [ctypes.c_int, ctypes.POINTER(_Action), ctypes.POINTER(_Action)]

_HANDLER = """
define void @handle(i32 %signal, ptr %info, ptr %context) {{
begin:
  %code_at = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %code_at
  %address_at = getelementptr i8, ptr %info, i64 16
  %address = load i64, ptr %address_at
  %sent = icmp sle i32 %code, 0
  br i1 %sent, label %resend, label %search
search:
  %row = phi i64 [ {table}, %begin ], [ %next, %skip ]
  %start_at = inttoptr i64 %row to ptr
  %start = load volatile i64, ptr %start_at
  %end_at = getelementptr i8, ptr %start_at, i64 8
  %end = load volatile i64, ptr %end_at
  %above = icmp uge i64 %address, %start
  %below = icmp ult i64 %address, %end
  %inside = and i1 %above, %below
  br i1 %inside, label %found, label %skip
skip:
  %next = add i64 %row, 24
  %over = icmp eq i64 %next, {table_end}
  br i1 %over, label %pass, label %search
found:
  %mark_at = getelementptr i8, ptr %start_at, i64 16
  store volatile i64 %address, ptr %mark_at
  %page = and i64 %address, {page_mask}
  %length = sub i64 %end, %page
  %at = inttoptr i64 %page to ptr
  %map = inttoptr i64 {mmap} to ptr
  %zeros = call ptr %map(ptr %at, i64 %length, i32 {read}, i32 {flags}, i32 -1, i64 0)
  %failed = icmp ne ptr %zeros, %at
  br i1 %failed, label %pass, label %done
pass:
  %give_up = inttoptr i64 {sigaction} to ptr
  %before = inttoptr i64 {before} to ptr
  call i32 %give_up(i32 %signal, ptr %before, ptr null)
  br label %done
resend:
  %give_up_2 = inttoptr i64 {sigaction} to ptr
  %before_2 = inttoptr i64 {before} to ptr
  call i32 %give_up_2(i32 %signal, ptr %before_2, ptr null)
  %send = inttoptr i64 {raise_} to ptr
  call i32 %send(i32 %signal)
  br label %done
done:
  ret void
}}
"""
"""A signal that the hardware caused comes back by itself after ``pass``; one that was sent is sent
again."""


class _Handler:
    """The handler of this process, and its table of watched maps."""

    def __init__(self) -> None:
        self.table: npt.NDArray[np.int64] = np.zeros((_ROWS, 3), np.int64)
        # No lock: a map may be forgotten by the garbage collector while another is entered.
        self._free = deque(range(_ROWS))
        self._before = _Action()
        at = self.table.ctypes.data
        source = _HANDLER.format(
            table=at,
            table_end=at + self.table.nbytes,
            page_mask=-mmap.PAGESIZE,
            read=mmap.PROT_READ,
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED,
            mmap=_address(_libc.mmap),
            sigaction=_address(_sigaction),
            raise_=_address(getattr(_libc, "raise")),
            before=ctypes.addressof(self._before),
        )
        self._code = MachineCode(source, "handle")
        self._action = _Action(handler=self._code.address, flags=_SA_SIGINFO)
        _sigaction(signal.SIGBUS, None, self._before)
        self.installed = not _sigaction(signal.SIGBUS, self._action, None)

    def is_in_force(self) -> bool:
        """Whether nobody has installed another handler since."""
        now = _Action()
        _sigaction(signal.SIGBUS, None, now)
        return bool(now.handler == self._action.handler)

    def take_row(self, start: int, size: int) -> int | None:
        """Enter a map; return its row, or None if all are taken."""
        try:
            row = self._free.pop()
        except IndexError:
            return None
        # The end last: until then the row holds no byte.
        self.table[row, 2] = 0
        self.table[row, 0] = start
        self.table[row, 1] = start + -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        return row

    def give_back(self, row: int) -> None:
        """Forget a map, which must not have been unmapped yet."""
        self.table[row, 1] = 0
        self._free.append(row)


def _address(function: Any) -> int:  # noqa: ANN401 - ctypes names no type for its functions
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def _handler() -> _Handler:
    return _Handler()


class Watch:
    """A watched map; the watch ends with the object, which must not outlive the map."""

    def __init__(self, handler: _Handler, row: int) -> None:
        self._handler = handler
        self._row = row
        self._start = int(handler.table[row, 0])
        self._mark = handler.table[row, 2:]

    def missing(self) -> int | None:
        """Return the offset of a byte whose page was missing when it was touched; None if none was.

        The map then holds zeros from that page on.
        """
        mark = int(self._mark[0])
        return mark - self._start if mark else None

    def is_in_force(self) -> bool:
        """Whether a missing page would be noticed now rather than end the process."""
        return self._handler.is_in_force()

    def __del__(self) -> None:
        self._handler.give_back(self._row)


def watch(address: int, size: int) -> Watch | None:
    """Watch a map of a file for pages that are missing when they are touched.

    Args:
        address: of the map, the first byte of a page.
        size: of the map in bytes.

    Returns:
        None if too many maps are watched, or another part of the program handles SIGBUS.
    """
    handler = _handler()
    if not (handler.installed and handler.is_in_force()):
        return None
    row = handler.take_row(address, size)
    return None if row is None else Watch(handler, row)
