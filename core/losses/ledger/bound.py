"""How large a ledger can become, before any loss is read."""

from __future__ import annotations

from dataclasses import dataclass

from .._kernels.stretches import HEAD
from .calendar import Calendar

CELL_BYTES = 64
"""Memory for each cell of a summary while its reports are computed."""


@dataclass(frozen=True, slots=True)
class LedgerBound:
    """The most a ledger can take, if every summary has every sample in every period."""

    cells: int
    """Sums of one summary, period and sample."""
    state_bytes: int
    """In memory or spilled, in all."""
    least_budget: int
    """Memory that suffices, the rest being spilled: that of one summary's reports."""


def ledger_bound(
    calendar: Calendar, samples: int, float_width: int, summaries: int = 1
) -> LedgerBound:
    """State the bound of a ledger.

    Args:
        calendar: only periods in which something happens count.
        samples: len_sample.
        float_width: bytes of a loss.
        summaries: how many there are; for one, the bound is that of each.
    """
    groups = calendar.busy_periods
    cells = groups * (samples + 1)
    # Two parts of the exact sum and the largest loss, which bits may mark as there.
    stretch = 4 * HEAD + (samples + 1) * (16 + float_width) + samples // 8 + 16
    return LedgerBound(
        cells=summaries * cells,
        state_bytes=summaries * groups * stretch,
        least_budget=cells * CELL_BYTES + groups * (stretch + 32),
    )
