"""Going on from between two events: nothing lost, nothing twice, whatever the cuts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.arrays import Rows
from core.errors import EventReopenedError, LimitError, StateError
from core.losses.analysis import Analysis
from core.losses.events import Position, StreamHeader
from core.losses.format import Kind
from core.losses.policy import Policy
from tests.streams import (
    Block,
    Stream,
    analysis_options,
    random_cuts,
    random_stream,
    streams,
)

START = Position()


class Log:
    """What an analysis hands out, in the order it does."""

    def __init__(self) -> None:
        self.items: list[tuple[str, bytes] | Position] = []

    def rows(self, report: str, rows: Rows) -> None:
        self.items.append((report, rows.tobytes()))

    def mark(self, position: Position) -> None:
        self.items.append(position)

    def whole(self, before: Position = START) -> tuple[dict[str, bytes], Position]:
        """Rows before the last mark, and that mark; else none, and the place before."""
        last = max((i for i, x in enumerate(self.items) if isinstance(x, Position)), default=-1)
        rows: dict[str, bytes] = {}
        for item in self.items[: last + 1]:
            if not isinstance(item, Position):
                rows[item[0]] = rows.get(item[0], b"") + item[1]
        mark = self.items[last] if last >= 0 else before
        assert isinstance(mark, Position)
        return rows, mark


def begin(stream: Stream, log: Log, after: Position | None = None) -> Analysis:
    analysis = Analysis(
        stream.reports,
        log.rows,
        policy=Policy(float_width=stream.width),
        at_event=log.mark,
        **analysis_options(stream.reports),
    )
    if after is not None:
        analysis.resume(after)
    return analysis


def in_parts(stream: Stream, rng: np.random.Generator, parts: int) -> dict[str, bytes]:
    """Rows of a stream fed in parts, each to a fresh analysis from where the last got to."""
    octets = stream.encode()
    rows: dict[str, bytes] = {}
    place = Position()
    edges = sorted(rng.integers(0, len(octets), parts, endpoint=True).tolist())
    for edge in [*edges, None]:
        log = Log()
        analysis = begin(stream, log, place)
        for piece in random_cuts(rng, octets[place.offset : edge], int(rng.integers(0, 4))):
            analysis.receive(piece)
        if edge is None:
            analysis.close()
        made, place = log.whole(place)
        for name, more in made.items():
            rows[name] = rows.get(name, b"") + more
    assert place.offset == len(octets)
    return rows


@given(streams(), st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_parts_give_the_rows_of_the_whole(stream: Stream, seed: int, parts: int) -> None:
    whole = Log()
    analysis = begin(stream, whole)
    analysis.receive(stream.encode())
    analysis.close()
    assert in_parts(stream, np.random.default_rng(seed), parts) == whole.whole()[0]


def test_a_mark_lies_before_every_row_of_its_event() -> None:
    stream = random_stream(np.random.default_rng(5), events=40, blocks=6)
    log = Log()
    analysis = begin(stream, log)
    for piece in random_cuts(np.random.default_rng(6), stream.encode(), 60):
        analysis.receive(piece)
    analysis.close()
    dtypes = {r.name: r.dtype(stream.width) for r in analysis.reports}
    done: set[int] = set()
    open_ids: set[int] = set()
    for item in log.items:
        if isinstance(item, Position):
            done |= open_ids
            open_ids = set()
            assert item.last_event in done or item.events == 0
            continue
        ids = set(np.frombuffer(item[1], dtypes[item[0]])["EventId"].tolist())
        assert not ids & done, "rows of an event came behind the mark that closed it"
        open_ids |= ids


def test_positions_count_events_and_know_the_order() -> None:
    blocks = [Block(5, 1, ((1, 1.0),)), Block(9, 1, ((1, 1.0),)), Block(7, 1, ((1, 1.0),))]
    stream = Stream("summary", 2, 4, tuple(blocks))
    log = Log()
    analysis = begin(stream, log)
    for block in (b"", *map(stream.encode_block, blocks)):
        analysis.receive(block or stream.header)
    analysis.close()
    marks = [item for item in log.items if isinstance(item, Position)]
    assert [(m.offset, m.last_event, m.events, m.ascending) for m in marks] == [
        (12, 0, 0, True),
        (40, 5, 1, True),
        (68, 9, 2, False),
        (96, 7, 3, False),
    ]


def test_the_event_before_a_position_may_not_come_again() -> None:
    stream = Stream("summary", 2, 4, (Block(5, 1, ((1, 1.0),)), Block(6, 1, ((1, 1.0),))))
    header = StreamHeader(Kind.SUMMARY, 1, 3, 2, 1, 4)
    analysis = begin(stream, Log(), Position(header, 1000, 5, True, 1))
    with pytest.raises(EventReopenedError) as caught:
        analysis.receive(stream.encode()[12:])
    assert (caught.value.offset, caught.value.event) == (1000, 5)


def test_a_position_must_fit_the_policy() -> None:
    stream = Stream("summary", 2, 4, ())
    header = StreamHeader(Kind.SUMMARY, 1, 3, 2, 1, 8)
    with pytest.raises(StateError, match="8 bytes wide"):
        begin(stream, Log(), Position(header, 12))
    many = dataclasses.replace(header, float_width=4, len_sample=2**30)
    with pytest.raises(StateError, match="more samples"):
        begin(stream, Log(), Position(many, 12))
    analysis = begin(stream, Log())
    analysis.receive(b"\x01")
    with pytest.raises(StateError, match="before bytes are received"):
        analysis.resume(Position())


def test_blocks_of_one_event_are_bounded() -> None:
    blocks = tuple(Block(3, ident) for ident in range(1, 300))
    stream = Stream("gul", 5, 4, (Block(2, 1), *blocks))
    analysis = Analysis(["events"], lambda *_: None, policy=Policy(max_blocks=100))
    with pytest.raises(LimitError) as caught:
        analysis.receive(stream.encode())
    assert caught.value.event == 3
    assert caught.value.offset == 8 + 16 * (1 + 256)
    assert caught.value.hint == "max_blocks is 100"
