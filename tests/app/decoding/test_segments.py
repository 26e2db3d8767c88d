"""Shared memory is sealed, used again, and freed with the last array."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import weakref
from pathlib import Path

import pytest

from app.decoding.segments import Segment, Segments

MIB = 1 << 20


def test_nobody_can_pull_it_away() -> None:
    segment = Segment(0, MIB)
    assert segment.descriptor is not None
    for size in (0, 2 * MIB):
        with pytest.raises(OSError, match="not permitted") as caught:
            os.ftruncate(segment.descriptor, size)
        assert caught.value.errno == errno.EPERM
    with mmap.mmap(segment.descriptor, MIB) as theirs:
        theirs[:4] = b"data"
    octets = segment.octets(4)
    assert bytes(octets) == b"data"
    assert not octets.flags.writeable
    segment.sent()
    assert segment.descriptor is None


def test_a_segment_is_free_once_nothing_refers_to_it() -> None:
    segments = Segments()
    first = segments.take(100)
    octets = segments.lend(first, 100)
    part = octets[10:20].view("u2").reshape(5, 1)
    del octets
    gc.collect()
    second = segments.take(100)
    assert second.number != first.number
    del part
    gc.collect()
    assert segments.take(100).number == first.number
    segments.put(second)
    assert segments.take(200).number == second.number


def test_a_few_small_ones_are_kept() -> None:
    segments = Segments()
    taken = [segments.take(MIB) for _ in range(5)]
    for segment in taken:
        segments.put(segment)
    assert sorted(segments.dropped()) == [segment.number for segment in taken[:2]]
    assert segments.dropped() == []
    # What the worker was told to unmap is not lent again.
    assert [segments.take(MIB).number for _ in range(3)] == [s.number for s in taken[2:]]
    assert segments.take(MIB).number > taken[-1].number


def test_a_long_one_is_freed_at_once() -> None:
    segments = Segments()
    octets = segments.lend(segments.take(32 * MIB), 32 * MIB)
    freed = weakref.ref(next(iter(segments._loans.values())).segment)
    del octets
    assert freed() is None
    assert segments.dropped() == []


def test_sizes_leave_room_for_the_next_request_unless_they_are_large() -> None:
    segments = Segments()
    sizes = [segments.take(n).size for n in (1, MIB, MIB + 1, 5 * MIB)]
    assert all(size & (size - 1) == 0 for size in sizes)
    assert sizes[1:] == [MIB, 2 * MIB, 8 * MIB]
    large = 100 * MIB + 1
    assert segments.take(large).size == large - 1 + mmap.PAGESIZE


def test_memory_is_returned() -> None:
    def shared() -> int:
        return Path("/proc/self/maps").read_text().count("thalweg-decoded")

    before = shared()
    segments = Segments()
    octets = segments.lend(segments.take(MIB), MIB)
    assert shared() == before + 1
    del segments
    gc.collect()
    assert shared() == before + 1
    del octets
    gc.collect()
    assert shared() == before
