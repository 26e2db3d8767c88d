"""From the cells of periods to the moments of annual averages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel
from ...arrays import Floats, Indices
from ...losses._kernels.annual import PART, SQUARES
from ...losses._kernels.moments import squared_deviations, total


@kernel
def reduce_cells(
    starts: Indices,
    samples: npt.NDArray[np.int32],
    sums: Floats,
    row: Floats,
    lanes: Floats,
    lows: Indices,
    highs: Indices,
    moments: Floats,
) -> None:
    """Reduce the sums of periods to moments, as the report of annual averages does.

    Args:
        starts: first cell of each period, shape (periods + 1,).
        samples: of the cells.
        sums: of the cells.
        row: zeros, shape (samples + 1,).
        lanes: scratch, shape (LANES,).
        lows: first sample of each subset, shape (subsets,).
        highs: sample after the last of each.
        moments: receives PART and SQUARES; shape (periods, subsets, MOMENTS).
    """
    for group in range(len(starts) - 1):
        for k in range(starts[group], starts[group + 1]):
            row[samples[k]] = sums[k]
        for i in range(len(lows)):
            losses = row[lows[i] : highs[i]]
            part = total(losses, lanes)
            moments[group, i, PART] = part
            moments[group, i, SQUARES] = squared_deviations(losses, part / len(losses), lanes)
        for k in range(starts[group], starts[group + 1]):
            row[samples[k]] = 0.0
