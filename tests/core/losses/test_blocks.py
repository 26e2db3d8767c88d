"""Where blocks lie, compared with a reader and with the bytes themselves."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings

from core.losses.blocks import block_sizes, whole_blocks
from core.losses.events import Event
from core.losses.policy import Policy
from core.losses.reader import LossReader
from tests.scale import examples
from tests.streams import Block, Stream, read, streams


def events_of(stream: Stream) -> tuple[list[Event], LossReader]:
    reader = LossReader(Policy(float_width=stream.width))
    return read([stream.encode()], reader).events, reader


@settings(max_examples=examples(60))
@given(streams(max_samples=130))
def test_sizes_are_those_of_the_blocks_as_written(stream: Stream) -> None:
    events, reader = events_of(stream)
    assert reader.header is not None
    sizes = [block_sizes(event, reader.header).tolist() for event in events]
    expected = [b - a for a, b in itertools.pairwise(stream.boundaries())]
    assert list(itertools.chain(*sizes)) == expected


@settings(max_examples=examples(40))
@given(streams(max_samples=20, max_events=3))
def test_whole_blocks_end_at_the_last_boundary_before_a_cut(stream: Stream) -> None:
    _, reader = events_of(stream)
    assert reader.header is not None
    octets = stream.encode()
    begin, *ends = stream.boundaries()
    for cut in range(begin, len(octets) + 1):
        whole = max(end for end in (begin, *ends) if end <= cut)
        assert begin + whole_blocks(octets[begin:cut], reader.header) == whole
    assert whole_blocks(memoryview(octets)[begin:], reader.header) == len(octets) - begin


def test_a_block_with_more_pairs_than_a_stream_can_have_is_not_whole() -> None:
    """Not even where zeros come later: they are not its end."""
    stream = Stream("loss", 3, 4, (Block(1, 1, ((1, 1.0),)),))
    _, reader = events_of(stream)
    assert reader.header is not None
    octets = stream.encode()[8:]
    pairs = np.ones(40, "<i4").tobytes()
    assert whole_blocks(octets + octets[:8] + pairs + bytes(8), reader.header) == len(octets)
