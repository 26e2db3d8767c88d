"""Page-aligned buffers that are lent to threads."""

from __future__ import annotations

import itertools
import threading
from contextlib import ExitStack

import numpy as np
import pytest

from app.datasets.files.buffers import PAGE, BufferPool
from app.errors import BusyError


def test_buffers_are_whole_pages() -> None:
    with BufferPool(1, 3 * PAGE).lend() as buffer:
        assert buffer.nbytes == 3 * PAGE
        assert buffer.ctypes.data % PAGE == 0
    for size in (0, -PAGE, PAGE + 1):
        with pytest.raises(ValueError, match="whole pages"):
            BufferPool(1, size)


def test_no_more_are_lent_than_there_are() -> None:
    pool = BufferPool(2, PAGE, wait=0.01)
    with pool.lend() as first, pool.lend() as second:
        assert first.ctypes.data != second.ctypes.data
        with pytest.raises(BusyError), pool.lend():
            pass
    with pool.lend() as again:
        assert again.ctypes.data in {first.ctypes.data, second.ctypes.data}


def test_a_buffer_comes_back_from_a_block_that_fails() -> None:
    pool = BufferPool(1, PAGE, wait=0.01)
    with pytest.raises(RuntimeError), pool.lend():
        raise RuntimeError
    with pool.lend():
        pass


def test_a_thread_waits_for_a_buffer() -> None:
    pool = BufferPool(1, PAGE, wait=10)
    got = threading.Event()

    def wait() -> None:
        with pool.lend():
            got.set()

    with pool.lend():
        thread = threading.Thread(target=wait)
        thread.start()
        assert not got.is_set()
    assert got.wait(10)
    thread.join()


def test_buffers_are_made_when_they_are_needed_and_no_more_than_may_be() -> None:
    for count, size in ((1, PAGE), (3, 1 << 20), (5, 3 << 20)):
        pool = BufferPool(count, size, wait=0.01)
        with ExitStack() as stack:
            lent = [stack.enter_context(pool.lend()) for _ in range(count)]
            starts = sorted(buffer.ctypes.data for buffer in lent)
            assert all(b - a >= size for a, b in itertools.pairwise(starts))
            for k, buffer in enumerate(lent):
                buffer[:] = k
            assert [set(np.unique(buffer)) for buffer in lent] == [{k} for k in range(count)]
            with pytest.raises(BusyError), pool.lend():
                pass
        assert len(pool._free) == count
