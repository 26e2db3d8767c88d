from __future__ import annotations

import numpy as np
import pytest

from app.losses.pictures.collecting import MOST_SUMMARIES, Collected
from app.losses.pictures.options import PictureOptions
from core.arrays import Rows
from core.errors import ReportError
from core.losses.reports import REPORTS
from tests.app.losses.pictures.tables import aal, ept

DTYPE = REPORTS["ept"].dtype(4)


def collect(rows: Rows, options: PictureOptions, piece: int) -> Rows:
    collected = Collected(options)
    for k in range(0, len(rows), piece):
        scratch = rows[k : k + piece].copy()
        collected.take("ept", scratch)
        scratch["Loss"] = -1  # rows are valid only during the call
    return collected.rows("ept", DTYPE)


def test_short_curves_are_collected_whole() -> None:
    rows = ept(range(1, MOST_SUMMARIES + 1))
    for piece in (1, 7, len(rows)):
        assert np.array_equal(collect(rows, PictureOptions(tail_means=True), piece), rows)


def test_tvar_is_left_out_unless_asked_for() -> None:
    rows = ept([1])
    kept = collect(rows, PictureOptions(), 1000)
    assert np.array_equal(kept, rows[np.isin(rows["EPType"], (1, 3))])


def test_only_the_chosen_summaries_are_collected() -> None:
    ids = np.array([20, 30], np.int32)
    kept = collect(ept(range(1, 50)), PictureOptions(summary_ids=ids), 100)
    assert np.unique(kept["SummaryId"]).tolist() == [20, 30]


def test_more_summaries_than_a_picture_holds_are_refused() -> None:
    for name, rows in {"ept": ept(range(1, 14)), **aal(range(1, 14))}.items():
        collected = Collected(PictureOptions())
        with pytest.raises(ReportError, match=r"up to 12 summaries.*--plot-summaries"):
            collected.take(name, rows)


def test_chosen_summaries_without_rows_are_refused() -> None:
    with pytest.raises(ReportError, match="no row of EPT"):
        collect(ept([1]), PictureOptions(summary_ids=np.array([2], np.int32)), 10)


@pytest.mark.parametrize("piece", [30_000, 1 << 30])
def test_a_long_curve_keeps_its_ends_and_its_shape(piece: int) -> None:
    count = 100_000
    rows = np.zeros(2 * count, DTYPE)
    rows["SummaryId"] = 1
    rows["EPCalc"] = 2
    rows["EPType"] = np.repeat([1, 3], count)
    rows["ReturnPeriod"] = np.tile(count / np.arange(1, count + 1), 2)
    rows["Loss"] = np.tile(np.arange(count, 0, -1), 2)
    kept = collect(rows, PictureOptions(), piece)
    assert len(kept) < 30_000
    for kind in (1, 3):
        points, curve = (table[table["EPType"] == kind] for table in (kept, rows))
        ranks = np.searchsorted(-curve["ReturnPeriod"], -points["ReturnPeriod"])
        assert np.array_equal(points, curve[ranks])
        assert np.array_equal(points[[0, -1]], curve[[0, -1]])
        # Between two points that were kept, less than the width of a line is left out.
        gaps = np.diff(np.log10(points["ReturnPeriod"].astype(float)))
        exact = np.diff(np.log10(curve["ReturnPeriod"].astype(float)))
        assert (-gaps).max() <= max((-exact).max(), 0.0011)
