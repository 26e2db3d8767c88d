"""EP curves of summaries: losses by return period, from the rows of ``ept``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from core.arrays import Rows
from core.errors import ReportError

from .options import Palette, PictureOptions
from .panels import (
    choose_unit,
    columns_of,
    describe_run,
    inches_of,
    label_edges,
    make_panels,
    say_no_losses,
    scale_losses,
    scale_years,
    title_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class _Series(NamedTuple):
    """A line and its entry in the legend."""

    label: str
    colour: Literal["first", "second"]
    dashes: Literal["-"] | tuple[float, tuple[float, float]]
    marker: str


_CALCULATIONS = {
    2: "full uncertainty (all samples)",
    4: "sample means",
    3: "mean of the samples' curves",
    1: "numerical means",
}
"""EPCalc, the most informative first."""
_SERIES = {
    3: _Series("AEP (all losses of a year)", "second", "-", "s"),
    4: _Series("AEP TVaR", "second", (0, (4, 2)), "s"),
    1: _Series("OEP (largest loss of a year)", "first", "-", "o"),
    2: _Series("OEP TVaR", "first", (0, (4, 2)), "o"),
}
"""By EPType. AEP is drawn first and thicker, so that both show where they are equal."""
_MARKED = 30
"""Points of a curve up to which each has a marker."""
_SECOND_WIDTH, _FIRST_WIDTH = 3.0, 1.5


class ExceedanceSheet:
    """OEP and AEP curves, a panel for each summary.

    Args:
        rows: of ``ept``.
        summaries: ids, ascending.
        options: of the picture.

    Raises:
        ReportError: a loss is not finite.
    """

    def __init__(self, rows: Rows, summaries: Sequence[int], options: PictureOptions) -> None:
        if not np.isfinite(rows["Loss"]).all():
            raise ReportError(
                "a loss of EPT is not finite, so that its curve cannot be drawn",
                hint="Compute with float_width=8 if losses exceed 3.4e38",
            )
        self._calculation = _choose_calculation(rows)
        self._rows = rows[(rows["EPCalc"] == self._calculation) & (rows["ReturnPeriod"] > 0)]
        self._summaries = list(summaries)
        self._options = options
        self._present = [kind for kind in _SERIES if (self._rows["EPType"] == kind).any()]

    @property
    def title(self) -> str:
        """The first line."""
        return title_of("Exceedance probability curves", self._options)

    @property
    def subtitle(self) -> str:
        """The second line."""
        parts = [*describe_run(self._options), _CALCULATIONS[self._calculation]]
        text = " · ".join(parts)
        return text[0].upper() + text[1:]

    @property
    def inches(self) -> tuple[float, float]:
        """Width and height of the panels."""
        return inches_of(max(len(self._summaries), 1))

    def fill(self, figure: Figure, palette: Palette) -> list[Artist]:
        """Draw the panels; return the legend's entries."""
        if not len(self._rows):
            say_no_losses(make_panels(figure, 1)[0])
            return []
        panels = make_panels(figure, len(self._summaries))
        tables = [self._rows[self._rows["SummaryId"] == summary] for summary in self._summaries]
        highest = [float(table["Loss"].max(initial=0.0)) for table in tables]
        unit = choose_unit(highest, self._options.currency)
        columns = columns_of(len(panels))
        years = self._rows["ReturnPeriod"].astype(np.float64)
        low, high = float(years.min()), float(years.max())
        if low == high:
            low, high = low / 2, high * 2
        for axes, summary, table, top in zip(panels, self._summaries, tables, highest, strict=True):
            axes.set_title(f"Summary {summary}", loc="left")
            self._draw_curves(axes, table, palette)
            scale_years(axes, low, high, columns)
            # Below 0 only where the pass keeps negative losses.
            bottom = min(0.0, float(table["Loss"].min(initial=0.0)))
            scale_losses(axes, bottom, top, unit, columns)
        label_edges(panels, "Return period (years)", unit.title("Loss"))
        return self._entries(palette)

    def _draw_curves(self, axes: Axes, table: Rows, palette: Palette) -> None:
        for kind in self._present:
            points = table[table["EPType"] == kind]
            label, colour, dashes, marker = _SERIES[kind]
            axes.plot(
                points["ReturnPeriod"].astype(np.float64),
                points["Loss"].astype(np.float64),
                label=label,
                color=getattr(palette, colour),
                linestyle=dashes,
                linewidth=_FIRST_WIDTH if colour == "first" else _SECOND_WIDTH,
                marker=marker if len(points) <= _MARKED else None,
                markersize=3.2 if colour == "first" else 5.5,
                clip_on=False,
            )

    def _entries(self, palette: Palette) -> list[Artist]:
        from matplotlib.lines import Line2D  # noqa: PLC0415 - an extra; the figure is of it too

        return [
            Line2D(
                [], [], color=getattr(palette, colour), linestyle=dashes, linewidth=2, label=label
            )
            for label, colour, dashes, _marker in (_SERIES[kind] for kind in sorted(self._present))
        ]


def _choose_calculation(rows: Rows) -> int:
    """The calculation that has both OEP and AEP; among several, the most informative."""
    present = list(_CALCULATIONS)
    counts = {
        calculation: len(np.intersect1d(rows["EPType"][rows["EPCalc"] == calculation], (1, 3)))
        for calculation in present
    }
    return max(present, key=lambda calculation: (counts[calculation], -present.index(calculation)))
