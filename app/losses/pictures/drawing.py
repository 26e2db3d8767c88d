"""Pictures by the report they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from core.arrays import Rows
from core.errors import ReportError
from core.losses.reports import REPORTS

from .averages import AveragesSheet
from .canvas import Sheet, paint
from .collecting import Collected
from .exceedance import ExceedanceSheet
from .options import PictureOptions

PICTURES: dict[str, tuple[str, ...]] = {"ept": ("ept",), "aal": ("aal", "alct")}
"""Reports that have a picture, and the reports whose rows it shows."""


def draw(report: str, tables: Mapping[str, Rows], options: PictureOptions) -> bytes:
    """Draw the picture of a report.

    Args:
        report: ``ept`` or ``aal``.
        tables: rows by report; those of ``aal`` and ``alct`` for a picture of ``aal``.
        options: of the picture.

    Raises:
        ReportError: there is no picture of the report, too many summaries, none of those chosen,
            or a number that is not finite.
        OptionError: the library that draws is not installed.
    """
    collector = PictureCollector(report, options)
    for name in collector.sources:
        collector.take(name, tables[name])
    return collector.draw()


class PictureCollector:
    """Takes rows of reports in pieces, and draws them at the end.

    Args:
        report: the report to draw.
        options: of the picture.

    Raises:
        ReportError: there is no picture of the report.
    """

    def __init__(self, report: str, options: PictureOptions) -> None:
        if report not in PICTURES:
            raise ReportError(
                f"there is no picture of {report.upper()}",
                hint=f"Reports with a picture are {' and '.join(PICTURES)}",
            )
        self.sources = PICTURES[report]
        """Reports whose rows it takes."""
        self._report = report
        self._options = options
        self._collected = Collected(options)

    def take(self, name: str, rows: Rows) -> None:
        """Take the next rows of one of the sources, which are valid only during the call.

        Raises:
            ReportError: rows are about more summaries than a picture holds.
        """
        self._collected.take(name, rows)

    def draw(self, summary_set: int | None = None) -> bytes:
        """Draw the rows taken.

        Args:
            summary_set: of the stream, where the options do not name it.

        Raises:
            ReportError, OptionError: see :func:`draw`.
        """
        options = self._options
        if options.summary_set is None:
            options = replace(options, summary_set=summary_set)
        return paint(self._sheet(options), options)

    def _sheet(self, options: PictureOptions) -> Sheet:
        rows = [self._collected.rows(name, REPORTS[name].dtype(8)) for name in self.sources]
        summaries = self._collected.summaries
        if self._report == "ept":
            return ExceedanceSheet(rows[0], summaries, options)
        return AveragesSheet(rows[0], rows[1], summaries, options)
