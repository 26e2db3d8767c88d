"""Uses every kernel of the loss engine once, so that it is compiled."""

from __future__ import annotations

import numpy as np

from ..arrays import Rows
from ..errors import TruncatedError
from .analysis import Analysis
from .events import StreamHeader
from .format import FLOAT_WIDTHS, Kind
from .inputs import EventRates, Occurrence, Periods, ReturnPeriods, SummaryMap, SummaryXref
from .ledger.batches import sums_of
from .ledger.partials import export_ledger, import_ledger
from .policy import Policy
from .reader import LossReader
from .reports import REPORTS
from .summaries import Summariser, SummarySets
from .tables import CsvEncoder
from .writer import LossWriter

_SAMPLES = 70
"""More than one group of lanes, so that no loop stays unused."""


def use_losses(float_width: int) -> None:
    """Read a stream with losses of this width, into all reports and into events.

    The stream is cut inside a block first: what finds the fault in the tail of a stream,
    and what continues from a state, are kernels too.
    """
    data = _stream(float_width)
    first = _analysis(float_width)
    first.receive(data[:-8])
    second = _analysis(float_width)
    second.setstate(first.getstate())
    second.receive(data[first.offset :])
    second.close()
    for octets in (data, data[:-4]):
        reader = LossReader(Policy(float_width=float_width))
        reader.receive(octets)
        reader.close()
        try:
            reader.drain()
        except TruncatedError:
            continue


def use_ledgers() -> None:
    """Fill ledgers of both widths."""
    for float_width in FLOAT_WIDTHS:
        _use_ledger(float_width)


def _use_ledger(float_width: int) -> None:
    """Fill a ledger of this width with sums that lose bits, spill it, export and import it."""
    wide = [1e38, 1.0, 1e-38] if float_width == FLOAT_WIDTHS[0] else [1e300, 1.0, 1e-300]
    header = StreamHeader(Kind.SUMMARY, 1, 3, _SAMPLES, 1, float_width)
    writer = LossWriter(header)
    sidx = [-1, *range(1, _SAMPLES + 1)]
    blocks = [writer.block(e, 1, sidx, [x] * len(sidx), 1.0) for e, x in enumerate(wide, 1)]
    blocks += [writer.block(e, 2, [-1, 2], [1.0, 2.0], 1.0) for e in (4, 5)]
    events, periods = np.arange(1, 6, dtype=np.int32), np.ones(5, np.int32)
    occurrence = Occurrence(1, events, periods, np.zeros(5, np.int64))
    ledgers = []
    for spilled in (False, True):
        analysis = Analysis(
            ["aal"],
            lambda _report, _rows: None,
            policy=Policy(float_width=float_width),
            occurrence=occurrence,
        )
        analysis.receive(writer.begin() + b"".join(blocks))
        analysis.close(ends_run=False)
        assert analysis.ledger is not None  # noqa: S101 - AAL needs one
        ledgers.append(analysis.ledger)
        if spilled:
            analysis.ledger.write_run()
    parts: list[bytes] = []
    export_ledger(ledgers[0], parts.append)
    import_ledger(ledgers[1], parts, merges=False)
    for _ in sums_of(ledgers[1]):
        """Cells are not what this is for."""


def use_summaries() -> None:
    """Add up streams of items of both widths: dense and sparse blocks, sums that lose bits."""
    ids = np.array([1, 2], np.int32)
    xref = SummaryXref(ids, ids, np.ones(2, np.int32), None)
    sets = SummarySets(xref, None, SummaryMap(ids, ids, ids, "item_id"))
    for float_width in FLOAT_WIDTHS:
        writer = LossWriter(StreamHeader(Kind.LOSS, 1, 2, _SAMPLES, None, float_width))
        blocks = [
            writer.block(event, item, sidx, [x] * len(sidx))
            for event, x in ((1, 1.0), (2, 1e-30))
            for item in (1, 2)
            for sidx in ([[-1, 1, 2], [-1, *range(1, _SAMPLES + 1)]][item - 1],)
        ]
        summariser = Summariser(
            sets, lambda _set, _octets: None, policy=Policy(float_width=float_width)
        )
        summariser.receive(writer.begin() + b"".join(blocks))
        summariser.close()


def use_curves() -> None:
    """Draw curves with and without weights and return periods."""
    writer = LossWriter(StreamHeader(Kind.SUMMARY, 1, 3, 3, 1, 4))
    block = writer.block(1, 1, [-1, 1, 2, 3], [1.0, 1.0, 2.0, 3.0], 1.0)
    for periods in (None, Periods(np.ones(1))):
        for years in (None, ReturnPeriods(np.ones(1, np.int32))):
            analysis = Analysis(
                ["aal", "alct", "ept", "psept"],
                lambda _report, _rows: None,
                occurrence=_occurrence(),
                periods=periods,
                return_periods=years,
            )
            analysis.receive(writer.begin() + block)
            analysis.close()


def use_tables() -> None:
    """Print a row of every report in both widths."""
    for float_width in FLOAT_WIDTHS:
        for report in REPORTS.values():
            CsvEncoder(report, float_width).encode(np.zeros(1, report.dtype(float_width)))


def _stream(float_width: int) -> bytes:
    header = StreamHeader(Kind.SUMMARY, 1, 3, _SAMPLES, 1, float_width)
    writer = LossWriter(header)
    sidx = [-1, -5, *range(1, _SAMPLES + 1)]
    losses = [1.0, 9.0, *(float(s % 7) for s in range(1, _SAMPLES + 1))]
    blocks = [writer.block(e, s, sidx, losses, 10.0) for e in (1, 2) for s in (1, 2)]
    return writer.begin() + b"".join(blocks)


def _occurrence() -> Occurrence:
    once = np.ones(1, np.int32)
    return Occurrence(1, once, once, np.zeros(1, np.int64))


def _analysis(float_width: int) -> Analysis:
    def sink(_report: str, _rows: Rows) -> None:
        """Rows are not what this is for."""

    return Analysis(
        [name for name, report in REPORTS.items() if report.calculate is None],
        sink,
        policy=Policy(float_width=float_width, event_order="ascending"),
        quantiles=np.array([0.0, 0.5, 0.9], np.float32),
        event_rates=EventRates(np.array([1], np.int32), np.array([0.5])),
        occurrence=_occurrence(),
    )
