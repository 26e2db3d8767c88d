"""The rows that a picture shows, out of all rows of its reports."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from core.arrays import Rows
from core.errors import ReportError

from .options import PictureOptions

MOST_SUMMARIES = 12
"""Summaries in one picture."""
_TAIL_MEANS = (2, 4)
"""EPType of TVaR."""
_LONG = 4096
"""Points of a curve, as they come at once, from which it is thinned."""
_POINTS_PER_DECADE = 1000


class Collected:
    """Rows of reports, as many as a picture shows.

    Args:
        options: of the picture.
    """

    def __init__(self, options: PictureOptions) -> None:
        self._options = options
        self._pieces: dict[str, list[Rows]] = {}
        self._summaries: set[int] = set()

    @property
    def summaries(self) -> list[int]:
        """Ids of the summaries that have rows, ascending."""
        return sorted(self._summaries)

    def take(self, report: str, rows: Rows) -> None:
        """Copy the rows that the picture shows.

        Args:
            report: name of their report.
            rows: the next of that report, valid only during the call.

        Raises:
            ReportError: they are about more summaries than a picture holds.
        """
        if self._options.summary_ids is not None:
            rows = rows[np.isin(rows["SummaryId"], self._options.summary_ids)]
        self._summaries.update(np.unique(rows["SummaryId"]).tolist())
        if len(self._summaries) > MOST_SUMMARIES:
            raise ReportError(
                f"a picture shows up to {MOST_SUMMARIES} summaries, and there are more",
                hint="Choose some with --plot-summaries, or with summary_ids in a request",
            )
        if report == "ept":
            if not self._options.tail_means:
                rows = rows[~np.isin(rows["EPType"], _TAIL_MEANS)]
            rows = rows[_shown(rows)]
        if len(rows):
            self._pieces.setdefault(report, []).append(rows.copy())

    def rows(self, report: str, dtype: np.dtype[np.void]) -> Rows:
        """The rows of a report, in the order they came.

        Raises:
            ReportError: none is about a summary that was chosen.
        """
        if not self._summaries and self._options.summary_ids is not None:
            raise ReportError(
                f"no row of {report.upper()} is about the summaries chosen for its picture",
                hint="Choose summaries that have losses",
            )
        pieces = self._pieces.get(report)
        return np.zeros(0, dtype) if pieces is None else np.concatenate(pieces)


def _shown(rows: Rows) -> npt.NDArray[np.bool_]:
    """Which points of curves are shown: the first and last of each step in a long curve."""
    keep = np.ones(len(rows), np.bool_)
    if len(rows) <= _LONG:
        return keep
    begins = _changes(rows["SummaryId"], rows["EPCalc"], rows["EPType"])
    lengths = np.diff(np.append(np.flatnonzero(begins), len(rows)))
    of_long = np.repeat(lengths > _LONG, lengths)
    years = np.maximum(rows["ReturnPeriod"].astype(np.float64), 1e-9)
    steps = np.floor(np.log10(years) * _POINTS_PER_DECADE)
    first = begins | _changes(steps)
    last = np.append(first[1:], True)
    keep[of_long] = (first | last)[of_long]
    return keep


def _changes(*columns: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Whether each element differs from the one before it in any column; the first does."""
    changes = np.zeros(len(columns[0]), np.bool_)
    changes[0] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return changes
