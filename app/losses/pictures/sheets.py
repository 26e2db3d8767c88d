"""What pictures show, a sheet for each report that has one.

EP curves of summaries, losses by return period, are rows of ``ept``. Average annual losses are
means beside standard deviations, and how the means settle.

The mean and the standard deviation are rows of ``aal``. How an estimate settles as samples double
is what ``alct`` has: a row for samples 1, 2-3, 4-7 and so on, each with its confidence interval,
and one for all samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from core.arrays import Floats, Rows
from core.errors import ReportError
from core.losses.reports.annual import ANALYTICAL, SAMPLE

from .options import Palette, PictureOptions
from .panels import (
    Unit,
    add_axes,
    choose_unit,
    columns_of,
    describe_run,
    inches_of,
    label_edges,
    make_panels,
    say_no_losses,
    scale_losses,
    scale_years,
    three_digits,
    tick_labels,
    ticks_within,
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
            label = self._options.labels.get(summary, f"Summary {summary}")
            axes.set_title(label, loc="left", parse_math=False)
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

    def kinds(calculation: int) -> int:
        return len(np.intersect1d(rows["EPType"][rows["EPCalc"] == calculation], (1, 3)))

    return max(_CALCULATIONS, key=kinds)


_BARS_INCHES = 3.3
"""Width of the bars with their labels."""
_BARS_LEFT, _BARS_WIDTH, _BARS_BELOW, _BARS_ABOVE = 1.1, 2.05, 0.62, 0.34
_BAR = 0.36
_LINE_WIDTH = 1.6


class _Summary(NamedTuple):
    """Numbers of one summary."""

    id: int
    analytical: float
    mean: float
    deviation: float
    sizes: npt.NDArray[np.int64]
    """Samples of each estimate, shape (estimates,)."""
    means: Floats
    lows: Floats
    """Ends of confidence intervals, NaN where there is none; shape (estimates,)."""
    highs: Floats


class AveragesSheet:
    """Bars of all summaries at the left, and a panel of estimates for each at the right.

    Args:
        averages: rows of ``aal``.
        estimates: rows of ``alct``.
        summaries: ids, ascending.
        options: of the picture.

    Raises:
        ReportError: a mean or standard deviation is not finite.
    """

    def __init__(
        self, averages: Rows, estimates: Rows, summaries: Sequence[int], options: PictureOptions
    ) -> None:
        if not (np.isfinite(averages["MeanLoss"]) & np.isfinite(averages["SDLoss"])).all():
            raise ReportError(
                "a mean or standard deviation of AAL is not finite, so that it cannot be drawn",
                hint="Compute with float_width=8 if losses exceed 3.4e38",
            )
        self._summaries = [_summarise(id_, averages, estimates) for id_ in summaries]
        self._options = options

    @property
    def title(self) -> str:
        """The first line."""
        return title_of("Average annual loss and its convergence", self._options)

    @property
    def subtitle(self) -> str:
        """The second line."""
        samples = max((int(s.sizes.max(initial=0)) for s in self._summaries), default=0)
        parts = describe_run(self._options)
        if samples:
            parts.append(f"{samples:,} sample{'s' * (samples > 1)}")
        return " · ".join(parts)

    @property
    def inches(self) -> tuple[float, float]:
        """Width and height of bars and panels."""
        width, height = inches_of(max(len(self._summaries), 1))
        return width + _BARS_INCHES, height

    def fill(self, figure: Figure, palette: Palette) -> list[Artist]:
        """Draw bars and panels; return the legend's entries."""
        if not self._summaries:
            say_no_losses(make_panels(figure, 1)[0])
            return []
        largest = [max(s.mean, s.analytical) for s in self._summaries]
        unit = choose_unit(largest, self._options.currency)
        self._draw_bars(figure, unit, palette)
        self._draw_panels(figure, unit, palette)
        return self._entries(palette)

    def _draw_bars(self, figure: Figure, unit: Unit, palette: Palette) -> None:
        height = self.inches[1] - _BARS_BELOW - _BARS_ABOVE
        axes = add_axes(figure, _BARS_LEFT, _BARS_BELOW, _BARS_WIDTH, height)
        places = np.arange(len(self._summaries))
        for offset, name, colour in (
            (-_BAR / 2, "mean", palette.first),
            (_BAR / 2, "deviation", palette.second),
        ):
            values = np.array([getattr(s, name) for s in self._summaries])
            bars = axes.barh(places + offset, values, _BAR * 0.92, color=colour)
            labels = [three_digits(value, unit) for value in values]
            axes.bar_label(bars, labels, padding=3, fontsize=8, color=palette.text)
        axes.set_yticks(places, [_label(s.id) for s in self._summaries])
        room = 0.9 if len(places) == 1 else 0.6
        axes.set_ylim(len(places) - 1 + room, -room)
        amounts = [amount for s in self._summaries for amount in (s.mean, s.deviation)]
        # Room for the labels of the longest bars.
        start, end = 1.28 * min(0.0, *amounts), 1.28 * max(0.0, *amounts)
        if start == end:
            end = unit.divisor
        ticks = ticks_within(start, end, 4)
        axes.set_xticks(ticks, tick_labels(ticks, unit))
        axes.set_xlim(start, end)
        axes.set_xlabel(unit.title("Loss per year"))
        axes.grid(visible=False, axis="y")
        axes.set_title("Mean and standard deviation", loc="left")

    def _draw_panels(self, figure: Figure, unit: Unit, palette: Palette) -> None:
        panels = make_panels(figure, len(self._summaries), _BARS_INCHES)
        columns = columns_of(len(panels))
        largest = max(int(s.sizes.max(initial=1)) for s in self._summaries)
        low, high = (1.0, float(largest)) if largest > 1 else (0.5, 2.0)
        for axes, summary in zip(panels, self._summaries, strict=True):
            axes.set_title(f"Summary {summary.id}", loc="left")
            _draw_estimates(axes, summary, palette)
            scale_years(axes, low, high, columns)
            scale_losses(axes, *_extent(summary), unit, columns)
        label_edges(panels, "Samples in the estimate", unit.title("Mean annual loss"))

    def _entries(self, palette: Palette) -> list[Artist]:
        from matplotlib.lines import Line2D  # noqa: PLC0415 - an extra; the figure is of it too
        from matplotlib.patches import Patch  # noqa: PLC0415 - as above

        percent = f"{100 * self._options.confidence:.10g}"
        return [
            Line2D([], [], color=palette.first, marker="o", markersize=4, label="Sample mean"),
            Patch(color=palette.first, alpha=0.22, linewidth=0, label=f"{percent} % confidence"),
            Line2D([], [], color=palette.reference, linestyle="--", label="Analytical mean"),
            Patch(color=palette.second, label="Standard deviation of the annual loss"),
        ]


