"""The inputs of reports in the shape kernels take them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Floats, Indices
from ..budget import current
from ..errors import InputError
from ._kernels.layout import Parameters
from .format import LOSS_DTYPES
from .inputs import EventRates, Occurrence, Periods, ReturnPeriods, encode_occurrence

_ROUNDING = 1e-4
"""Years beyond the longest return period that still have its loss, as curves are read."""


@dataclass(frozen=True, slots=True, eq=False)
class ReportInputs:
    """The inputs of an analysis, besides the stream; None for those not given."""

    quantiles: npt.NDArray[np.float32] | None = None
    """Shape (k,), each 0 to 1."""
    event_rates: EventRates | None = None
    occurrence: Occurrence | None = None
    periods: Periods | None = None
    return_periods: ReturnPeriods | None = None

    def __post_init__(self) -> None:
        if self.occurrence is None or self.periods is None:
            return
        weighted, declared = len(self.periods.weights), self.occurrence.periods
        if weighted != declared:
            raise InputError(
                f"{weighted} periods have a weight, but occurrences are of {declared} periods",
                hint="Give the periods file of the same model",
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the inputs that are given, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @property
    def rates(self) -> EventRates | None:
        """Event rates as given, else those of the occurrences."""
        if self.event_rates is None and self.occurrence is not None:
            return self.occurrence.event_rates()
        return self.event_rates

    @property
    def longest_return_period(self) -> int | None:
        """Years up to which the periods tell losses; None unless a longer one is asked for.

        Beyond, curves of full uncertainty alone have points: each sample is a year of theirs.
        """
        if self.return_periods is None or self.occurrence is None:
            return None
        longest = self.occurrence.periods
        if self.periods is not None:
            weights = self.periods.weights
            longest = int(1 / weights.min(where=weights > 0, initial=1.0) + _ROUNDING)
        return longest if self.return_periods.years.max() > longest else None

    def octets(self) -> list[bytes]:
        """Return the inputs that are given, as bytes to identify them by."""
        parts = []
        if self.quantiles is not None:
            parts.append(self.quantiles.tobytes())
        if self.event_rates is not None:
            parts += [self.event_rates.event_ids.tobytes(), self.event_rates.rates.tobytes()]
        if self.occurrence is not None:
            parts += [b"occurrence", encode_occurrence(self.occurrence, "bin")]
        if self.periods is not None:
            parts += [b"periods", self.periods.weights.tobytes()]
        if self.return_periods is not None:
            parts += [b"return_periods", self.return_periods.years.tobytes()]
        return parts


def locate_quantiles(
    quantiles: npt.NDArray[np.float32], samples: int
) -> tuple[Indices, Floats, Indices]:
    """Where each quantile lies among sorted samples, by definition R-7.

    Definition 7 of Hyndman and Fan (1996): position (N - 1) q + 1 of the order
    statistics 1 to N, linear in between.

    Returns:
        (index in ranks of the order statistics below and above, shape (k, 2);
        fraction of the way between them, shape (k,); ranks, 0-based, ascending)
    """
    position = quantiles.astype(np.float64) * (samples - 1)
    below = np.minimum(position.astype(np.int64), samples - 1)
    above = np.minimum(below + 1, samples - 1)
    wanted = np.zeros(max(samples, 1), bool)
    wanted[below] = wanted[above] = True
    index = np.cumsum(wanted) - 1
    current().check("quantiles")
    return np.stack([index[below], index[above]], axis=1), position - below, np.flatnonzero(wanted)


def make_parameters(samples: int, float_width: int, inputs: ReportInputs) -> Parameters:
    """The kernels' inputs for streams of ``samples`` samples.

    Fractions have the stream's float type and quantiles are interpolated in it, as
    ``eltpy`` does: the tables are equal to the last byte, and at most one unit in
    the last place of a float32 away from interpolation in float64.
    """
    q = np.zeros(0, np.float32) if inputs.quantiles is None else inputs.quantiles
    positions, fractions, ranks = locate_quantiles(q, samples)
    given = inputs.rates
    ids, rates = (np.zeros(0), np.zeros(0)) if given is None else (given.event_ids, given.rates)
    occurrence = inputs.occurrence
    occurring = np.zeros(0) if occurrence is None else occurrence.events()
    return Parameters(
        rate_ids=np.array(ids, np.int32),
        rates=np.array(rates, np.float64),
        quantiles=np.array(q, np.float32),
        positions=positions,
        fractions=fractions.astype(LOSS_DTYPES[float_width]),
        ranks=ranks,
        occurring=np.array(occurring, np.int32),
    )
