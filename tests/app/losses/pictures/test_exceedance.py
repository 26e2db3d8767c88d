from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from app.losses.pictures.drawing import build_figure
from app.losses.pictures.options import PALETTES, PictureOptions
from app.losses.pictures.sheets import ExceedanceSheet
from core.arrays import Rows
from core.errors import ReportError
from tests.app.losses.pictures.tables import YEARS, ept, rows_of

OEP, OEP_TVAR, AEP, AEP_TVAR = 1, 2, 3, 4
LABELS = {
    OEP: "OEP (largest loss of a year)",
    OEP_TVAR: "OEP TVaR",
    AEP: "AEP (all losses of a year)",
    AEP_TVAR: "AEP TVaR",
}


def figure_of(rows: Rows, summaries: Sequence[int], **options: object) -> Figure:
    sheet = ExceedanceSheet(rows, summaries, PictureOptions(**options))  # type: ignore[arg-type]
    return build_figure(sheet, PALETTES["light"])


def curve(axes: Axes, kind: int) -> tuple[np.ndarray, np.ndarray]:
    (line,) = (line for line in axes.lines if line.get_label() == LABELS[kind])
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def test_lines_are_the_points_of_the_table() -> None:
    rows = ept([3, 8])
    figure = figure_of(rows, [3, 8])
    for axes, summary in zip(figure.axes, (3, 8), strict=True):
        assert axes.get_title(loc="left") == f"Summary {summary}"
        assert axes.get_xscale() == "log"
        for kind in LABELS:
            of_curve = (rows["SummaryId"] == summary) & (rows["EPType"] == kind)
            points = rows[of_curve & (rows["EPCalc"] == 2)]
            years, losses = curve(axes, kind)
            assert np.array_equal(years, points["ReturnPeriod"])
            assert np.array_equal(losses, points["Loss"])


def test_every_point_lies_within_the_axes() -> None:
    figure = figure_of(ept([1, 1000]), [1, 1000])
    for axes in figure.axes:
        for line in axes.lines:
            assert axes.get_xlim()[0] <= np.min(line.get_xdata())
            assert np.max(line.get_xdata()) <= axes.get_xlim()[1]
            assert axes.get_ylim()[0] == 0 <= np.min(line.get_ydata())
            assert np.max(line.get_ydata()) <= axes.get_ylim()[1]


@pytest.mark.parametrize("panels", [1, 2, 3, 4, 10])
def test_no_label_of_an_axis_is_cut_at_the_edge_of_the_picture(panels: int) -> None:
    rows = ept(range(1, panels + 1))
    rows["ReturnPeriod"] *= 1000
    figure = figure_of(rows, range(1, panels + 1))
    figure.set_canvas(FigureCanvasAgg(figure))
    figure.draw_without_rendering()
    labels = [axes.get_xticklabels()[-1] for axes in figure.axes if axes.get_xticklabels()]
    assert {label.get_text() for label in labels} == {"1,000,000"}
    assert all(label.get_window_extent().x1 <= figure.bbox.x1 for label in labels)


def test_losses_are_written_in_the_largest_unit_that_suits_all_panels() -> None:
    figure = figure_of(ept([1, 40]), [1, 40], currency="EUR")
    first, second = figure.axes
    assert first.get_ylabel() == "Loss (million EUR)"
    assert second.get_yticklabels()[-1].get_text() == "2,000"
    assert second.get_yticks()[-1] == 2e9
    assert [t.get_text() for t in second.get_xticklabels()][-3:] == ["200", "500", "1,000"]


def test_the_calculation_that_has_both_curves_is_drawn_and_named() -> None:
    rows = ept([1])
    only_means = rows[rows["EPCalc"] != 2]
    without_aep = rows[(rows["EPCalc"] != 2) | (rows["EPType"] == OEP)]
    for table in (only_means, without_aep):
        figure = figure_of(table, [1], summary_set=4)
        expected = rows[(rows["EPCalc"] == 4) & (rows["EPType"] == AEP)]
        assert np.array_equal(curve(figure.axes[0], AEP)[1], expected["Loss"])
        assert texts(figure)[1] == "Summary set 4 · sample means"


def test_the_title_names_the_perspective() -> None:
    title = texts(figure_of(ept([1]), [1], perspective="ri"))[0]
    assert title == "Exceedance probability curves: loss net of reinsurance (RI)"


def test_the_legend_names_the_curves_that_are_drawn() -> None:
    rows = ept([1])
    rows = rows[np.isin(rows["EPType"], (OEP, AEP))]
    (legend,) = figure_of(rows, [1]).legends
    assert [text.get_text() for text in legend.get_texts()] == [LABELS[OEP], LABELS[AEP]]


@pytest.mark.parametrize("years", [(500.0,), (1.0,)])
def test_one_point_has_a_marker_and_room_around_it(years: tuple[float, ...]) -> None:
    (axes,) = figure_of(ept([1], years), [1]).axes
    low, high = axes.get_xlim()
    assert low < years[0] < high
    assert all(line.get_marker() in {"o", "s"} for line in axes.lines)


def test_losses_of_zero_lie_on_the_axis() -> None:
    (axes,) = figure_of(ept([1], scale=0.0), [1]).axes
    assert np.array_equal(curve(axes, OEP)[1], np.zeros(len(YEARS)))
    assert axes.get_ylim()[0] == 0 < axes.get_ylim()[1]


def test_negative_losses_lie_within_the_axes() -> None:
    (axes,) = figure_of(ept([1], scale=-10.0), [1]).axes
    assert axes.get_ylim()[0] < np.min(curve(axes, AEP_TVAR)[1])


def test_a_table_without_rows_says_that_there_are_no_losses() -> None:
    (axes,) = figure_of(rows_of("ept", []), []).axes
    assert [text.get_text() for text in axes.texts] == ["No losses"]


def test_a_loss_that_is_not_finite_is_refused() -> None:
    rows = ept([1])
    rows["Loss"][3] = np.inf
    with pytest.raises(ReportError, match="not finite"):
        ExceedanceSheet(rows, [1], PictureOptions())
