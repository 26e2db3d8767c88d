"""Several loss streams read as one: in turn, and by event id."""

from __future__ import annotations

import io
import os
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import (
    CoreError,
    EventOrderError,
    EventReopenedError,
    MismatchError,
    OptionError,
    StateError,
    TruncatedError,
)
from core.losses.events import END, NEED_DATA
from core.losses.merge import Order
from core.losses.partition_reader import PartitionEvent, PartitionReader, read_streams
from core.losses.policy import Policy
from tests.scale import examples
from tests.streams import Block, Stream, event_key, random_cuts, random_stream

EMPTY = Stream("loss", 3, 4, ())


def partitions(rng: np.random.Generator, count: int, **options: Any) -> list[Stream]:  # noqa: ANN401
    """The events of one stream, sorted and dealt out at random."""
    whole = random_stream(rng, kind="loss", samples=9, **options).sorted()
    events = sorted({block.event for block in whole.blocks})
    owner = {event: int(rng.integers(count)) for event in events}
    return [
        whole.with_blocks(block for block in whole.blocks if owner[block.event] == index)
        for index in range(count)
    ]


def ids(events: list[PartitionEvent]) -> list[tuple[int, int]]:
    return [(got.partition, got.event.event_id) for got in events]


def one(event: int, *idents: int) -> list[Block]:
    return [Block(event, ident, ((1, float(event)),)) for ident in idents or (1,)]


def opened(*streams: Stream) -> list[io.BytesIO]:
    return [io.BytesIO(stream.encode()) for stream in streams]


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from(["received", "event"]))
def test_every_event_comes_once_whatever_the_interleaving(
    seed: int,
    count: int,
    order: Order,
) -> None:
    rng = np.random.default_rng(seed)
    parts = partitions(rng, count, events=12)
    alone = {
        (index, event_key(got.event))
        for index, part in enumerate(parts)
        for got in read_streams(opened(part))
    }
    reader = PartitionReader([f"p{k}" for k in range(count)], order=order)
    pieces = [random_cuts(rng, part.encode(), 6) for part in parts]
    events: list[PartitionEvent] = []
    while any(pieces):
        index = int(rng.choice([k for k in range(count) if pieces[k]]))
        reader.receive(index, pieces[index].pop(0))
        if not pieces[index]:
            reader.close(index)
        events += reader.drain()
    assert reader.next_event() is END
    assert {(got.partition, event_key(got.event)) for got in events} == alone
    assert len(events) == len(alone)
    if order == "event":
        found = [got.event.event_id for got in events]
        assert found == sorted(found)
    ends = [end for end in reader.ends if end is not None]
    assert sum(end.events for end in ends) == len(alone)
    assert [end.bytes for end in ends] == [len(part.encode()) for part in parts]


def test_partitions_take_turns() -> None:
    """No stream is read to its end before the others have their say."""
    first = EMPTY.with_blocks([*one(1), *one(2), *one(3)])
    second = EMPTY.with_blocks([*one(7), *one(8), *one(9)])
    expected = [(0, 1), (1, 7), (0, 2), (1, 8), (0, 3), (1, 9)]
    assert ids(list(read_streams(opened(first, second)))) == expected
    assert ids(list(read_streams(opened(first, second), piece=5))) == expected
    by_event = list(read_streams(opened(second, first), order="event"))
    assert ids(by_event) == [(1, 1), (1, 2), (1, 3), (0, 7), (0, 8), (0, 9)]


def test_in_event_order_nothing_is_returned_while_a_lower_event_may_come() -> None:
    reader = PartitionReader(["a", "b"], order="event")
    reader.receive(0, EMPTY.with_blocks([*one(5), *one(6)]).encode())
    assert reader.next_event() is NEED_DATA
    assert list(reader.waiting) == [1]
    reader.receive(1, EMPTY.with_blocks([*one(4), *one(9)]).encode())
    assert ids(reader.drain()) == [(1, 4)]
    assert list(reader.waiting) == [1]
    reader.close(1)
    assert ids(reader.drain()) == [(0, 5)]
    assert list(reader.waiting) == [0]
    reader.close(0)
    assert ids(reader.drain()) == [(0, 6), (1, 9)]
    assert reader.next_event() is END
    assert list(reader.waiting) == []


