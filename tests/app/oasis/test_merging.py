from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.oasis.merging import Piece, merge
from core.arrays import Rows

ROW = np.dtype([("key", "<i8"), ("file", "<i8"), ("row", "<i8")])
FILES = st.lists(st.lists(st.integers(-2, 4), max_size=12), min_size=1, max_size=4)


def rows_of(keys: list[int], file: int) -> Rows:
    return np.array([(key, file, row) for row, key in enumerate(keys)], ROW)


def pieces(rows: Rows, size: int) -> Iterator[Piece[Rows]]:
    for start in range(0, len(rows), size):
        piece = rows[start : start + size]
        yield piece["key"].copy(), piece


def reorder(parts: list[Rows], order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Rows:
    return np.concatenate(parts)[order]


def with_a_heap(files: list[list[int]]) -> list[tuple[int, int, int]]:
    """The peer's way: the lowest (key, file) of the heads of all files, again and again."""
    heads = [(keys[0], file, 0) for file, keys in enumerate(files) if keys]
    heapq.heapify(heads)
    merged = []
    while heads:
        key, file, row = heapq.heappop(heads)
        merged.append((key, file, row))
        if row + 1 < len(files[file]):
            heapq.heappush(heads, (files[file][row + 1], file, row + 1))
    return merged


@given(FILES, st.integers(1, 5), st.booleans())
def test_rows_are_in_the_order_of_a_heap_of_heads(
    files: list[list[int]], size: int, is_sorted: bool
) -> None:
    if is_sorted:
        files = [sorted(keys) for keys in files]
    tables = [pieces(rows_of(keys, file), size) for file, keys in enumerate(files)]
    merged = [row for rows in merge(tables, reorder) for row in rows.tolist()]
    assert merged == with_a_heap(files)
