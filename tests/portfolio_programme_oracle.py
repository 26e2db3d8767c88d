"""Reinsurance programmes in plain Python: loops over periods, samples and lists, one row at a time.

It takes layers as JSON values that are known to be valid, and shares no code with the engine.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Layer = Mapping[str, Any]


class Row(NamedTuple):
    """A loss of an occurrence."""

    date: float
    """In days."""
    event: int
    peril: str
    part: str
    value: float
    loss: float


@dataclass
class Year:
    """What a programme makes of the rows of one period and sample."""

    net: list[float]
    rows: Sequence[Row] = ()
    ceded: dict[int, float] = field(default_factory=dict)
    """By number of the layer."""
    whole: dict[int, float] = field(default_factory=dict)
    premiums: dict[int, float] = field(default_factory=dict)
    exhausted: dict[int, bool] = field(default_factory=dict)
    joined: dict[int, int] = field(default_factory=dict)
    """By row, the first row of the window of an hours clause that it counts with."""

    @property
    def largest(self) -> float:
        """Most that all layers take of a loss occurrence."""
        found: dict[tuple[float, int], float] = defaultdict(float)
        for i, (row, net) in enumerate(zip(self.rows, self.net, strict=True)):
            found[self.rows[self.joined.get(i, i)][:2]] += row.loss - net
        return max(found.values(), default=0.0)


def _amount(layer: Layer, name: str, default: float) -> float:
    value = layer.get(name)
    return default if value is None else float(value)


def _brought(layer: Layer, row: Row, loss: float) -> float:
    """What a row brings into a layer."""
    perils = str(layer.get("ReinsPeril") or "AA1").split(";")
    if "AA1" not in perils and row.peril not in perils:
        return 0.0
    if layer.get("Scope") and row.part not in layer["Scope"]:
        return 0.0
    attachment = _amount(layer, "RiskAttachment", 0)
    limit = _amount(layer, "RiskLimit", math.inf)
    if layer["ReinsType"] == "SS":
        loss *= min(max(row.value - attachment, 0), limit) / row.value
    else:
        loss = min(max(loss - attachment, 0), limit)
    return loss * _amount(layer, "CededPercent", 1)


def _of_occurrence(layer: Layer, loss: float) -> float:
    if loss <= _amount(layer, "OccFranchiseDed", 0):
        return 0.0
    if loss > _amount(layer, "OccReverseFranchise", math.inf):
        return 0.0
    above = max(loss - _amount(layer, "OccAttachment", 0), 0)
    return min(above, _amount(layer, "OccLimit", math.inf))


def _choices(dates: Sequence[float], days: float) -> Iterator[tuple[float, ...]]:
    """Every choice of dates of which none is less than so many days after the one before."""
    for size in range(len(dates) + 1):
        for chosen in itertools.combinations(dates, size):
            if all(b - a >= days for a, b in itertools.pairwise(chosen)):
                yield chosen


def _windows(
    layer: Layer, dates: Sequence[float], perils: Sequence[str], losses: Sequence[float]
) -> list[list[int]]:
    """Occurrences that are one loss occurrence each, in order of their first ones."""
    clause = layer.get("HoursClause")
    if not clause:
        return [[i] for i in range(len(dates))]
    days = clause["Hours"] / 24
    windows: list[list[int]] = []
    for peril in dict.fromkeys(perils):
        items = [i for i in range(len(dates)) if perils[i] == peril]
        if clause.get("Start") == "cedant":
            recovered: dict[tuple[float, ...], float] = {}
            runs: dict[tuple[float, ...], list[list[int]]] = {}
            for begins in _choices(sorted({dates[i] for i in items}), days):
                runs[begins] = [[i for i in items if a <= dates[i] < a + days] for a in begins]
                recovered[begins] = sum(
                    _of_occurrence(layer, sum(losses[i] for i in run)) for run in runs[begins]
                )
            most = max(recovered.values())
            equal = [begins for begins, total in recovered.items() if total >= most * (1 - 1e-10)]
            # The earliest, and of these the most.
            windows += runs[min(equal, key=lambda begins: (*begins, math.inf))]
            continue
        while items:
            run = [i for i in items if dates[i] - dates[items[0]] < days]
            windows.append(run)
            items = items[len(run) :]
    return sorted(windows)


def _join(year: Year, windows: Sequence[Sequence[int]]) -> None:
    """Note which rows count as one, unless a layer before has said so."""
    for rows in windows:
        for i in rows:
            year.joined.setdefault(i, rows[0])


def _apply(layer: Layer, rows: Sequence[Row], net: Sequence[float], year: Year) -> list[float]:
    """What a layer takes of each row."""
    brought = [_brought(layer, row, loss) for row, loss in zip(rows, net, strict=True)]
    occurrences: list[list[int]] = []
    for i, row in enumerate(rows):
        if brought[i] > 0:
            if occurrences and rows[occurrences[-1][0]][:2] == row[:2]:
                occurrences[-1].append(i)
            else:
                occurrences.append([i])
    firsts = [rows[members[0]] for members in occurrences]
    totals = [sum(brought[i] for i in members) for members in occurrences]
    windows = _windows(layer, [r.date for r in firsts], [r.peril for r in firsts], totals)

    limit = _amount(layer, "OccLimit", math.inf)
    most = _amount(layer, "AggLimit", math.inf)
    reinstated = limit
    if layer["ReinsType"] == "PR" and limit == math.inf:
        reinstated = _amount(layer, "RiskLimit", math.inf)
    count = layer.get("Reinstatement")
    if count is not None:
        most = min(most, (count + 1) * reinstated)
    share = _amount(layer, "PlacedPercent", 1) * _amount(layer, "TreatyShare", 1)
    taken = [0.0] * len(rows)
    before = paid = 0.0
    full = False
    if layer.get("HoursClause"):
        _join(year, [[i for k in window for i in occurrences[k]] for window in windows])
    for window in windows:
        total = sum(totals[k] for k in window)
        loss = _of_occurrence(layer, total)
        before += loss
        after = min(max(before - _amount(layer, "AggAttachment", 0), 0), most)
        full = full or abs(after - paid - limit) < 1e-9
        for k in window:
            for i in occurrences[k]:
                taken[i] = share * (after - paid) * brought[i] / total
        paid = after
    number = layer["ReinsNumber"]
    year.whole[number], year.ceded[number] = paid, share * paid
    year.exhausted[number] = paid >= most * (1 - 1e-12) if most < math.inf else full
    year.premiums[number] = share * _premium(layer, min(paid, most - reinstated), reinstated)
    return taken


def _premium(layer: Layer, paid: float, limit: float) -> float:
    """Of what is paid of a year and reinstated."""
    count = layer.get("Reinstatement") or 0
    given = layer.get("ReinstatementCharge")
    charges = [given] if isinstance(given, int | float) else list(given or [0])
    charges = charges * count if len(charges) == 1 else charges
    total = 0.0
    for i in range(count):
        amount = min(max(paid - i * limit, 0), limit)
        total += _amount(layer, "ReinsPremium", 0) * charges[i] * amount / limit
    return total


def run_year(layers: Sequence[Layer], rows: Sequence[Row]) -> Year:
    """Run a programme over the rows of a period and sample, in order of date and event."""
    year = Year([row.loss for row in rows], rows)
    for priority in sorted({layer.get("InuringPriority", 1) for layer in layers}):
        taken = [0.0] * len(rows)
        for layer in layers:
            if layer.get("InuringPriority", 1) == priority:
                parts = _apply(layer, rows, year.net, year)
                taken = [a + b for a, b in zip(taken, parts, strict=True)]
        if any(t > n * (1 + 1e-6) for t, n in zip(taken, year.net, strict=True)):
            raise ValueError(priority)
        left = [n - t for n, t in zip(year.net, taken, strict=True)]
        # What is left by rounding is nothing.
        year.net = [x if x > 1e-12 * n else 0.0 for x, n in zip(left, year.net, strict=True)]
    return year


class Averages(NamedTuple):
    """Of the ceded losses of a layer over all periods and samples."""

    mean: float
    deviation: float
    attachment: float
    exhaustion: float
    premium: float


def average(
    number: int,
    years: Mapping[tuple[int, int], Year],
    weights: Sequence[float],
    samples: Sequence[int],
) -> Averages:
    """Averages over every period, whose weights are given, and these samples."""
    n = len(weights) * len(samples)
    values: dict[tuple[int, int], float] = defaultdict(float)
    mean = attachment = exhaustion = premium = 0.0
    for period in range(1, len(weights) + 1):
        for sample in samples:
            year = years.get((period, sample), Year([]))
            w = weights[period - 1] / len(samples)
            values[period, sample] = year.ceded.get(number, 0.0)
            mean += w * values[period, sample]
            attachment += w * (year.whole.get(number, 0.0) > 1e-9)
            exhaustion += w * year.exhausted.get(number, False)
            premium += w * year.premiums.get(number, 0.0)
    squares = sum(weights[p - 1] / len(samples) * (x - mean) ** 2 for (p, _), x in values.items())
    deviation = math.sqrt(squares * n / (n - 1)) if n > 1 else math.nan
    return Averages(mean, deviation, attachment, exhaustion, premium)
