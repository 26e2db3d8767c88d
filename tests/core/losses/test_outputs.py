"""Reports computed from the tables of a pass, of an event and of a whole run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from core.arrays import Rows
from core.errors import IncompleteError, StateError
from core.losses.analysis import Analysis
from core.losses.merge import Partitions
from core.losses.outputs import Sink
from core.losses.policy import Policy
from core.losses.position import Position
from core.losses.reports import REPORTS, choosing
from core.losses.reports.columns import EVENT_ID, SUMMARY_ID, amount, integer
from core.losses.reports.report import Collector, Report, RunCollector, Setting
from core.losses.seen import SeenEvents
from tests.streams import Block, Stream, random_cuts


class _Worst(RunCollector):
    """The summary with the largest mean loss in one event."""

    def __init__(self, setting: Setting) -> None:
        self._dtype = setting.dtype
        self._best: tuple[float, int, int] = (-1.0, 0, 0)

    def take(self, table: str, rows: Rows) -> None:
        assert table == "melt"
        for row in rows[rows["SampleType"] == 1]:
            found = (float(row["MeanLoss"]), int(row["EventId"]), int(row["SummaryId"]))
            self._best = max(self._best, found)

    def merge(self, other: RunCollector) -> None:
        assert isinstance(other, _Worst)
        self._best = max(self._best, other._best)

    def finish(self) -> Rows:
        mean, event, summary = self._best
        return np.array([(summary, event, mean)], self._dtype)

    def getstate(self) -> Any:  # noqa: ANN401
        return list(self._best)

    def setstate(self, state: Any) -> None:  # noqa: ANN401
        mean, event, summary = state
        self._best = (float(mean), int(event), int(summary))


class _Means(Collector):
    """The analytical means of a MELT alone."""

    def __init__(self, setting: Setting) -> None:
        self._dtype = setting.dtype

    def take(self, table: str, rows: Rows) -> Rows | None:
        assert table == "melt"
        rows = rows[rows["SampleType"] == 1]
        means = np.zeros(len(rows), self._dtype)
        for name in self._dtype.names or ():
            means[name] = rows[name]
        return means


WORST = Report(
    name="worst",
    title="Worst event",
    columns=(SUMMARY_ID, integer("WorstEvent", "Event"), amount("MeanLoss", 6, "Mean loss")),
    scope="run",
    tables=("melt",),
    collect=_Worst,
)
MEANS = Report(
    name="means",
    title="Mean event loss table",
    columns=(EVENT_ID, SUMMARY_ID, amount("MeanLoss", 6, "Mean loss")),
    tables=("melt",),
    collect=_Means,
)
STREAM = Stream(
    "summary",
    2,
    4,
    tuple(
        Block(event, summary, ((-1, float(event * summary % 7)), (1, 1.0), (2, 2.0)))
        for event in range(1, 9)
        for summary in (1, 2, 3)
    ),
)


@pytest.fixture(autouse=True)
def _two_more_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {**REPORTS, "worst": WORST, "means": MEANS}
    monkeypatch.setattr(choosing, "REPORTS", rows)


class _Log:
    def __init__(self) -> None:
        self.items: list[tuple[str, list[Any]]] = []

    def sink(self, report: str, rows: Rows) -> None:
        self.items.append((report, rows.tolist()))

    def mark(self, position: Position) -> None:
        self.items.append(("position", [position.offset]))

    def rows(self, report: str) -> list[Any]:
        return [row for name, rows in self.items if name == report for row in rows]


def expected_worst() -> list[Any]:
    means = [(pairs[0][1], b.event, b.ident) for b in STREAM.blocks for pairs in [b.pairs]]
    mean, event, summary = max(means)
    return [(summary, event, mean)]


def run(reports: Sequence[str], pieces: Sequence[bytes], **options: Any) -> _Log:  # noqa: ANN401
    log = _Log()
    analysis = Analysis(reports, log.sink, **options)
    for piece in pieces:
        analysis.receive(piece)
    analysis.close()
    return log


@pytest.mark.parametrize("cuts", [0, 1, 9, 60])
def test_rows_of_a_run_come_once_after_all_others(cuts: int) -> None:
    pieces = random_cuts(np.random.default_rng(cuts), STREAM.encode(), cuts)
    log = run(["worst", "means"], pieces)
    assert log.items[-1] == ("worst", expected_worst())
    assert [name for name, _ in log.items].count("worst") == 1
    assert log.rows("means") == run(["means"], [STREAM.encode()]).rows("means")


def test_a_table_that_only_a_collector_wants_is_not_handed_on() -> None:
    log = run(["worst"], [STREAM.encode()])
    assert [name for name, _ in log.items] == ["worst"]


def test_a_stream_that_is_not_whole_has_no_rows_of_the_run() -> None:
    log = _Log()
    analysis = Analysis(["worst"], log.sink, expect_events=9)
    analysis.receive(STREAM.encode())
    with pytest.raises(IncompleteError):
        analysis.close()
    assert log.items == []


def test_the_state_of_a_run_is_exported_and_restored() -> None:
    data = STREAM.encode()
    for cut in STREAM.boundaries():
        first = Analysis(["worst"], _Log().sink)
        first.receive(data[:cut])
        log = _Log()
        second = Analysis(["worst"], log.sink)
        second.setstate(first.getstate())
        second.receive(data[second.offset :])
        second.close()
        assert log.rows("worst") == expected_worst()


def test_a_state_without_that_of_the_run_is_refused() -> None:
    first = Analysis(["worst"], _Log().sink)
    first.receive(STREAM.encode()[:200])
    state = first.getstate()
    del state["reports"]
    with pytest.raises(StateError):
        Analysis(["worst"], _Log().sink).setstate(state)


def test_a_run_does_not_begin_within_a_stream() -> None:
    first = Analysis(["melt"], _Log().sink)
    first.receive(STREAM.encode()[:200])
    with pytest.raises(StateError, match="WORST is of a whole run"):
        Analysis(["worst"], _Log().sink).resume(first.position)
    Analysis(["means"], _Log().sink).resume(first.position)


def partitions(sink: Sink, order: Any, reports: Sequence[str]) -> Partitions:  # noqa: ANN401
    def make(name: str, sink: Sink, seen: SeenEvents) -> Analysis:
        policy = Policy(event_order="ascending" if order == "event" else "any")
        return Analysis(reports, sink, policy=policy, name=name, seen=seen)

    return Partitions(["odd", "even"], make, sink, order=order)


@pytest.mark.parametrize("order", ["received", "event"])
@pytest.mark.parametrize("first", [0, 1])
def test_partitions_of_a_run_are_one_run(order: str, first: int) -> None:
    log = _Log()
    merged = partitions(log.sink, order, ["worst", "means"])
    odd = STREAM.with_blocks(b for b in STREAM.blocks if b.event % 2)
    even = STREAM.with_blocks(b for b in STREAM.blocks if not b.event % 2)
    parts = (odd.encode(), even.encode())
    for index in (first, 1 - first):
        merged.receive(index, parts[index])
        assert log.rows("worst") == []
        merged.close(index)
    assert log.items[-1] == ("worst", expected_worst())
    assert sorted(log.rows("means")) == run(["means"], [STREAM.encode()]).rows("means")


def test_rows_of_an_event_are_whole_before_its_end_is_told() -> None:
    pieces = random_cuts(np.random.default_rng(1), STREAM.encode(), 20)
    whole = run(["means"], [STREAM.encode()]).rows("means")
    log = _Log()
    analysis = Analysis(["means"], log.sink, at_event=log.mark)
    for piece in pieces:
        analysis.receive(piece)
    analysis.close()
    assert log.rows("means") == whole
    marks = [i for i, (name, _) in enumerate(log.items) if name == "position"]
    assert len(marks) > 3
    for mark in marks:
        complete = STREAM.boundaries().index(log.items[mark][1][0])
        before = [row for name, rows in log.items[:mark] if name == "means" for row in rows]
        assert before == whole[:complete]
