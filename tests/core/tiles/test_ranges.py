"""Ranges in order, joined, grouped, loaded and gathered: every byte where it is wanted."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tiles.ranges import Ranges, are_present, arrange, gather, last_start

Rows = list[tuple[int, int, int, int]]
"""(file, start, stop, offset) of each."""


def ranges_of(rows: Sequence[tuple[int, int, int, int]], size: int | None = None) -> Ranges:
    files, starts, stops, offsets = np.array(rows, np.int64).reshape(-1, 4).T
    return arrange(files, starts, stops, offsets, size)


def rows_of(ranges: Ranges) -> Rows:
    columns = (ranges.files, ranges.starts, ranges.stops, ranges.offsets)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def bytes_of(rows: Rows) -> set[tuple[int, int, int]]:
    """(file, byte, where it goes) of every byte."""
    return {(f, a + k, o + k) for f, a, b, o in rows for k in range(b - a)}


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """Ranges that do not overlap in their output."""
    made: Rows = []
    at = 0
    for _ in range(draw(st.integers(0, 8))):
        file, start = draw(st.integers(0, 2)), draw(st.integers(0, 60))
        chained = draw(st.booleans())
        if made and chained:
            file, start = made[-1][0], made[-1][2]
        length = draw(st.integers(0, 20))
        at += draw(st.sampled_from([0, 0, 3]))
        made.append((file, start, start + length, at))
        at += length
    return draw(st.permutations(made))


@given(rows())
def test_they_are_put_in_order_and_joined(given_rows: Rows) -> None:
    found = rows_of(ranges_of(given_rows, 10_000))
    assert bytes_of(found) == bytes_of(given_rows)
    assert [row[:2] for row in found] == sorted(row[:2] for row in found)
    assert all(start < stop for _, start, stop, _ in found)
    for one, two in itertools.pairwise(found):
        together = one[0] == two[0] and one[2] == two[1]
        assert not (together and two[3] - one[3] == one[2] - one[1])


def test_neighbours_are_joined_if_their_outputs_are() -> None:
    assert rows_of(ranges_of([(0, 5, 9, 0), (0, 9, 10, 4), (0, 10, 12, 5)])) == [(0, 5, 12, 0)]
    for second in ((1, 9, 10, 4), (0, 8, 9, 4), (0, 10, 11, 4), (0, 9, 10, 5), (0, 9, 10, 3)):
        assert rows_of(ranges_of([(0, 5, 9, 0), second])) == [(0, 5, 9, 0), second]
    assert rows_of(ranges_of([(1, 0, 1, 0), (0, 5, 9, 1)])) == [(0, 5, 9, 1), (1, 0, 1, 0)]
    assert rows_of(ranges_of([])) == []


def test_ranges_that_cannot_be() -> None:
    assert rows_of(ranges_of([(0, 0, 4, 0), (0, 7, 7, 3)], 4)) == [(0, 0, 4, 0)]
    for wrong in ((0, 5, 4, 0), (0, -1, 4, 0), (0, 0, 4, -1)):
        with pytest.raises(ValueError, match="before 0 or after"):
            ranges_of([(0, 0, 1, 0), wrong])
    with pytest.raises(ValueError, match="does not fit"):
        ranges_of([(0, 0, 1, 0), (0, 0, 4, 1)], 4)
    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    for uneven in ((two, one, one, one), (one, two, one, one), (one, one, one, two)):
        with pytest.raises(ValueError, match="different lengths"):
            arrange(*uneven, None)


@given(rows(), st.integers(1, 25))
def test_pieces_are_no_longer_than_a_size(given_rows: Rows, size: int) -> None:
    whole = ranges_of(given_rows)
    pieces = rows_of(whole.cut(size))
    assert bytes_of(pieces) == bytes_of(given_rows)
    assert all(0 < stop - start <= size for _, start, stop, _ in pieces)
    longest = max((b - a for _, a, b, _ in rows_of(whole)), default=0)
    assert (whole.cut(size) is whole) == (longest <= size)


@given(rows(), st.integers(0, 30))
def test_groups_have_no_gap_larger_than_allowed(given_rows: Rows, gap: int) -> None:
    ranges = ranges_of(given_rows)
    found = rows_of(ranges)
    groups = ranges.groups(gap)
    assert [i for first, last in groups for i in range(first, last)] == list(range(len(found)))
    edges = {first for first, _ in groups}
    for i in range(1, len(found)):
        between = found[i][1] - found[i - 1][2]
        near = found[i][0] == found[i - 1][0] and 0 <= between <= gap
        assert (i in edges) != near
    files = ranges.by_file()
    assert [row for _, part in files for row in rows_of(part)] == found
    assert [file for file, _ in files] == sorted({file for file, *_ in found})
    assert all({file} == {row[0] for row in rows_of(part)} for file, part in files)


@given(rows(), st.integers(0, 30), st.sampled_from([24, 32, 64, 400]))
def test_loads_hold_every_range_on_whole_pages(given_rows: Rows, gap: int, capacity: int) -> None:
    page = 8
    rng = np.random.default_rng(3)
    contents = [rng.integers(0, 256, 300, np.uint8) for _ in range(3)]
    ranges = ranges_of(given_rows)
    out, expected = np.zeros(400, np.uint8), np.zeros(400, np.uint8)
    for file, part in ranges.by_file():
        assert file == part.files[0]
        for load in part.loads(gap, capacity, page):
            buffer = np.zeros(capacity, np.uint8)
            used = 0
            for hull in load.hulls:
                assert hull.begin % page == hull.size % page == 0
                assert hull.at == used
                assert 0 < hull.length <= hull.size < hull.length + page
                used += hull.size
                assert used <= capacity
                piece = contents[file][hull.begin : hull.begin + hull.length]
                buffer[hull.at : hull.at + len(piece)] = piece
            gather(buffer, load.positions, load.ranges, out)
    for file, start, stop, offset in given_rows:
        expected[offset : offset + stop - start] = contents[file][start:stop]
    assert np.array_equal(out, expected)


Places = npt.NDArray[np.int64]
PATTERNS: dict[str, tuple[Places, Places]] = {
    "even": (np.arange(6) * 40, np.arange(6) * 50),
    "one behind the other": (np.arange(6) * 40, np.arange(6) * 10),
    "even here only": (np.arange(6) * 40, np.array([0, 50, 10, 90, 200, 150])),
    "even there only": (np.array([5, 0, 90, 40, 200, 7]), np.arange(6) * 50),
    "all over": (np.array([5, 0, 90, 40, 200, 7]), np.array([0, 50, 10, 90, 200, 150])),
    "backwards": (np.arange(6)[::-1] * 40, np.arange(6) * 50),
    "backwards out": (np.arange(6) * 40, np.arange(6)[::-1] * 50),
    "the same again": (np.zeros(6, np.int64), np.arange(6) * 10),
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("count", [1, 3, 4, 6])
@pytest.mark.parametrize("scale", [1, 102, 103, 300])
def test_gathering_is_copying_one_after_the_other(pattern: str, count: int, scale: int) -> None:
    """Pieces of 10 to 3,000 bytes, those of one length and one that is shorter."""
    positions, offsets = (scale * places[:count] for places in PATTERNS[pattern])
    length = 10 * scale
    source = np.random.default_rng(scale).integers(0, 256, 211 * scale, np.uint8)
    for last in (length, length - 1):
        lengths = np.full(count, length)
        lengths[-1] = last
        starts = np.zeros(count, np.int64)
        made, expected = np.zeros(300 * scale, np.uint8), np.zeros(300 * scale, np.uint8)
        gather(source, positions, Ranges(starts, starts, starts + lengths, offsets), made)
        for p, o, n in zip(positions, offsets, lengths, strict=True):
            expected[o : o + n] = source[p : p + n]
        assert np.array_equal(made, expected)


def test_gathering_nothing() -> None:
    out = np.ones(3, np.uint8)
    gather(np.zeros(0, np.uint8), np.zeros(0, np.int64), ranges_of([]), out)
    assert out.tolist() == [1, 1, 1]


def test_the_last_start_is_the_largest_unless_one_is_negative() -> None:
    assert last_start(np.array([3, 9, 4])) == 9
    assert last_start(np.array([0])) == 0
    assert last_start(np.array([5, -1, 7])) == -1
    assert last_start(np.array([5, np.iinfo(np.int64).min])) == -1


def test_pages_are_present_if_each_range_finds_enough() -> None:
    present = np.array([3, 2, 1, 0, 1], np.int32)
    ranges = partial(are_present, present, page_bits=12)
    assert ranges(starts=np.array([0, 4096]), size=2 * 4096)
    assert ranges(starts=np.array([4095, 4 * 4096 + 9]), size=4087)
    assert not ranges(starts=np.array([4095, 4 * 4096 + 9]), size=4088)
    assert not ranges(starts=np.array([0, 2 * 4096]), size=4097)
    assert not ranges(starts=np.array([3 * 4096]), size=1)
