"""Uses every kernel of the loss engine once, so that it is compiled."""

from __future__ import annotations

import numpy as np

from ..arrays import Rows
from ..errors import TruncatedError
from .analysis import Analysis
from .events import StreamHeader
from .format import FLOAT_WIDTHS, Kind
from .inputs import EventRates, Occurrence
from .policy import Policy
from .reader import LossReader
from .reports import REPORTS
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
        list(REPORTS),
        sink,
        policy=Policy(float_width=float_width, event_order="ascending"),
        quantiles=np.array([0.0, 0.5, 0.9], np.float32),
        event_rates=EventRates(np.array([1], np.int32), np.array([0.5])),
        occurrence=_occurrence(),
    )
