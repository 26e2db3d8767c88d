"""Loss sets made by hand and at random, for the engine and for the oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from core.losses.events import StreamHeader
from core.losses.format import Kind
from core.losses.indexing import read_columns
from core.losses.policy import Policy
from core.portfolio import assembling
from core.portfolio.building import TableBuilder
from core.portfolio.joining import Member
from core.portfolio.losses import Calendar, LossTable, Occurrences
from tests.runs import RunCase
from tests.streams import Block, Stream


@dataclass(frozen=True)
class SetCase:
    """A loss set: rows by event, summary and sample, and when events happen."""

    samples: int
    losses: dict[tuple[int, int, int], float]
    """By event, summary and sample, 0 for the mean; above 0."""
    periods: int
    occurrences: tuple[tuple[int, int, int], ...]
    """(period, date, event), sorted."""
    weights: tuple[float, ...] | None = None
    width: int = 4

    @property
    def stream(self) -> Stream:
        """The losses as a summary stream."""
        blocks: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for (event, summary, sample), loss in sorted(self.losses.items()):
            blocks.setdefault((event, summary), []).append((sample or -1, loss))
        made = tuple(Block(e, s, tuple(pairs)) for (e, s), pairs in blocks.items())
        return Stream("summary", self.samples, self.width, made)

    @property
    def calendar(self) -> Calendar:
        """Periods and occurrences."""
        rows = np.array(self.occurrences, np.int64).reshape(-1, 3)
        occurrences = Occurrences(
            rows[:, 0].astype(np.int32), rows[:, 2].astype(np.int32), rows[:, 1].copy()
        )
        weights = np.zeros(0) if self.weights is None else np.array(self.weights)
        return Calendar(self.periods, occurrences, weights)

    @property
    def summaries(self) -> list[int]:
        """Ids of the summaries with a loss."""
        return sorted({summary for _, summary, _ in self.losses})

    def member(self, groups: dict[int, int] | None = None, factor: float = 1.0) -> Member:
        """The set with these groups of summaries; without, each is a group of its own."""
        given = {s: k for k, s in enumerate(self.summaries)} if groups is None else groups
        ids = np.array(sorted(given), np.int32)
        of = np.array([given[s] for s in sorted(given)], np.int32)
        return Member(table_of(self.stream), self.calendar, ids, of, self.samples, factor)


def table_of(stream: Stream) -> LossTable:
    """The losses of a stream, as the builder makes them."""
    header = StreamHeader(Kind.SUMMARY, 1, 3, stream.samples, 1, stream.width)
    policy = Policy(float_width=stream.width)
    builder = TableBuilder(stream.samples)
    parts = []
    runs: list[list[Block]] = []
    for block in stream.blocks:
        if not runs or runs[-1][0].event != block.event:
            runs.append([])
        runs[-1].append(block)
    for run in runs:
        octets = b"".join(map(stream.encode_block, run))
        parts.append(builder.take(read_columns(octets, policy, header, 12)))
    builder.finish()
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    events, summaries = (np.repeat(ids, columns[2]) for ids in columns[:2])
    order = np.lexsort((columns[3], summaries, events))
    rows = (events, summaries, columns[3], columns[4])
    return assembling.table_of(*(column[order] for column in rows))


def random_set(rng: np.random.Generator, *, width: int = 4, samples: int | None = None) -> SetCase:
    """A set whose events share periods, some without an occurrence, others with several."""
    samples = samples or int(rng.choice([1, 2, 3, 8, 20, 70]))
    periods = int(rng.choice([1, 2, 10, 25]))
    losses: dict[tuple[int, int, int], float] = {}
    for event in rng.permutation(np.arange(1, int(rng.integers(2, 14)))).tolist():
        for summary in rng.permutation([1, 2, 5]).tolist()[: int(rng.integers(1, 4))]:
            present = np.flatnonzero(rng.random(samples + 1) < rng.choice([0.1, 0.6, 1]))
            drawn = rng.lognormal(5, rng.choice([0.1, 2, 6]), len(present))
            if rng.random() < 0.2:
                drawn[:] = 7.0
            kind = np.float32 if width == 4 else np.float64
            for sample, loss in zip(present.tolist(), drawn.astype(kind).tolist(), strict=True):
                losses[event, summary, sample] = loss
    losses.setdefault((1, 1, 1), 3.0)
    happening = sorted(
        (int(rng.integers(1, periods, endpoint=True)), int(rng.integers(0, 3)), event)
        for event in range(1, 15)
        for _ in range(int(rng.integers(0, 4)))
    )
    case = SetCase(samples, losses, periods, tuple(happening), width=width)
    if rng.random() < 0.4:
        weights = rng.choice([0.0, 0.5, 1.0, 1.5], periods) + 1e-3
        case = replace(case, weights=tuple((weights / weights.sum()).tolist()))
    return case


def as_run(case: SetCase, returns: tuple[int, ...]) -> RunCase:
    """The same as a run, of which the ordinary reports are made."""
    events = tuple((event, period) for period, _, event in case.occurrences)
    return RunCase(case.stream, case.periods, events, case.weights, returns)
