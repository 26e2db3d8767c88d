"""Where the peer is known to be wrong, told beforehand from the portfolio.

Each fault has a name and a test that shows ours right with a plain reference. A difference is
explained if all its rows are where one of the faults is; wherever a table is explained so, ours
must also equal the plain reference of ``tests/run_oracle.py``.

====================  =============================================================================
name                  what the peer does, and the test that shows ours right
====================  =============================================================================
SUBSET                ``summarypy`` of some sets labels the losses of others;
                      ``test_peer_faults.test_a_set_alone_has_its_own_losses``
RISKS                 counts each risk in one summary of an event alone;
                      ``test_peer_faults.test_risks_count_in_every_summary``
RATES                 MELT without event rates has NaN;
                      ``test_peer_faults.test_rates_are_those_of_the_occurrences``
DATES                 dates with a time of day, on a last of a month, become day 0 of the next;
                      ``test_peer_faults.test_the_last_of_a_month_has_a_time_of_day``
OVERRUN               ALCT of 2^k - 1 samples reads one beyond the array;
                      ``test_peer_faults.test_the_last_row_of_alct_is_of_all_samples``
ABSENT                ALCT has rows of summaries without any block that occurs;
                      ``test_peer_faults.test_alct_has_rows_of_summaries_that_occur_alone``
MEANS                 EPCalc 3 with weights needs ``-W``;
                      ``test_peer_faults.test_means_of_samples_need_no_psept``
TIES                  equal losses with different weights come in the order of an unstable sort;
                      ``test_peer_faults.test_equal_losses_are_in_order_of_periods``
UNUSED                without indices, weights count as used if another summary uses the period;
                      ``test_peer_faults.test_unused_weights_are_those_of_the_summary``
NO_SAMPLES            EPCalc 3 of a summary without any sample reads before the array, and crashes;
                      ``test_peer_faults.test_a_summary_without_samples_has_a_mean_curve``
WRONG_INDEX           an index is wrong from the first block on that the buffer of 64 KiB splits;
                      ``test_peer_faults.test_an_index_names_every_block_however_long_its_event``
CANCELLATION          deviations by the difference of sums of squares lose all digits;
                      ``test_peer_faults.test_deviations_survive_cancellation``
====================  =============================================================================
"""

from __future__ import annotations

import calendar
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from core.arrays import Floats, Rows
from core.losses.reports.annual import standard_normal_quantile
from tests import run_oracle

from .tables import Difference, Mask, compare, read_table

if TYPE_CHECKING:
    from .families import Trial

_QUICK = 400_000
"""Losses of a run that the plain reference is still computed of."""
_DIFFERENCES = ("SDLoss", "StandardError", "Relative", "VarElement", "LowerCI", "UpperCI")
"""Beginnings of columns that are roots or differences."""


