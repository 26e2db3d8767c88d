"""Writing report rows: what one block, or one finished event, adds to each table.

Formulas and columns are those of OasisLMF's ``eltpy``: moments over all samples
with absent ones as 0, quantiles by R-7 (Hyndman and Fan 1996, definition 7).

The peer's MPLT accumulates its chance of loss and its mean impacted exposure in the float type
of the stream: one rounded addition for each sample with a loss. Their bytes are part of its
format, so the sum has to go through the same roundings::

    sum   0 ---> 1/N ---> 2/N ---> ... ---> 2**e ---> ... ---> 2**(e + 1) ---> ...
                                              |- steps of one size -|

But every addition within one binade rounds to the same step, because the grid of the float is
the same and the term falls on the same place between two of its points. So a whole binade is
one multiplication, which is exact, and only additions that cross into the next are made one by
one (:func:`repeated_sum`): some 30 operations instead of a thousand. Halfway between two points
rounding depends on the sum, and so near to it that float64 cannot tell: such terms are added one
by one.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..._jit import inlined, kernel, subkernel
from ...arrays import Floats, Rows
from ...sorting import place_of
from ..format import SIDX_MAX_LOSS, SIDX_MEAN
from .layout import FULL, OK, Bits, Losses, Parameters, Record, Scratch, Sidx, Tables, Totals, Words
from .moments import mean_and_deviation, statistics
from .quantiles import order_statistics

_LOWEST4 = -149
_LOWEST8 = -1074
"""Exponents of the smallest numbers."""

_HALFWAY = 2.0**-20
"""How near to half a step a term may come: float64 errs by less than 2**-28 steps of float32."""


@subkernel
def _rounded(value: float, width: int) -> float:
    return np.float64(np.float32(value)) if width == 4 else value


@subkernel
def repeated_sum(term: float, count: int, width: int) -> float:
    """Sum of ``count`` terms, each addition rounded to a float of ``width`` bytes.

    Args:
        term: not negative, finite.
        count: how many times it is added to 0.
        width: 4 or 8.
    """
    digits = 24 if width == 4 else 53
    lowest = _LOWEST4 if width == 4 else _LOWEST8
    value = 0.0
    while count > 0:
        _, exponent = math.frexp(value)
        following = _rounded(value + term, width)
        value, previous = following, value
        count -= 1
        if previous == 0.0 or following == previous:
            # The first addition says nothing of those that follow; one that was lost, all.
            if following == previous:
                return value
            continue
        grid = math.ldexp(1.0, max(exponent - digits, lowest))
        place = term / grid
        if abs(place - np.floor(place) - 0.5) < _HALFWAY:
            continue
        step = following - previous
        room = np.floor((math.ldexp(1.0, exponent) - following) / step) - 1.0
        if room >= 1.0:
            steps = min(int(room), count)
            value += steps * step
            count -= steps
    return value


# See unpacking.py.
_U = np.uintp

ANALYTICAL = 1
SAMPLE = 2


@kernel
def event_rate(event: int, ids: npt.NDArray[np.int32], rates: Floats) -> float:
    """Rate of an event, the last one if it is not among ``ids``, which ascend."""
    place = place_of(event, ids)
    return float(rates[place if place >= 0 else len(ids)])


@inlined
def _write_samples(
    event: int, ident: int, exposure: int, sidx: Sidx, bits: Bits, losses: Losses, out: Words
) -> None:
    """Write a row of SELT for each pair, as 32-bit words.

    A row written field by field takes thrice as long, because the compiler cannot
    interleave records.
    """
    if len(out) == 5 * len(sidx):
        for i in range(len(sidx)):
            at = _U(5) * _U(i)
            out[at] = event
            out[at + _U(1)] = ident
            out[at + _U(2)] = sidx[i]
            out[at + _U(3)] = bits[i]
            out[at + _U(4)] = exposure if losses[i] != 0 else 0
        return
    for i in range(len(sidx)):
        at = _U(7) * _U(i)
        impacted = exposure if losses[i] != 0 else 0
        out[at] = event
        out[at + _U(1)] = ident
        out[at + _U(2)] = sidx[i]
        out[at + _U(3)] = np.int32(bits[i])
        out[at + _U(4)] = np.int64(bits[i]) >> 32
        out[at + _U(5)] = np.int32(impacted)
        out[at + _U(6)] = np.int64(impacted) >> 32


@inlined
def write_selt(rules: Record, state: Record, scratch: Scratch, words: Words) -> None:
    """One row for each pair but the maximum loss, in the order they came."""
    s = state[0]
    b = scratch.block[0]
    sidx = scratch.sidx
    bits = scratch.bits
    losses = scratch.losses
    size = 5 if rules[0]["width"] == 4 else 7
    # The exposure as bits of a loss: scratch has room after the pairs.
    losses[len(losses) - 1] = b["exposure"]
    exposure = bits[len(bits) - 1]
    event = b["event"]
    ident = b["id"]
    k = s["selt_rows"]
    pairs = b["pairs"]
    # The special pairs of a clean block come first, else they may be anywhere.
    head = min(b["first"], pairs)
    for i in range(head):
        if sidx[i] != SIDX_MAX_LOSS:
            row = words[size * k : size * (k + 1)]
            _write_samples(
                event, ident, exposure, sidx[i : i + 1], bits[i : i + 1], losses[i : i + 1], row
            )
            k += 1
    rest = pairs - head
    rows = words[size * k : size * (k + rest)]
    _write_samples(
        event, ident, exposure, sidx[head:pairs], bits[head:pairs], losses[head:pairs], rows
    )
    s["selt_rows"] = k + rest


@inlined
def _count_unexposed(state: Record, block: Record) -> None:
    """Count a block that has losses, but no exposure."""
    b = block[0]
    state[0]["unexposed"] += int(b["mean"] != 0 or b["positives"] > 0)


@inlined
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
        _count_unexposed(state, block)
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
def _max_loss_so_far(scratch: Scratch) -> float:
    """The maximum loss if it comes before the mean in the block, else 0."""
    b = scratch.block[0]
    for i in range(b["pairs"]):
        if scratch.sidx[i] == SIDX_MAX_LOSS:
            return float(b["max_loss"])
        if scratch.sidx[i] == SIDX_MEAN:
            break
    return 0.0


@subkernel
def _differ(losses: Losses, samples: int) -> bool:
    """Whether two samples differ, absent ones being 0: whether their true deviation is above 0."""
    first = losses[0] if len(losses) == samples else 0.0
    equal = 0
    while equal < len(losses) and losses[equal] == first:
        equal += 1
    return equal < len(losses)


@subkernel
def write_mplt(rules: Record, state: Record, scratch: Scratch, losses: Losses, rows: Rows) -> None:
    """The analytical row if the mean is a loss, the sample row if samples are.

    Three things are as ``pltpy`` has them, to the last byte: chance and mean impacted exposure
    are rounded after every sample, and the analytical row has the maximum loss only if that
    comes before the mean in the stream. ``losses`` are the block's samples only.
    """
    s = state[0]
    b = scratch.block[0]
    exposure = b["exposure"]
    k = s["mplt_rows"]
    if b["mean"] > 0:
        row = rows[k]
        row["EventId"] = b["event"]
        row["SummaryId"] = b["id"]
        row["SampleType"] = ANALYTICAL
        row["ChanceOfLoss"] = 0.0
        row["MeanLoss"] = b["mean"]
        row["SDLoss"] = 0.0
        row["MaxLoss"] = _max_loss_so_far(scratch)
        row["FootprintExposure"] = exposure
        row["MeanImpactedExposure"] = exposure
        row["MaxImpactedExposure"] = exposure
        k += 1
    if len(losses) > 0:
        samples = rules[0]["samples"]
        width = rules[0]["width"]
        hits = b["positives"]
        mean, deviation = mean_and_deviation(losses, samples, b["mean"], scratch.lanes)
        if mean > 0 or _differ(losses, samples):
            row = rows[k]
            row["EventId"] = b["event"]
            row["SummaryId"] = b["id"]
            row["SampleType"] = SAMPLE
            row["ChanceOfLoss"] = repeated_sum(1.0 / samples, hits, width)
            row["MeanLoss"] = mean
            row["SDLoss"] = deviation
            row["MaxLoss"] = b["max_loss"]
            row["FootprintExposure"] = exposure
            row["MeanImpactedExposure"] = repeated_sum(exposure / samples, hits, width)
            row["MaxImpactedExposure"] = exposure if hits > 0 else 0.0
            k += 1
    s["mplt_rows"] = k


@inlined
def write_quantiles(
    rules: Record,
    state: Record,
    scratch: Scratch,
    losses: Losses,
    inputs: Parameters,
    tables: Tables,
) -> None:
    """One row per quantile: in QPLT of every summary, in QELT of one that has exposure.

    ``losses`` are the block's samples only.
    """
    s = state[0]
    r = rules[0]
    b = scratch.block[0]
    exposed = r["qelt"] and b["exposure"] > 0
    if r["qelt"] and not (exposed or r["melt"]):
        _count_unexposed(state, scratch.block)
    if not (exposed or r["qplt"]):
        return
    order_statistics(losses, b["negatives"], r["samples"], inputs.ranks, scratch)
    if exposed:
        s["qelt_rows"] = _write_picked(scratch, inputs, s["qelt_rows"], tables.qelt)
    if r["qplt"]:
        s["qplt_rows"] = _write_picked(scratch, inputs, s["qplt_rows"], tables.qplt)


@inlined
def _write_picked(scratch: Scratch, inputs: Parameters, k: int, rows: Rows) -> int:
    """Write a row per quantile from row ``k`` on; return the row after."""
    b = scratch.block[0]
    picked = scratch.picked
    for i in range(len(inputs.quantiles)):
        below = picked[inputs.positions[i, 0]]
        above = picked[inputs.positions[i, 1]]
        row = rows[k]
        row["EventId"] = b["event"]
        row["SummaryId"] = b["id"]
        row["Quantile"] = inputs.quantiles[i]
        row["Loss"] = below + (above - below) * inputs.fractions[i]
        k += 1
    return k


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
