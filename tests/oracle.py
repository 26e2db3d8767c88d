"""The four reports, made in the slowest and most obvious way from the format's description.

Nothing here comes from the engine: bytes are taken apart with ``struct``, every block
becomes a dense vector of all its samples, and numpy does the statistics in float64.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.void]

SOURCE_SUMMARY = 3

SELT_COLUMNS = ("EventId", "SummaryId", "SampleId", "Loss", "ImpactedExposure")
MELT_COLUMNS = (
    "EventId",
    "SummaryId",
    "SampleType",
    "EventRate",
    "ChanceOfLoss",
    "MeanLoss",
    "SDLoss",
    "MaxLoss",
    "FootprintExposure",
    "MeanImpactedExposure",
    "MaxImpactedExposure",
)
QELT_COLUMNS = ("EventId", "SummaryId", "Quantile", "Loss")
EVENTS_COLUMNS = (
    "EventId",
    "Blocks",
    "AnalyticalMean",
    "SampleMean",
    "SampleSD",
    "SampleMin",
    "SampleMax",
    "ChanceOfLoss",
    "MaxLoss",
    "Exposure",
)
IDS = {"EventId", "SummaryId", "SampleId", "SampleType", "Blocks"}
COLUMNS = {
    "selt": SELT_COLUMNS,
    "melt": MELT_COLUMNS,
    "qelt": QELT_COLUMNS,
    "events": EVENTS_COLUMNS,
}
EXACT = {"selt", "qelt"}
"""Reports without a sum: every byte is determined."""


@dataclass
class Block:
    """One block as parsed."""

    offset: int
    event: int
    ident: int
    exposure: float
    pairs: list[tuple[int, float]] = field(default_factory=list)

    def first(self, sidx: int) -> float | None:
        """The loss of a sidx, or None."""
        return next((loss for s, loss in self.pairs if s == sidx), None)

    def special(self, sidx: int) -> float:
        """The loss of a sidx, 0 if absent."""
        loss = self.first(sidx)
        return 0.0 if loss is None else loss

    def dense(self, samples: int) -> npt.NDArray[np.float64]:
        """Loss of every sample, 0 where absent."""
        vector = np.zeros(samples)
        for sidx, loss in self.pairs:
            if sidx > 0:
                vector[sidx - 1] = loss
        return vector


@dataclass
class Parsed:
    """A whole stream as parsed."""

    source: int
    samples: int
    width: int
    blocks: list[Block]

    def events(self) -> list[list[Block]]:
        """Runs of blocks with the same event id."""
        runs: list[list[Block]] = []
        for block in self.blocks:
            if not runs or runs[-1][0].event != block.event:
                runs.append([])
            runs[-1].append(block)
        return runs


def parse(data: bytes, width: int) -> Parsed:
    """Take a valid stream apart."""
    letter = {4: "f", 8: "d"}[width]
    source, samples = data[3], struct.unpack_from("<i", data, 4)[0]
    at = 12 if source == SOURCE_SUMMARY else 8
    blocks = []
    while at < len(data):
        event, ident = struct.unpack_from("<ii", data, at)
        block = Block(at, event, ident, float("nan"))
        at += 8
        if source == SOURCE_SUMMARY:
            block.exposure = struct.unpack_from(f"<{letter}", data, at)[0]
            at += width
        while True:
            sidx, loss = struct.unpack_from(f"<i{letter}", data, at)
            at += 4 + width
            if sidx == 0:
                break
            block.pairs.append((sidx, loss))
        blocks.append(block)
    return Parsed(source, samples, width, blocks)


def _table(name: str, width: int, rows: list[tuple[float, ...]]) -> Rows:
    loss = "<f8" if name == "events" else f"<f{width}"
    dtype = np.dtype([(c, "<i4" if c in IDS else loss) for c in COLUMNS[name]])
    with np.errstate(over="ignore"):
        return np.array(rows, dtype)


def _deviation(vector: npt.NDArray[np.float64]) -> float:
    return float(np.std(vector, ddof=1)) if len(vector) > 1 else 0.0


def selt(stream: Parsed) -> Rows:
    """A row for every pair but the maximum loss."""
    rows: list[tuple[float, ...]] = [
        (b.event, b.ident, sidx, loss, b.exposure if loss != 0 else 0.0)
        for b in stream.blocks
        for sidx, loss in b.pairs
        if sidx != -5
    ]
    return _table("selt", stream.width, rows)


def melt(stream: Parsed, rates: dict[int, float]) -> Rows:
    """Two rows for every summary that has exposure."""
    rows: list[tuple[float, ...]] = []
    for b in stream.blocks:
        if not b.exposure > 0:
            continue
        x = b.exposure
        vector = b.dense(stream.samples)
        chance = float(np.count_nonzero(vector > 0)) / stream.samples
        rate = rates.get(b.event, float("nan"))
        most = b.special(-5)
        hit = x if chance > 0 else 0.0
        rows += [
            (b.event, b.ident, 1, rate, 0.0, b.special(-1), 0.0, most, x, x, x),
            (
                *(b.event, b.ident, 2, rate, chance, float(np.mean(vector)), _deviation(vector)),
                *(most, x, x * chance, hit),
            ),
        ]
    return _table("melt", stream.width, rows)


def qelt(stream: Parsed, quantiles: npt.NDArray[np.float32]) -> Rows:
    """R-7, between neighbours in the stream's own float type, as the peer has it."""
    kind = np.dtype(f"<f{stream.width}").type
    rows: list[tuple[float, ...]] = []
    for b in stream.blocks:
        if not b.exposure > 0:
            continue
        x = np.sort(b.dense(stream.samples).astype(kind))
        for q in quantiles:
            position = (stream.samples - 1) * float(q)
            k = min(int(position), stream.samples - 1)
            above = min(k + 1, stream.samples - 1)
            h = kind(position - int(position))
            rows.append((b.event, b.ident, float(q), float((x[above] - x[k]) * h + x[k])))
    return _table("qelt", stream.width, rows)


