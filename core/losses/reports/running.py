"""Reports of whole runs, computed from the ledger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ...arrays import Floats, Indices, Rows
from ...errors import OptionError
from ..inputs import Occurrence, Periods, ReturnPeriods
from ..ledger.batches import Batch
from .report import Setting

TailMean = Literal["count", "weight"]

CURVES = "FfSsMmWw"
"""Letters of the exceedance curves, as the peer's flags."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How reports of whole runs are computed.

    Raises:
        OptionError: a value is not one of those documented.
    """

    confidence: float = 0.95
    """Confidence level of ALCT's intervals, 0 to below 1."""
    curves: str = CURVES
    """Letters of the requested curves: F full uncertainty, S sample mean, M per-sample mean (EPT)
    and W per sample (PSEPT), capital for AEP, small for OEP."""
    tvar: TailMean = "count"
    """TVaR as the mean of the losses above by their number, as the peer, or by their weight."""

    def __post_init__(self) -> None:
        if not 0 <= self.confidence < 1:
            raise OptionError(
                f"confidence is {self.confidence}, but must be from 0 to below 1",
                hint="The usual level is 0.95",
            )
        unknown = sorted(set(self.curves) - set(CURVES))
        if unknown or not self.curves:
            raise OptionError(
                f"curves are {self.curves!r}, but must be letters of {CURVES}",
                hint="F full uncertainty, S sample mean, M per-sample mean, W per sample;"
                " capital for AEP, small for OEP",
            )
        if self.tvar not in get_args(TailMean):
            raise OptionError(f"tvar is {self.tvar!r}, but must be one of count, weight")

    def octets(self) -> bytes:
        """The options, as bytes to identify them by."""
        return f"{self.confidence!r} {''.join(sorted(self.curves))} {self.tvar}".encode()


@dataclass(frozen=True, slots=True, eq=False)
class RunSetting(Setting):
    """What a calculator knows before the first summary."""

    options: RunOptions
    requested: frozenset[str]
    """Names of all requested reports."""

    @property
    def periods(self) -> int:
        """Number of periods."""
        occurrence: Occurrence = self.inputs["occurrence"]
        return occurrence.periods

    @property
    def weights(self) -> Floats:
        """Weights of the periods, empty if none were given; shape (periods,)."""
        periods: Periods | None = self.inputs.get("periods")
        return np.zeros(0) if periods is None else np.array(periods.weights)

    @property
    def return_periods(self) -> Floats:
        """Requested return periods, descending; empty if none were given."""
        years: ReturnPeriods | None = self.inputs.get("return_periods")
        return np.zeros(0) if years is None else years.years.astype(np.float64)


class Calculator(ABC):
    """Computes the rows of a report from the ledger, some summaries at a time."""

    @abstractmethod
    def compute(self, batch: Batch) -> tuple[Rows, Rows]:
        """The rows about some summaries, and those that come after the rows of all summaries.

        Several threads may call it at once.
        """

    @abstractmethod
    def weigh(self, cells: Indices, references: Indices) -> Indices:
        """Bytes of memory for summaries of so many cells and references.

        Args:
            cells: of each summary, shape (summaries,).
            references: to stretches of each, shape (summaries,).
        """


def empty_rows(dtype: np.dtype[np.void]) -> Rows:
    """No rows."""
    return np.zeros(0, dtype)


def as_rows(dtype: np.dtype[np.void], columns: Sequence[npt.NDArray[Any] | float]) -> Rows:
    """Rows of these columns, in the order of the report."""
    count = max(np.size(column) for column in columns if np.ndim(column))
    rows = np.empty(count, dtype)
    # Losses beyond float32 print as infinite, as they do in the reports of events.
    with np.errstate(over="ignore"):
        for name, column in zip(dtype.names or (), columns, strict=True):
            rows[name] = column
    return rows