class Judge:
    """Explains differences of one portfolio.

    Args:
        trial: the portfolio, computed.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._options = trial.portfolio.options
        self._plain: dict[str, bool] = {}
        self._crashed = False
        self._known: dict[tuple[int, int, str, bool], Ties] = {}

    def explain(self, difference: Difference) -> list[str]:
        """Names of faults that explain all rows; none if a row is left."""
        report = difference.report
        if report == "psept" and self._crashed:
            return ["NO_SAMPLES"]
        if report.startswith("summarise"):
            return self._explain_stream(difference)
        rules: dict[str, list[Callable[[Difference], list[str]]]] = {
            "selt": [self._risks],
            "melt": [self._rates],
            "splt": [self._dates],
            "mplt": [self._dates],
            "qplt": [self._dates],
            "aal": [self._cancelled],
            "alct": [self._overrun, self._absent, self._cancelled],
            "ept": [self._means, self._curves],
            "psept": [self._curves],
        }
        for rule in rules.get(report, []):
            if (names := rule(difference)) and self._equals_reference(report):
                return names
        return []

    def explain_error(self, family: str, error: str) -> str | None:
        """Name of the fault by which the peer raised."""
        nothing = family in {"aal", "alct"} and not self.run.summaries
        if nothing and "empty or missing" in error:
            return "ABSENT"
        if family == "ept" and "died" in error and self._lacks_samples():
            self._crashed = True
            equal = self._equals_reference("ept") and self._equals_reference("psept")
            return "NO_SAMPLES" if equal else None
        return None

    def _lacks_samples(self) -> bool:
        """Whether means of samples are asked for of a summary without a sample."""
        means = bool(set(self._options.curves) & set("Mm")) and not self._options.weighted
        sampled = {ident for ident, _, sample in self.run.sums if sample > 0}
        return means and sampled != set(self._trial.summaries())

    # -- rows ----------------------------------------------------------------------------

    def _explain_stream(self, difference: Difference) -> list[str]:
        portfolio = self._trial.portfolio
        subset = difference.report.startswith("summarise subset")
        if subset and portfolio.subset != list(portfolio.options.sets)[: len(portfolio.subset)]:
            return ["SUBSET"]
        return self._risks(difference)

    def _risks(self, difference: Difference) -> list[str]:
        of_counts = difference.column == "Loss" and (difference.ours["SampleId"] == -4).all()
        return ["RISKS"] if self._options.risks and of_counts else []

    def _rates(self, difference: Difference) -> list[str]:
        if self._options.rates or difference.column != "EventRate":
            return []
        given = self._trial.portfolio.occurrence
        events, counts = np.unique(given.event_ids, return_counts=True)
        rates = dict(zip(events.tolist(), (counts / given.periods).tolist(), strict=True))
        expected = [rates.get(event, 0.0) for event in difference.ours["EventId"].tolist()]
        right = np.allclose(difference.ours["EventRate"], expected, equal_nan=True)
        return ["RATES"] if right and np.isnan(difference.peers["EventRate"]).all() else []

    def _dates(self, difference: Difference) -> list[str]:
        if not self._options.granular or difference.column != "rows":
            return []
        peers = difference.peers.copy()
        for i in np.flatnonzero(peers["Day"] == 0):
            year, month = int(peers["Year"][i]), int(peers["Month"][i]) - 1
            year, month = (year - 1, 12) if month == 0 else (year, month)
            peers["Year"][i], peers["Month"][i] = year, month
            peers["Day"][i] = calendar.monthrange(year, month)[1]
        return [] if compare(difference.report, difference.ours, peers) else ["DATES"]

    # -- annual losses ---------------------------------------------------------------------

    def _overrun(self, difference: Difference) -> list[str]:
        samples = self._options.samples
        fills = samples > 1 and samples & (samples + 1) == 0
        last = (difference.ours["SampleSize"] == samples).all()
        return ["OVERRUN"] if fills and last and difference.column != "rows" else []

    def _absent(self, difference: Difference) -> list[str]:
        if difference.column != "rows" or len(difference.ours):
            return []
        absent = ~np.isin(difference.peers["SummaryId"], self.run.summaries)
        return ["ABSENT"] if absent.all() else []

    def _cancelled(self, difference: Difference) -> list[str]:
        return ["CANCELLATION"] if _is_cancelled(difference) else []

    # -- curves ----------------------------------------------------------------------------

    def _means(self, difference: Difference) -> list[str]:
        weighted = self._options.weighted and self._options.returns
        if not weighted or difference.column != "rows" or len(difference.peers):
            return []
        lacking = {1: "m" in self._options.curves and "w" not in self._options.curves}
        lacking[3] = "M" in self._options.curves and "W" not in self._options.curves
        rows = difference.ours
        of_means = (rows["EPCalc"] == 3) & [lacking.get(kind, False) for kind in rows["EPType"]]
        return ["MEANS"] if of_means.all() else []

    def _curves(self, difference: Difference) -> list[str]:
        if not self._options.weighted:
            return []
        rows = difference.ours
        label = "EPCalc" if difference.report == "ept" else "SampleId"
        if difference.column == "rows":
            rows = np.concatenate([difference.ours, difference.peers])
        tied, unused = self._undefined(rows, label, difference.column)
        if not (tied | unused).all():
            return []
        return ["TIES"] * bool(tied.any()) + ["UNUSED"] * bool((unused & ~tied).any())

    def _undefined(self, rows: Rows, label: str, column: str) -> tuple[Mask, Mask]:
        tied, unused = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        shared = len(self.run.summaries) > 1 and not self._options.indexed
        for i, row in enumerate(rows):
            ties = self._ties(int(row["SummaryId"]), int(row[label]), label, int(row["EPType"]))
            period, tail = float(row["ReturnPeriod"]), row["EPType"] % 2 == 0
            if column == "rows":
                # Which return periods there are depends on the weight of the largest loss.
                tied[i] = ties.largest_are_tied
            else:
                tied[i] = ties.at(period, tail=bool(tail), any_point=column == "ReturnPeriod")
            # Without a weight left, a curve ends before its last return periods.
            unused[i] = shared and bool(self._options.returns) and period <= ties.last * (1 + 1e-6)
        return tied, unused

    @cached_property
    def run(self) -> run_oracle.Run:
        """The run as the plain reference has it, from our streams of summaries."""
        portfolio = self._trial.portfolio
        given = portfolio.occurrence
        run = run_oracle.Run(
            self._options.samples, given.periods, portfolio.weights, self._options.returns
        )
        happened = list(zip(given.event_ids.tolist(), given.period_numbers.tolist(), strict=True))
        for path in self._trial.summary_streams():
            run.add(path.read_bytes(), 4, happened)
        return run

    def _ties(self, summary: int, number: int, label: str, kind: int) -> Ties:
        aep = kind > 2
        key = (summary, number, label, aep)
        if key not in self._known:
            self._known[key] = self._find_ties(summary, number, label, aep=aep)
        return self._known[key]

    def _find_ties(self, summary: int, number: int, label: str, *, aep: bool) -> Ties:
        table = self.run.sums if aep else self.run.largest
        cells = [(p, s, float(x)) for (ident, p, s), x in table.items() if ident == summary]
        weights = self.run.weights
        assert weights is not None
        if label == "SampleId":
            return Ties([[(x, weights[p - 1]) for p, s, x in cells if s == number]])
        if number == 1:
            return Ties([[(x, weights[p - 1]) for p, s, x in cells if s == 0]])
        share = self.run.samples
        if number == 2:
            return Ties([[(x, weights[p - 1] / share) for p, s, x in cells if s > 0]])
        if number == 3:
            samples = sorted({s for _, s, _ in cells if s > 0})
            return Ties([[(x, weights[p - 1]) for p, s, x in cells if s == k] for k in samples])
        totals: dict[int, float] = defaultdict(float)
        for p, s, x in cells:
            totals[p] += x / share if s > 0 else 0.0
        return Ties([[(x, weights[p - 1]) for p, x in totals.items()]])

    # -- the plain reference -----------------------------------------------------------------

    def _equals_reference(self, report: str) -> bool:
        """Whether our table is that of the plain reference, if that is quick to compute."""
        if report not in {"aal", "alct", "ept", "psept"}:
            return True
        if report not in self._plain:
            self._plain[report] = len(self.run.sums) > _QUICK or self._is_plain(report)
        return self._plain[report]

    def _is_plain(self, report: str) -> bool:
        ours = read_table(self._trial.my_table(report), report)
        if report == "aal":
            rows: list[tuple[float, ...]] = list(run_oracle.aal(self.run))
        elif report == "alct":
            rows = run_oracle.alct(self.run, standard_normal_quantile(0.95))
        else:
            ept, psept = run_oracle.exceedance(self.run, self._options.curves)
            rows = list(ept if report == "ept" else psept)
        expected = np.array(rows, ours.dtype)
        found = [d for d in compare(report, ours, expected) if not _is_cancelled(d)]
        for difference in found:
            print(f"  not the plain reference: {difference}")
        return not found


def _is_cancelled(difference: Difference) -> bool:
    """Whether all rows have deviations or variances that are what is left of larger squares."""
    if not difference.column.startswith(_DIFFERENCES):
        return False
    rows = difference.ours.astype([(n, "f8") for n in difference.ours.dtype.names or ()])
    size = np.maximum(rows["MeanLoss"], np.nan_to_num(rows["SDLoss"]))
    if difference.column == "SDLoss":
        return bool((np.nan_to_num(rows["SDLoss"]) <= 1e-4 * size).all())
    part = "VarElementHaz" if "Haz" in difference.column else "VarElementVuln"
    return bool((np.abs(np.nan_to_num(rows[part])) <= 1e-9 * size**2).all())


_Curve = tuple[Floats, Mask, bool]
"""Return periods, which losses are equal to others, whether several are zero."""


class Ties:
    """Where curves of some lists of (loss, weight) depend on the order of equal losses."""

    def __init__(self, lists: list[list[tuple[float, float]]]) -> None:
        self._curves: list[_Curve] = []
        self.last = 0.0
        """Largest return period of the last losses of the curves."""
        for years in lists:
            positive = sorted(((x, w) for x, w in years if w > 0 and x > 0), reverse=True)
            if not positive:
                continue
            losses, weights = np.array(positive).T
            same = np.isclose(losses[1:], losses[:-1], rtol=1e-6)
            tied = np.append(same, False) | np.append(False, same)
            periods = 1 / np.cumsum(weights)
            zeros = sum(1 for x, _ in years if x == 0)
            self._curves.append((periods, tied, zeros > 1))
            self.last = max(self.last, float(periods[-1]))

    @property
    def largest_are_tied(self) -> bool:
        """Whether the largest losses of a curve are equal."""
        return any(tied[0] for _, tied, _ in self._curves)

    def at(self, period: float, *, tail: bool, any_point: bool) -> bool:
        """Whether a row at a return period depends on it."""
        return any(
            self._at(curve, period, tail=tail, any_point=any_point) for curve in self._curves
        )

    @staticmethod
    def _at(curve: _Curve, period: float, *, tail: bool, any_point: bool) -> bool:
        periods, tied, zeros_are_tied = curve
        if any_point:
            return bool(tied.any())
        i = int(np.searchsorted(-periods, -period))
        if tail and i == len(periods) and zeros_are_tied:
            # How many losses a mean is of depends on the weights of those of zero.
            return True
        if tail or i == len(periods):
            return bool(tied[: i + 2].any())
        return bool(tied[max(i - 1, 0) : i + 2].any())
