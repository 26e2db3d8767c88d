"""The event reports: their columns, packed dtypes and printed decimals, data only.

SELT, MELT and QELT have the columns, types and formats of the Open Results Data
tables as OasisLMF's ``eltpy`` writes them, so that their packed ``.bin`` files can
be exchanged. ``events`` is our own: one row per event, from any kind of stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..format import Kind


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a report."""

    name: str
    type: str
    """``i4``, ``f8``, or ``loss`` for the float width of the stream."""
    decimals: int | None
    """Digits after the point in csv; None for integers."""


@dataclass(frozen=True, slots=True)
class Report:
    """One table the engine can make in its pass over a stream."""

    name: str
    title: str
    columns: tuple[Column, ...]
    kinds: frozenset[Kind]
    """Kinds of stream it can be made from."""

    def dtype(self, float_width: int) -> np.dtype[np.void]:
        """Packed little-endian record of one row."""
        loss = f"f{float_width}"
        fields = [(c.name, f"<{loss if c.type == 'loss' else c.type}") for c in self.columns]
        return np.dtype(fields)

    def describe(self, column: str) -> dict[str, str]:
        """What a column means and, for amounts, in which unit it is."""
        unit = {} if column in _UNITLESS else {"unit": "currency of the exposure"}
        return {"description": _DESCRIPTIONS[column], **unit}

    @property
    def header(self) -> str:
        """The csv header line, without line end."""
        return ",".join(column.name for column in self.columns)


def _columns(decimals: int, ids: str, values: str, value_type: str = "loss") -> tuple[Column, ...]:
    integers = tuple(Column(name, "i4", None) for name in ids.split())
    floats = tuple(Column(name, value_type, decimals) for name in values.split())
    return integers + floats


_DESCRIPTIONS = {
    "EventId": "Event",
    "SummaryId": "Summary within its set",
    "SampleId": "Sample; -1 is the numerical mean, -4 the number of affected risks",
    "SampleType": "1 analytical mean, 2 statistics of the samples",
    "Blocks": "Items or summaries the event has",
    "EventRate": "Annual rate of occurrence of the event",
    "ChanceOfLoss": "Share of samples with a loss",
    "Quantile": "Quantile of the samples, 0 to 1",
    "Loss": "Loss",
    "ImpactedExposure": "Exposure if there is a loss, else 0",
    "MeanLoss": "Mean loss over all samples",
    "SDLoss": "Sample standard deviation of the loss",
    "MaxLoss": "Largest loss possible",
    "FootprintExposure": "Exposure in the footprint of the event",
    "MeanImpactedExposure": "Mean over all samples of the impacted exposure",
    "MaxImpactedExposure": "Largest impacted exposure of a sample",
    "AnalyticalMean": "Sum of the numerical means of the event's blocks",
    "SampleMean": "Mean of the event's total over all samples",
    "SampleSD": "Sample standard deviation of the event's total",
    "SampleMin": "Smallest total of a sample",
    "SampleMax": "Largest total of a sample",
    "Exposure": "Exposure of the event's blocks",
}
_UNITLESS = frozenset(
    {
        "EventId",
        "SummaryId",
        "SampleId",
        "SampleType",
        "Blocks",
        "EventRate",
        "ChanceOfLoss",
        "Quantile",
    }
)

_ANY_KIND = frozenset(Kind)
_SUMMARY = frozenset({Kind.SUMMARY})

EVENTS = Report(
    "events",
    "Event totals",
    _columns(
        6,
        "EventId Blocks",
        "AnalyticalMean SampleMean SampleSD SampleMin SampleMax ChanceOfLoss MaxLoss Exposure",
        # Totals over many items: always float64, they may not fit a float32.
        "f8",
    ),
    _ANY_KIND,
)
SELT = Report(
    "selt",
    "Sample event loss table",
    _columns(2, "EventId SummaryId SampleId", "Loss ImpactedExposure"),
    _SUMMARY,
)
MELT = Report(
    "melt",
    "Moment event loss table",
    _columns(
        6,
        "EventId SummaryId SampleType",
        "EventRate ChanceOfLoss MeanLoss SDLoss MaxLoss"
        " FootprintExposure MeanImpactedExposure MaxImpactedExposure",
    ),
    _SUMMARY,
)
QELT = Report(
    "qelt",
    "Quantile event loss table",
    _columns(6, "EventId SummaryId", "Quantile Loss"),
    _SUMMARY,
)

REPORTS: dict[str, Report] = {r.name: r for r in (EVENTS, SELT, MELT, QELT)}
"""Every report by the name it has in requests and file names."""
