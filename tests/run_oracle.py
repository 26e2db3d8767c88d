"""Reports of whole runs, made in the slowest and most obvious way from their description.

Nothing here comes from the engine. The ledger is a dictionary of exact fractions; every curve is
a list of years, from the largest loss down, walked one year at a time.

The peer follows the same description but for three things, which a :class:`Run` can be told:
it adds in float32, in the order of the stream; it puts equal losses in the order of an unstable
sort, which decides the return periods of points under weights; and without an index of its input
it takes the weights of periods that no summary uses for those that this one does not.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tests import oracle

Floats = npt.NDArray[np.float64]
EptRow = tuple[int, int, int, float, float]
Order = Callable[[Floats], Sequence[int]]
"""Places of losses, from the largest down."""

_OEP, _AEP = 1, 3


def by_period(losses: Floats) -> Sequence[int]:
    """Equal losses as they came, by period and sample."""
    return np.argsort(-losses, kind="stable").tolist()  # type: ignore[no-any-return]


def nearest(exact: Fraction) -> float:
    """The float nearest to a fraction, infinite beyond the largest."""
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


@dataclass
class Run:
    """What a run is computed from."""

    samples: int
    periods: int
    weights: Floats | None = None
    returns: Sequence[int] = ()
    single: bool = False
    """Whether sums are of float32, rounded at each step."""
    order: Order = by_period
    shares_unused: bool = False
    """Whether a period that another summary uses is not unused."""
    sums: dict[tuple[int, int, int], Fraction] = field(default_factory=dict)
    """By summary, period and sample; sample 0 is the numerical mean."""
    largest: dict[tuple[int, int, int], float] = field(default_factory=dict)
    blocks: set[int] = field(default_factory=set)

    def add(self, stream: bytes, width: int, occurrences: Iterable[tuple[int, int]]) -> None:
        """Add a partition, whose events occur in these (event, period)."""
        periods = defaultdict(list)
        for event, period in occurrences:
            periods[event].append(period)
        for block in oracle.parse(stream, width).blocks:
            self.take(block.ident, block.pairs, periods[block.event])

    def take(
        self, summary: int, pairs: Iterable[tuple[int, float]], periods: Sequence[int]
    ) -> None:
        """Add the losses of a summary by an event, in the periods of the event."""
        if periods:
            self.blocks.add(summary)
        for period, (sidx, loss) in itertools.product(periods, pairs):
            if sidx == -1 or sidx > 0:
                key = (summary, period, max(sidx, 0))
                total = self.sums.get(key, Fraction(0)) + Fraction(loss)
                self.sums[key] = Fraction(self.rounded(nearest(total))) if self.single else total
                self.largest[key] = max(self.largest.get(key, 0.0), loss)

    def rounded(self, loss: float) -> float:
        """A sum, as it is kept."""
        return float(np.float32(loss)) if self.single else loss

    @property
    def summaries(self) -> list[int]:
        """Ids, ascending, of those with a block that occurs, even without a loss."""
        return sorted(self.blocks)

    def matrix(self, summary: int) -> Floats:
        """Sums of a summary, shape (periods, 1 + samples)."""
        matrix = np.zeros((self.periods, 1 + self.samples))
        for (ident, period, sample), exact in self.sums.items():
            if ident == summary:
                matrix[period - 1, sample] = nearest(exact)
        return matrix

    def annual_weights(self) -> Floats:
        """Weight of each period times their number."""
        if self.weights is None:
            return np.ones(self.periods)
        return self.weights * self.periods


# -- average annual losses ---------------------------------------------------------------


def _mean_and_deviation(matrix: Floats, weights: Floats) -> tuple[float, float]:
    n = matrix.size
    mean = float((weights[:, None] * matrix).sum() / n)
    squares = (weights[:, None] * (matrix - mean) ** 2).sum() + mean**2 * (
        n - weights.sum() * matrix.shape[1]
    )
    return mean, float(np.sqrt(max(squares, 0) / (n - 1))) if n > 1 else float("nan")


def aal(run: Run) -> list[tuple[int, int, float, float]]:
    """Analytical rows of all summaries, then sample rows."""
    rows = []
    for kind in (1, 2):
        for summary in run.summaries:
            matrix = run.matrix(summary)
            part = matrix[:, :1] if kind == 1 else matrix[:, 1:]
            rows.append((summary, kind, *_mean_and_deviation(part, run.annual_weights())))
    return rows


def alct(run: Run, z: float) -> list[tuple[float, ...]]:
    """The formulas as they are written down, for subsets 1, 2-3, 4-7, ..., and all samples."""
    rows: list[tuple[float, ...]] = []
    p, w = run.periods, run.annual_weights()
    ranges = []
    first = 1
    while run.samples > 1 and 2 * first - 1 <= run.samples:
        ranges.append((first, 2 * first))
        first *= 2
    ranges.append((1, run.samples + 1))
    for summary in run.summaries:
        matrix = run.matrix(summary)
        for low, high in ranges:
            x, n = matrix[:, low:high], high - low
            mean, deviation = _mean_and_deviation(x, w)
            of_periods = w * x.sum(axis=1) / n
            with np.errstate(all="ignore"):
                mp = (of_periods**2).sum()
                q = (w[:, None] * x**2).sum()
                vulnerability = np.float64(q - n * mp) / (n * p - n) / (n * p)
                hazard = np.float64(((of_periods - mean) ** 2).sum()) / (p - 1) / p
                error, hazard_error = np.sqrt(vulnerability), np.sqrt(hazard)
                interval = error * z
                ends = (mean - interval, mean + interval) if interval > 0 else (0.0, 0.0)
                ratios = [np.float64(e) / mean for e in (error, hazard_error)]
            row = (summary, mean, deviation, n, *ends, error, ratios[0], hazard, hazard_error)
            rows.append((*row, ratios[1], vulnerability, error, ratios[0]))
    return rows


# -- exceedance --------------------------------------------------------------------------


@dataclass
class _Year:
    loss: float
    weight: float | None


def _points(years: list[_Year], count: int) -> list[tuple[float, float, float]]:
    """(return period, loss, mean of the losses so far) of years with weight, as they come."""
    points = []
    mass, losses = 0.0, []
    for year in years:
        if year.weight == 0:
            continue
        losses.append(year.loss)
        mass += year.weight or 0.0
        period = count / len(losses) if year.weight is None else 1 / mass
        points.append((period, year.loss, sum(losses) / len(losses)))
    return points


def _sorted(years: list[_Year], order: Order) -> list[_Year]:
    """From the largest loss down."""
    return [years[i] for i in order(np.array([year.loss for year in years]))]


def _read(
    years: list[_Year], count: int, run: Run, unused: list[float]
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Losses and TVaR at return periods; years without a loss follow those with one."""
    returns = run.returns
    years = _sorted(years, run.order)
    weighted = bool(years) and years[0].weight is not None
    if weighted:
        largest = [year for year in years if year.weight]
        if not largest:
            return [], []
        highest = 1 / largest[0].weight + 1e-4  # type: ignore[operator]
        years = years + [_Year(0.0, weight) for weight in unused]
        points = _with_zeros(years, len(years) - len(unused))
    else:
        highest = count
        years = years + [_Year(0.0, None)] * (count - len(years))
        points = _points(years, count)
    losses, tails = [], []
    k = 0
    before = (0.0, 0.0, 0.0)
    for i, (period, loss, _) in enumerate(points, 1):
        mean, n = before[2], i
        while k < len(returns) and period <= returns[k]:
            r = float(returns[k])
            k += 1
            if r > highest:
                continue
            at = loss
            if loss != 0 and period != r:
                at = loss + (r - period) * (before[1] - loss) / (before[0] - period)
            losses.append((r, at))
            mean = (mean * (n - 1) + at) / n
            tails.append((r, mean))
            n += 1
        before = (period, loss, points[i - 1][2])
    # Beyond the last year there is no probability left, and no TVaR.
    losses += [(float(r), 0.0) for r in returns[k:] if r <= highest]
    return losses, tails


