"""Cells of losses that are left or ceded, so that reports can be made of them."""

from __future__ import annotations

import numpy as np

from ..budget import Scope, current
from ..losses._kernels.cells import Cells
from ..slices import grouped
from ..sorting import order_of, starts_of
from .losses import Int32s, OccurrenceLosses

_STAGE = "net losses"
_ROW_BYTES = 64
_CELL_BYTES = 24


def cells_of(losses: OccurrenceLosses, parts: Int32s, groups: int) -> Cells:
    """Return sums and largest losses by part, period and sample.

    Args:
        losses: occurrence by occurrence, of all parts; rows may be 0.
        parts: of each row; empty if there is one.
        groups: number of parts.

    Raises:
        WorkStoppedError: they do not fit, or nobody waits for the result.
    """
    current().hold(_STAGE, _CELL_BYTES * min(len(losses.losses), groups * len(losses.periods)))
    with Scope(_STAGE, _ROW_BYTES * len(losses.losses)):
        cells = np.repeat(np.arange(len(losses.periods)), np.diff(losses.starts))
        kept = np.flatnonzero(losses.losses > 0)
        of = np.zeros(len(kept), np.int64) if len(parts) == 0 else parts[kept].astype(np.int64)
        keys = of * len(losses.periods) + cells[kept]
        current().check(_STAGE)
        if groups > 1:
            keys, order = order_of(keys, _STAGE)
            kept = kept[order]
        current().check(_STAGE)
        starts = starts_of(keys)
        firsts = keys[starts[:-1]]
        amounts = losses.losses[kept]
        sums, largest = np.empty(len(firsts)), np.empty(len(firsts))
        for a, b in grouped(starts, _STAGE):
            part, begins = amounts[starts[a] : starts[b]], starts[a:b] - starts[a]
            sums[a:b] = np.add.reduceat(part, begins)
            largest[a:b] = np.maximum.reduceat(part, begins)
        owners, places = np.divmod(firsts, max(len(losses.periods), 1))
        periods = losses.periods[places]
        changes = starts_of(owners << 32 | periods)
        return Cells(
            owners[changes[:-1]].astype(np.int32),
            periods[changes[:-1]],
            changes,
            losses.samples[places],
            sums,
            largest,
        )
