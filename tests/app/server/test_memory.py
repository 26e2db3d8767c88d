"""When free memory is returned to the system."""

from __future__ import annotations

import ctypes
import mmap

import pytest

from app.server.memory import FreeMemory, Usage, measure, raise_malloc_thresholds

MIB = 1 << 20


class Process:
    """A process whose use is made up."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.returned = 0
        self._cpu = 0.0
        self._free = FreeMemory(lambda: self.usage, self._return)

    def _return(self) -> None:
        self.returned += 1

    def passes(self, resident: int, taken: int, cpu: float) -> int:
        """Returns so far, a second later, with so many MiB and seconds more of CPU time."""
        self._cpu += cpu
        self.usage = Usage(resident * MIB, taken * MIB, self._cpu)
        self._free.look()
        return self.returned


def test_some_free_memory_is_returned_once_it_is_quiet() -> None:
    process = Process()
    assert process.passes(100, 60, 0.9) == 0
    assert process.passes(300, 260, 0.9) == 0
    assert process.passes(300, 210, 0.9) == 0
    assert process.passes(300, 210, 0.01) == 1


def test_what_no_return_frees_is_not_returned_again() -> None:
    process = Process()
    process.passes(100, 60, 0.0)
    assert process.passes(300, 60, 0.0) == 1
    assert process.passes(300, 60, 0.0) == 1
    assert process.passes(310, 60, 0.0) == 1
    # It was only that the return took a while.
    assert process.passes(150, 60, 0.0) == 1
    assert process.passes(200, 60, 0.0) == 2


def test_much_free_memory_is_returned_under_load() -> None:
    process = Process()
    process.passes(100, 60, 0.0)
    assert process.passes(190, 60, 2.0) == 0
    assert process.passes(210, 60, 2.0) == 1


def test_what_is_taken_is_not_free() -> None:
    process = Process()
    process.passes(100, 60, 0.0)
    assert process.passes(1100, 1060, 0.0) == 0
    assert process.passes(1100, 60, 0.0) == 1


def test_other_libraries_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    process._free.look()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert measure() is None
    assert process.returned == 0


def test_a_process_is_measured() -> None:
    before = measure()
    block = ctypes.create_string_buffer(b"x" * (20 * MIB))
    # What malloc gives may have been resident before.
    with mmap.mmap(-1, 20 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(bytes(20 * MIB))
        after = measure()
    assert before is not None
    assert after is not None
    # Garbage of earlier tests may be given back in between.
    assert after.taken - before.taken >= len(block) - MIB
    assert after.resident - before.resident >= 10 * MIB


def test_malloc_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert raise_malloc_thresholds() is None
    monkeypatch.setattr("platform.libc_ver", lambda: ("musl", "1"))
    assert raise_malloc_thresholds() == "the C library is not glibc"
