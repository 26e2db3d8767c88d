from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.arrays import Octets, Rows
from core.errors import EventReopenedError, MismatchError, StateError
from core.losses.analysis import Analysis
from core.losses.events import Position
from core.losses.inputs import Occurrence
from core.losses.merge import Order
from core.losses.outputs import Sink
from core.losses.policy import Policy
from core.losses.seen import SeenEvents
from core.losses.summaries import SetReports, SetSink, Summariser, SummarySets
from tests.scale import examples
from tests.streams import QUANTILES, Block, Stream, random_losses
from tests.summary_oracle import Sets

REPORTS = ("events", "selt", "melt", "qelt", "splt", "aal", "ept")
SAMPLES = 9
Tables = dict[tuple[int, str], bytes]


def analysis(name: str, sink: Sink, seen: SeenEvents, policy: Policy) -> Analysis:
    numbers = np.arange(1, 13, dtype=np.int32)
    occurrence = Occurrence(5, numbers, numbers % 5 + 1, np.zeros(12, np.int64))
    options: dict[str, Any] = {"quantiles": QUANTILES, "occurrence": occurrence}
    return Analysis(REPORTS, sink, policy=policy, name=name, seen=seen, **options)


def together(
    parts: list[bytes], sets: SummarySets, order: Order, rng: np.random.Generator
) -> Tables:
    """The reports of all sets, from partitions fed in pieces of any size."""
    tables: Tables = {}

    def sink(set_id: int, report: str, rows: Rows) -> None:
        tables[set_id, report] = tables.get((set_id, report), b"") + rows.tobytes()

    def make(_set: int, name: str, sink: Sink, seen: SeenEvents, policy: Policy) -> Analysis:
        return analysis(name, sink, seen, policy)

    names = [f"part {i}" for i in range(len(parts))]
    reports = SetReports(names, sets, make, sink, order=order)
    at = [0] * len(parts)
    while (index := reports.slowest()) is not None:
        if order == "received":
            index = int(rng.choice([i for i in range(len(parts)) if i not in reports.closed]))
        size = int(rng.integers(1, 400))
        piece = parts[index][at[index] : at[index] + size]
        at[index] += size
        if piece:
            reports.receive(index, piece)
        else:
            reports.close(index)
    assert [end.bytes for end in reports.ends] == [len(part) for part in parts]
    return tables


def one_by_one(parts: list[bytes], sets: SummarySets) -> Tables:
    """The same through streams of summaries that are written out first, as the peer does."""
    streams: dict[int, bytes] = {}
    for part in parts:
        first = not streams

        def take(set_id: int, octets: Octets, first: bool = first) -> None:
            header = not first and len(octets) == 12
            streams[set_id] = streams.get(set_id, b"") + (b"" if header else octets.tobytes())

        summariser = Summariser(sets, take)
        summariser.receive(part)
        summariser.close()
    tables: Tables = {}
    for set_id, stream in streams.items():

        def sink(report: str, rows: Rows, set_id: int = set_id) -> None:
            tables[set_id, report] = tables.get((set_id, report), b"") + rows.tobytes()

        single = analysis("whole", sink, SeenEvents(), Policy())
        single.receive(stream)
        single.close()
    return tables


def random_run(rng: np.random.Generator, parts: int) -> tuple[list[bytes], SummarySets]:
    items = list(range(1, 7))
    sidx = [-5, -3, -1, *range(1, SAMPLES + 1)]

    def block(event: int, item: int) -> Block:
        kept = [s for s in sidx if rng.random() < 0.8]
        return Block(
            event, item, tuple(zip(kept, random_losses(rng, len(kept), "any"), strict=True))
        )

    streams = []
    for events in np.array_split(np.arange(1, 13), parts):
        chosen = (
            block(event, item)
            for event in events.tolist()
            for item in rng.permutation(items)[: rng.integers(1, 7)].tolist()
        )
        streams.append(Stream("loss", SAMPLES, 4, tuple(chosen)).encode())
    rows = [(item, item % 2 + 1, 1) for item in items] + [(item, 1, 4) for item in items]
    sets = Sets(tuple(rows), {item: item % 3 for item in items})
    return streams, SummarySets(sets.xref, None, sets.map)


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.sampled_from(["received", "event"]))
def test_reports_of_all_sets_equal_those_of_their_streams(
    seed: int, parts: int, order: Order
) -> None:
    rng = np.random.default_rng(seed)
    streams, sets = random_run(rng, parts)
    expected = one_by_one(streams, sets)
    got = together(streams, sets, order, rng)
    if order == "event" or parts == 1:
        assert got == expected
        return
    assert got.keys() == expected.keys()
    for (set_id, report), rows in got.items():
        if report in {"aal", "ept"}:
            assert rows == expected[set_id, report]
        else:
            assert len(rows) == len(expected[set_id, report])


