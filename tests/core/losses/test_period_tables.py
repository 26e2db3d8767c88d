"""SPLT, MPLT and QPLT: against the oracle, in pieces, from partitions, with odd occurrences."""

from __future__ import annotations

import datetime as dt
import json
import tracemalloc
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.arrays import Rows
from core.errors import InputError, ReportError
from core.losses.analysis import Analysis, aggregate
from core.losses.inputs import EventRates, Occurrence, Periods, parse_occurrence
from core.losses.merge import Partitions
from core.losses.outputs import Sink
from core.losses.policy import Policy
from core.losses.reports import REPORTS, event_tables
from core.losses.seen import SeenEvents
from tests import oracle, period_oracle
from tests.period_oracle import Happening
from tests.scale import PURE_PYTHON, examples
from tests.streams import (
    QUANTILES,
    Block,
    Collector,
    Stream,
    bytewise,
    random_cuts,
    streams,
)

TABLES = ("splt", "mplt", "qplt")
DAY = dt.datetime(2063, 1, 31, 13, 52, tzinfo=dt.UTC)
SMALL = Stream(
    "summary",
    3,
    4,
    (
        Block(2, 1, ((-5, 9.0), (-4, 2.0), (-1, 2.0), (1, 1.0), (3, 2.5))),
        Block(2, 2, ((-1, 1.0), (-5, 8.0), (2, 4.0)), 50.0),
        Block(4, 1, ((-1, 0.5),), 10.0),
        Block(3, 7, ((1, 1.0), (2, 0.0)), 0.0),
        Block(5, 1, ((-1, 0.0), (1, 0.0)), 7.0),
    ),
)
DATA = SMALL.encode()
HAPPENINGS = [
    Happening(2, 4, DAY),
    Happening(9, 1, DAY),
    Happening(3, 2, DAY.replace(month=3)),
    Happening(2, 4, DAY.replace(day=1)),
    Happening(5, 1, DAY),
    Happening(2, 1, DAY.replace(year=2064, month=12)),
]


def occurrence_of(
    happenings: list[Happening], periods: int = 4, granular: bool = True
) -> Occurrence:
    return parse_occurrence(period_oracle.encode(happenings, periods, granular=granular))


OCCURRENCE = occurrence_of(HAPPENINGS)
OPTIONS: dict[str, Any] = {"quantiles": QUANTILES, "occurrence": OCCURRENCE}


def run(pieces: Iterable[Any], width: int = 4, **options: Any) -> dict[str, bytes]:  # noqa: ANN401
    collector = Collector()
    defaults: dict[str, Any] = {"policy": Policy(float_width=width)}
    analysis = Analysis(TABLES, collector, **(OPTIONS | defaults | options))
    for piece in pieces:
        analysis.receive(piece)
    analysis.close()
    return collector.rows


def test_periods_that_a_file_only_declares_take_no_memory() -> None:
    occurrence = occurrence_of(HAPPENINGS, 2**31 - 1)
    run([DATA])
    tracemalloc.start()
    try:
        rows = run([DATA], occurrence=occurrence)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    for name in TABLES:
        table = np.frombuffer(rows[name], REPORTS[name].dtype(4))
        assert set(table["PeriodWeight"].tolist()) == {float(np.float32(1 / (2**31 - 1)))}


@st.composite
def cases(draw: st.DrawFn, *, negative: bool = False) -> tuple[Stream, list[Happening], bool]:
    """A summary stream, and occurrences of some of its events and of others, in any order."""
    stream = draw(streams(["summary"], max_samples=130, max_events=4, negative=negative))
    events = [*{block.event for block in stream.blocks}, 1, 77]
    granular = draw(st.booleans())
    occurrences = st.builds(
        Happening,
        st.sampled_from(events),
        st.integers(1, 5),
        st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)),  # noqa: DTZ001 - no zone
    )
    return stream, draw(st.lists(occurrences, min_size=1, max_size=9)), granular


def assert_equals_oracle(
    case: tuple[Stream, list[Happening], bool], weights: list[float] | None, policy: Policy
) -> None:
    stream, happenings, granular = case
    data = stream.encode()
    options = {"policy": policy, "occurrence": occurrence_of(happenings, 5, granular)}
    if weights is not None:
        options["periods"] = Periods(np.array(weights))
    actual = aggregate(data, TABLES, quantiles=QUANTILES, **options)
    parsed = oracle.parse(data, stream.width)
    weights = weights or [1 / 5] * 5
    expected = period_oracle.tables(parsed, QUANTILES, happenings, weights, granular=granular)
    for name in TABLES:
        period_oracle.assert_same(name, actual[name], expected[name])


@settings(max_examples=examples(80), deadline=None)
@example((SMALL, HAPPENINGS, True), None)
@example((SMALL, HAPPENINGS, False), [0.1, 0.2, 0.3, 0.0, 0.4])
@given(cases(), st.one_of(st.none(), st.lists(st.floats(0, 1), min_size=5, max_size=5)))
def test_rows_equal_the_oracle(
    case: tuple[Stream, list[Happening], bool], weights: list[float] | None
) -> None:
    assert_equals_oracle(case, weights, Policy(float_width=case[0].width))


