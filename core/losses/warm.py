"""Uses every kernel of the loss engine once, so that it is compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import numpy as np

from ..arrays import Rows
from ..errors import TruncatedError
from ._kernels.block import read_block
from ._kernels.cells import Cells
from ._kernels.layout import STATE
from ._kernels.references import originals_size, read_originals
from ._kernels.stretches import LISTED, PLAIN
from .analysis import Analysis
from .events import StreamHeader
from .finishing import LedgerReports, LedgerResources
from .format import FLOAT_WIDTHS, Kind, header_size
from .header import parse_header
from .indexing import StreamIndex, read_columns
from .inputs import EventRates, Occurrence, Periods, ReturnPeriods, SummaryMap, SummaryXref
from .ledger.batches import sums_of
from .ledger.calendar import make_calendar
from .ledger.ledger import Ledger
from .ledger.memory import make_arena
from .ledger.partials import export_ledger, import_ledger
from .parameters import ReportInputs, make_rules, make_scratch
from .policy import Policy
from .reader import LossReader
from .reports import REPORTS, choose_reports
from .reports.report import RunOptions
from .reports.tallying import Repeated, Tally, Wanted
from .sections import find_boundary
from .summaries import Summariser, SummarySets
from .tables import CsvEncoder
from .writer import LossWriter

_SAMPLES = 70
"""More than one group of lanes, so that no loop stays unused."""


def use_all_summaries() -> None:
    """Add items with losses of both widths up into summaries."""
    for float_width in FLOAT_WIDTHS:
        _use_summaries(float_width)


def use_all_losses() -> None:
    """Read streams with losses of both widths."""
    for float_width in FLOAT_WIDTHS:
        _use_losses(float_width)


def _use_losses(float_width: int) -> None:
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
    find_boundary(np.frombuffer(data, np.uint8), float_width)
    _read_first_block(data, float_width)
    for octets in (data, data[:-4]):
        reader = LossReader(Policy(float_width=float_width))
        reader.receive(octets)
        reader.close()
        with contextlib.suppress(TruncatedError):
            reader.drain()
    assert reader.header is not None  # noqa: S101 - it is whole
    size = header_size(reader.header.kind)
    read_columns(data[size:], Policy(float_width=float_width), reader.header, size)
    index = StreamIndex(Policy(float_width=float_width), spacing=1)
    index.receive(data)
    index.close()


def _read_first_block(data: bytes, float_width: int) -> None:
    """As after a fault, to see whether losses have another width."""
    header = parse_header(data[:12], Policy(float_width=float_width), None)
    assert header is not None  # noqa: S101 - it is whole
    words = np.frombuffer(data[12:], np.int32)
    rules, scratch = make_rules(header, Policy()), make_scratch(header.len_sample, float_width)
    words.flags.writeable = False
    state = np.zeros(1, STATE)
    read_block(words, len(words), rules, state, scratch)
    nothing, arena = np.zeros(0, np.int64), make_arena(0)
    originals_size(arena.words, nothing, header.len_sample, float_width)
    read_originals(arena, nothing, 0, words, rules, state, scratch, arena, nothing)


def use_ledgers() -> None:
    """Add up sums that lose bits, spill, export and import them, and compute reports of them.

    Kernels of ledgers are the same for both widths.
    """
    events = range(1, 4)
    blocks = [(e, 1, [x, x]) for e, x in zip(events, (1e38, 1.0, 1e-38), strict=True)]
    blocks += [(e, 2, [1.0, 2.0]) for e in events]
    calendar = make_calendar(_occurrence(3))
    whole, spilled = Ledger(_LEDGER_HEADER, calendar), Ledger(_LEDGER_HEADER, calendar)
    for ledger in (whole, spilled):
        _fill(ledger, blocks)
    spilled.write_run()
    parts: list[bytes] = []
    export_ledger(whole, parts.append)
    import_ledger(spilled, parts, merges=False)
    for _ in sums_of(spilled):
        """Ignore the cells."""
    _use_curves()


def _use_summaries(float_width: int) -> None:
    """Add up a stream of items: dense and sparse blocks, sums that lose bits."""
    ids = np.array([1, 2], np.int32)
    xref = SummaryXref(ids, ids, np.ones(2, np.int32), None)
    sets = SummarySets(xref, None, SummaryMap(ids, ids, ids, "item_id"))
    writer = LossWriter(StreamHeader(Kind.LOSS, 1, 2, _SAMPLES, None, float_width))
    dense = [-1, *range(1, _SAMPLES + 1)]
    blocks = [
        writer.block(event, item, sidx, [x] * len(sidx))
        for event, x in ((1, 1.0), (2, 1e-30))
        for item, sidx in ((1, dense), (2, [-1, 1, 2]))
    ]
    policy = Policy(float_width=float_width)
    summariser = Summariser(sets, lambda _set, _octets: None, policy=policy)
    summariser.receive(writer.begin() + b"".join(blocks))
    summariser.close()


def _use_curves() -> None:
    """Compute reports of whole runs with and without weights and return periods."""
    names = [name for name, report in REPORTS.items() if report.calculate is not None]
    for periods in (None, Periods(np.ones(1))):
        for years in (None, ReturnPeriods(np.ones(1, np.int32))):
            inputs = ReportInputs(occurrence=_occurrence(1), periods=periods, return_periods=years)
            reports = LedgerReports(choose_reports(names), RunOptions(), LedgerResources())
            reports.begin(_LEDGER_HEADER, make_rules(_LEDGER_HEADER, Policy()), inputs.to_dict())
            if reports.ledger is not None:
                _fill(reports.ledger, [(1, 1, [1.0, 2.0])])
            reports.finish(lambda _report, _rows: None)
    one, losses, ranks = np.ones(1, np.int32), np.ones(1), np.ones(1, np.int64)
    cells = Cells(one, one, np.array([0, 1]), one, losses, losses)
    Tally(cells, Repeated(ranks, 0), 1).read([Wanted(losses, ranks, ranks)])


_LEDGER_HEADER = StreamHeader(Kind.SUMMARY, 1, 3, _SAMPLES, 1, 4)
_Block = tuple[int, int, list[float]]
"""Event, summary, and losses of the mean and of sample 1."""


def _fill(ledger: Ledger, blocks: Iterable[_Block]) -> None:
    """Append blocks as the pass does, whose kernels take far longer to compile than those here."""
    for event, summary, losses in blocks:
        head = np.array([event, summary, PLAIN | LISTED, len(losses)], np.int32)
        samples = np.arange(len(losses), dtype=np.int32)
        stretch = np.concatenate([head, samples, np.array(losses, np.float32).view(np.int32)])
        end = ledger.used + len(stretch)
        ledger.arena.words[ledger.used : end] = stretch
        ledger.used = end


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


def _occurrence(events: int) -> Occurrence:
    """Events from 1 on, all in the only period."""
    ids = np.arange(1, events + 1, dtype=np.int32)
    return Occurrence(1, ids, np.ones(events, np.int32), np.zeros(events, np.int64))


def _analysis(float_width: int) -> Analysis:
    def sink(_report: str, _rows: Rows) -> None:
        """Ignore the rows."""

    return Analysis(
        [name for name, report in REPORTS.items() if report.calculate is None],
        sink,
        policy=Policy(float_width=float_width, event_order="ascending"),
        quantiles=np.array([0.0, 0.5, 0.9], np.float32),
        event_rates=EventRates(np.array([1], np.int32), np.array([0.5])),
        occurrence=_occurrence(1),
    )