def _with_zeros(years: list[_Year], with_rows: int) -> list[tuple[float, float, float]]:
    """Points of years with weights; those unused count even if their weight is 0."""
    points = []
    mass, total, n = 0.0, 0.0, 0
    for i, year in enumerate(years):
        assert year.weight is not None
        if year.weight == 0 and i < with_rows:
            continue
        mass += year.weight
        total += year.loss
        n += 1
        points.append((1 / mass, year.loss, total / n))
    return points


def _curve(
    run: Run, rows: list[tuple[int, float]], count: int, share: float, *, mean: bool = False
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]] | None:
    """Losses and TVaR of rows (period, loss); None if there is no row."""
    if not run.returns:
        rows = [(period, loss) for period, loss in rows if loss > 0]
    if not rows:
        return None
    raise_weights = run.weights is not None
    years = [
        _Year(loss, float(run.weights[period - 1]) * share if raise_weights else None)  # type: ignore[index]
        for period, loss in rows
    ]
    if not run.returns:
        points = _points(_sorted(years, run.order), count)
        return [p[:2] for p in points], [(p[0], p[2]) for p in points]
    unused = _unused(run, {period for period, _ in rows}, share, mean=mean)
    return _read(years, count, run, unused)


def _unused(run: Run, used: set[int], share: float, *, mean: bool = False) -> list[float]:
    """Weights of periods without a row, of the numerical mean or of samples."""
    if run.weights is None:
        return []
    if run.shares_unused:
        used = {period for _, period, sample in run.sums if (sample == 0) == mean}
    return [float(run.weights[p - 1]) * share for p in range(1, run.periods + 1) if p not in used]


