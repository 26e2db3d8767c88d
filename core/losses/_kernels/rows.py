"""Writing report rows: what one block, or one finished event, adds to each table.

Formulas and columns are those of OasisLMF's ``eltpy``: moments over all samples
with absent ones as 0, quantiles by R-7 (Hyndman and Fan 1996, definition 7).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Floats, Rows
from ..format import SIDX_MAX_LOSS
from .layout import FULL, OK, Losses, Parameters, Record, Scratch, Sidx, Totals
from .moments import mean_and_deviation
from .quantiles import order_statistics
from .totals import statistics

ANALYTICAL = 1
SAMPLE = 2


@kernel
def event_rate(event: int, ids: npt.NDArray[np.int32], rates: Floats) -> float:
    """Rate of an event; NaN if it has none. ``ids`` ascend."""
    low = 0
    high = len(ids)
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < event:
            low = middle + 1
        else:
            high = middle
    if low < len(ids) and ids[low] == event:
        return float(rates[low])
    return np.nan


@subkernel
def write_selt(state: Record, block: Record, sidx: Sidx, losses: Losses, rows: Rows) -> None:
    """One row for each pair but the maximum loss, in the order they came."""
    s = state[0]
    b = block[0]
    event = np.int32(b["event"])
    ident = np.int32(b["id"])
    exposure = b["exposure"]
    k = s["selt_rows"]
    for i in range(b["pairs"]):
        if sidx[i] == SIDX_MAX_LOSS:
            continue
        row = rows[k]
        loss = losses[i]
        row["EventId"] = event
        row["SummaryId"] = ident
        row["SampleId"] = sidx[i]
        row["Loss"] = loss
        row["ImpactedExposure"] = exposure if loss != 0 else 0.0
        k += 1
    s["selt_rows"] = k


@subkernel
def write_melt(
    rules: Record, state: Record, block: Record, losses: Losses, lanes: Floats, rows: Rows
) -> None:
    """The analytical and the sample row of a summary that has exposure.

    ``losses`` are the block's samples only.
    """
    s = state[0]
    b = block[0]
    exposure = b["exposure"]
    if not exposure > 0:
        return
    samples = rules[0]["samples"]
    mean, deviation = mean_and_deviation(losses, samples, b["mean"], lanes)
    chance = b["positives"] / samples
    k = s["melt_rows"]
    for i in range(2):
        row = rows[k + i]
        row["EventId"] = b["event"]
        row["SummaryId"] = b["id"]
        row["EventRate"] = s["rate"]
        row["MaxLoss"] = b["max_loss"]
        row["FootprintExposure"] = exposure
    row = rows[k]
    row["SampleType"] = ANALYTICAL
    row["ChanceOfLoss"] = 0.0
    row["MeanLoss"] = b["mean"]
    row["SDLoss"] = 0.0
    row["MeanImpactedExposure"] = exposure
    row["MaxImpactedExposure"] = exposure
    row = rows[k + 1]
    row["SampleType"] = SAMPLE
    row["ChanceOfLoss"] = chance
    row["MeanLoss"] = mean
    row["SDLoss"] = deviation
    row["MeanImpactedExposure"] = exposure * chance
    row["MaxImpactedExposure"] = exposure if b["positives"] > 0 else 0.0
    s["melt_rows"] = k + 2


@subkernel
def write_qelt(
    rules: Record,
    state: Record,
    scratch: Scratch,
    losses: Losses,
    inputs: Parameters,
    rows: Rows,
) -> None:
    """One row per quantile of a summary that has exposure.

    ``losses`` are the block's samples only.
    """
    s = state[0]
    b = scratch.block[0]
    if not b["exposure"] > 0:
        return
    order_statistics(losses, b["negatives"], rules[0]["samples"], inputs.ranks, scratch)
    picked = scratch.picked
    k = s["qelt_rows"]
    for i in range(len(inputs.quantiles)):
        below = picked[inputs.positions[i, 0]]
        above = picked[inputs.positions[i, 1]]
        row = rows[k]
        row["EventId"] = b["event"]
        row["SummaryId"] = b["id"]
        row["Quantile"] = inputs.quantiles[i]
        row["Loss"] = below + (above - below) * inputs.fractions[i]
        k += 1
    s["qelt_rows"] = k


@kernel
def write_event(rules: Record, state: Record, totals: Totals, lanes: Floats, rows: Rows) -> int:
    """The row of the open event, whose totals are cleared; FULL if there is no room."""
    s = state[0]
    k = s["events_rows"]
    if k >= len(rows):
        s["needed"] = 1
        return FULL
    mean, deviation, low, high, chance = statistics(rules[0]["samples"], totals, lanes)
    row = rows[k]
    row["EventId"] = s["event"]
    row["Blocks"] = s["event_blocks"]
    row["AnalyticalMean"] = s["mean_sum"]
    row["SampleMean"] = mean
    row["SampleSD"] = deviation
    row["SampleMin"] = low
    row["SampleMax"] = high
    row["ChanceOfLoss"] = chance
    row["MaxLoss"] = s["max_sum"] if s["has_max"] else np.nan
    row["Exposure"] = s["exposure_sum"] if s["has_exposure"] else np.nan
    s["events_rows"] = k + 1
    return OK


@subkernel
def add_to_event(rules: Record, state: Record, block: Record) -> None:
    """Add a block's special values to the open event's totals."""
    s = state[0]
    b = block[0]
    s["mean_sum"] += b["mean"]
    if b["has_max"]:
        s["max_sum"] += b["max_loss"]
        s["has_max"] = 1
    if rules[0]["summary"]:
        s["exposure_sum"] += b["exposure"]
        s["has_exposure"] = 1
    elif b["has_tiv"]:
        s["exposure_sum"] += b["tiv"]
        s["has_exposure"] = 1
