from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.arrays import Rows
from core.errors import EventOrderError, EventReopenedError, MismatchError, StarvedError
from core.losses.analysis import Analysis
from core.losses.merge import Partitions
from core.losses.outputs import Sink
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from core.losses.seen import SeenEvents
from tests.scale import examples
from tests.streams import (
    ALL_REPORTS,
    QUANTILES,
    Block,
    Collector,
    Stream,
    feed,
    random_cuts,
    streams,
)

Order = Literal["received", "event"]
SEEDS = st.integers(0, 2**32 - 1)


def partitions(
    count: int,
    sink: Sink,
    order: Order,
    reports: Sequence[str] = ALL_REPORTS,
    *,
    width: int = 4,
    ascending: bool = True,
    **options: Any,  # noqa: ANN401
) -> Partitions:
    strict = order == "event" and ascending
    policy = Policy(float_width=width, event_order="ascending" if strict else "any")

    def make(name: str, sink: Sink, seen: SeenEvents) -> Analysis:
        quantiles = QUANTILES if "qelt" in reports else None
        return Analysis(reports, sink, policy=policy, quantiles=quantiles, name=name, seen=seen)

    names = [f"part {i}" for i in range(count)]
    return Partitions(names, make, sink, order=order, **options)


def deal(stream: Stream, count: int, hands: Sequence[int]) -> list[Stream]:
    """Give each event, in the order of ids, to the partition whose turn it is."""
    events = sorted({block.event for block in stream.blocks})
    owner = dict(zip(events, hands, strict=True))
    return [
        stream.with_blocks(block for block in stream.blocks if owner[block.event] == i)
        for i in range(count)
    ]


def feed_all(merged: Partitions, parts: Sequence[Stream], rng: np.random.Generator) -> None:
    """Feed pieces of all partitions in a random interleaving."""
    queues = [random_cuts(rng, part.encode(), int(rng.integers(0, 12))) for part in parts]
    while any(queues):
        i = int(rng.choice([i for i, queue in enumerate(queues) if queue]))
        merged.receive(i, queues[i].pop(0))
        if not queues[i]:
            merged.close(i)


def by_event(rows: dict[str, bytes], width: int) -> dict[str, bytes]:
    """The rows in event order, those of one event in the order they came."""
    ordered = {}
    for name, octets in rows.items():
        table = np.frombuffer(octets, REPORTS[name].dtype(width))
        ordered[name] = table[np.argsort(table["EventId"], kind="stable")].tobytes()
    return ordered


