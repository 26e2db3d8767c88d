from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.arrays import Octets, Rows
from core.errors import (
    CoreError,
    EventReopenedError,
    ExcessError,
    IncompleteError,
    ItemUnknownError,
    LimitError,
    LossNotFiniteError,
    StateError,
    TruncatedError,
    UnsupportedStreamError,
)
from core.losses.events import Completeness, StreamEnd
from core.losses.inputs import SummaryXref
from core.losses.inputs.summary_xref import IdColumn
from core.losses.policy import Policy
from core.losses.summaries import Summariser, SummarySets
from tests.scale import examples
from tests.streams import Block, Stream, bytewise, random_cuts, random_stream, streams
from tests.summary_oracle import Sets, of_stream, summarised

SEEDS = st.integers(0, 2**32 - 1)
LOSSES = ((-5, 50.0), (-3, 60.0), (-1, 4.0), (1, 3.0), (3, 8.5))


class Outputs:
    """Streams and indices by set."""

    def __init__(self) -> None:
        self.streams: dict[int, bytes] = {}
        self.indices: dict[int, bytes] = {}

    def take(self, set_id: int, octets: Octets) -> None:
        assert len(octets)
        self.streams[set_id] = self.streams.get(set_id, b"") + octets.tobytes()

    def index(self, set_id: int, rows: Rows) -> None:
        self.indices[set_id] = self.indices.get(set_id, b"") + rows.tobytes()


def run(
    pieces: Iterable[bytes],
    sets: Sets,
    requested: list[int] | None = None,
    **options: Any,  # noqa: ANN401 - of a summariser  # noqa: ANN401 - of a summariser
) -> Outputs:
    outputs = Outputs()
    chosen = SummarySets(sets.xref, requested, sets.map)
    summariser = Summariser(chosen, outputs.take, index=outputs.index, **options)
    for piece in pieces:
        summariser.receive(piece)
    summariser.close()
    return outputs


def random_sets(rng: np.random.Generator, items: list[int], *, risks: bool) -> Sets:
    """Up to three sets of few or many summaries, with ids anywhere."""
    rows = []
    for set_id in rng.permutation(9)[: rng.integers(1, 4)].tolist():
        ids = rng.integers(1, rng.choice([2, 5, 2**31 - 1]), rng.integers(1, 6))
        rows += [(item, int(rng.choice(ids)), set_id + 1) for item in items]
    locations = {item: int(rng.integers(1, 4)) for item in items} if risks else None
    return Sets(tuple(rows), locations)


def items_of(stream: Stream) -> list[int]:
    return sorted({block.ident for block in stream.blocks} | {7})


def small(*blocks: Block, kind: str = "loss", samples: int = 3, width: int = 4) -> Stream:
    return Stream(kind, samples, width, blocks)


def sets_of(*rows: tuple[int, int, int]) -> Sets:
    return Sets(rows)


@settings(max_examples=examples(80))
@given(
    stream=streams(kinds=("gul", "loss"), max_samples=200),
    seed=SEEDS,
    zeros=st.booleans(),
    risks=st.booleans(),
)
def test_streams_and_indices_equal_those_of_plain_sums_however_the_bytes_are_cut(
    stream: Stream, seed: int, zeros: bool, risks: bool
) -> None:
    rng = np.random.default_rng(seed)
    sets = random_sets(rng, items_of(stream), risks=risks)
    data = stream.encode()
    policy = Policy(float_width=stream.width)
    got = run(random_cuts(rng, data, 5), sets, zeros=zeros, policy=policy)
    for set_id in {row[2] for row in sets.rows}:
        expected = summarised(
            of_stream(stream), stream.samples, stream.width, sets, set_id, zeros=zeros
        )
        assert got.streams[set_id] == expected[0]
        assert got.indices.get(set_id, b"") == expected[1]


@settings(max_examples=examples(40))
@given(seed=SEEDS, width=st.sampled_from([4, 8]), values=st.sampled_from(["wide", "hostile"]))
def test_the_order_of_items_changes_no_byte(seed: int, width: int, values: str) -> None:
    rng = np.random.default_rng(seed)
    reach = 37 if width == 4 else 300
    exponents = (-12, 12) if values == "wide" else (-reach, reach)

    def loss() -> float:
        sign = rng.choice([1.0, -1.0]) if values == "hostile" else 1.0
        return float(sign * 10.0 ** rng.uniform(*exponents))

    blocks = [
        Block(3, item, tuple((s, loss()) for s in (-5, -3, -1, 1, 2, 5, 9) if rng.random() < 0.8))
        for item in range(1, 9)
    ]
    stream = Stream("loss", 9, width, tuple(blocks))
    sets = Sets(
        tuple((item, item % 2 + 1, 1) for item in range(1, 9))
        + tuple((item, 1, 2) for item in range(1, 9)),
        {item: item % 3 for item in range(1, 9)},
    )
    policy = Policy(float_width=width, negative="keep")
    first = run([stream.encode()], sets, policy=policy, zeros=True)
    for set_id in (1, 2):
        plain = summarised(of_stream(stream), 9, width, sets, set_id, zeros=True)
        assert first.streams[set_id] == plain[0]
    for _ in range(3):
        shuffled = stream.with_blocks([blocks[i] for i in rng.permutation(len(blocks))])
        again = run([shuffled.encode()], sets, policy=policy, zeros=True)
        assert again.streams == first.streams


