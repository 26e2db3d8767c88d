from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import (
    CoreError,
    EmptyStreamError,
    EventReopenedError,
    LimitError,
    StateError,
    TruncatedError,
)
from core.losses.analysis import Analysis
from core.losses.events import END, NEED_DATA, Completeness, Event, Position
from core.losses.policy import Policy
from core.losses.reader import LossReader
from tests import oracle
from tests.scale import PURE_PYTHON, examples, half
from tests.streams import (
    Block,
    Collector,
    Reading,
    Stream,
    bytewise,
    cut_at,
    event_key,
    feed,
    random_cuts,
    random_stream,
    read,
    streams,
)

SEEDS = st.integers(0, 2**32 - 1)

SMALL = Stream(
    "loss",
    3,
    4,
    (
        Block(9, 1, ((-3, 9.0), (1, 1.0), (3, 2.5))),
        Block(9, 2, ((-1, 1.0), (2, 4.0))),
        Block(4, 1),
        Block(5, 7, ((1, 1.0),)),
    ),
)
DATA = SMALL.encode()


def reader_of(stream: Stream, **options: Any) -> LossReader:  # noqa: ANN401
    return LossReader(Policy(float_width=stream.width), **options)


def keys(reading: Reading) -> list[tuple[Any, ...]]:
    assert reading.error is None
    return [event_key(event) for event in reading.events]


def expected_keys(data: bytes, width: int) -> list[tuple[Any, ...]]:
    """The same events by the oracle."""
    made = []
    for blocks in oracle.parse(data, width).events():
        pairs = [pair for block in blocks for pair in block.pairs]
        counts = [len(block.pairs) for block in blocks]
        event = Event(
            blocks[0].event,
            blocks[0].offset,
            np.array([block.ident for block in blocks], np.int32),
            np.array([block.exposure for block in blocks]),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.array([sidx for sidx, _ in pairs], np.int32),
            np.array([loss for _, loss in pairs], f"<f{width}"),
        )
        made.append(event_key(event))
    return made


@settings(max_examples=half(150))
@given(streams())
def test_events_equal_the_oracle(stream: Stream) -> None:
    data = stream.encode()
    reader = reader_of(stream)
    reading = read([data], reader)
    assert keys(reading) == expected_keys(data, stream.width)
    assert reading.end is not None
    assert reading.end.bytes == len(data)
    assert reading.end.events == len(reading.events)
    assert reading.end.blocks == sum(len(event) for event in reading.events)
    assert reading.end.pairs == sum(len(event.sidx) for event in reading.events)
    assert reader.header is not None
    assert reader.header.len_sample == stream.samples


@settings(max_examples=examples(40))
@given(streams(max_samples=130, max_events=3), SEEDS)
def test_pieces_do_not_matter(stream: Stream, seed: int) -> None:
    data = stream.encode()
    rng = np.random.default_rng(seed)
    expected = expected_keys(data, stream.width)
    for pieces in (
        bytewise(data),
        random_cuts(rng, data, 500),
        random_cuts(rng, data, 3),
        [memoryview(b"x" + data)[1:]],
        [bytearray(data)],
    ):
        assert keys(read(pieces, reader_of(stream))) == expected


@settings(max_examples=half(60))
@given(streams(max_samples=130))
def test_an_event_is_handed_out_with_the_first_block_of_the_next(stream: Stream) -> None:
    data = stream.encode()
    reader = reader_of(stream)
    begun = 0
    for piece, block in zip(
        cut_at(data, stream.boundaries()), [None, *stream.blocks], strict=False
    ):
        reader.receive(piece)
        got = reader.drain()
        if block is not None and (begun != block.event):
            assert len(got) == (1 if begun else 0)
            begun = block.event
        else:
            assert got == []
    reader.close()
    assert len(reader.drain()) == (1 if begun else 0)
    assert reader.next_event() is END


def test_the_protocol() -> None:
    reader = LossReader()
    assert reader.next_event() is NEED_DATA
    assert reader.header is None
    reader.receive(DATA[:7])
    assert reader.next_event() is NEED_DATA
    reader.receive(DATA[7:])
    first = reader.next_event()
    assert isinstance(first, Event)
    assert (first.event_id, first.offset, len(first)) == (9, 8, 2)
    assert [event.event_id for event in reader.drain()] == [4]
    assert reader.next_event() is NEED_DATA
    reader.close()
    reader.close()
    last = reader.next_event()
    assert isinstance(last, Event)
    assert last.event_id == 5
    assert getattr(reader, "end") is None  # noqa: B009 - mypy would narrow the property
    assert reader.next_event() is END
    assert reader.next_event() is END
    assert reader.end is not None
    assert (reader.end.events, reader.end.blocks, reader.end.ascending) == (3, 4, False)
    with pytest.raises(StateError, match="already closed"):
        reader.receive(b"")


