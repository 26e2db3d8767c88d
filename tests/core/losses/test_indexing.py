"""The index of a stream: the places where its events and blocks begin, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import CoreError, TruncatedError
from core.losses.indexing import Points, StreamIndex
from core.losses.policy import Policy
from core.losses.reader import LossReader
from tests.scale import examples
from tests.streams import Block, Stream, streams

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