@pytest.mark.parametrize(
    ("width", "fraction", "power"),
    [(4, 23, 28), (4, 23, 29), (4, 23, 30), (4, 23, 31), (8, 52, 0), (8, 52, 1), (8, 52, 2)],
)
def test_no_bit_of_a_small_loss_is_lost_beside_a_large_one(
    width: int, fraction: int, power: int
) -> None:
    large, least = 2.0**power, 1 + 2.0**-fraction
    blocks = [
        Block(1, item, ((-1, 1.0), *((s, loss) for s in range(1, 10))))
        for item, loss in enumerate((large, least, -large), 1)
    ]
    stream = Stream("loss", 9, width, tuple(blocks))
    sets = sets_of((1, 1, 1), (2, 1, 1), (3, 1, 1))
    policy = Policy(negative="keep", float_width=width)
    streams_out = run([stream.encode()], sets, policy=policy).streams
    alone = small(
        Block(1, 1, ((-1, 3.0), *((s, least) for s in range(1, 10)))), samples=9, width=width
    )
    assert streams_out == run([alone.encode()], sets, policy=policy).streams


def test_every_cut_gives_the_same_streams() -> None:
    stream = small(*(Block(e, i, LOSSES) for e in (5, 2) for i in (2, 1)))
    sets = sets_of((1, 1, 1), (2, 2, 1), (1, 4, 3), (2, 4, 3))
    data = stream.encode()
    whole = run([data], sets)
    assert run(bytewise(data), sets).streams == whole.streams
    for k in range(len(data)):
        assert run([data[:k], data[k:]], sets).streams == whole.streams


def test_sets_come_under_their_own_ids_whatever_their_order_and_number() -> None:
    stream = small(Block(1, 1, LOSSES), Block(1, 2, LOSSES))
    sets = sets_of((1, 1, 1), (2, 2, 1), (1, 5, 2), (2, 5, 2), (1, 3, 7), (2, 4, 7))
    every = run([stream.encode()], sets)
    assert sorted(every.streams) == [1, 2, 7]
    for requested in ([2], [7, 1], [2, 7, 1]):
        got = run([stream.encode()], sets, requested)
        assert got.streams == {k: every.streams[k] for k in requested}


def test_affected_risks_are_counted_by_summary_whatever_the_order_of_items() -> None:
    # Item 1 and 3 are one location, in two summaries; the peer counts it in the first only.
    sets = Sets(((1, 1, 1), (2, 1, 1), (3, 2, 1), (4, 2, 1)), {1: 8, 2: 9, 3: 8, 4: 9})
    counts = set()
    for order in ((1, 2, 3, 4), (3, 1, 4, 2), (4, 3, 2, 1)):
        stream = small(*(Block(1, item, LOSSES) for item in order))
        got = run([stream.encode()], sets)
        expected = summarised(of_stream(stream), 3, 4, sets, 1)
        assert got.streams[1] == expected[0]
        counts.add(got.streams[1])
    assert len(counts) == 1


def test_losses_of_zero_are_written_only_if_asked_for() -> None:
    nothing = ((-5, 0.0), (-3, 0.0), (-1, 0.0), (2, 0.0))
    stream = small(Block(1, 1, nothing), Block(2, 1, ((-3, 1.0), (1, 0.0), (2, 5.0))))
    sets = sets_of((1, 1, 1))
    without, with_zeros = run([stream.encode()], sets), run([stream.encode()], sets, zeros=True)
    assert len(without.indices[1]) == 12  # of event 2 alone
    assert len(with_zeros.indices[1]) == 24
    header, pair = 12, 8
    assert len(without.streams[1]) == header + 12 + 4 * pair
    assert len(with_zeros.streams[1]) == header + 2 * (12 + 6 * pair)


def test_samples_stay_where_exposure_and_mean_are_zero() -> None:
    """As of insured losses whose mean is below a deductible."""
    nothing = Block(1, 1, ((-5, 7.0), (-1, 0.0), (2, 0.0)))
    stream = small(nothing, Block(2, 1, ((-1, 0.0), (1, 0.0), (3, 5.0))))
    got = run([stream.encode()], sets_of((1, 1, 1))).streams[1]
    block = [(2, 1, 0.0), (-5, 0.0), (-1, 0.0), (3, 5.0), (0, 0.0)]
    assert got[12:] == struct.pack("<iif", *block[0]) + b"".join(
        struct.pack("<if", *pair) for pair in block[1:]
    )


