"""Random programmes and losses, for the engine and for the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from core.portfolio.inuring import Perils, Subject
from core.portfolio.losses import Calendar, OccurrenceLosses, Occurrences
from tests.portfolio_programme_oracle import Row

PERILS = ("WTC", "XHL")
PARTS = ("north", "south", "west")
Layers = list[dict[str, Any]]


def seeded(seed: int) -> Random:
    """Random numbers for what follows."""
    return Random(seed)  # noqa: S311 - they guard nothing


@dataclass
class Case:
    """Losses of a subject, as both sides take them."""

    calendar: Calendar
    perils: Perils
    subject: Subject
    samples: int
    cells: dict[tuple[int, int], list[Row]]

    @property
    def weights(self) -> list[float]:
        """Of the periods."""
        periods = self.calendar.periods
        return list(self.calendar.weights) or [1 / periods] * periods


def random_case(random: Random, *, parts: bool = True, granular: bool = False) -> Case:
    """Make losses of a few periods, samples, occurrences and parts."""
    periods, samples = random.randint(1, 4), random.randint(1, 3)
    dates_per_day = 1440 if granular else 1
    found = set()
    for period in range(1, periods + 1):
        for _ in range(random.randint(0, 7)):
            found.add((period, random.randint(0, 12 * dates_per_day), random.randint(1, 9)))
    occurrences = sorted(found)
    columns = np.array(occurrences, np.int64).reshape(-1, 3)
    peril_of = {event: random.randrange(len(PERILS)) for event in range(1, 10)}
    weights = np.array([random.random() + 0.1 for _ in range(periods)])
    calendar = Calendar(
        periods,
        Occurrences(columns[:, 0].astype(np.int32), columns[:, 2].astype(np.int32), columns[:, 1]),
        weights / weights.sum() if random.random() < 0.5 else np.zeros(0),
        granular=granular,
    )
    perils = Perils(PERILS, np.array([peril_of[e] for _, _, e in occurrences], np.int32))
    names = PARTS if parts else ("",)
    cells: dict[tuple[int, int], list[Row]] = {}
    rows: list[tuple[int, int, int, int, float, float]] = []
    for period in range(1, periods + 1):
        for sample in range(samples + 1):
            for k, (p, date, event) in enumerate(occurrences):
                for part, name in enumerate(names):
                    if p != period or random.random() < 0.3:
                        continue
                    loss, value = random.choice([10.0, random.uniform(1, 100)]), 40.0 * (part + 1)
                    row = Row(
                        date / dates_per_day, event, PERILS[peril_of[event]], name, value, loss
                    )
                    cells.setdefault((period, sample), []).append(row)
                    rows.append((period, sample, k, part, value, loss))
    return Case(calendar, perils, _subject(rows, names if parts else ()), samples, cells)


def _subject(
    rows: list[tuple[int, int, int, int, float, float]], names: tuple[str, ...]
) -> Subject:
    keys = list(dict.fromkeys(row[:2] for row in rows))
    sizes = [sum(row[:2] == key for row in rows) for key in keys]
    losses = OccurrenceLosses(
        np.cumsum([0, *sizes]),
        np.array([p for p, _ in keys], np.int32),
        np.array([s for _, s in keys], np.int32),
        np.array([row[2] for row in rows], np.int32),
        np.array([row[5] for row in rows], np.float64),
    )
    if not names:
        return Subject(losses)
    parts = np.array([row[3] for row in rows], np.int32)
    return Subject(losses, names, parts, np.array([row[4] for row in rows], np.float64))


def random_layers(random: Random, *, parts: bool = True, hours: bool = True) -> Layers:
    """Make layers whose cessions never exceed what there is: a priority each, or small shares."""
    kinds = ["QS", "CXL", "CXL", "AXL", "SL"] + (["PR", "SS", "FAC"] if parts else [])
    count = random.randint(1, 4)
    together = random.random() < 0.4
    layers = []
    for number in range(1, count + 1):
        layer = _terms(random, random.choice(kinds))
        layer["ReinsNumber"] = number
        layer["InuringPriority"] = 1 if together else random.randint(1, 2) * 10 + number
        layer["PlacedPercent"] = 1 / count if together else random.choice([1.0, 0.4])
        if random.random() < 0.3:
            layer["TreatyShare"] = 0.5
        if parts and random.random() < 0.3:
            layer["Scope"] = random.sample(PARTS, random.randint(1, 2))
        if random.random() < 0.3:
            layer["ReinsPeril"] = random.choice(["WTC", "XHL", "WTC;XHL", "AA1"])
        if hours and layer["ReinsType"] in {"QS", "CXL", "AXL"} and random.random() < 0.5:
            clause = {
                "Hours": random.choice([24, 72, 96]),
                "Start": random.choice(["first-loss", "cedant"]),
            }
            layer["HoursClause"] = clause
        layers.append(layer)
    return layers


def _terms(random: Random, kind: str) -> dict[str, Any]:
    def amount(low: float, high: float) -> float:
        return float(random.choice([round(random.uniform(low, high)), random.uniform(low, high)]))

    def sometimes(kinds: str, name: str, value: object, chance: float = 1.0) -> None:
        if kind in kinds.split() and random.random() < chance:
            layer[name] = value

    layer: dict[str, Any] = {"ReinsType": kind}
    share = random.choice([0.25, 0.6, 1.0])
    sometimes("QS FAC", "CededPercent", share)
    sometimes("PR CXL AXL SL", "CededPercent", share, 0.2)
    if random.random() < 0.3:
        sometimes("CXL AXL", "OccFranchiseDed", amount(0, 30))
        sometimes("CXL AXL", "OccReverseFranchise", amount(200, 300))
    sometimes("PR SS", "RiskAttachment", amount(0, 60))
    sometimes("PR SS", "RiskLimit", amount(1, 60))
    sometimes("CXL AXL", "OccAttachment", amount(0, 80))
    sometimes("CXL", "OccLimit", amount(1, 80))
    sometimes("QS SS PR", "OccLimit", amount(1, 80), 0.3)
    sometimes("AXL", "AggAttachment", amount(0, 100))
    sometimes("SL", "AggAttachment", amount(1, 100))
    sometimes("CXL FAC PR", "AggAttachment", amount(0, 100), 0.4)
    sometimes("AXL SL CXL QS", "AggLimit", amount(1, 300), 0.5)
    count = random.randint(0, 3)
    sometimes("CXL PR", "Reinstatement", count, 0.7)
    if "Reinstatement" in layer:
        layer["ReinsPremium"] = 7.0
        if count:
            each = [random.choice([0, 0.5, 1.25]) for _ in range(count)]
            layer["ReinstatementCharge"] = random.choice([1, each])
    return layer
