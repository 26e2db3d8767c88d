"""The period tables, made in the slowest and most obvious way from the format's description."""

from __future__ import annotations

import datetime as dt
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.oracle import Block, Parsed, Rows

KEY = ("Period", "PeriodWeight", "EventId", "Year", "Month", "Day", "Hour", "Minute", "SummaryId")
COLUMNS = {
    "splt": (*KEY, "SampleId", "Loss", "ImpactedExposure"),
    "mplt": (
        *(*KEY, "SampleType", "ChanceOfLoss", "MeanLoss", "SDLoss", "MaxLoss"),
        *("FootprintExposure", "MeanImpactedExposure", "MaxImpactedExposure"),
    ),
    "qplt": (*KEY, "Quantile", "Loss"),
}
INTEGERS = {*KEY, "SampleId", "SampleType"} - {"PeriodWeight"}
ROUNDED = {"MeanLoss", "SDLoss"}
"""Columns that are sums over samples; every byte of the others is determined."""


@dataclass(frozen=True)
class Happening:
    """One occurrence of an event."""

    event: int
    period: int
    when: dt.datetime


def encode(happenings: list[Happening], periods: int, *, granular: bool) -> bytes:
    """The occurrence file, packed as the peer packs it."""
    data = struct.pack("<ii", 3 if granular else 1, periods)
    for h in happenings:
        days = h.when.toordinal() + 305
        date = days * 1440 + h.when.hour * 60 + h.when.minute if granular else days
        data += struct.pack("<iiq" if granular else "<iii", h.event, h.period, date)
    return data


def tables(
    stream: Parsed,
    quantiles: npt.NDArray[np.float32],
    happenings: list[Happening],
    weights: list[float],
    *,
    granular: bool,
) -> dict[str, Rows]:
    """All three tables."""
    rows: dict[str, list[tuple[float, ...]]] = {"splt": [], "mplt": [], "qplt": []}
    for block in stream.blocks:
        keys = [
            _key(h, block, weights, granular=granular) for h in happenings if h.event == block.event
        ]
        for sidx, loss in block.pairs:
            if sidx == -1 or sidx > 0:
                cells = (sidx, loss, block.exposure if loss > 0 else 0.0)
                rows["splt"] += [(*key, *cells) for key in keys]
        for moments in _moments(block, stream):
            rows["mplt"] += [(*key, *moments) for key in keys]
        cells_of_quantiles = _quantiles(block, stream, quantiles)
        rows["qplt"] += [(*key, *cells) for key in keys for cells in cells_of_quantiles]
    return {name: np.array(made, _dtype(name, stream.width)) for name, made in rows.items()}


def _dtype(name: str, width: int) -> np.dtype[np.void]:
    return np.dtype([(c, "<i4" if c in INTEGERS else f"<f{width}") for c in COLUMNS[name]])


def _key(h: Happening, block: Block, weights: list[float], *, granular: bool) -> tuple[float, ...]:
    hour, minute = (h.when.hour, h.when.minute) if granular else (0, 0)
    day = (h.when.year, h.when.month, h.when.day)
    return (h.period, weights[h.period - 1], block.event, *day, hour, minute, block.ident)


def _moments(block: Block, stream: Parsed) -> list[tuple[float, ...]]:
    x = block.exposure
    found: list[tuple[float, ...]] = []
    if block.special(-1) > 0:
        order = [sidx for sidx, _ in block.pairs if sidx in {-1, -5}]
        most = block.special(-5) if order[0] == -5 else 0.0
        found.append((1, 0.0, block.special(-1), 0.0, most, x, x, x))
    vector = block.dense(stream.samples)
    sampled = any(sidx > 0 for sidx, _ in block.pairs)
    if sampled and (vector.mean() > 0 or len(set(vector.tolist())) > 1):
        kind = np.dtype(f"f{stream.width}").type
        chance, impacted = kind(0), kind(0)
        for loss in vector:
            if loss > 0:
                chance = kind(float(chance) + 1 / stream.samples)
                impacted = kind(float(impacted) + x / stream.samples)
        deviation = float(np.std(vector, ddof=1)) if len(vector) > 1 else 0.0
        hit = x if (vector > 0).any() else 0.0
        cells = (2, float(chance), float(vector.mean()), deviation, block.special(-5), x)
        found.append((*cells, float(impacted), hit))
    return found


def _quantiles(
    block: Block, stream: Parsed, quantiles: npt.NDArray[np.float32]
) -> list[tuple[float, ...]]:
    kind = np.dtype(f"f{stream.width}").type
    x = np.sort(block.dense(stream.samples).astype(kind))
    found: list[tuple[float, ...]] = []
    for q in quantiles:
        position = (stream.samples - 1) * float(q)
        k = min(int(position), stream.samples - 1)
        above = min(k + 1, stream.samples - 1)
        h = kind(position - int(position))
        found.append((float(q), float((x[above] - x[k]) * h + x[k])))
    return found


def assert_same(name: str, actual: Rows, expected: Rows) -> None:
    """Equal bytes, but for sums over samples, which may differ in their last digits."""
    assert actual.dtype == expected.dtype
    assert len(actual) == len(expected)
    sums = [np.abs(expected[c]).max(initial=0.0) for c in COLUMNS[name] if c in ROUNDED]
    # What is left of values that cancel is noise of their size.
    noise = 1e-13 * float(max(sums, default=0.0))
    for column in COLUMNS[name]:
        got, want = actual[column], expected[column]
        if column not in ROUNDED:
            np.testing.assert_array_equal(got, want, err_msg=f"{name}.{column}")
            continue
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=noise, err_msg=f"{name}.{column}")
