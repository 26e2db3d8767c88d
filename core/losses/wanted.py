"""What the wanted reports need besides the stream, in the shape kernels take it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Floats, Indices, Rows
from ..errors import ReportError
from ._kernels.layout import Tables, Wanted
from .events import StreamHeader
from .format import LOSS_DTYPES
from .inputs import EventRates
from .reports import REPORTS, Report

_ROWS = {"selt": 1 << 16, "melt": 1 << 14, "qelt": 1 << 15, "events": 1 << 12}
"""Rows a table holds before they are handed on: each about a megabyte, so that they
are still in the second-level cache when they are written."""


def choose_reports(names: Sequence[str]) -> tuple[Report, ...]:
    """The reports of these names, each once, in the order given.

    Raises:
        ReportError: none, an unknown one, or one twice.
    """
    if not names:
        raise ReportError("no report is wanted", hint=f"Choose from {', '.join(REPORTS)}")
    for name in names:
        if name not in REPORTS:
            raise ReportError(
                f"there is no report {name!r}", hint=f"Choose from {', '.join(REPORTS)}"
            )
    if len(set(names)) < len(names):
        raise ReportError("a report is asked for twice")
    return tuple(REPORTS[name] for name in names)


def check_inputs(
    reports: Sequence[Report],
    quantiles: npt.NDArray[np.float32] | None,
    event_rates: EventRates | None,
) -> None:
    """Refuse reports without what they need, and inputs that nothing needs.

    Raises:
        ReportError: QELT without quantiles, quantiles without QELT, or event rates
            without MELT.
    """
    names = {report.name for report in reports}
    if "qelt" in names and quantiles is None:
        raise ReportError("QELT needs quantiles", hint="Give a list or a quantile file")
    if quantiles is not None and "qelt" not in names:
        raise ReportError("quantiles are given, but QELT is not wanted")
    if event_rates is not None and "melt" not in names:
        raise ReportError("event rates are given, but MELT is not wanted")


def check_kind(reports: Sequence[Report], header: StreamHeader, source: str | None) -> None:
    """Refuse reports that cannot be made from this kind of stream.

    Raises:
        ReportError: naming the report, the kind, and the kinds it can be made from.
    """
    for report in reports:
        if header.kind not in report.kinds:
            kinds = ", ".join(sorted(kind.value for kind in report.kinds))
            raise ReportError(
                f"{report.name.upper()} cannot be made from a {header.kind.value} stream",
                offset=0,
                hint=f"It needs a {kinds} stream; 'events' can be made from every kind",
                source=source,
            )


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
    ranks = np.unique(np.concatenate([below, above]))
    indices = np.stack([np.searchsorted(ranks, below), np.searchsorted(ranks, above)], axis=1)
    return np.ascontiguousarray(indices), position - below, ranks


def make_wanted(
    samples: int,
    float_width: int,
    quantiles: npt.NDArray[np.float32] | None,
    event_rates: EventRates | None,
) -> Wanted:
    """The kernels' inputs for streams of ``samples`` samples.

    Fractions have the stream's float type and quantiles are interpolated in it, as
    ``eltpy`` does: the tables are equal to the last byte, and at most one unit in
    the last place of a float32 away from interpolation in float64.
    """
    q = np.zeros(0, np.float32) if quantiles is None else quantiles
    positions, fractions, ranks = locate_quantiles(q, samples)
    if event_rates is None:
        ids, rates = np.zeros(0, np.int32), np.zeros(0)
    else:
        ids, rates = event_rates.event_ids, event_rates.rates
    return Wanted(
        rate_ids=np.array(ids, np.int32),
        rates=np.array(rates, np.float64),
        quantiles=np.array(q, np.float32),
        positions=positions,
        fractions=fractions.astype(LOSS_DTYPES[float_width]),
        ranks=ranks,
    )


def make_tables(reports: Sequence[Report], float_width: int, least: int = 0) -> Tables:
    """Empty tables for the wanted reports, with room for at least ``least`` rows each."""
    names = {report.name for report in reports}

    def table(name: str) -> Rows:
        rows = max(_ROWS[name], least) if name in names else 0
        return np.zeros(rows, REPORTS[name].dtype(float_width))

    return Tables(table("selt"), table("melt"), table("qelt"), table("events"))


def digest(
    reports: Sequence[Report],
    quantiles: npt.NDArray[np.float32] | None,
    event_rates: EventRates | None,
) -> str:
    """Identity of what is wanted (16 hexadecimal digits), to recognise a state by."""
    parts: list[Any] = [",".join(report.name for report in reports).encode()]
    if quantiles is not None:
        parts.append(quantiles.tobytes())
    if event_rates is not None:
        parts += [event_rates.event_ids.tobytes(), event_rates.rates.tobytes()]
    return hashlib.blake2b(b"\0".join(parts), digest_size=8).hexdigest()
