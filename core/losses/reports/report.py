"""What a report is: the row that says everything about it.

A new report is a module of this package with a row, and its line in
:data:`core.losses.reports.REPORTS`. Choosing, encoding, merging, the HTTP interface and the
commands ask the row; none of them knows a report by name.

The kernels write six tables in their pass over a stream: ``events``, ``selt``, ``melt``,
``qelt``, ``mplt`` and ``qplt``. The reports of the first four are those tables as they are. Any
other report names the table it is computed from and gives an :class:`Expander`, which takes
its rows in pieces::

    blocks --scan--> rows of the tables --+----------------------------------------> sink
                                          +--> Expander.take -> rows, in pieces -> sink

Reports of whole runs, which are computed from the ledger, give a :class:`Calculator` instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ...arrays import Floats, Indices, Rows
from ...errors import OptionError
from ..events import StreamHeader
from ..format import Kind, beyond
from ..inputs import Occurrence, Periods, ReturnPeriods
from ..ledger.batches import Batch

Scope = Literal["event", "period", "run"]

ANY_KIND = frozenset(Kind)
SUMMARIES = frozenset({Kind.SUMMARY})


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a report."""

    name: str
    type: str
    """``i4``, ``f8``, or ``loss`` for the float width of the stream."""
    decimals: int | None
    """Digits after the point in csv; None for integers."""
    description: str
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """Something besides the stream that a report is computed from."""

    name: str
    """As in requests."""
    noun: str
    """In messages, plural."""
    hint: str
    """What to give where it is missing."""


QUANTILES = Input("quantiles", "quantiles", "Give a list or a quantile file")
EVENT_RATES = Input("event_rates", "event rates", "Give a file of rates or of occurrences")
OCCURRENCE = Input("occurrence", "occurrences", "Give an occurrence file")
PERIODS = Input("periods", "period weights", "Give a periods file")
RETURN_PERIODS = Input("return_periods", "return periods", "Give a list or a file of them")


@dataclass(frozen=True, slots=True)
class Setting:
    """What an expander knows before the first row."""

    header: StreamHeader
    dtype: np.dtype[np.void]
    """Dtype of the rows of its report."""
    inputs: Mapping[str, Any]
    """By name; only those that were given."""


class Expander(ABC):
    """Computes the rows of a report from those of the one table it is computed from.

    It has no state: the rows of an event follow from the rows of that event alone. Where rows
    have to wait, those of the table wait, because they are fewer.
    """

    @abstractmethod
    def take(self, rows: Rows) -> Iterable[Rows]:
        """Take rows of the table; return those of the report in pieces of bounded size.

        Args:
            rows: of complete blocks, in the order of the stream.

        Returns:
            Pieces, each valid until the next.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report of loss streams."""

    name: str
    """In requests and file names."""
    title: str
    columns: tuple[Column, ...]
    kinds: frozenset[Kind] = SUMMARIES
    """Kinds of stream it can be computed from."""
    scope: Scope = "event"
    """What a row is about. Rows of an event or of its periods are complete with the event;
    those of a run exist at its end."""
    needs: tuple[Input, ...] = ()
    """Inputs without which it cannot be computed."""
    takes: tuple[Input, ...] = ()
    """Inputs it can be computed without."""
    options: tuple[str, ...] = ()
    """Names of the ``RunOptions`` that it depends on."""
    curves: str = ""
    """Letters of its curves, if it has any."""
    table: str = ""
    """Table of the pass it is computed from, if that is not the one that has its name."""
    expand: Callable[[Setting], Expander] | None = None
    """Computes it from the rows of the table; a report without is the table as it is."""
    calculate: Callable[[RunSetting], Calculator] | None = None
    """Computes it from the ledger, for the scope ``run``; it needs no table then."""
    table_columns: tuple[Column, ...] = ()
    """Columns of the table of the pass that has its name, if they are not its own."""
    key: str = "SummaryId"
    """Column of what a row is about, by which texts that describe it are joined."""
    buffer_rows: int = 0
    """Rows that a table of the pass holds before they are handed on. About a megabyte, so
    that they are still in the second-level cache when they are encoded."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Tables of the pass that its rows come from: one, or none."""
        return () if self.calculate is not None else (self.table or self.name,)

    @property
    def has_summaries(self) -> bool:
        """Whether a row is about one summary."""
        return any(column.name == self.key for column in self.columns)

    @property
    def header(self) -> str:
        """The csv header line, without line end."""
        return ",".join(column.name for column in self.columns)

    def dtype(self, float_width: int) -> np.dtype[np.void]:
        """Packed little-endian record of one row."""
        return _record(self.columns, float_width)

    def table_dtype(self, float_width: int) -> np.dtype[np.void]:
        """Record of one row of the table of the pass that has its name."""
        return _record(self.table_columns or self.columns, float_width)

    def describe(self, column: str) -> dict[str, str]:
        """What a column means and, for amounts, in which unit it is."""
        found = next(c for c in self.columns if c.name == column)
        unit = {} if found.unit is None else {"unit": found.unit}
        return {"description": found.description, **unit}


@cache
def _record(columns: tuple[Column, ...], float_width: int) -> np.dtype[np.void]:
    loss = f"f{float_width}"
    return np.dtype([(c.name, f"<{loss if c.type == 'loss' else c.type}") for c in columns])


CURRENCY = "currency of the exposure"


def integer(name: str, description: str) -> Column:
    """A column of integers."""
    return Column(name, "i4", None, description)


def amount(name: str, decimals: int, description: str, dtype: str = "loss") -> Column:
    """A column of amounts of money."""
    return Column(name, dtype, decimals, description, CURRENCY)


def number(name: str, decimals: int, description: str, dtype: str = "loss") -> Column:
    """A column of numbers without a unit."""
    return Column(name, dtype, decimals, description)


EVENT_ID = integer("EventId", "Event")
SUMMARY_ID = integer("SummaryId", "Summary within its set")
SAMPLE_TYPE = integer("SampleType", "1 analytical mean, 2 statistics of the samples")

OF_RUN = partial(Report, scope="run", needs=(OCCURRENCE,), takes=(PERIODS,))
"""A report of a whole run."""


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
    """Rows of these columns, in the order of the report.

    Raises:
        LimitError: as :func:`check_width`.
    """
    count = max(np.size(column) for column in columns if np.ndim(column))
    rows = np.empty(count, dtype)
    with np.errstate(over="ignore"):
        for name, column in zip(dtype.names or (), columns, strict=True):
            rows[name] = column
    check_width(rows)
    return rows


def check_width(rows: Rows) -> None:
    """Refuse numbers that their float width does not hold: they have become infinite.

    Raises:
        LimitError: naming the first row that has one, and its column.
    """
    names = [name for name in rows.dtype.names or () if rows.dtype[name].kind == "f"]
    wide = {
        name: int(np.argmax(is_wide)) for name in names if (is_wide := np.isinf(rows[name])).any()
    }
    if wide:
        name = min(wide, key=lambda name: wide[name])
        row = rows[wide[name]]
        keys = [f"{key} {row[key]}" for key in row.dtype.names[:2] if row.dtype[key].kind == "i"]
        raise beyond(f"{name} of {', '.join(keys)} is", row.dtype[name].itemsize)