def make_nothing(_set: int, name: str, sink: Sink, seen: SeenEvents, policy: Policy) -> Analysis:
    return Analysis(("events",), sink, policy=policy, name=name, seen=seen)


def ignore(_set: int, _report: str, _rows: Rows) -> None:
    """Rows are not what the test is about."""


def test_reports_do_not_wait_for_a_collection_of_garbage() -> None:
    """Sums of many samples are megabytes, which nobody counts any more."""
    sets = SummarySets(Sets(((1, 1, 1),)).xref)
    gc.disable()
    try:
        reports = SetReports(["a"], sets, make_nothing, ignore)
        reports.receive(0, Stream("loss", 3, 4, (Block(5, 1, ((-1, 1.0),)),)).encode())
        left = weakref.ref(reports.summarisers[0])
        del reports
        assert left() is None
    finally:
        gc.enable()


def test_an_event_in_two_partitions_is_refused() -> None:
    sets = SummarySets(Sets(((1, 1, 1),)).xref)
    data = Stream("loss", 3, 4, (Block(5, 1, ((-1, 1.0),)),)).encode()
    reports = SetReports(["a", "b"], sets, make_nothing, ignore)
    reports.receive(0, data)
    with pytest.raises(EventReopenedError, match=r"^b: event 5"):
        reports.receive(1, data)


def test_partitions_with_other_headers_are_refused() -> None:
    sets = SummarySets(Sets(((1, 1, 1),)).xref)
    reports = SetReports(["a", "b"], sets, make_nothing, ignore)
    reports.receive(0, Stream("loss", 3, 4, ()).encode())
    with pytest.raises(MismatchError, match=r"^b: .*but a is a loss stream, 3 samples"):
        reports.receive(1, Stream("loss", 4, 4, ()).encode())


def test_a_stream_in_parts_gives_the_rows_of_the_whole() -> None:
    rng = np.random.default_rng(3)
    (data,), sets = random_run(rng, 1)
    whole: Tables = {}
    parts: Tables = {}

    def sink_to(tables: Tables) -> SetSink:
        def sink(set_id: int, report: str, rows: Rows) -> None:
            tables[set_id, report] = tables.get((set_id, report), b"") + rows.tobytes()

        return sink

    def make(_set: int, name: str, sink: Sink, seen: SeenEvents, policy: Policy) -> Analysis:
        return Analysis(("events", "selt", "melt"), sink, policy=policy, name=name, seen=seen)

    once = SetReports(["whole"], sets, make, sink_to(whole))
    once.receive(0, data)
    once.close(0)
    position = Position()
    for end in [*range(1, len(data), len(data) // 7), len(data)]:
        reports = SetReports(["part"], sets, make, sink_to(parts))
        reports.resume(0, position)
        reports.receive(0, data[position.offset : end])
        if end == len(data):
            reports.close(0)
        else:
            position = reports.suspend(0)
    assert parts == whole


def test_reports_of_whole_runs_cannot_begin_within_a_stream() -> None:
    rng = np.random.default_rng(4)
    (data,), sets = random_run(rng, 1)

    def make(_set: int, name: str, sink: Sink, seen: SeenEvents, policy: Policy) -> Analysis:
        return analysis(name, sink, seen, policy)

    first = SetReports(["a"], sets, make, ignore)
    first.receive(0, data[: len(data) // 2])
    second = SetReports(["a"], sets, make, ignore)
    with pytest.raises(StateError, match="of a whole run"):
        second.resume(0, first.suspend(0))
