"""Compiles every kernel by using it on a few bytes, and publishes the build."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ._jit import publish
from .arrays import Rows
from .errors import StreamError
from .iterate.warm import use_kernels as use_iteration
from .losses.analysis import Analysis
from .losses.events import StreamHeader
from .losses.format import FLOAT_WIDTHS, Kind
from .losses.inputs import EventRates
from .losses.policy import Policy
from .losses.reader import LossReader
from .losses.reports import REPORTS
from .losses.tables import CsvEncoder
from .losses.writer import LossWriter
from .tiles.formats import FORMATS
from .tiles.warm import use_format, use_reading, use_reductions

_SAMPLES = 70
"""More than one group of lanes, so that no loop stays unused."""


def _stream(float_width: int) -> bytes:
    header = StreamHeader(Kind.SUMMARY, 1, 3, _SAMPLES, 1, float_width)
    writer = LossWriter(header)
    sidx = [-1, -5, *range(1, _SAMPLES + 1)]
    losses = [1.0, 9.0, *(float(s % 7) for s in range(1, _SAMPLES + 1))]
    blocks = [writer.block(e, s, sidx, losses, 10.0) for e in (1, 2) for s in (1, 2)]
    return writer.begin() + b"".join(blocks)


def _analyse(data: bytes, float_width: int) -> None:
    encoders = {name: CsvEncoder(report, float_width) for name, report in REPORTS.items()}

    def sink(name: str, rows: Rows) -> None:
        encoders[name].encode(rows)

    def analysis() -> Analysis:
        return Analysis(
            list(REPORTS),
            sink,
            policy=Policy(float_width=float_width, event_order="ascending"),
            quantiles=np.array([0.0, 0.5, 0.9], np.float32),
            event_rates=EventRates(np.array([1], np.int32), np.array([0.5])),
        )

    first = analysis()
    first.receive(data[:-8])
    second = analysis()
    second.setstate(first.getstate())
    second.receive(data[first.offset :])
    second.close()


def _read(data: bytes, float_width: int) -> None:
    reader = LossReader(Policy(float_width=float_width))
    reader.receive(data)
    reader.close()
    reader.drain()


def _refuse(data: bytes, float_width: int) -> None:
    """The paths of a stream with a fault, and of one that was cut."""
    for octets, width in ((data[:-4], float_width), (data, 12 - float_width)):
        reader = LossReader(Policy(float_width=width))
        reader.receive(octets)
        reader.close()
        try:
            reader.drain()
        except StreamError:
            continue
        raise AssertionError("the warm-up stream was not refused")


def _use_formats() -> None:
    for form in FORMATS.values():
        use_format(form)


_STEPS: dict[str, Callable[[bytes, int], None]] = {
    "reports": _analyse,
    "reader": _read,
    "refusals": _refuse,
}


def warm_up() -> dict[str, float]:
    """Compile or load every kernel; return the seconds each step took.

    After a first call on a machine the kernels are kept, where that is possible,
    and later processes load them in less than a second.
    """
    seconds = {}
    for width in FLOAT_WIDTHS:
        data = _stream(width)
        for name, step in _STEPS.items():
            start = time.perf_counter()
            step(data, width)
            seconds[f"{name}, f{width} losses"] = time.perf_counter() - start
    engines: dict[str, Callable[[], None]] = {
        "tiles": use_reading,
        "reductions": use_reductions,
        "packed formats": _use_formats,
        "iteration": use_iteration,
    }
    for name, use in engines.items():
        start = time.perf_counter()
        use()
        seconds[name] = time.perf_counter() - start
    publish()
    return seconds