def test_an_event_keeps_its_values_when_more_is_read() -> None:
    reader = LossReader()
    reader.receive(DATA)
    events = []
    copies = []
    while isinstance(event := reader.next_event(), Event):
        events.append(event)
        copies.append(event_key(event))
    reader.receive(SMALL.with_blocks([Block(77, 1, ((1, 8.0), (2, 8.0)))]).encode()[8:])
    reader.close()
    reader.drain()
    assert [event_key(event) for event in events] == copies


def test_a_header_alone_is_a_stream_without_events() -> None:
    for octets in (SMALL.header, Stream("summary", 1, 4, ()).header):
        reading = read([octets], LossReader())
        assert (reading.events, reading.error) == ([], None)
        assert reading.end is not None
        assert (reading.end.events, reading.end.bytes) == (0, len(octets))


def test_errors_come_at_their_place_and_stay() -> None:
    data = SMALL.with_blocks([*SMALL.blocks, Block(9, 3)]).encode()
    for pieces in ([data], bytewise(data)):
        reader = LossReader(name="a.bin")
        got = read(pieces, reader)
        assert [event.event_id for event in got.events] == [9, 4, 5]
        assert got.error is not None
        assert got.error[0] == EventReopenedError.__name__
        assert got.error[3:] == (len(DATA), 9, 3)
        with pytest.raises(EventReopenedError, match=r"^a\.bin: ") as first:
            reader.next_event()
        with pytest.raises(EventReopenedError) as again:
            reader.drain()
        assert again.value is first.value
        with pytest.raises(EventReopenedError):
            reader.getstate()


def test_an_empty_stream_is_refused() -> None:
    reader = LossReader()
    reader.close()
    with pytest.raises(EmptyStreamError):
        reader.next_event()


def test_a_cut_event_is_not_handed_out() -> None:
    reading = read([DATA[:-4]], LossReader())
    assert [event.event_id for event in reading.events] == [9]
    assert reading.error is not None
    assert reading.error[0] == TruncatedError.__name__


# -- places --------------------------------------------------------------------------


@settings(max_examples=half(60))
@given(streams(max_samples=130))
def test_a_reader_goes_on_from_the_position_of_another(stream: Stream) -> None:
    data = stream.encode()
    expected = expected_keys(data, stream.width)
    first = reader_of(stream)
    first.receive(data)
    for count in range(len(expected)):
        position = first.position
        assert position.events == count
        fresh = reader_of(stream)
        fresh.resume(position)
        assert fresh.position == position
        fresh.receive(data[position.offset :])
        fresh.close()
        assert [event_key(event) for event in fresh.drain()] == expected[count:]
        assert fresh.end is not None
        assert (fresh.end.bytes, fresh.end.events) == (len(data), len(expected))
        if count + 1 < len(expected):
            assert isinstance(first.next_event(), Event)


def test_a_place_between_two_blocks_of_an_event_gives_the_rest_of_it() -> None:
    first = LossReader()
    first.receive(DATA)
    first.next_event()
    reader = LossReader()
    reader.resume(Position(first.header, SMALL.boundaries()[1]))
    reader.receive(DATA[SMALL.boundaries()[1] :])
    events = reader.drain()
    assert [(event.event_id, event.block_ids.tolist()) for event in events] == [(9, [2]), (4, [1])]
    assert events[0].offset == SMALL.boundaries()[1]


def test_a_position_is_set_before_bytes_and_fits_the_policy() -> None:
    first = LossReader()
    first.receive(DATA)
    first.next_event()
    wide = LossReader(Policy(float_width=8))
    with pytest.raises(StateError, match="4 bytes wide"):
        wide.resume(first.position)
    late = LossReader()
    late.receive(b"\x02")
    with pytest.raises(StateError, match="before bytes are received"):
        late.resume(first.position)


def test_the_event_before_a_position_may_not_come_again() -> None:
    first = LossReader()
    first.receive(DATA)
    first.next_event()
    again = LossReader()
    again.resume(first.position)
    again.receive(SMALL.encode_block(Block(9, 3)))
    with pytest.raises(EventReopenedError):
        again.next_event()


# -- ends ----------------------------------------------------------------------------

OPEN_END = Policy(missing_end="accept")