@settings(max_examples=examples(30), deadline=None)
@given(cases(negative=True))
def test_negative_losses_have_no_impacted_exposure(
    case: tuple[Stream, list[Happening], bool],
) -> None:
    assert_equals_oracle(case, None, Policy(float_width=case[0].width, negative="keep"))


def test_every_cut_gives_the_same_rows() -> None:
    whole = run([DATA])
    assert run(bytewise(DATA)) == whole
    for cut in range(len(DATA) + 1):
        assert run([DATA[:cut], DATA[cut:]]) == whole


@settings(max_examples=examples(20), deadline=None)
@given(cases(), st.integers(0, 2**32 - 1))
def test_pieces_and_states_give_the_same_rows(
    case: tuple[Stream, list[Happening], bool], seed: int
) -> None:
    stream, happenings, granular = case
    data = stream.encode()
    options: dict[str, Any] = {"occurrence": occurrence_of(happenings, 5, granular)}
    whole = run([data], stream.width, **options)
    rng = np.random.default_rng(seed)
    assert run(random_cuts(rng, data, 5), stream.width, **options) == whole
    options |= {"policy": Policy(float_width=stream.width), "quantiles": QUANTILES}
    before, after = Collector(), Collector()
    first = Analysis(TABLES, before, **options)
    first.receive(data[: rng.integers(0, len(data), endpoint=True)])
    second = Analysis(TABLES, after, **options)
    second.setstate(json.loads(json.dumps(first.getstate())))
    second.receive(data[second.offset :])
    end = second.close()
    names = before.rows.keys() | after.rows.keys()
    joined = {n: before.rows.get(n, b"") + after.rows.get(n, b"") for n in names}
    assert joined == whole
    occurring = {h.event for h in happenings}
    missing = {block.event for block in stream.blocks} - occurring
    assert end.events_without_occurrence == len(missing)


def sorted_rows(name: str, data: bytes, width: int) -> list[Any]:
    rows: list[Any] = np.frombuffer(data, REPORTS[name].dtype(width)).tolist()
    return sorted(rows, key=repr)


@pytest.mark.parametrize("order", ["received", "event"])
@settings(max_examples=examples(20), deadline=None)
@given(case=cases(), seed=st.integers(0, 2**32 - 1), parts=st.integers(1, 4))
def test_partitions_give_the_rows_of_the_whole(
    order: Any,  # noqa: ANN401
    case: tuple[Stream, list[Happening], bool],
    seed: int,
    parts: int,
) -> None:
    stream, happenings, granular = case
    rng = np.random.default_rng(seed)
    stream = stream.sorted() if order == "event" else stream
    place = {block.event: int(rng.integers(parts)) for block in stream.blocks}
    options: dict[str, Any] = {"occurrence": occurrence_of(happenings, 5, granular)}
    whole = run([stream.encode()], stream.width, **options)

    def make(name: str, sink: Sink, seen: SeenEvents) -> Analysis:
        policy = Policy(
            float_width=stream.width, event_order="ascending" if order == "event" else "any"
        )
        given = options | {"policy": policy, "quantiles": QUANTILES}
        return Analysis(TABLES, sink, name=name, seen=seen, **given)

    collector = Collector()
    merged = Partitions([str(i) for i in range(parts)], make, collector, order=order)
    waiting = {
        i: random_cuts(
            rng, stream.with_blocks(b for b in stream.blocks if place[b.event] == i).encode(), 3
        )
        for i in range(parts)
    }
    while waiting:
        index = int(rng.choice(list(waiting)))
        if waiting[index]:
            merged.receive(index, waiting[index].pop(0))
        else:
            merged.close(index)
            del waiting[index]
    if order == "event":
        assert collector.rows == whole
    assert collector.rows.keys() == whole.keys()
    for name, data in whole.items():
        expected = sorted_rows(name, data, stream.width)
        assert sorted_rows(name, collector.rows[name], stream.width) == expected


@pytest.mark.skipif(PURE_PYTHON, reason="as many rows take a minute without compilation")
def test_an_event_with_many_occurrences_comes_in_pieces() -> None:
    count = 2 * event_tables.PIECE + 5_001
    rng = np.random.default_rng(1)
    periods = rng.integers(1, 1000, count).astype(np.int32)
    dates = rng.integers(0, 2**31 - 1, count)
    occurrence = Occurrence(999, np.full(count, 2, np.int32), periods, dates)
    sizes: dict[str, list[int]] = {name: [] for name in TABLES}
    seen: dict[str, list[Rows]] = {name: [] for name in TABLES}

    def sink(name: str, rows: Rows) -> None:
        sizes[name].append(len(rows))
        seen[name].append(rows.copy())

    analysis = Analysis(TABLES, sink, quantiles=QUANTILES, occurrence=occurrence)
    analysis.receive(DATA)
    analysis.close()
    assert max(max(s) for s in sizes.values()) <= event_tables.PIECE
    assert sum(sizes["splt"]) == 5 * count
    assert sum(sizes["mplt"]) == 4 * count
    assert sum(sizes["qplt"]) == 2 * len(QUANTILES) * count
    splt = np.concatenate(seen["splt"]).reshape(5, count)
    qplt = np.concatenate(seen["qplt"]).reshape(2, count, len(QUANTILES))
    assert (splt["Period"] == periods).all()
    assert (splt["SampleId"] == np.array([-1, 1, 3, -1, 2])[:, None]).all()
    assert (qplt["Period"] == periods[:, None]).all()
    assert (qplt["Quantile"] == QUANTILES).all()