@settings(max_examples=examples(40))
@given(st.integers(0, 2**32 - 1), st.sampled_from(["received", "event"]))
def test_another_reader_goes_on_from_the_positions(seed: int, order: Order) -> None:
    rng = np.random.default_rng(seed)
    parts = [part.encode() for part in partitions(rng, 3, events=10)]
    names = ["a", "b", "c"]
    reader = PartitionReader(names, order=order)
    for index, part in enumerate(parts):
        reader.receive(index, part)
        reader.close(index)
    taken = []
    for _ in range(int(rng.integers(0, 10))):
        got = reader.next_event()
        assert isinstance(got, PartitionEvent)
        taken.append(got.event.event_id)
    fresh = PartitionReader(names, order=order)
    fresh.resume(reader.positions)
    for index, position in enumerate(reader.positions):
        fresh.receive(index, parts[index][position.offset :])
        fresh.close(index)
    rest = [got.event.event_id for got in fresh.drain()]
    expected = [got.event.event_id for got in reader.drain()]
    assert sorted(rest) == sorted(expected)
    if order == "event":
        assert rest == expected
    assert not set(rest) & set(taken)


@pytest.mark.parametrize("order", ["received", "event"])
def test_streams_of_different_headers_do_not_belong_together(order: Order) -> None:
    for other in (Stream("gul", 3, 4, ()), Stream("loss", 4, 4, ()), Stream("summary", 3, 4, ())):
        reader = PartitionReader(["one.bin", "two.bin"], order=order)
        reader.receive(0, EMPTY.with_blocks(one(1)).encode())
        reader.receive(1, other.with_blocks(one(2)).encode())
        for index in range(2):
            reader.close(index)
        for _ in range(2):
            with pytest.raises(MismatchError, match=r"but one\.bin is a loss stream") as caught:
                reader.drain()
            assert caught.value.source == "two.bin"
    sets = [Stream("summary", 3, 4, (), summary_set=k) for k in (1, 2)]
    with pytest.raises(MismatchError, match="summary set 2, but"):
        list(read_streams(opened(*sets)))


def test_an_event_in_two_streams_is_noticed_and_named() -> None:
    parts = [EMPTY.with_blocks([*one(1), *one(2)]), EMPTY.with_blocks([*one(3), *one(2)])]
    orders: list[Order] = ["received", "event"]
    for order in orders:
        with pytest.raises((EventReopenedError, EventOrderError)) as caught:
            list(read_streams(opened(*parts), order=order))
        assert caught.value.source in {"0", "1"}
        assert caught.value.event == 2


def test_an_error_names_its_stream_and_comes_at_its_place() -> None:
    class Named(io.BytesIO):
        name = "work/p2.bin"

    cut = EMPTY.with_blocks([*one(4), *one(5)]).encode()[:-4]
    events = read_streams([*opened(EMPTY.with_blocks(one(1))), Named(cut)])
    assert ids([next(events)]) == [(0, 1)]
    with pytest.raises(TruncatedError, match=r"^work/p2\.bin: ") as caught:
        next(events)
    assert (caught.value.source, caught.value.event) == ("work/p2.bin", 5)


def test_a_policy_is_that_of_every_stream() -> None:
    wide = Stream("loss", 3, 8, tuple(one(1)))
    parts = [wide, wide.with_blocks(one(2))]
    policy = Policy(float_width=8, missing_end="accept")
    streams = [io.BytesIO(part.encode()[:-12]) for part in parts]
    assert [got.event.losses.tolist() for got in read_streams(streams, policy)] == [[1.0], [2.0]]
    with pytest.raises(CoreError):
        list(read_streams(opened(*parts)))


def test_a_slow_pipe_is_read_as_its_bytes_come() -> None:
    """With `read` the reader would wait for a whole piece that does not come."""
    receiving, sending = os.pipe()
    stream = EMPTY.with_blocks([*one(1), *one(2)]).encode()
    seen = threading.Event()

    def send() -> None:
        with os.fdopen(sending, "wb", buffering=0) as pipe:
            pipe.write(stream[: len(stream) - 16])
            pipe.write(stream[len(stream) - 16 :])
            assert seen.wait(30)

    sender = threading.Thread(target=send)
    sender.start()
    with os.fdopen(receiving, "rb") as pipe:
        events = read_streams([pipe])
        assert next(events).event.event_id == 1
        seen.set()
        assert next(events).event.event_id == 2
    sender.join()


def test_a_reader_needs_partitions_and_as_many_positions() -> None:
    with pytest.raises(OptionError, match="at least one partition"):
        PartitionReader([])
    reader = PartitionReader(["a", "b"])
    with pytest.raises(OptionError, match="1 positions for 2"):
        reader.resume(reader.positions[:1])
    assert reader.header is None
    reader.close(0)
    with pytest.raises(StateError, match="closed"):
        reader.receive(0, b"")
