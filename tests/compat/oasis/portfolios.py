"""Random portfolios on disk, as run directories of the peer.

The seed decides everything: the perspective, 1 to 1,000 samples, sparse to dense, events in order
or shuffled, 1 to 4 partitions, summary sets, period weights, return periods, dates in days or
minutes, event rates, the curves asked for. Some losses are capped, so that curves have ties; some
events never occur, some twice in a period, and some that occur have no loss.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.losses.events import StreamHeader
from core.losses.format import Kind
from core.losses.inputs import (
    Occurrence,
    Periods,
    day_ids,
    encode_occurrence,
    encode_periods,
)
from core.losses.writer import LossWriter

PERSPECTIVES = ("summary", "gul", "il", "ri", "rl")
SAMPLES = (1, 2, 3, 7, 10, 20, 63, 64, 65, 100, 300, 1000)
TOOL_FOLDERS = {"gul": "gul", "il": "il", "ri": "ri", "rl": "ri"}
"""What the peer's ``summarypy`` calls each perspective."""


@dataclass(frozen=True)
class Options:
    """What the seed decided, in a form to print."""

    perspective: str
    samples: int
    events: int
    partitions: int
    shuffled: bool
    weighted: bool
    returns: tuple[int, ...]
    curves: str
    sets: tuple[int, ...]
    chosen_set: int
    granular: bool
    rates: bool
    indexed: bool
    zeros: bool
    risks: bool