@settings(max_examples=half(80))
@given(streams(max_samples=70), SEEDS)
def test_a_last_block_without_its_end_is_read_as_it_is_where_that_is_accepted(
    stream: Stream, seed: int
) -> None:
    """Any whole number of its pairs, in any pieces; the end says so and counts true bytes."""
    if not stream.blocks:
        return
    rng = np.random.default_rng(seed)
    last = stream.blocks[-1]
    kept = int(rng.integers(0, len(last.pairs), endpoint=True))
    shorter = replace(last, pairs=last.pairs[:kept])
    whole = stream.with_blocks([*stream.blocks[:-1], shorter]).encode()
    data = whole[: -(4 + stream.width)]
    for pieces in ([data], bytewise(data), random_cuts(rng, data, 5)):
        reader = LossReader(Policy(float_width=stream.width, missing_end="accept"))
        got = read(pieces, reader)
        assert keys(got) == expected_keys(whole, stream.width)
        assert got.end is not None
        assert got.end.completeness is Completeness.UNTERMINATED
        assert got.end.bytes == len(data)
        assert reader.position.offset == len(data)
        outcome = feed(
            random_cuts(rng, data, 5),
            stream.reports,
            policy=Policy(float_width=stream.width, missing_end="accept"),
        )
        assert outcome.end is not None
        assert replace(outcome.end, blocks_without_exposure=0) == got.end
        assert outcome.rows == feed([whole], stream.reports, policy=Policy(stream.width)).rows
    strict = read([data], reader_of(stream))
    assert strict.error is not None
    assert strict.error[0] == TruncatedError.__name__


def test_a_stream_with_its_end_is_not_reported_as_without() -> None:
    got = read([DATA], LossReader(OPEN_END))
    assert got.end is not None
    assert got.end.completeness is Completeness.UNDECLARED
    ended = feed([DATA], ["events"], policy=OPEN_END, expect_events=3).end
    assert ended is not None
    assert ended.completeness is Completeness.DECLARED


def test_a_declaration_does_not_hide_a_missing_end() -> None:
    ended = feed([DATA[:-8]], ["events"], policy=OPEN_END, expect_bytes=len(DATA) - 8).end
    assert ended is not None
    assert ended.completeness is Completeness.UNTERMINATED
    short = feed([DATA[:-8]], ["events"], policy=OPEN_END, expect_bytes=len(DATA))
    assert short.error is not None
    assert short.error[1] == "stream-incomplete"


@pytest.mark.parametrize("cut", [1, 4, 7, 9, 12, 17, 20, 23])
def test_a_cut_inside_a_pair_or_a_header_is_an_error_all_the_same(cut: int) -> None:
    got = read([DATA[:-cut]], LossReader(OPEN_END))
    assert got.error is not None
    assert got.error[0] == TruncatedError.__name__


def test_what_is_wrong_in_a_block_without_its_end_is_told() -> None:
    wrong = SMALL.with_blocks([*SMALL.blocks, Block(6, 1, ((2, 1.0), (2, 1.0)))]).encode()[:-8]
    got = read([wrong], LossReader(OPEN_END))
    assert got.error is not None
    assert got.error[0] == "SampleRepeatedError"


def test_states_do_not_depend_on_the_default_of_ends() -> None:
    """Those of earlier releases name no such option."""
    assert "missing_end" not in Policy().to_json()
    reader = LossReader()
    reader.receive(DATA)
    with pytest.raises(StateError, match="other options"):
        LossReader(OPEN_END).setstate(reader.getstate())


# -- size ----------------------------------------------------------------------------


def test_huge_numbers_of_blocks() -> None:
    count = 1500 if PURE_PYTHON else 300_000
    block = np.zeros(count, [("event", "<i4"), ("id", "<i4"), ("end", "<i4", 2)])
    block["event"] = 3
    block["id"] = np.random.default_rng(0).permutation(count) + 1
    reading = read([SMALL.header, block.tobytes()], LossReader())
    assert [len(event) for event in reading.events] == [count]
    np.testing.assert_array_equal(reading.events[0].block_ids, block["id"])
    assert not reading.events[0].starts.any()


def wide(event: int, pairs: int) -> Block:
    return Block(event, 1, tuple((s, 1.0) for s in range(1, pairs + 1)))


@pytest.mark.parametrize("width", [4, 8])
def test_an_event_larger_than_allowed_is_refused(width: int) -> None:
    size = 1000 * (4 + width)
    for before in ([], [wide(1, 10)], [wide(1, 900)]):
        for count, fits in ((1000, True), (1001, False)):
            stream = Stream("loss", 2000, width, (*before, wide(7, count)))
            data = stream.encode()
            for pieces in ([data], cut_at(data, range(0, len(data), 1000))):
                got = read(pieces, reader_of(stream, max_event_bytes=size))
                assert len(got.events) == len(before) + fits
                if fits:
                    assert got.error is None
                else:
                    assert got.error is not None
                    assert got.error[1] == LimitError.code
                    assert got.error[3:] == (stream.boundaries()[len(before)], 7, None)


def test_blocks_without_pairs_count_towards_the_limit() -> None:
    count = 5000
    blocks = tuple(Block(1, i) for i in range(1, count + 1))
    got = read([Stream("loss", 1, 4, blocks).encode()], LossReader(max_event_bytes=16 * count))
    assert got.error is not None
    assert got.error[1] == LimitError.code