@settings(max_examples=examples(80))
@given(
    streams(max_samples=70, max_events=9),
    st.integers(1, 4),
    st.booleans(),
    SEEDS,
)
def test_partitions_have_the_rows_of_the_whole(
    stream: Stream, count: int, in_turn: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    events = len({block.event for block in stream.blocks})
    hands = [i % count for i in range(events)]
    if not in_turn:
        hands = rng.integers(0, count, events).tolist()
    policy = Policy(float_width=stream.width)
    expected = feed([stream.sorted().encode()], stream.reports, policy=policy)

    collector = Collector()
    merged = partitions(count, collector, "received", stream.reports, width=stream.width)
    feed_all(merged, deal(stream, count, hands), rng)
    assert by_event(collector.rows, stream.width) == expected.rows
    assert expected.end is not None
    assert sum(end.events for end in merged.ends) == expected.end.events

    collector = Collector()
    merged = partitions(count, collector, "event", stream.reports, width=stream.width)
    feed_all(merged, deal(stream.sorted(), count, hands), rng)
    assert collector.rows == expected.rows
    assert len(merged.ends) == count
    assert all(end.ascending for end in merged.ends)


def simple(*events: int, samples: int = 3) -> Stream:
    blocks = [Block(event, i, ((1, float(event)), (2, 1.0))) for event in events for i in (1, 2)]
    return Stream("summary", samples, 4, tuple(blocks))


class Events:
    """A sink that notes event ids."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, report: str, rows: Rows) -> None:
        if report == "events":
            self.seen += rows["EventId"].tolist()


def test_rows_in_event_order_come_as_soon_as_they_can() -> None:
    sink = Events()
    merged = partitions(2, sink, "event", ["events"])
    merged.receive(0, simple(1, 4, 6, 8).encode())
    assert sink.seen == []
    second = simple(2, 3, 5, 7)
    edges = second.boundaries()
    merged.receive(1, second.encode()[: edges[1]])
    assert sink.seen == [1]
    merged.receive(1, second.encode()[edges[1] : edges[3]])
    assert sink.seen == [1, 2]
    merged.receive(1, second.encode()[edges[3] :])
    assert sink.seen == [1, 2, 3, 4, 5, 6]
    assert merged.slowest() == 1
    merged.close(1)
    assert sink.seen == [1, 2, 3, 4, 5, 6, 7]
    assert merged.slowest() == 0
    merged.close(0)
    assert sink.seen == [1, 2, 3, 4, 5, 6, 7, 8]
    assert merged.slowest() is None


def test_rows_as_received_do_not_wait() -> None:
    sink = Events()
    merged = partitions(2, sink, "received", ["events"])
    merged.receive(0, simple(9, 4, 6).encode())
    assert sink.seen == [9, 4]
    merged.receive(1, simple(2, 3).encode())
    assert sink.seen == [9, 4, 2]
    merged.close(0)
    merged.close(1)
    assert sink.seen == [9, 4, 2, 6, 3]


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (Stream("summary", 4, 4, ()).encode(), "4 samples"),
        (Stream("summary", 3, 4, (), summary_set=2).encode(), "summary set 2"),
        (Stream("loss", 3, 4, ()).encode(), "loss stream"),
        (Stream("gul", 3, 4, ()).encode(), "gul stream"),
    ],
    ids=["samples", "set", "loss", "gul"],
)
@pytest.mark.parametrize("order", ["received", "event"])
def test_partitions_must_match(octets: bytes, text: str, order: Order) -> None:
    for pieces in ([octets], [octets[:6], octets[6:]]):
        merged = partitions(3, Collector(), order, ["events"])
        merged.receive(1, simple(1).encode())
        merged.receive(2, simple(2).encode())
        *first, last = pieces
        for piece in first:
            merged.receive(0, piece)
        with pytest.raises(MismatchError, match=text) as info:
            merged.receive(0, last)
        assert (info.value.source, info.value.offset) == ("part 0", 0)
        assert "part 1 is a summary stream, 3 samples" in info.value.message


def test_streams_of_two_kinds_are_told_before_an_event_that_both_have() -> None:
    merged = partitions(2, Collector(), "received", ["events"])
    merged.receive(0, simple(1, 2).encode())
    with pytest.raises(MismatchError, match="gul stream"):
        merged.receive(1, Stream("gul", 3, 4, (Block(2, 1, ((1, 1.0),)), Block(3, 1))).encode())


@pytest.mark.parametrize("order", ["received", "event"])
def test_an_event_in_two_partitions_is_refused(order: Order) -> None:
    for events in ((2,), (1, 2), (1, 2, 4)):
        merged = partitions(2, Collector(), order, ["events", "selt"])
        merged.receive(0, simple(2, 5).encode())
        with pytest.raises(EventReopenedError, match=r"^part 1: event 2 begins again") as info:
            merged.receive(1, simple(*events).encode())
        assert info.value.event == 2


def test_a_partition_out_of_order_is_refused_in_event_order() -> None:
    merged = partitions(2, Collector(), "event", ["events"])
    merged.receive(0, simple(1, 9).encode())
    with pytest.raises(EventOrderError, match=r"^part 1: event 3 comes after a higher one"):
        merged.receive(1, simple(4, 3).encode())


def test_the_slowest_partition_is_named_when_too_much_waits() -> None:
    for slow in range(3):
        merged = partitions(3, Collector(), "event", ["selt"], read_ahead=300)
        others = [i for i in range(3) if i != slow]
        if slow:
            merged.receive(slow, simple(1, 2).encode())
        for i in others:
            merged.receive(i, simple(10 + i).encode())
        with pytest.raises(StarvedError, match=f"^part {slow}: ") as info:
            merged.receive(others[-1], simple(*range(20, 40)).encode()[12:])
        text = "at event 2" if slow else "before its first event"
        assert text in info.value.message
        assert merged.slowest() == slow


def test_a_closed_partition_starves_nobody() -> None:
    collector = Collector()
    merged = partitions(2, collector, "event", ["selt"], read_ahead=300)
    merged.receive(0, simple(1).encode())
    merged.close(0)
    merged.receive(1, simple(*range(2, 200)).encode())
    merged.close(1)
    assert collector.rows == feed([simple(*range(1, 200)).encode()], ["selt"]).rows


@pytest.mark.parametrize("count", [1, 2])
def test_the_partition_all_wait_for_does_not_starve_itself(count: int) -> None:
    blocks = [Block(7, i, tuple((s, 1.0) for s in range(1, 4))) for i in range(1, 100)]
    large = Stream("summary", 3, 4, tuple(blocks))
    collector = Collector()
    merged = partitions(count, collector, "event", ["selt"], read_ahead=300)
    if count > 1:
        merged.receive(1, simple(8).encode())
    merged.receive(0, large.encode())
    for i in range(count):
        merged.close(i)
    whole = large.with_blocks([*blocks, *(simple(8).blocks if count > 1 else ())])
    assert collector.rows == feed([whole.encode()], ["selt"]).rows


def test_the_order_received_never_starves() -> None:
    merged = partitions(2, Collector(), "received", ["selt"], read_ahead=1)
    merged.receive(1, simple(*range(1, 100)).encode())


def test_partitions_of_nothing() -> None:
    for order in ("received", "event"):
        collector = Collector()
        merged = partitions(2, collector, order)
        merged.receive(0, simple().encode())
        merged.close(0)
        merged.receive(1, simple(3).encode())
        merged.close(1)
        assert collector.rows == feed([simple(3).encode()], ALL_REPORTS).rows
