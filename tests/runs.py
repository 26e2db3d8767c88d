"""Runs made by hand: streams with occurrences, and ways to compute their reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core.arrays import Rows
from core.losses.analysis import Analysis
from core.losses.inputs import Occurrence, Periods, ReturnPeriods
from core.losses.merge import Partitions
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from tests import run_oracle
from tests.streams import Block, Stream, random_losses

RUN_REPORTS = ("aal", "aal_mean", "alct", "ept", "psept")
KINDS = ("few", "equal", "wide", "any", "zero", "hostile")


@dataclass(frozen=True)
class RunCase:
    """A run: its whole stream and its inputs."""

    stream: Stream
    periods: int
    occurrences: tuple[tuple[int, int], ...]
    """(event, period)."""
    weights: tuple[float, ...] | None = None
    returns: tuple[int, ...] = ()

    @property
    def inputs(self) -> dict[str, Any]:
        """Inputs as an analysis takes them."""
        events, numbers = np.array(self.occurrences, np.int32).reshape(-1, 2).T
        given: dict[str, Any] = {
            "occurrence": Occurrence(self.periods, events, numbers, np.zeros(len(events), np.int64))
        }
        if self.weights is not None:
            given["periods"] = Periods(np.array(self.weights))
        if self.returns:
            given["return_periods"] = ReturnPeriods(np.array(self.returns, np.int32))
        return given

    @property
    def oracle(self) -> run_oracle.Run:
        """The same for the oracle."""
        weights = None if self.weights is None else np.array(self.weights)
        run = run_oracle.Run(self.stream.samples, self.periods, weights, self.returns)
        run.add(self.stream.encode(), self.stream.width, self.occurrences)
        return run

    def partitions(self, rng: np.random.Generator, count: int) -> list[Stream]:
        """The events dealt to so many streams, each in an order of its own."""
        events = rng.permutation(sorted({block.event for block in self.stream.blocks}))
        parts = []
        for dealt in np.array_split(events, count):
            blocks = [b for e in dealt.tolist() for b in self.stream.blocks if b.event == e]
            parts.append(self.stream.with_blocks(blocks))
        return parts


def random_run(rng: np.random.Generator, *, width: int = 4, samples: int | None = None) -> RunCase:
    """A run whose events share periods, some events without occurrence, others with several."""
    samples = samples or int(rng.choice([1, 2, 3, 7, 8, 20, 70]))
    periods = int(rng.choice([1, 2, 10, 25]))
    blocks = []
    for event in rng.permutation(np.arange(1, int(rng.integers(1, 14)) + 1)).tolist():
        for ident in rng.permutation([1, 2, 5]).tolist()[: int(rng.integers(1, 4))]:
            kind = str(rng.choice(KINDS))
            present = np.flatnonzero(rng.random(samples) < rng.choice([0, 0.1, 0.6, 1])) + 1
            sidx = [-5, *([-1] if rng.random() < 0.9 else []), *present.tolist()]
            losses = (
                hostile_losses(rng, len(sidx), width)
                if kind == "hostile"
                else (random_losses(rng, len(sidx), kind))
            )
            blocks.append(Block(event, ident, tuple(zip(sidx, losses, strict=True))))
    drawn = rng.integers(0, 4, 20)
    occurrences = [
        (event, int(rng.integers(1, periods, endpoint=True)))
        for event in range(1, 16)
        for _ in range(int(drawn[event]))
    ] or [(1, 1)]
    case = RunCase(Stream("summary", samples, width, tuple(blocks)), periods, tuple(occurrences))
    if rng.random() < 0.5:
        weights = rng.choice([0.0, 0.5, 1.0, 1.5], periods) + 1e-3
        weights[rng.random(periods) < 0.1] = 0.0
        case = replace(case, weights=tuple((weights / max(weights.sum(), 1e-9)).tolist()))
    if rng.random() < 0.6:
        years = np.unique(rng.integers(1, 2 * periods, 6, endpoint=True))[::-1]
        case = replace(case, returns=tuple(years.tolist()))
    return case


def hostile_losses(rng: np.random.Generator, count: int, width: int) -> list[float]:
    """Losses of every exponent of the float width, but for those whose squares are beyond it."""
    low, high = (-148, 55) if width == 4 else (-1073, 500)
    exponents = rng.integers(low, high, count)
    return [float(np.ldexp(m, int(e))) for m, e in zip(rng.random(count), exponents, strict=True)]


def compute(
    case: RunCase,
    parts: Sequence[Stream] | None = None,
    reports: Sequence[str] = RUN_REPORTS,
    **options: Any,  # noqa: ANN401 - of Analysis
) -> dict[str, Rows]:
    """Rows of the reports, of the whole stream or of partitions."""
    streams = [case.stream] if parts is None else list(parts)
    collected: dict[str, list[Rows]] = {name: [] for name in reports}

    def sink(name: str, rows: Rows) -> None:
        collected[name].append(rows.copy())

    inputs = case.inputs
    if not {"ept", "psept"} & set(reports):
        inputs.pop("return_periods", None)

    def make(name: str, sink: Any, seen: Any) -> Analysis:  # noqa: ANN401 - as Partitions wants
        policy = Policy(float_width=case.stream.width)
        return Analysis(reports, sink, policy=policy, seen=seen, name=name, **inputs, **options)

    partitions = Partitions([str(i) for i in range(len(streams))], make, sink)
    # Without compilation, numpy warns of what kernels compute silently.
    with np.errstate(over="ignore", invalid="ignore"):
        for index, stream in enumerate(streams):
            partitions.receive(index, stream.encode())
        for index in range(len(streams)):
            partitions.close(index)
    width = case.stream.width
    return {
        name: np.concatenate([np.zeros(0, REPORTS[name].dtype(width)), *parts_of])
        for name, parts_of in collected.items()
    }


def octets(tables: dict[str, Rows]) -> dict[str, bytes]:
    """The tables, to be compared to the last bit."""
    return {name: rows.tobytes() for name, rows in tables.items()}
