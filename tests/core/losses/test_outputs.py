"""Reports computed from the tables of a pass, of an event and of a whole run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from core.arrays import Rows
from core.errors import IncompleteError, StateError
from core.losses import reports
from core.losses.analysis import Analysis
from core.losses.events import Position
from core.losses.inputs import Occurrence
from core.losses.merge import Partitions
from core.losses.outputs import Sink
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from core.losses.reports.report import (
    EVENT_ID,
    SUMMARY_ID,
    Expander,
    Report,
    Setting,
    amount,
)
from core.losses.seen import SeenEvents
from tests.streams import Block, Stream, random_cuts


class _Means(Expander):
    """The analytical means of a MELT alone."""

    def __init__(self, setting: Setting) -> None:
        self._dtype = setting.dtype

    def take(self, rows: Rows) -> Iterator[Rows]:
        rows = rows[rows["SampleType"] == 1]
        means = np.zeros(len(rows), self._dtype)
        for name in self._dtype.names or ():
            means[name] = rows[name]
        yield means


MEANS = Report(
    name="means",
    title="Mean event loss table",
    columns=(EVENT_ID, SUMMARY_ID, amount("MeanLoss", 6, "Mean loss")),
    table="melt",
    expand=_Means,
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


YEARLY = Occurrence(
    4, np.arange(1, 9, dtype=np.int32), np.arange(8, dtype=np.int32) % 4 + 1, np.zeros(8, np.int64)
)
"""Each event once, two in each of four periods."""


@pytest.fixture(autouse=True)
def _one_more_report(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {**REPORTS, "means": MEANS}
    monkeypatch.setattr(reports, "REPORTS", rows)


class _Log:
    def __init__(self) -> None:
        self.items: list[tuple[str, list[Any]]] = []

    def sink(self, report: str, rows: Rows) -> None:
        self.items.append((report, rows.tolist()))

    def mark(self, position: Position) -> None:
        self.items.append(("position", [position.offset]))

    def rows(self, report: str) -> list[Any]:
        return [row for name, rows in self.items if name == report for row in rows]


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
    log = run(["aal_mean", "means"], pieces, occurrence=YEARLY)
    assert log.items[-1][0] == "aal_mean"
    assert [name for name, _ in log.items].count("aal_mean") == 1
    assert log.rows("means") == run(["means"], [STREAM.encode()]).rows("means")


def test_a_table_that_only_a_report_is_computed_from_is_not_handed_on() -> None:
    log = run(["means"], [STREAM.encode()])
    assert {name for name, _ in log.items} == {"means"}


def test_a_stream_that_is_not_whole_has_no_rows_of_the_run() -> None:
    log = _Log()
    analysis = Analysis(["aal"], log.sink, occurrence=YEARLY, expect_events=9)
    analysis.receive(STREAM.encode())
    with pytest.raises(IncompleteError):
        analysis.close()
    assert log.items == []


def test_a_state_without_that_of_the_run_is_refused() -> None:
    first = Analysis(["aal"], _Log().sink, occurrence=YEARLY)
    first.receive(STREAM.encode()[:200])
    state = first.getstate()
    del state["ledger"]
    with pytest.raises(StateError):
        Analysis(["aal"], _Log().sink, occurrence=YEARLY).setstate(state)


def test_a_run_does_not_begin_within_a_stream() -> None:
    first = Analysis(["melt"], _Log().sink)
    first.receive(STREAM.encode()[:200])
    with pytest.raises(StateError, match="AAL is of a whole run"):
        Analysis(["aal"], _Log().sink, occurrence=YEARLY).resume(first.position)
    Analysis(["means"], _Log().sink).resume(first.position)


def partitions(sink: Sink, order: Any, reports: Sequence[str]) -> Partitions:  # noqa: ANN401
    def make(name: str, sink: Sink, seen: SeenEvents) -> Analysis:
        policy = Policy(event_order="ascending" if order == "event" else "any")
        return Analysis(reports, sink, policy=policy, name=name, seen=seen, occurrence=YEARLY)

    return Partitions(["odd", "even"], make, sink, order=order)


@pytest.mark.parametrize("order", ["received", "event"])
@pytest.mark.parametrize("first", [0, 1])
def test_partitions_of_a_run_are_one_run(order: str, first: int) -> None:
    log = _Log()
    merged = partitions(log.sink, order, ["aal_mean", "means"])
    odd = STREAM.with_blocks(b for b in STREAM.blocks if b.event % 2)
    even = STREAM.with_blocks(b for b in STREAM.blocks if not b.event % 2)
    parts = (odd.encode(), even.encode())
    for index in (first, 1 - first):
        merged.receive(index, parts[index])
        assert log.rows("aal_mean") == []
        merged.close(index)
    whole = run(["aal_mean"], [STREAM.encode()], occurrence=YEARLY)
    assert log.items[-1] == ("aal_mean", whole.rows("aal_mean"))
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
