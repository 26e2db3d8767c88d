"""Moments of what a layer recovers, over periods and samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Floats

WEIGHT = 0
SUM = 1
SQUARES = 2
EXHAUSTED = 3
PREMIUM = 4
MOMENTS = 5
"""Columns of moments."""


@subkernel
def _reinstated(recovered: float, line: float, most: float, charges: Floats) -> float:
    """What is reinstated of a recovered amount, times the charge of each reinstatement."""
    total = 0.0
    reinstated = min(recovered, most)
    for i in range(len(charges)):
        used = reinstated - i * line
        if used <= 0.0:
            break
        total += charges[i] * min(used, line)
    return total


@kernel
def reinstate(recovered: Floats, line: float, most: float, charges: Floats, out: Floats) -> None:
    """Limits that are reinstated, times their charges.

    Args:
        recovered: of the whole layer by cell.
        line: limit of the layer.
        most: what can be reinstated of a period.
        charges: of its reinstatements; empty if there are none.
        out: receives a value for each cell, a proportion of the premium.
    """
    for cell in range(len(recovered)):
        out[cell] = _reinstated(recovered[cell], line, most, charges) / line


@kernel
def weigh(
    recovered: Floats,
    exhausted: npt.NDArray[np.uint8],
    periods: npt.NDArray[np.int32],
    samples: npt.NDArray[np.int32],
    weights: Floats,
    line: float,
    most: float,
    charges: Floats,
    centres: Floats,
    moments: Floats,
) -> None:
    """Add up moments of samples and of the numerical mean, of cells with a recovery.

    The others, which are the most, count as those that are not there.

    Args:
        recovered: of the whole layer by cell.
        exhausted: whether it is exhausted, by cell.
        periods: of the cells.
        samples: of the cells.
        weights: of the periods; empty if they are equally likely, then each weighs 1.
        line: limit of the layer.
        most: what can be reinstated of a period.
        charges: of its reinstatements.
        centres: about which squares are, of samples and of the mean.
        moments: receives them, shape (2, MOMENTS).
    """
    moments[:] = 0.0
    for cell in range(len(recovered)):
        loss = recovered[cell]
        if loss == 0.0:
            continue
        weight = weights[periods[cell] - 1] if len(weights) else 1.0
        kind = int(samples[cell] == 0)
        off = loss - centres[kind]
        moments[kind, WEIGHT] += weight
        moments[kind, SUM] += weight * loss
        moments[kind, SQUARES] += weight * off * off
        moments[kind, EXHAUSTED] += weight * exhausted[cell]
        moments[kind, PREMIUM] += weight * _reinstated(loss, line, most, charges)