def exceedance(run: Run, curves: str = "FfSsMmWw") -> tuple[list[EptRow], list[EptRow]]:
    """EPT and PSEPT."""
    ept: list[EptRow] = []
    psept: list[EptRow] = []
    for summary in run.summaries:
        blocks: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for kind in (_OEP, _AEP):
            letters = {c.lower() for c in curves if c.isupper() == (kind == _AEP)}
            if letters:
                _of_kind(run, summary, kind, letters, blocks, psept)
        for (calculation, kind), points in sorted(blocks.items()):
            ept += [(summary, calculation, kind, *point) for point in points]
    return ept, psept


def _losses(run: Run, summary: int, kind: int) -> Mapping[tuple[int, int], float]:
    """(period, sample) to loss, in order."""
    table: Mapping[tuple[int, int, int], Fraction | float]
    table = run.largest if kind == _OEP else run.sums
    keys = sorted(key for key in table if key[0] == summary)
    return {(p, s): max(nearest(Fraction(table[summary, p, s])), 0.0) for _, p, s in keys}


def _of_kind(
    run: Run,
    summary: int,
    kind: int,
    letters: set[str],
    blocks: dict[tuple[int, int], list[tuple[float, float]]],
    psept: list[EptRow],
) -> None:
    losses = _losses(run, summary, kind)
    sampled = {key: loss for key, loss in losses.items() if key[1] > 0}

    def put(calculation: int, curve: tuple[list[tuple[float, float]], ...] | None) -> None:
        for i, points in enumerate(curve or ()):
            blocks[calculation, kind + i] = points

    if letters - {"w"}:
        means = [(p, loss) for (p, s), loss in losses.items() if s == 0]
        put(1, _curve(run, means, run.periods, 1.0, mean=True))
    if "f" in letters:
        rows = [(p, loss) for (p, _), loss in sampled.items()]
        put(2, _curve(run, rows, run.periods * run.samples, 1 / run.samples))
    if letters & {"m", "w"}:
        _of_samples(run, summary, kind, letters, sampled, put, psept)
    if "s" in letters:
        of_periods: dict[int, float] = defaultdict(float)
        for (p, _), loss in sampled.items():
            # The peer divides first. Sums that differ by a rounding are not tied any more.
            of_periods[p] = run.rounded(of_periods[p] + loss / (run.samples if run.single else 1))
        rest = 1 if run.single else run.samples
        means = [(p, loss / rest) for p, loss in of_periods.items()]
        put(4, _curve(run, means, run.periods, 1.0))


def _of_samples(run, summary, kind, letters, sampled, put, psept) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001, C901
    read, full = {}, {}
    used = {p for p, _ in sampled}
    for sample in range(1, run.samples + 1):
        rows = [(p, loss) for (p, s), loss in sampled.items() if s == sample]
        if run.weights is not None and run.returns and rows:
            # Weights of periods count as used if any sample of the summary has a row there.
            years = [_Year(loss, float(run.weights[p - 1])) for p, loss in rows]
            read[sample] = _read(years, run.periods, run, _unused(run, used, 1.0))
        else:
            curve = _curve(run, rows, run.periods, 1.0)
            if curve is None:
                continue
            read[sample] = curve
        full[sample] = sorted((loss for _, loss in rows if loss > 0), reverse=True)
    if "w" in letters:
        for i in (0, 1):
            for sample, curve in read.items():
                psept += [(summary, sample, kind + i, *point) for point in curve[i]]
    if "m" in letters and read:
        if run.weights is None:
            length = max(map(len, full.values()))
            means = [
                (0, sum(x[i] for x in full.values() if i < len(x)) / run.samples)
                for i in range(length)
            ]
            put(3, _curve(run, means or [(0, 0.0)], run.periods, 1.0))
        elif run.returns:
            found = defaultdict(list)
            for losses, _ in read.values():
                for r, loss in losses:
                    found[r].append(loss)
            put(3, ([(r, sum(x) / len(x)) for r, x in sorted(found.items(), reverse=True)], []))
