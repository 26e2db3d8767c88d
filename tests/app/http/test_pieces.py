"""Bodies are whole again, whatever their pieces were, and nothing of them stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.http.pieces import PIECE_BYTES, Pieces


def mapped() -> int:
    """Number of mappings of this process."""
    return len(Path("/proc/self/maps").read_text().splitlines())


SIZES = [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 5 * PIECE_BYTES - 7]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("most", [1 << 16, 3 << 20])
def test_a_body_is_the_same_however_it_arrives(size: int, most: int) -> None:
    rng = np.random.default_rng(size + most)
    body = rng.bytes(size)
    pieces, at = Pieces(), 0
    while at < size:
        step = int(rng.integers(1, most))
        pieces.add(memoryview(body)[at : at + step])
        at += step
        assert len(pieces) == min(at, size)
    assert pieces.is_short == (size <= PIECE_BYTES)
    assert pieces.take() == body
    assert len(pieces) == 0


def test_nothing_of_a_long_body_is_moved_or_stays_mapped() -> None:
    pieces, before = Pieces(), mapped()
    pieces.add(bytes(PIECE_BYTES))
    first = pieces._first
    for _ in range(40 * PIECE_BYTES >> 16):
        pieces.add(bytes(1 << 16))
    assert pieces._first is first
    assert len(first) == PIECE_BYTES
    assert len(pieces._pieces) == 40
    pieces.clear()
    assert len(pieces) == 0
    assert mapped() < before + 10


def test_bytes_after_a_taken_body_begin_another() -> None:
    pieces = Pieces()
    pieces.add(b"a" * (PIECE_BYTES + 5))
    assert len(pieces.take()) == PIECE_BYTES + 5
    pieces.add(b"b")
    assert pieces.take() == b"b"
