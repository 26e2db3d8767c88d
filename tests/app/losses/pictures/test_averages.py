from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from app.losses.pictures.drawing import build_figure
from app.losses.pictures.options import PALETTES, PictureOptions
from app.losses.pictures.sheets import AveragesSheet
from core.arrays import Rows
from core.errors import ReportError
from tests.app.losses.pictures.tables import aal, rows_of


def figure_of(tables: Mapping[str, Rows], summaries: Sequence[int], **options: object) -> Figure:
    chosen = PictureOptions(**options)  # type: ignore[arg-type]
    sheet = AveragesSheet(tables["aal"], tables["alct"], summaries, chosen)
    return build_figure(sheet, PALETTES["dark"])


def lengths(axes: Axes) -> list[float]:
    return [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]


def test_bars_lines_and_bands_are_the_rows_of_the_tables() -> None:
    tables = aal([2, 5])
    bars, *panels = figure_of(tables, [2, 5]).axes
    samples = tables["aal"][tables["aal"]["SampleType"] == 2]
    assert lengths(bars) == [*samples["MeanLoss"], *samples["SDLoss"]]
    for axes, summary in zip(panels, (2, 5), strict=True):
        rows = tables["alct"][tables["alct"]["SummaryId"] == summary]
        reference, line = axes.lines
        assert np.array_equal(line.get_xdata(), rows["SampleSize"])
        assert np.array_equal(line.get_ydata(), rows["MeanLoss"])
        analytical = tables["aal"]["MeanLoss"][tables["aal"]["SummaryId"] == summary][0]
        assert np.array_equal(reference.get_ydata(), [analytical, analytical])
        (band,) = axes.collections
        corners = {(x, y) for path in band.get_paths() for x, y in np.asarray(path.vertices)}
        for name in ("LowerCI", "UpperCI"):
            ends = zip(rows["SampleSize"][1:], rows[name][1:], strict=True)
            assert {tuple(map(float, end)) for end in ends} <= corners
        assert not any(size == 1 for size, _loss in corners)


def test_every_estimate_lies_within_its_axes() -> None:
    for axes in figure_of(aal([1, 300]), [1, 300]).axes[1:]:
        low, high = axes.get_ylim()
        for line in axes.lines:
            assert low <= np.min(line.get_ydata())
            assert np.max(line.get_ydata()) <= high


def test_one_sample_is_a_point_without_interval() -> None:
    figure = figure_of(aal([1], sizes=(1,)), [1])
    bars, panel = figure.axes
    assert not panel.collections
    low, high = panel.get_xlim()
    assert low < 1 < high
    assert figure.texts[1].get_text() == "1 sample"
    assert len(lengths(bars)) == 2


def test_losses_of_zero_have_axes_that_begin_at_zero() -> None:
    bars, panel = figure_of(aal([1], scale=0.0), [1]).axes
    assert lengths(bars) == [0, 0]
    assert panel.get_ylim()[0] == 0 < panel.get_ylim()[1]


def test_negative_means_lie_within_their_axes() -> None:
    bars, panel = figure_of(aal([1], scale=-100.0), [1]).axes
    assert bars.get_xlim()[0] < min(lengths(bars)) < 0
    assert panel.get_ylim()[0] < np.min(panel.lines[1].get_ydata())


def test_tables_without_rows_say_that_there_are_no_losses() -> None:
    tables = {name: rows_of(name, []) for name in ("aal", "alct")}
    (axes,) = figure_of(tables, []).axes
    assert [text.get_text() for text in axes.texts] == ["No losses"]


def test_intervals_that_are_not_numbers_are_left_out() -> None:
    """Of weighted periods, whose variance may come out negative."""
    tables = aal([1])
    tables["alct"]["LowerCI"] = tables["alct"]["UpperCI"] = np.nan
    assert not figure_of(tables, [1]).axes[1].collections


def test_the_legend_tells_the_confidence() -> None:
    (legend,) = figure_of(aal([1]), [1], confidence=0.9).legends
    assert "90 % confidence" in [text.get_text() for text in legend.get_texts()]


def test_a_mean_that_is_not_finite_is_refused() -> None:
    tables = aal([1])
    tables["aal"]["MeanLoss"][0] = np.inf
    with pytest.raises(ReportError, match="not finite"):
        AveragesSheet(tables["aal"], tables["alct"], [1], PictureOptions())