def test_a_stream_without_events_gives_headers_alone() -> None:
    got = run([small().encode()], sets_of((1, 1, 1), (1, 1, 2)))
    assert {k: len(octets) for k, octets in got.streams.items()} == {1: 12, 2: 12}
    assert got.indices == {}


def test_an_item_without_a_summary_is_named() -> None:
    stream = small(Block(1, 1, LOSSES), Block(2, 1, LOSSES), Block(2, 6, LOSSES))
    outputs = Outputs()
    summariser = Summariser(SummarySets(sets_of((1, 1, 3)).xref), outputs.take, name="a.bin")
    message = r"a\.bin: item 6 has no summary in set 3 .*event 2, item or summary 6.*perspective"
    with pytest.raises(ItemUnknownError, match=message) as first:
        summariser.receive(stream.encode())
    assert first.value.offset == stream.boundaries()[2] + 4
    with pytest.raises(ItemUnknownError):
        summariser.receive(b"")
    with pytest.raises(ItemUnknownError):
        summariser.close()
    # The event before is whole, that of the fault is not there.
    alone = run([small(Block(1, 1, LOSSES)).encode()], sets_of((1, 1, 3)))
    assert outputs.streams == alone.streams


def test_an_item_must_have_a_summary_in_every_requested_set() -> None:
    sets = sets_of((1, 1, 1), (2, 1, 1), (1, 1, 2))
    stream = small(Block(1, 2, LOSSES))
    assert run([stream.encode()], sets, [1]).streams[1]
    with pytest.raises(ItemUnknownError, match="item 2 has no summary in set 2"):
        run([stream.encode()], sets, [1, 2])


@pytest.mark.parametrize(
    ("kind", "column", "message"),
    [
        ("summary", None, "a stream of summaries already"),
        ("coverage", None, "a stream of coverages"),
        ("gul", "output", "the summary xref is of outputs"),
    ],
)
def test_streams_that_the_xref_cannot_be_of_are_refused(
    kind: str,
    column: IdColumn | None,
    message: str,
) -> None:
    xref = replace(sets_of((1, 1, 1)).xref, id_column=column)
    summariser = Summariser(SummarySets(xref), Outputs().take)
    with pytest.raises(UnsupportedStreamError, match=message):
        summariser.receive(small(Block(1, 1, LOSSES), kind=kind).encode())


def test_faults_of_the_stream_are_those_of_every_reader() -> None:
    sets = sets_of((1, 1, 1))
    one = Block(1, 1, LOSSES)
    for stream, error in (
        (small(one, Block(2, 1, LOSSES), one), EventReopenedError),
        (small(Block(1, 1, ((1, float("nan")),))), LossNotFiniteError),
    ):
        with pytest.raises(error):
            run([stream.encode()], sets)
    with pytest.raises(TruncatedError):
        run([small(one).encode()[:-8]], sets)


def test_an_event_that_was_cut_is_in_no_stream() -> None:
    sets = sets_of((1, 1, 1), (3, 1, 1))
    whole = small(Block(1, 1, LOSSES), Block(2, 1, LOSSES), Block(2, 3, LOSSES)).encode()
    outputs = Outputs()
    summariser = Summariser(SummarySets(sets.xref), outputs.take)
    summariser.receive(whole[:-4])
    with pytest.raises(TruncatedError):
        summariser.close()
    assert outputs.streams == run([small(Block(1, 1, LOSSES)).encode()], sets).streams


def test_losses_read_as_zero_add_nothing() -> None:
    sets = sets_of((1, 1, 1), (2, 1, 1))
    bad = small(Block(1, 1, ((-1, 1.0), (1, float("nan")), (2, 4.0))), Block(1, 2, LOSSES))
    good = small(Block(1, 1, ((-1, 1.0), (2, 4.0))), Block(1, 2, LOSSES))
    got = run([bad.encode()], sets, policy=Policy(nan="zero"))
    assert got.streams == run([good.encode()], sets).streams


@pytest.mark.parametrize(("width", "loss"), [(4, 3e38), (8, 1.7e308)])
def test_sums_beyond_the_width_are_refused(width: int, loss: float) -> None:
    blocks = [Block(4, item, ((-1, 1.0), (2, loss))) for item in (1, 2)]
    stream = Stream("loss", 3, width, tuple(blocks))
    message = rf"summary 9 of set 2 add up to more than a loss of {width} bytes holds \(at event 4"
    with pytest.raises(LimitError, match=message):
        run([stream.encode()], sets_of((1, 9, 2), (2, 9, 2)), policy=Policy(float_width=width))


