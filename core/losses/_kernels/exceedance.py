"""Which losses make each exceedance curve of some summaries.

======  ==================  ===============================================  ==========
EPCalc  name                losses of the curve, for each summary            years M
======  ==================  ===============================================  ==========
1       mean damage         numerical mean of each period                    P
2       full uncertainty    every sample of every period                     P x samples
3       per-sample mean     mean over samples of their curves                P
4       sample mean         mean over samples of each period                 P
(PSEPT) per sample          one sample of every period: a curve each         P
======  ==================  ===============================================  ==========

Each is drawn twice: of the largest loss of a period (OEP), and of the sum of its losses (AEP).
A loss is above 0; at return periods a summary or sample has a curve if the stream has any loss
of it, and where years have weights zeros count as years used.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ..._vectors import ask_for
from ...arrays import Floats, Indices
from .cells import Cells
from .layout import ZERO

# See unpacking.py.
_U = np.uintp

MEAN_DAMAGE = 1
FULL = 2
PER_SAMPLE_MEAN = 3
SAMPLE_MEAN = 4

ANY_ROW = 1
KEEP_ZEROS = 2
WITH_YEARS = 4
"""Flags: zeros make a curve, zeros are losses of it, periods are collected too."""


_AHEAD = 16
"""Losses of a sample between that which is written and that whose memory is asked for."""


@kernel
def find_middles(cells: Cells, middles: Indices) -> None:
    """Find the first cell of a sample of each group, after that of the numerical mean.

    Found once: where a loop began at what it has just read, the processor would wait for it.
    """
    for group in range(len(middles)):
        first = cells.starts[group]
        has_cell = first < cells.starts[group + 1]
        middles[group] = first + int(has_cell and cells.samples[first] == 0)


@kernel
def gather_summaries(
    cells: Cells,
    losses: Floats,
    groups: Indices,
    middles: Indices,
    calculation: int,
    samples: int,
    flags: int,
    values: Floats,
    years: Indices,
    starts: Indices,
    used: npt.NDArray[np.int32],
    used_starts: Indices,
    drawn: npt.NDArray[np.uint8],
) -> None:
    """Collect the losses of one curve for each summary.

    Args:
        cells: of the summaries.
        losses: their sums, or largest losses.
        groups: first group of each summary, shape (summaries + 1,).
        middles: of ``find_middles``.
        calculation: an EPCalc other than 3.
        samples: len_sample.
        flags: ANY_ROW, KEEP_ZEROS, WITH_YEARS.
        values: receives the losses; as long as the cells, as the periods.
        years: receives the period of each, if WITH_YEARS.
        starts: receives the first loss of each summary, shape (summaries + 1,).
        used: receives the periods that have a row; as long as the groups.
        used_starts: receives the first of them, shape (summaries + 1,).
        drawn: receives 1 where there is a curve, shape (summaries,).
    """
    n = ZERO
    periods = ZERO
    zeros = flags & KEEP_ZEROS != 0
    for s in range(len(groups) - 1):
        starts[s] = n
        used_starts[s] = periods
        for group in range(groups[s], groups[s + 1]):
            first, last = middles[group], cells.starts[group + 1]
            if calculation == MEAN_DAMAGE:
                first, last = cells.starts[group], middles[group]
            before = n
            if calculation != SAMPLE_MEAN:
                # Written for every loss, and kept if it counts: no branch to mispredict.
                for k in range(first, last):
                    values[_U(n)] = max(losses[k], 0.0)
                    n += int(losses[k] > 0.0 or zeros)
            elif last > first:
                total = 0.0
                for k in range(first, last):
                    total += max(losses[k], 0.0)
                values[n] = total / samples
                n += int(total > 0.0 or zeros)
            if flags & WITH_YEARS:
                years[before:n] = cells.periods[group]
            if n > before or (flags & ANY_ROW and last > first):
                used[periods] = cells.periods[group]
                periods += 1
        drawn[s] = periods > used_starts[s]
    starts[len(groups) - 1] = n
    used_starts[len(groups) - 1] = periods


@subkernel
def _count_samples(
    cells: Cells, losses: Floats, begin: int, end: int, flags: int, places: Indices, rows: Indices
) -> None:
    """Count losses and rows of each sample, the numerical mean included."""
    places[:] = 0
    rows[:] = 0
    for k in range(cells.starts[begin], cells.starts[end]):
        sample = _U(cells.samples[k])
        places[sample] += int(losses[k] > 0.0 or flags & KEEP_ZEROS != 0)
        rows[sample] += int(losses[k] > 0.0 or flags & ANY_ROW != 0)


@kernel
def gather_samples(
    cells: Cells,
    losses: Floats,
    groups: Indices,
    middles: Indices,
    flags: int,
    places: Indices,
    rows: Indices,
    values: Floats,
    years: Indices,
    starts: Indices,
    labels: Indices,
    owners: Indices,
) -> int:
    """Collect the losses of a curve for each sample of each summary; return the curves.

    Args:
        cells: of the summaries.
        losses: their sums, or largest losses.
        groups: first group of each summary, shape (summaries + 1,).
        middles: of ``find_middles``.
        flags: ANY_ROW, KEEP_ZEROS, WITH_YEARS.
        places: scratch, shape (samples + 1,).
        rows: scratch, shape (samples + 1,).
        values: receives the losses by curve and period; as long as the cells, as the periods.
        years: receives the period of each, if WITH_YEARS.
        starts: receives the first loss of each curve; of one more than the curves.
        labels: receives the sample of each curve.
        owners: receives the summary of each curve.
    """
    curves = ZERO
    n = ZERO
    for s in range(len(groups) - 1):
        begin = groups[s]
        end = groups[s + 1]
        _count_samples(cells, losses, begin, end, flags, places, rows)
        for sample in range(1, len(places)):
            count = places[sample]
            places[sample] = n
            if rows[sample]:
                starts[curves] = n
                labels[curves] = sample
                owners[curves] = s
                curves += 1
            n += count
        for group in range(begin, end):
            for k in range(middles[group], cells.starts[group + 1]):
                if losses[k] > 0.0 or flags & KEEP_ZEROS:
                    sample = int(cells.samples[k])
                    place = places[_U(sample)]
                    ask_for(values, place + _AHEAD)
                    values[_U(place)] = max(losses[k], 0.0)
                    if flags & WITH_YEARS:
                        years[place] = cells.periods[group]
                    places[_U(sample)] = place + 1
    starts[curves] = n
    return curves