class Portfolio:
    """One portfolio, written to ``folder``.

    Attributes:
        options: what it is.
        items: partitions of item streams, none for the perspective ``summary``.
        subset: summary sets that ``summarypy`` is asked for out of order or in part.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.folder = folder
        self.input = folder / "input"
        self.input.mkdir(parents=True)
        self.options = self._choose(rng, seed)
        self.elements = int(rng.integers(1, 13))
        self.density = float(rng.choice([0.02, 0.3, 0.7, 1.0]))
        self.occurrence = self._write_occurrence(rng)
        self.weights = self._write_weights(rng)
        self._write_small_inputs(rng)
        if self.options.perspective != "summary":
            self._write_summary_inputs(rng)
        sets = np.array(self.options.sets)
        self.subset = rng.permutation(sets)[: rng.integers(1, len(sets), endpoint=True)].tolist()
        self.streams = [folder / f"stream{i}.bin" for i in range(1, self.options.partitions + 1)]
        self._write_streams(rng)

    def _choose(self, rng: np.random.Generator, seed: int) -> Options:
        perspective = PERSPECTIVES[seed % len(PERSPECTIVES)]
        sets: tuple[int, ...] = (1,)
        if perspective != "summary":
            numbers = rng.choice([1, 2, 3, 5, 9], int(rng.integers(1, 4)), replace=False)
            sets = tuple(sorted(numbers.tolist()))
        returns: tuple[int, ...] = ()
        if rng.random() < 0.6:
            years = np.unique(rng.integers(1, 300, int(rng.integers(1, 12)), endpoint=True))
            returns = tuple(years[::-1].tolist())
        letters = "FfSsMmWw"
        if rng.random() < 0.3:
            chosen = rng.permutation(list(letters))[: rng.integers(1, 8)]
            letters = "".join(sorted(chosen.tolist()))
        return Options(
            perspective=perspective,
            samples=int(rng.choice(SAMPLES, p=_likely(len(SAMPLES)))),
            events=int(rng.integers(1, 40)),
            partitions=int(rng.integers(1, 5)),
            shuffled=bool(rng.random() < 0.5),
            weighted=bool(rng.random() < 0.5),
            returns=returns,
            curves=letters,
            sets=sets,
            chosen_set=int(rng.choice(sets)),
            granular=bool(rng.random() < 0.3),
            rates=bool(rng.random() < 0.5),
            indexed=bool(rng.random() < 0.5),
            zeros=bool(rng.random() < 0.3),
            risks=perspective in {"gul", "il"} and bool(rng.random() < 0.7),
        )

    # -- inputs ------------------------------------------------------------------------

    def _write_occurrence(self, rng: np.random.Generator) -> Occurrence:
        count = int(rng.integers(1, 80))
        periods = int(rng.choice([1, 2, 5, 40, 200]))
        years, months = rng.integers(1, 9999, count), rng.integers(1, 13, count)
        ends = [calendar.monthrange(int(y), int(m))[1] for y, m in zip(years, months, strict=True)]
        days = np.minimum(rng.integers(1, 32, count), ends)
        dates = day_ids(years, months, days)
        if self.options.granular:
            dates = dates * 1440 + rng.integers(0, 1440, count)
        occurrence = Occurrence(
            periods,
            rng.integers(1, self.options.events + 9, count).astype("i4"),
            rng.integers(1, periods, count, endpoint=True).astype("i4"),
            dates,
            granular=self.options.granular,
        )
        (self.input / "occurrence.bin").write_bytes(encode_occurrence(occurrence, "bin"))
        return occurrence

    def _write_weights(self, rng: np.random.Generator) -> npt.NDArray[np.float64] | None:
        if not self.options.weighted:
            return None
        weights = rng.gamma(4, size=self.occurrence.periods)
        weights /= weights.sum()
        (self.input / "periods.bin").write_bytes(encode_periods(Periods(weights), "bin"))
        return weights

    def _write_small_inputs(self, rng: np.random.Generator) -> None:
        quantiles = np.sort(rng.random(int(rng.integers(1, 9)))).astype("f4")
        if rng.random() < 0.5:
            quantiles = np.unique(np.append(quantiles, [0.0, 1.0])).astype("f4")
        quantiles.tofile(self.input / "quantile.bin")
        if self.options.returns:
            np.array(self.options.returns, "<i4").tofile(self.input / "returnperiods.bin")
        if self.options.rates:
            events = range(1, self.options.events + 1)
            lines = [f"{e},{rng.random():.6f}" for e in events]
            text = "\n".join(["EventIds,Event_rates", *lines, ""])
            (self.input / "event_rates.csv").write_text(text)

    def _write_summary_inputs(self, rng: np.random.Generator) -> None:
        ids = np.arange(1, self.elements + 1)
        rows = []
        for number in self.options.sets:
            summaries = rng.integers(1, rng.integers(1, 8, endpoint=True), len(ids), endpoint=True)
            rows.append(np.stack([ids, summaries, np.full_like(ids, number)], axis=1))
        self.is_ground_up = self.options.perspective == "gul"
        stem = "gul" if self.is_ground_up else "fm"
        self.xref = self.input / f"{stem}summaryxref.bin"
        np.concatenate(rows).astype("<i4").tofile(self.xref)
        self.map: Path | None = None
        if self.options.risks:
            locations = rng.integers(1, 6, len(ids))
            self.map = self.input / f"{stem}_summary_map.csv"
            name = "item_id" if self.is_ground_up else "output_id"
            lines = [f"{loc},{i},1" for loc, i in zip(locations, ids, strict=True)]
            self.map.write_text("\n".join([f"loc_id,{name},building_id", *lines, ""]))
        elif self.options.perspective in {"gul", "il"}:
            # The peer reads the map whether it is there or not.
            name = "item_id" if self.is_ground_up else "output_id"
            path = self.input / f"{stem}_summary_map.csv"
            path.write_text(f"loc_id,{name},building_id\n")

    # -- streams -----------------------------------------------------------------------

    def _write_streams(self, rng: np.random.Generator) -> None:
        is_summary = self.options.perspective == "summary"
        kind = Kind.SUMMARY if is_summary else Kind.LOSS
        source, set_id = (3, 1) if is_summary else (2, None)
        header = StreamHeader(kind, 1, source, self.options.samples, set_id, 4)
        writer = LossWriter(header)
        parts = [[writer.begin()] for _ in self.streams]
        events = np.arange(1, self.options.events + 1)
        if self.options.shuffled:
            rng.shuffle(events)
        for event in events.tolist():
            part = parts[int(rng.integers(0, len(parts)))]
            count = int(rng.integers(1, self.elements, endpoint=True))
            for ident in (rng.permutation(self.elements)[:count] + 1).tolist():
                part.append(self._block(rng, writer, event, ident))
        for path, part in zip(self.streams, parts, strict=True):
            path.write_bytes(b"".join(part))

    def _block(self, rng: np.random.Generator, writer: LossWriter, event: int, ident: int) -> bytes:
        samples = self.options.samples
        present = np.flatnonzero(rng.random(samples) < self.density) + 1
        scale = 10.0 ** rng.integers(-2, 9)
        losses = rng.gamma(1.5, scale, len(present)).astype("f4")
        if rng.random() < 0.3:
            losses = np.minimum(losses, np.float32(scale))
        if rng.random() < 0.2:
            losses[rng.random(len(losses)) < 0.3] = 0
        exposure = 0.0 if rng.random() < 0.05 else float(np.float32(scale * 20))
        special = {-5: exposure, -4: 3.0, -1: float(losses.sum()) / samples}
        if self.options.perspective != "summary":
            special = {-5: exposure, -4: 0.5, -3: exposure, -2: 1.0, -1: special[-1]}
            if self.options.perspective != "gul":
                del special[-2]
        else:
            special = {k: x for k, x in special.items() if k == -1 or rng.random() < 0.8}
        sidx = np.concatenate([list(special), present])
        values = np.concatenate([list(special.values()), losses])
        given = exposure if self.options.perspective == "summary" else None
        return writer.block(event, ident, sidx, values, given)


def _likely(count: int) -> npt.NDArray[np.float64]:
    """Probabilities of ``count`` choices, the last two, which take long, rarer."""
    weights = np.ones(count)
    weights[-2:] = 0.3
    weights /= weights.sum()
    return weights
