"""Reports of a run equal those of its streams in one process, however it is cut and stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.workers import Workers
from app.errors import NotFoundError
from app.losses.request import LossRequest
from app.runs.records import SEGMENT as KIND
from app.runs.results import computing
from app.runs.results.computing import RunReports, RunStreams
from app.runs.results.segments import SegmentSums, segments_of
from core.arrays import Rows
from core.errors import EventReopenedError, MismatchError
from core.losses.analysis import Analysis
from core.losses.finishing import LedgerResources
from core.losses.inputs import Occurrence
from core.losses.ledger.runs import HeldInMemory
from core.losses.outputs import Sink
from core.losses.parameters import ReportInputs
from core.losses.policy import Policy
from core.losses.seen import SeenEvents
from core.losses.summaries import SetReports
from tests.app.runs.stored import Files, nothing, streams_of
from tests.core.losses.summaries.test_set_reports import random_run as random_items
from tests.runs import RUN_REPORTS, RunCase, compute, octets, random_run
from tests.streams import Stream

SEEDS = st.integers(0, 2**32 - 1)
OF_ROWS = ("events", "selt", "melt", "splt", "mplt")


class Spills:
    def create(self) -> HeldInMemory:
        return HeldInMemory()


def resources() -> LedgerResources:
    return LedgerResources(1 << 24, spill=Spills())


@pytest.fixture(scope="module")
def engine() -> Iterator[Workers]:
    made = Workers(2)
    yield made
    made.close()


def request_of(case: RunCase, reports: Sequence[str]) -> LossRequest:
    inputs = case.inputs
    if not {"ept", "psept"} & set(reports):
        inputs.pop("return_periods", None)
    policy = Policy(float_width=case.stream.width)
    return LossRequest(reports=tuple(reports), policy=policy, inputs=ReportInputs(**inputs))


def computed(
    request: LossRequest,
    contents: Sequence[bytes],
    engine: Workers,
    size: int,
    files: Files | None = None,
    *,
    side_by_side: bool = True,
) -> dict[tuple[int | None, str], bytes]:
    tables: dict[tuple[int | None, str], bytes] = {}

    def sink(set_id: int | None, report: str, rows: Rows) -> None:
        tables[set_id, report] = tables.get((set_id, report), b"") + rows.tobytes()

    streams = RunStreams(streams_of(*contents), request.policy)
    reports = RunReports(request, streams, engine, nothing)
    if reports.of_sums:
        sums = SegmentSums(request, (files or Files()).of(KIND), lambda: nullcontext(resources()))
        reports.compute_sums(sums, size, resources, sink)
    if reports.of_rows:
        reports.compute_rows(sink, waiting=1 << 26 if side_by_side else None)
    return tables


def of_one_set(
    tables: dict[tuple[int | None, str], bytes], names: Sequence[str]
) -> dict[str, bytes]:
    return {name: tables.get((None, name), b"") for name in names}


def shuffled(case: RunCase, rng: np.random.Generator) -> list[Stream]:
    return case.partitions(rng, int(rng.integers(1, 5)))


@given(SEEDS, st.sampled_from([4, 8]), st.integers(8, 3000))
def test_reports_of_whole_runs_do_not_depend_on_partitions_cuts_or_order(
    engine: Workers, seed: int, width: int, size: int
) -> None:
    rng = np.random.default_rng(seed)
    case = random_run(rng, width=width)
    parts = [part.encode() for part in shuffled(case, rng)]
    found = computed(request_of(case, RUN_REPORTS), parts, engine, size)
    assert of_one_set(found, RUN_REPORTS) == octets(compute(case))


@given(SEEDS, st.booleans())
def test_rows_are_those_of_the_streams_one_after_another(
    engine: Workers, seed: int, side_by_side: bool
) -> None:
    rng = np.random.default_rng(seed)
    case = random_run(rng)
    parts = shuffled(case, rng)
    each = [octets(compute(case, [part], OF_ROWS)) for part in parts]
    expected = {name: b"".join(tables[name] for tables in each) for name in OF_ROWS}
    request = request_of(case, OF_ROWS)
    contents = [part.encode() for part in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(computing, "SECTION", int(rng.integers(8, 2000)))
        found = computed(request, contents, engine, 1, side_by_side=side_by_side)
    assert of_one_set(found, OF_ROWS) == expected


def test_a_run_without_events_has_empty_reports(engine: Workers) -> None:
    case = random_run(np.random.default_rng(1))
    empty = case.stream.with_blocks(()).encode()
    names = (*RUN_REPORTS, *OF_ROWS)
    assert not any(computed(request_of(case, names), [empty, empty], engine, 99).values())


def test_partials_are_computed_once_and_a_damaged_one_again(engine: Workers) -> None:
    case = random_run(np.random.default_rng(11))
    request, data, files = request_of(case, RUN_REPORTS), case.stream.encode(), Files()
    expected = computed(request, [data], engine, 64, files)
    first = files.blob_ids(KIND)
    assert len(first) > 1
    assert computed(request, [data], engine, 64, files) == expected
    assert files.blob_ids(KIND) == first

    name = first[0]
    size = files.blobs.info(KIND, name).size
    files.blobs.delete(KIND, name)
    files.blobs.append(KIND, name, 0, b"TWLEDGER" + bytes(size - 8))
    assert computed(request, [data], engine, 64, files) == expected
    assert set(first) - set(files.blob_ids(KIND)) == {name}


def test_an_event_in_two_streams_is_refused_and_named(engine: Workers) -> None:
    case = random_run(np.random.default_rng(3))
    data = case.stream.encode()
    event = case.stream.blocks[0].event
    other = case.stream.with_blocks(b for b in case.stream.blocks if b.event == event).encode()
    with pytest.raises(MismatchError, match=f"event {event}") as found:
        computed(request_of(case, ["aal"]), [data, other], engine, 10_000)
    assert found.value.source == "partition 2"
    request = request_of(case, ["melt", "splt"])
    with pytest.raises(EventReopenedError, match=f"event {event}") as reopened:
        computed(request, [data, other], engine, 1, side_by_side=False)
    assert reopened.value.source == "partition 2"


def test_every_set_of_item_streams_has_its_reports(engine: Workers) -> None:
    rng = np.random.default_rng(8)
    contents, sets = random_items(rng, 3)
    names = ("melt", "aal", "ept")
    numbers = np.arange(1, 13, dtype=np.int32)
    occurrence = Occurrence(5, numbers, numbers % 5 + 1, np.zeros(12, np.int64))
    request = LossRequest(reports=names, inputs=ReportInputs(occurrence=occurrence), sets=sets)
    expected: dict[tuple[int | None, str], bytes] = {}

    def sink(set_id: int, report: str, rows: Rows) -> None:
        expected[set_id, report] = expected.get((set_id, report), b"") + rows.tobytes()

    def make(_set: int, name: str, sink: Sink, seen: SeenEvents, policy: Policy) -> Analysis:
        return Analysis(names, sink, policy=policy, name=name, seen=seen, occurrence=occurrence)

    reports = SetReports([str(i) for i in range(3)], sets, make, sink)
    for index, data in enumerate(contents):
        reports.receive(index, data)
        reports.close(index)
    assert computed(request, contents, engine, 200) == expected


def test_streams_of_different_kinds_are_refused(engine: Workers) -> None:
    case = random_run(np.random.default_rng(4))
    other = replace(case.stream, samples=case.stream.samples + 1).with_blocks(())
    for report in ("aal", "splt"):
        with pytest.raises(MismatchError, match="partition"):
            computed(request_of(case, [report]), [case.stream.encode(), other.encode()], engine, 99)


@given(SEEDS, st.integers(8, 2000))
def test_segments_of_a_prefix_are_segments_of_the_whole(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_run(rng)
    data = case.stream.encode()
    policy = Policy(float_width=case.stream.width)
    (whole,) = streams_of(data)
    all_of_them = [(s.begin, s.end) for s in segments_of(whole, policy, size)]
    (known,) = streams_of(data[: int(rng.integers(len(data)))], complete=False)
    prefix = [(s.begin, s.end) for s in segments_of(known, policy, size)]
    assert prefix == all_of_them[: len(prefix)]


def test_a_run_that_is_being_deleted_has_no_stream_any_more() -> None:
    with pytest.raises(NotFoundError, match="no stream any more"):
        RunStreams([], Policy()).header()