# -- state ---------------------------------------------------------------------------


@settings(max_examples=examples(50))
@given(streams(max_samples=130), SEEDS)
def test_a_state_at_every_event_restores(stream: Stream, seed: int) -> None:
    data = stream.encode()
    expected = expected_keys(data, stream.width)
    end = read([data], reader_of(stream)).end
    assert end is not None
    reader = reader_of(stream)
    taken = []
    rng = np.random.default_rng(seed)
    states: list[tuple[int, str]] = [(0, json.dumps(reader.getstate()))]
    for piece in random_cuts(rng, data, 6):
        reader.receive(piece)
        while isinstance(event := reader.next_event(), Event):
            taken.append(event)
            states.append((len(taken), json.dumps(reader.getstate())))
        states.append((len(taken), json.dumps(reader.getstate())))
    for count, text in states:
        state = json.loads(text)
        fresh = reader_of(stream)
        fresh.setstate(state)
        got = read([data[state["stream"]["offset"] :]], fresh)
        assert keys(got) == expected[count:]
        assert got.end is not None
        assert (got.end.bytes, got.end.events) == (end.bytes, end.events)
        assert (got.end.blocks, got.end.pairs) == (end.blocks, end.pairs)
        assert got.end.ascending == end.ascending


def test_a_resumed_reader_knows_the_last_event() -> None:
    reader = LossReader()
    reader.receive(DATA)
    reader.drain()
    fresh = LossReader()
    fresh.setstate(reader.getstate())
    fresh.receive(SMALL.encode_block(Block(4, 9)))
    with pytest.raises(EventReopenedError):
        fresh.next_event()


def test_the_end_says_what_the_check_covers() -> None:
    for events, covers in (((1, 2, 3), "whole"), ((1, 3, 2), "since resume")):
        stream = SMALL.with_blocks(Block(event, 1) for event in events)
        reader = LossReader()
        reader.receive(stream.encode())
        reader.next_event()
        state = reader.getstate()
        fresh = LossReader()
        fresh.setstate(state)
        end = read([stream.encode()[state["stream"]["offset"] :]], fresh).end
        assert end is not None
        assert end.reopened_check == covers


def test_states_are_refused() -> None:
    reader = LossReader()
    reader.receive(DATA)
    reader.next_event()
    state = reader.getstate()
    with pytest.raises(StateError, match="other options"):
        LossReader(Policy(nan="drop")).setstate(state)
    used = LossReader()
    used.receive(b"\1")
    with pytest.raises(StateError, match="before bytes are received"):
        used.setstate(state)
    for version in (0, 2, None):
        with pytest.raises(StateError, match="version"):
            LossReader().setstate(state | {"version": version})
    malformed: list[Any] = [None, [], {}, 3, state | {"stream": None}, state | {"stream": []}]
    for wrong in malformed:
        with pytest.raises(StateError):
            LossReader().setstate(wrong)


def test_the_state_of_an_analysis_is_refused_inside_an_event() -> None:
    analysis = Analysis(["events"], Collector())
    analysis.receive(DATA)
    with pytest.raises(StateError):
        LossReader().setstate(analysis.getstate())


REPLACEMENTS: list[Any] = [
    *(None, True, -1, 0, 5, 2**31, 2**40, 2**63, 10**30, 1.5, float("nan"), float("inf")),
    *("", "x", "~~~~~", "\0", [], [1], {}),
]


def test_a_malformed_state_only_ever_raises_a_state_error() -> None:
    reader = LossReader()
    reader.receive(DATA)
    reader.next_event()
    state = reader.getstate()
    offset = state["stream"]["offset"]
    places: list[tuple[Any, ...]] = [(name,) for name in state["stream"]]
    places += [("header", i) for i in range(5)] + [("counts", i) for i in range(3)]
    places += [("event", name) for name in state["stream"]["event"]]
    places += [("event", "sums", i) for i in range(5)]
    for path in places:
        for replacement in REPLACEMENTS:
            wrong = json.loads(json.dumps(state))
            inner = wrong["stream"]
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = replacement
            fresh = LossReader()
            try:
                fresh.setstate(wrong)
            except StateError:
                continue
            try:
                fresh.receive(DATA[offset:])
                fresh.close()
                fresh.drain()
            except CoreError:
                continue


def test_a_large_stream_in_pieces_of_any_size() -> None:
    count = 3 if PURE_PYTHON else 60
    stream = random_stream(np.random.default_rng(5), kind="gul", samples=500, events=count, width=8)
    data = stream.encode()
    expected = expected_keys(data, 8)
    for size in (1000, 65536, len(data)):
        pieces = cut_at(data, range(0, len(data), size))
        assert keys(read(pieces, reader_of(stream))) == expected
