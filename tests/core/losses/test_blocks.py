"""Where blocks lie, compared with a reader and with the bytes themselves."""

from __future__ import annotations

import itertools

from hypothesis import given, settings

from core.losses.blocks import block_sizes
from core.losses.events import Event
from core.losses.policy import Policy
from core.losses.reader import LossReader
from tests.scale import examples
from tests.streams import Stream, read, streams


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
