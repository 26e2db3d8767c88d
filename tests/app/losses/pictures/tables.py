"""Tables to draw, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from app.losses.pictures.drawing import PictureCollector
from app.losses.pictures.options import PictureOptions
from core.arrays import Rows
from core.losses.reports import REPORTS

YEARS = (1000.0, 250.0, 100.0, 10.0)


def rows_of(report: str, rows: Sequence[tuple[float, ...]]) -> Rows:
    return np.array(rows, REPORTS[report].dtype(4))


def ept(summaries: Sequence[int], years: Sequence[float] = YEARS, scale: float = 1e6) -> Rows:
    rows = []
    for summary in summaries:
        for calculation in (1, 2, 4):
            for kind, factor in ((1, 1.0), (2, 1.6), (3, 1.2), (4, 1.8)):
                loss = scale * summary * factor * calculation
                rows += [(summary, calculation, kind, year, loss * year**0.4) for year in years]
    return rows_of("ept", rows)


def estimates(summary: int, sizes: Sequence[int], scale: float) -> Rows:
    rows = np.zeros(len(sizes), REPORTS["alct"].dtype(4))
    rows["SummaryId"] = summary
    rows["SampleSize"] = sizes
    rows["MeanLoss"] = scale * (1 + 0.3 / np.array(sizes))
    several = np.array(sizes) > 1
    width = np.where(several, scale / np.sqrt(sizes), 0)
    for name, sign in (("LowerCI", -1), ("UpperCI", 1)):
        rows[name] = np.where(several, rows["MeanLoss"] + sign * width, 0)
    return rows


def aal(
    summaries: Sequence[int], sizes: Sequence[int] = (1, 2, 4, 10), scale: float = 1e4
) -> Mapping[str, Rows]:
    analytical = [(summary, 1, scale * summary * 1.02, 0.0) for summary in summaries]
    samples = [(summary, 2, scale * summary, scale * summary * 5) for summary in summaries]
    curves = [estimates(summary, sizes, scale * summary) for summary in summaries]
    return {
        "aal": rows_of("aal", [*analytical, *samples]),
        "alct": np.concatenate([rows_of("alct", []), *curves]),
    }


def tables(summaries: Sequence[int]) -> dict[str, Rows]:
    return {"ept": ept(summaries), **aal(summaries)}


def draw(report: str, tables: Mapping[str, Rows], options: PictureOptions) -> bytes:
    """The picture of a report whose tables are complete."""
    collector = PictureCollector(report, options)
    for name in collector.sources:
        collector.take(name, tables[name])
    return collector.draw()
