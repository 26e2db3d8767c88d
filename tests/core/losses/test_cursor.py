"""Values and pairs at a cursor, from Python and from a caller's own compiled function."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from core._jit import foreign_kernel
from core.arrays import Octets
from core.losses.cursor import DType, read, read_pair, write, write_pair
from tests.streams import Block, Stream

F4, F8, I4 = np.dtype("<f4"), np.dtype("<f8"), np.dtype("<i4")


@foreign_kernel
def total(octets: Octets, cursor: int, loss: DType) -> tuple[float, int]:
    """Sum of the losses of the block whose first pair is at the cursor."""
    sum_ = 0.0
    sidx, value, cursor = read_pair(octets, cursor, loss)
    while sidx != 0:
        sum_ += value
        sidx, value, cursor = read_pair(octets, cursor, loss)
    return sum_, cursor


@foreign_kernel
def copy_pairs(source: Octets, target: Octets, loss: DType) -> int:
    """Copy pairs until the source ends; return where the target's cursor is."""
    at = out = 0
    while at < len(source):
        sidx, value, at = read_pair(source, at, loss)
        out = write_pair(target, out, loss, sidx, value)
    return out


@pytest.mark.parametrize(("width", "loss"), [(4, F4), (8, F8)])
def test_a_compiled_function_reads_the_pairs_of_a_block(width: int, loss: DType) -> None:
    pairs = ((-1, 2.5), (1, 0.25), (3, 1e6))
    stream = Stream("loss", 3, width, (Block(7, 9, pairs),))
    octets = np.frombuffer(stream.encode(), np.uint8)
    event, cursor = read(octets, 8, I4)
    item, cursor = read(octets, cursor, I4)
    assert (event, item, cursor) == (7, 9, 16)
    assert total(octets, cursor, loss) == (1000002.75, len(octets))


@pytest.mark.parametrize(("width", "loss"), [(4, F4), (8, F8)])
def test_what_is_written_at_a_cursor_are_the_bytes_of_a_stream(width: int, loss: DType) -> None:
    pairs = ((-1, 2.5), (2, 0.1))
    expected = Stream("summary", 3, width, (Block(7, 9, pairs, 12.5),)).encode()[12:]
    octets = np.zeros(len(expected), np.uint8)
    cursor = write(octets, 0, I4, 7)
    cursor = write(octets, cursor, I4, 9)
    cursor = write(octets, cursor, loss, 12.5)
    for sidx, value in (*pairs, (0, 0.0)):
        cursor = write_pair(octets, cursor, loss, sidx, value)
    assert (octets.tobytes(), cursor) == (expected, len(expected))


@pytest.mark.once
def test_values_need_no_alignment_and_any_dtype_will_do() -> None:
    octets = np.zeros(32, np.uint8)
    assert write(octets, 1, np.dtype("<i8"), -(2**40)) == 9
    assert write(octets, 9, np.dtype("u1"), 255) == 10
    assert write_pair(octets, 11, F8, 5, 0.1) == 23
    assert read(octets, 1, np.dtype("<i8")) == (-(2**40), 9)
    assert read(octets, 9, np.dtype("u1")) == (255, 10)
    assert read_pair(octets, 11, F8) == (5, 0.1, 23)


def test_pairs_are_copied_bit_by_bit() -> None:
    source = np.frombuffer(struct.pack("<ififif", 1, 0.1, 2, 3e38, 0, 0.0), np.uint8)
    target = np.zeros_like(source)
    assert copy_pairs(source, target, F4) == len(source)
    assert target.tobytes() == source.tobytes()


@pytest.mark.parametrize("cursor", [-1, 13, 16, 17])
def test_nothing_is_read_or_written_past_the_end(cursor: int) -> None:
    octets = np.zeros(16, np.uint8)
    with pytest.raises(IndexError, match="not whole"):
        read(octets, cursor, I4)
    with pytest.raises(IndexError, match="no room for the value"):
        write(octets, cursor, I4, 1)


@pytest.mark.parametrize("cursor", [-1, 9, 12, 16])
def test_half_a_pair_is_neither_read_nor_written(cursor: int) -> None:
    octets = np.zeros(16, np.uint8)
    with pytest.raises(IndexError, match="not whole"):
        read_pair(octets, cursor, F4)
    with pytest.raises(IndexError, match="no room for the pair"):
        write_pair(octets, cursor, F4, 1, 1.0)
    assert not octets.any()
