"""What kernels take besides the stream: rules, scratch memory, and the inputs of reports."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Floats, Indices
from ..budget import current
from ..errors import InputError
from ._kernels import layout
from ._kernels.layout import Parameters, Record, Scratch
from ._kernels.quantiles import BUCKETS, STACK, TALLIES
from .events import StreamHeader
from .format import ID_MAX, LOSS_DTYPES, Kind
from .inputs import EventRates, Occurrence, Periods, ReturnPeriods, encode_occurrence
from .policy import Policy

_NAN_CODES = {"error": layout.NAN_ERROR, "zero": layout.NAN_ZERO, "drop": layout.NAN_DROP}


def make_scratch(samples: int, float_width: int, ranks: int = 0) -> Scratch:
    """Allocate scratch memory for blocks of up to ``samples`` samples."""
    losses = np.zeros(layout.scratch_size(samples), LOSS_DTYPES[float_width])
    bits = losses.view(f"i{float_width}")
    work = np.zeros(2 * samples + layout.LANES, losses.dtype)
    # Both take more than all else that a small stream needs.
    buckets, stack = (BUCKETS, STACK) if ranks else (0, 1)
    infinity = np.array([np.inf], losses.dtype).view(bits.dtype)[0]
    return Scratch(
        block=np.zeros(1, layout.BLOCK),
        sidx=np.zeros(len(losses), np.int32),
        bits=bits,
        losses=losses,
        limits=np.array([infinity, np.iinfo(bits.dtype).max, 0], bits.dtype),
        marks=np.zeros(samples + 1, np.uint8),
        work=work,
        work_bits=work.view(bits.dtype),
        buckets=np.zeros(samples, np.int32),
        counts=np.zeros((TALLIES + 1) * buckets, np.int32),
        lanes=np.zeros(layout.LANES),
        ranks=np.zeros(ranks, np.int64),
        picked=np.zeros(ranks, losses.dtype),
        stack=np.zeros(4 * stack, np.int64),
    )


def scratch_bytes(samples: int, float_width: int) -> int:
    """About the bytes of scratch memory, without those of order statistics."""
    return samples * (9 + 3 * float_width)


def make_rules(header: StreamHeader, policy: Policy) -> Record:
    """The RULES record of a stream, with no report requested yet."""
    rules = np.zeros(1, layout.RULES)
    rules["samples"] = header.len_sample
    rules["width"] = header.float_width
    rules["summary"] = header.kind is Kind.SUMMARY
    rules["nan"] = _NAN_CODES[policy.nan]
    rules["keep_negative"] = policy.negative == "keep"
    rules["any_order"] = policy.sample_order == "any"
    rules["ascending"] = policy.event_order == "ascending"
    return rules


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
            least = float(weights.min(where=weights > 0, initial=1.0))
            longest = int(min(1 / least + _ROUNDING, ID_MAX))
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
    table = inputs.rates
    ids, rates = (np.zeros(0), np.zeros(0)) if table is None else (table.event_ids, table.rates)
    occurrence = inputs.occurrence
    occurring = np.zeros(0) if occurrence is None else occurrence.events()
    # An event that never occurs has a rate, 0; that of one without a given rate is not known.
    other = np.nan if occurrence is None or inputs.event_rates is not None else 0.0
    return Parameters(
        rate_ids=np.array(ids, np.int32),
        rates=np.append(rates, other),
        quantiles=np.array(q, np.float32),
        positions=positions,
        fractions=fractions.astype(LOSS_DTYPES[float_width]),
        ranks=ranks,
        occurring=np.array(occurring, np.int32),
    )
