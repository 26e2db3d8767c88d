"""Columns of a part of a stream, compared with its events."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.errors import CoreError, TruncatedError
from core.losses.columns import read_columns
from core.losses.events import Position
from core.losses.policy import Policy
from core.losses.reader import LossReader
from tests.scale import examples
from tests.streams import Stream, read, streams


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