@pytest.mark.once
def test_the_memory_of_an_event_is_bounded() -> None:
    blocks = [Block(1, item, ((-3, 1.0), (1, 1.0))) for item in range(1, 200)]
    stream = Stream("loss", 1000, 4, tuple(blocks))
    sets = sets_of(*((item, item, 1) for item in range(1, 200)))
    assert run([stream.encode()], sets, max_event_bytes=200 * 1003 * 8).streams
    with pytest.raises(LimitError, match="more than 1000000 bytes") as caught:
        run([stream.encode()], sets, max_event_bytes=1_000_000)
    assert caught.value.event == 1


@pytest.mark.once
def test_memory_follows_the_summaries_an_event_touches_not_all_there_are() -> None:
    count = 100_000
    ids = np.arange(1, count + 1, dtype=np.int32)
    xref = SummaryXref(ids, ids, np.ones(count, np.int32), None)
    sets = SummarySets(xref)
    blocks = [Block(e, item, ((-3, 1.0), (1000, 1.0))) for e in (1, 2) for item in (5, 77, count)]
    data = Stream("loss", 1000, 4, tuple(blocks)).encode()
    outputs = Outputs()
    tracemalloc.start()
    try:
        summariser = Summariser(sets, outputs.take)
        summariser.receive(data)
        summariser.close()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20  # all summaries would take 800 MB
    assert len(outputs.streams[1]) == 12 + 6 * (12 + 4 * 8)


def test_declared_events_and_bytes_are_checked() -> None:
    sets = sets_of((1, 1, 1))
    data = small(Block(1, 1, LOSSES), Block(2, 1, LOSSES)).encode()

    def ending(events: int | None = None, octets: int | None = None) -> StreamEnd:
        summariser = Summariser(
            SummarySets(sets.xref), Outputs().take, expect_events=events, expect_bytes=octets
        )
        summariser.receive(data)
        return summariser.close()

    assert ending().completeness is Completeness.UNDECLARED
    end = ending(2, len(data))
    assert end.completeness is Completeness.DECLARED
    assert (end.events, end.blocks, end.bytes) == (2, 2, len(data))
    for error, declared in (
        (IncompleteError, (3, None)),
        (IncompleteError, (None, len(data) + 1)),
        (ExcessError, (1, None)),
        (ExcessError, (None, len(data) - 1)),
    ):
        with pytest.raises(error):
            ending(*declared)


def test_a_pass_resumed_at_an_event_continues_the_streams() -> None:
    stream = small(*(Block(e, i, LOSSES) for e in (4, 9, 6) for i in (1, 2)))
    sets = sets_of((1, 1, 1), (2, 2, 1), (1, 1, 2), (2, 1, 2))
    data = stream.encode()
    chosen = SummarySets(sets.xref)
    first = Outputs()
    summariser = Summariser(chosen, first.take)
    summariser.receive(data[: stream.boundaries()[3] + 5])
    position = summariser.position
    assert position.offset == stream.boundaries()[2]
    assert (summariser.open_event, summariser.events, summariser.received) == (
        9,
        2,
        stream.boundaries()[3] + 5,
    )
    second = Summariser(chosen, first.take)
    second.resume(position)
    second.receive(data[position.offset :])
    assert second.close().events == 3
    assert first.streams == run([data], sets).streams


def test_a_summariser_is_used_once() -> None:
    summariser = Summariser(SummarySets(sets_of((1, 1, 1)).xref), Outputs().take)
    data = small(Block(1, 1, LOSSES)).encode()
    summariser.receive(data)
    with pytest.raises(StateError, match="before bytes"):
        summariser.resume(summariser.position)
    summariser.close()
    with pytest.raises(StateError, match="already closed"):
        summariser.receive(b"")


def test_a_sink_that_fails_ends_the_pass() -> None:
    def sink(_set_id: int, _octets: Octets) -> None:
        raise OSError("full")

    summariser = Summariser(SummarySets(sets_of((1, 1, 1)).xref), sink)
    with pytest.raises(OSError, match="full"):
        summariser.receive(small().encode())
    with pytest.raises(StateError, match="has failed"):
        summariser.receive(b"")


@settings(max_examples=examples(30))
@given(seed=SEEDS, junk=st.binary(max_size=200))
def test_any_bytes_give_streams_or_an_error_that_names_its_place(seed: int, junk: bytes) -> None:
    rng = np.random.default_rng(seed)
    stream = random_stream(rng, kind="loss", samples=20)
    sets = random_sets(rng, items_of(stream), risks=False)
    data = bytearray(stream.encode())
    place = int(rng.integers(0, len(data)))
    data[place : place + len(junk)] = junk
    error = None
    try:
        run(random_cuts(rng, bytes(data), 3), sets)
    except CoreError as e:
        error = e
    assert error is None or error.offset is not None or isinstance(error, LimitError)