def test_more_quantiles_than_a_piece_has_rows_stay_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = run([DATA])
    monkeypatch.setattr(event_tables, "PIECE", 3)
    monkeypatch.setattr(event_tables, "_WINDOW", 2)
    assert run([DATA]) == whole


def test_events_and_occurrences_that_do_not_meet_are_counted() -> None:
    analysis = Analysis(["splt"], Collector(), occurrence=OCCURRENCE)
    analysis.receive(DATA)
    assert analysis.close().events_without_occurrence == 1
    without = Analysis(["melt"], Collector())
    without.receive(DATA)
    assert without.close().events_without_occurrence is None


def test_dates_of_a_model_without_calendar_are_read_as_days() -> None:
    """The peer's columns for such a model: those of its ids taken as the calendar's."""
    event = np.full(1, 2, np.int32)
    records = Occurrence(1, event, np.ones(1, np.int32), np.array([730484]), calendar=False)
    row = aggregate(DATA, ["splt"], occurrence=records)["splt"][0]
    assert [row[name] for name in ("Year", "Month", "Day", "Hour", "Minute")] == [2000, 2, 29, 0, 0]


def test_event_rates_win_over_occurrences() -> None:
    rates = EventRates(np.array([2], np.int32), np.array([0.125]))
    alone = aggregate(DATA, ["melt"], event_rates=rates)["melt"]
    both = aggregate(DATA, ["melt"], event_rates=rates, occurrence=OCCURRENCE)["melt"]
    assert both.tobytes() == alone.tobytes()
    derived = aggregate(DATA, ["melt"], occurrence=OCCURRENCE)["melt"]
    assert derived["EventRate"][0] == 3 / 4
    expected = aggregate(DATA, ["melt"], event_rates=OCCURRENCE.event_rates())["melt"]
    for name in set(derived.dtype.names or ()) - {"EventRate"}:
        np.testing.assert_array_equal(derived[name], expected[name])
    occurs = np.isin(derived["EventId"], OCCURRENCE.event_ids)
    np.testing.assert_array_equal(derived["EventRate"][occurs], expected["EventRate"][occurs])


def test_an_event_that_never_occurs_has_the_rate_0() -> None:
    elsewhere = occurrence_of([Happening(9, 1, DAY)])
    assert set(aggregate(DATA, ["melt"], occurrence=elsewhere)["melt"]["EventRate"]) == {0.0}
    rates = EventRates(np.array([9], np.int32), np.array([0.5]))
    assert np.isnan(aggregate(DATA, ["melt"], event_rates=rates)["melt"]["EventRate"]).all()


@pytest.mark.parametrize(
    ("reports", "options", "text"),
    [
        (["splt"], {}, "SPLT needs occurrences. Give an occurrence file"),
        (["qplt"], {"occurrence": OCCURRENCE}, "QPLT needs quantiles"),
        (["selt"], {"occurrence": OCCURRENCE}, "occurrences are given, but"),
        (["melt"], {"periods": Periods(np.ones(4))}, "period weights are given, but"),
    ],
)
def test_reports_and_inputs_must_fit(reports: list[str], options: Any, text: str) -> None:  # noqa: ANN401
    with pytest.raises(ReportError, match=text):
        Analysis(reports, Collector(), **options)


def test_weights_of_another_number_of_periods_are_refused() -> None:
    with pytest.raises(InputError, match="3 periods have a weight, but occurrences are of 4"):
        Analysis(["splt"], Collector(), occurrence=OCCURRENCE, periods=Periods(np.ones(3)))


def test_a_state_is_of_the_same_occurrences_and_weights() -> None:
    state = Analysis(["splt"], Collector(), occurrence=OCCURRENCE).getstate()
    others: list[dict[str, Any]] = [
        {"occurrence": occurrence_of(HAPPENINGS[1:])},
        {"occurrence": occurrence_of(HAPPENINGS, 5)},
        {"occurrence": OCCURRENCE, "periods": Periods(np.full(4, 0.25))},
    ]
    for options in others:
        with pytest.raises(Exception, match="other reports or inputs"):
            Analysis(["splt"], Collector(), **options).setstate(state)
    Analysis(["splt"], Collector(), occurrence=OCCURRENCE).setstate(state)