def events(stream: Parsed) -> Rows:
    """A row for every event: statistics of its total over its blocks."""
    rows: list[tuple[float, ...]] = []
    for blocks in stream.events():
        total = np.zeros(stream.samples)
        for b in blocks:
            total += b.dense(stream.samples)
        maxima = [loss for b in blocks if (loss := b.first(-5)) is not None]
        if stream.source == SOURCE_SUMMARY:
            exposures = [b.exposure for b in blocks]
        else:
            exposures = [loss for b in blocks if (loss := b.first(-3)) is not None]
        rows.append(
            (
                blocks[0].event,
                len(blocks),
                sum(b.special(-1) for b in blocks),
                float(np.mean(total)),
                _deviation(total),
                float(np.min(total)),
                float(np.max(total)),
                float(np.count_nonzero(total > 0)) / stream.samples,
                sum(maxima) if maxima else float("nan"),
                sum(exposures) if exposures else float("nan"),
            )
        )
    return _table("events", stream.width, rows)


def reports(
    data: bytes,
    width: int,
    quantiles: npt.NDArray[np.float32],
    rates: dict[int, float] | None = None,
) -> dict[str, Rows]:
    """Every report that can be made from the stream."""
    stream = parse(data, width)
    tables = {"events": events(stream)}
    if stream.source == SOURCE_SUMMARY:
        tables["selt"] = selt(stream)
        tables["melt"] = melt(stream, rates or {})
        tables["qelt"] = qelt(stream, quantiles)
    return tables


def assert_same(name: str, actual: Rows, expected: Rows) -> None:
    """Same columns, ids and counts; same numbers up to the rounding of a sum."""
    assert actual.dtype.names == expected.dtype.names
    assert len(actual) == len(expected)
    # What is left of values that cancel is noise of their size.
    values = [expected[c] for c in COLUMNS[name] if c not in IDS]
    noise = 1e-13 * max(float(np.max(np.abs(np.nan_to_num(v)), initial=0.0)) for v in values)
    for column in COLUMNS[name]:
        got, want = actual[column], expected[column]
        assert got.dtype == want.dtype, column
        if column in IDS or name in EXACT:
            np.testing.assert_array_equal(got, want, err_msg=f"{name}.{column}")
            continue
        np.testing.assert_allclose(
            got, want, rtol=1e-6, atol=noise, err_msg=f"{name}.{column}", equal_nan=True
        )