def _draw_estimates(axes: Axes, summary: _Summary, palette: Palette) -> None:
    axes.axhline(summary.analytical, color=palette.reference, linestyle="--", linewidth=1.2)
    if np.isfinite(summary.lows).any():
        axes.fill_between(
            summary.sizes, summary.lows, summary.highs, color=palette.first, alpha=0.22, linewidth=0
        )
    axes.plot(
        summary.sizes,
        summary.means,
        color=palette.first,
        marker="o",
        markersize=4,
        linewidth=_LINE_WIDTH,
    )


def _extent(summary: _Summary) -> tuple[float, float]:
    """Smallest and largest amount in the panel of a summary."""
    values = np.concatenate(
        [[summary.analytical], summary.means, summary.lows, summary.highs], dtype=np.float64
    )
    values = values[np.isfinite(values)]
    return float(values.min()), float(values.max())


def _label(summary: int) -> str:
    """What fits at the left of a bar."""
    return f"Summary {summary}" if summary < 10_000 else str(summary)  # noqa: PLR2004 - digits


def _summarise(summary: int, averages: Rows, estimates: Rows) -> _Summary:
    """The numbers of a summary; 0 where there is no row, as of a mean without losses."""
    rows = averages[averages["SummaryId"] == summary]
    analytical = rows[rows["SampleType"] == ANALYTICAL]["MeanLoss"]
    samples = rows[rows["SampleType"] == SAMPLE]
    curve = estimates[estimates["SummaryId"] == summary]
    lows, highs = (curve[name].astype(np.float64) for name in ("LowerCI", "UpperCI"))
    # ALCT writes two zeros for an interval that it does not have.
    absent = (lows == 0) & (highs == 0)
    return _Summary(
        summary,
        float(analytical.sum()),
        float(samples["MeanLoss"].sum()),
        float(samples["SDLoss"].sum()),
        curve["SampleSize"].astype(np.int64),
        curve["MeanLoss"].astype(np.float64),
        np.where(absent, np.nan, lows),
        np.where(absent, np.nan, highs),
    )
