from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import CoreError, LimitError, StreamError, TruncatedError
from core.losses import sections as module
from core.losses.events import StreamEnd
from core.losses.finishing import LedgerResources
from core.losses.header import parse_header
from core.losses.policy import Policy
from core.losses.sections import (
    Section,
    SectionAnalysis,
    SectionedRun,
    WaitingRows,
    find_boundary,
)
from core.losses.seen import SeenEvents
from tests.runs import RUN_REPORTS, RunCase, random_run
from tests.scale import examples
from tests.streams import QUANTILES, Block, Stream, feed, streams

SEEDS = st.integers(0, 2**32 - 1)
BY_EVENT = ("events", "selt", "melt", "qelt")
Rows = dict[str, bytes]


def starts_of_events(stream: Stream) -> list[int]:
    """Offsets at which the event id changes, that of the first block left out."""
    changes = zip(stream.boundaries()[1:], stream.blocks, stream.blocks[1:], strict=False)
    return [offset for offset, before, block in changes if before.event != block.event]


def sections(stream: Stream, cuts: Sequence[int], index: int = 0) -> Iterator[Section]:
    data = stream.encode()
    header = parse_header(data[:12], Policy(float_width=stream.width), None)
    assert header is not None
    begin = len(stream.header)
    for end in [*cuts, len(data)]:
        piece = data[begin:end]
        # In two pieces, as a file that is read.
        parts = [part for part in (piece[:8], piece[8:]) if part]
        yield Section(index, header, begin, lambda parts=parts: parts)  # type: ignore[misc]
        begin = end


def threads(function: Callable[[Any], Any], elements: Iterable[Any]) -> Iterator[Any]:
    with ThreadPoolExecutor(2) as pool:
        # How plain Python kernels overflow is a matter of the context.
        calls = [pool.submit(copy_context().run, function, element) for element in elements]
        for call in calls:
            yield call.result()


def run(
    parts: Iterable[Section],
    reports: Sequence[str],
    count: int,
    policy: Policy,
    **options: Any,  # noqa: ANN401 - of Analysis
) -> tuple[Rows, list[StreamEnd]]:
    rows: Rows = dict.fromkeys(reports, b"")

    def sink(name: str, more: Any) -> None:  # noqa: ANN401 - rows
        rows[name] += more.tobytes()

    def make(sink: Any, seen: SeenEvents) -> SectionAnalysis:  # noqa: ANN401 - as the run wants
        return SectionAnalysis(reports, sink, policy=policy, seen=seen, **options)

    together = SectionedRun(make, count, threads if count > 1 else map, sink)
    with np.errstate(over="ignore", invalid="ignore"):
        ends = together.run(parts, lambda _result: None)
    return rows, ends


