"""The index of a stream: where its events and blocks begin, and what it refuses; its columns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.errors import CoreError, TruncatedError
from core.losses.events import Position
from core.losses.indexing import Points, StreamIndex, read_columns
from core.losses.policy import Policy
from core.losses.reader import LossReader
from tests.scale import examples
from tests.streams import Block, Stream, read, streams

ANY = 1 << 30


def indexed(octets: bytes, width: int, spacing: int = 1, size: int = ANY) -> StreamIndex:
    index = StreamIndex(Policy(float_width=width), spacing=spacing)
    for begin in range(0, len(octets), size):
        index.receive(octets[begin : begin + size])
    return index


def spaced(offsets: Sequence[int], spacing: int) -> Points:
    """Every offset but those too near to the one before; the last is the end."""
    kept: list[int] = []
    for number, offset in enumerate(offsets[:-1]):
        if not kept or offset - offsets[kept[-1]] >= spacing:
            kept.append(number)
    kept.append(len(offsets) - 1)
    return Points([offsets[number] for number in kept], kept)


def event_offsets(stream: Stream) -> list[int]:
    ends = stream.boundaries()
    events = [block.event for block in stream.blocks]
    firsts = [i for i in range(len(events)) if i == 0 or events[i] != events[i - 1]]
    return [ends[i] for i in firsts] + ends[-1:]


@settings(max_examples=examples(60))
@given(streams(max_samples=40), st.sampled_from([1, 60, 700]), st.integers(1, 300))
def test_places_are_those_where_events_and_blocks_begin(
    stream: Stream, spacing: int, size: int
) -> None:
    index = indexed(stream.encode(), stream.width, spacing, size)
    end = index.close()
    assert index.block_points() == spaced(stream.boundaries(), spacing)
    offsets = event_offsets(stream)
    assert index.event_points() == spaced(offsets, spacing)
    assert (end.events, end.blocks) == (len(offsets) - 1, len(stream.blocks))


@settings(max_examples=examples(40))
@given(streams(max_samples=20, max_events=3), st.data())
def test_a_stream_that_was_cut_has_the_places_of_what_is_whole(
    stream: Stream, data: st.DataObject
) -> None:
    octets, ends = stream.encode(), stream.boundaries()
    cut = data.draw(st.integers(ends[0], len(octets)))
    index = indexed(octets[:cut], stream.width)
    if cut not in ends:
        with pytest.raises(TruncatedError):
            index.close()
    whole = [end for end in ends if end <= cut]
    assert index.block_points() == spaced(whole, 1)
    # The last event may have more blocks after the cut.
    begun = [offset for offset in event_offsets(stream)[:-1] if offset < whole[-1]]
    assert index.event_points(last=False) == spaced(begun or whole[:1], 1)


def refusal(receiver: StreamIndex | LossReader, octets: bytes | bytearray) -> object:
    try:
        receiver.receive(octets)
        receiver.close()
        if isinstance(receiver, LossReader):
            receiver.drain()
    except CoreError as e:
        return e.code, e.offset, str(e)
    return None


@settings(max_examples=examples(100))
@given(streams(max_samples=20), st.data())
def test_a_damaged_stream_is_refused_as_by_a_reader(stream: Stream, data: st.DataObject) -> None:
    octets = bytearray(stream.encode())
    at = data.draw(st.integers(0, len(octets) - 1))
    octets[at] ^= data.draw(st.integers(1, 255))
    policy = Policy(float_width=stream.width)
    assert refusal(LossReader(policy), octets) == refusal(StreamIndex(policy, spacing=1), octets)


def test_an_event_is_as_large_as_a_reader_allows() -> None:
    pairs = tuple((sample, 1.0) for sample in range(1, 301))
    few = tuple(Block(event, item, pairs) for event in (1, 2) for item in range(1, 1 + event))
    many = tuple(Block(1, i, ()) for i in range(1, 70))
    for blocks, most in ((few, 8 * 600), (many, 36 * 256)):
        octets = Stream("loss", 300, 4, blocks).encode()
        for limit in (most - 1, most):
            reader = LossReader(max_event_bytes=limit)
            index = StreamIndex(Policy(), spacing=1, max_event_bytes=limit)
            refused = refusal(index, octets)
            assert refused == refusal(reader, octets)
            assert (refused is None) == (limit == most)


@settings(max_examples=examples(60))
@given(streams(max_samples=130), st.data())
def test_columns_are_those_of_the_events(stream: Stream, data: st.DataObject) -> None:
    policy = Policy(float_width=stream.width)
    ends = stream.boundaries()
    first, last = sorted(data.draw(st.integers(0, len(ends) - 1)) for _ in range(2))
    octets = stream.encode()
    read([octets], reader := LossReader(policy))
    header = reader.header
    assert header is not None
    part = octets[ends[first] : ends[last]]
    reader = LossReader(policy)
    reader.resume(Position(header, ends[first]))
    events = read([part], reader).events
    columns = read_columns(memoryview(b"." + part)[1:], policy, header, ends[first])
    assert columns.event_ids.tolist() == [event.event_id for event in events]
    blocks = [len(event) for event in events]
    assert columns.firsts.tolist() == [0, *itertools.accumulate(blocks)]
    pairs = [n for event in events for n in np.diff(event.starts).tolist()]
    assert columns.starts.tolist() == [0, *itertools.accumulate(pairs)]
    sizes = [b - a for a, b in itertools.pairwise(ends[first : last + 1])]
    assert columns.sizes.tolist() == sizes
    for name in ("block_ids", "exposures", "sidx", "losses"):
        parts = [getattr(event, name) for event in events]
        found = getattr(columns, name)
        np.testing.assert_array_equal(found, np.concatenate(parts) if parts else found[:0])


@settings(max_examples=examples(60))
@given(streams(max_samples=20), st.data())
def test_a_damaged_part_is_refused_as_by_a_reader(stream: Stream, data: st.DataObject) -> None:
    policy = Policy(float_width=stream.width)
    assume(stream.blocks)
    octets = bytearray(stream.encode())
    read([octets], reader := LossReader(policy))
    assert reader.header is not None
    start = len(stream.header)
    at = data.draw(st.integers(start, len(octets) - 1))
    octets[at] ^= data.draw(st.integers(1, 255))
    found: list[tuple[str, int | None, str] | None] = []
    for way in ("reader", "columns"):
        try:
            if way == "columns":
                read_columns(bytes(octets[start:]), policy, reader.header, start)
            else:
                again = LossReader(policy)
                again.resume(Position(reader.header, start))
                again.receive(octets[start:])
                again.close()
                again.drain()
            found.append(None)
        except CoreError as e:
            found.append((e.code, e.offset, str(e)))
    assert found[0] == found[1]


def test_a_part_that_ends_inside_a_block_is_refused() -> None:
    stream = Stream("loss", 3, 4, ())
    read([stream.encode()], reader := LossReader())
    assert reader.header is not None
    with pytest.raises(TruncatedError):
        read_columns(bytes([1, 0, 0, 0, 1]), Policy(), reader.header, 8)