@settings(max_examples=examples(150))
@given(streams(), st.data())
def test_a_boundary_is_where_an_event_begins(stream: Stream, data: st.DataObject) -> None:
    octets = np.frombuffer(stream.encode(), np.uint8)
    starts = starts_of_events(stream)
    begin = 4 * data.draw(st.integers(0, len(octets) // 4))
    found = find_boundary(octets[begin:].copy(), stream.width)
    if found is not None:
        assert begin + found in starts
    from_start = find_boundary(octets[len(stream.header) :].copy(), stream.width)
    # The first block is not told from the middle of one, so neither is what follows it.
    second = stream.boundaries()[1:2] or [0]
    later = [start for start in starts if start > second[0]]
    expected = later[0] - len(stream.header) if later else None
    assert from_start == expected


@pytest.mark.parametrize("width", [4, 8])
def test_losses_and_exposures_of_zero_are_no_boundary(width: int) -> None:
    pairs = ((-1, 0.0), (1, 0.0), (2, 0.0), (3, 0.0))
    blocks = [Block(e, s, p, 0.0) for e in (1, 2, 3) for s in (1, 2) for p in (pairs,)]
    blocks[2:2] = [Block(1, 3, (), 0.0)]
    stream = Stream("summary", 3, width, tuple(blocks))
    octets = np.frombuffer(stream.encode(), np.uint8)
    starts = starts_of_events(stream)
    found = [find_boundary(octets[at:].copy(), width) for at in range(0, len(octets), 4)]
    told = {4 * i + offset for i, offset in enumerate(found) if offset is not None}
    assert told == set(starts)


def whole(stream: Stream, reports: Sequence[str], options: dict[str, Any]) -> tuple[Rows, Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        outcome = feed([stream.encode()], reports, **options)
    assert outcome.error is None, outcome.error
    return {name: outcome.rows.get(name, b"") for name in reports}, outcome.end


@settings(max_examples=examples(60))
@given(SEEDS, st.sampled_from([4, 8]), st.integers(1, 3))
def test_sections_give_the_rows_of_the_whole(seed: int, width: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    case: RunCase = random_run(rng, width=width)
    stream = case.stream
    starts = starts_of_events(stream)
    cuts = sorted(rng.choice(starts, rng.integers(0, len(starts) + 1), replace=False).tolist())
    reports = (*BY_EVENT, "splt", *RUN_REPORTS)
    policy = Policy(float_width=width)
    options = {**case.inputs, "quantiles": QUANTILES, "resources": LedgerResources()}
    rows, ends = run(sections(stream, cuts), reports, count, policy, **options)
    expected, end = whole(stream, reports, {**options, "policy": policy})
    assert rows == expected
    assert ends == [end]


SMALL = Stream(
    "summary",
    2,
    4,
    tuple(Block(e, s, ((-1, 1.0), (1, 2.0), (2, float(e)))) for e in (1, 2, 3, 4) for s in (1, 2)),
)


def cut_everywhere(stream: Stream) -> Iterator[Section]:
    return sections(stream, starts_of_events(stream))


@pytest.mark.parametrize("count", [1, 2])
def test_several_streams_come_one_after_another(count: int) -> None:
    parts = [SMALL.with_blocks(SMALL.blocks[:4]), SMALL.with_blocks(SMALL.blocks[4:])]
    every = [*cut_everywhere(parts[0]), *sections(parts[1], starts_of_events(parts[1]), 1)]
    rows, ends = run(every, BY_EVENT, count, Policy(), quantiles=QUANTILES)
    expected, _ = whole(SMALL, BY_EVENT, {"quantiles": QUANTILES})
    assert rows == expected
    assert [end.events for end in ends] == [2, 2]


@pytest.mark.parametrize("count", [1, 2])
def test_an_event_that_comes_again_in_another_section_is_a_fault(count: int) -> None:
    again = SMALL.with_blocks([*SMALL.blocks, SMALL.blocks[0]])
    with pytest.raises(StreamError, match="again"):
        run(cut_everywhere(again), BY_EVENT[:1], count, Policy())


def test_events_that_do_not_ascend_across_a_cut_are_noticed() -> None:
    blocks = [SMALL.blocks[i] for i in (0, 1, 4, 5, 2, 3)]
    stream = SMALL.with_blocks(blocks)
    _, (end,) = run(cut_everywhere(stream), ["events"], 2, Policy())
    assert not end.ascending
    with pytest.raises(StreamError, match="below"):
        run(cut_everywhere(stream), ["events"], 2, Policy(event_order="ascending"))


@pytest.mark.parametrize("shift", [-8, 4, 8, 16])
def test_a_cut_within_a_block_is_a_fault(shift: int) -> None:
    cut = starts_of_events(SMALL)[0] + shift
    with pytest.raises(CoreError):
        run(sections(SMALL, [cut]), ["events"], 1, Policy())


def test_a_cut_within_an_event_is_a_fault() -> None:
    with pytest.raises(StreamError, match="again"):
        run(sections(SMALL, [SMALL.boundaries()[1]]), ["events"], 1, Policy())


def test_a_stream_that_ends_within_a_block_is_truncated() -> None:
    parts = list(cut_everywhere(SMALL))
    last = parts[-1]
    short = Section(0, last.header, last.begin, lambda: [b"".join(last.pieces())[:-8]])
    with pytest.raises(TruncatedError):
        run([*parts[:-1], short], ["events"], 2, Policy())


def test_rows_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROW_BYTES", 100)
    with pytest.raises(LimitError, match="100 bytes of rows"):
        run(sections(SMALL, []), ["selt"], 1, Policy())


def test_rows_of_all_sections_that_wait_are_bounded() -> None:
    rows: list[int] = []

    def make(sink: Any, seen: SeenEvents) -> SectionAnalysis:  # noqa: ANN401 - as the run wants
        return SectionAnalysis(["selt"], sink, policy=Policy(), seen=seen)

    def sink(_name: str, more: Any) -> None:  # noqa: ANN401 - rows
        rows.append(len(more))

    cuts = SMALL.boundaries()[1:2]
    with pytest.raises(LimitError, match="need more than 1000 bytes"):
        SectionedRun(make, 1, map, sink, 1000).run(sections(SMALL, cuts), lambda _result: None)
    assert not rows
    most = 4 << 20
    SectionedRun(make, 1, map, sink, most).run(sections(SMALL, []), lambda _result: None)
    assert rows


def test_a_stream_without_events_has_the_rows_of_one_pass() -> None:
    empty = SMALL.with_blocks([])
    rows, (end,) = run(sections(empty, []), ["events"], 2, Policy())
    assert rows == {"events": b""}
    assert (end.events, end.bytes) == (0, 12)


def test_rows_that_wait_are_those_added_however_often_their_memory_is_used() -> None:
    dtype = np.dtype([("event", "<i4"), ("loss", "<f8")])
    waiting = WaitingRows()
    for begin in range(3):
        counts = (1, 100_000, 0, 7, 60_000, 3)
        added = [np.zeros(count, dtype) for count in counts]
        for i, rows in enumerate(added):
            rows["event"], rows["loss"] = np.arange(begin, begin + len(rows)), i
            waiting.add(f"report {i}", rows)
        assert waiting.nbytes == sum(rows.nbytes for rows in added)
        for i, (report, rows) in enumerate(waiting.listed):
            assert report == f"report {i}"
            assert (rows == added[i]).all()
        waiting.clear()
