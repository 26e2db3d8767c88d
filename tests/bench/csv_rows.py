"""Rows a second printed as csv: ``python -m tests.bench.csv_rows``.

``THALWEG_PEER_PYTHON`` names an interpreter with ``oasislmf``. Its writer then prints
the same rows, in turn with ours, and the ratio of the medians is printed too. Both
write to the null device, in pieces of the same size, and neither counts its start-up.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.losses.reports import MELT, SELT, Report
from core.losses.tables import CsvEncoder

Rows = npt.NDArray[np.void]

ROUNDS = 5
PIECE = 20_000
SAMPLES = 400
SUMMARIES = 40

PEER = """
import sys, time
import numpy as np
from oasislmf.pytools.common.data import write_ndarray_to_fmt_csv as write
rows, piece, form = np.load(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with open("/dev/null", "w") as file:
    for _ in sys.stdin:
        start = time.perf_counter()
        for at in range(0, len(rows), piece):
            write(file, rows[at : at + piece], list(rows.dtype.names), form)
        print(time.perf_counter() - start, flush=True)
"""


def selt_rows(count: int, rng: np.random.Generator) -> Rows:
    """Lognormal losses; ids and exposures repeat within a block."""
    block, sample = np.divmod(np.arange(count), SAMPLES)
    rows = np.zeros(count, SELT.dtype(4))
    rows["EventId"] = 1 + block // SUMMARIES
    rows["SummaryId"] = 1 + block % SUMMARIES
    rows["SampleId"] = 1 + sample
    rows["Loss"] = rng.lognormal(9, 2, count)
    rows["ImpactedExposure"] = rng.uniform(1e5, 1e8, block[-1] + 1)[block]
    return rows


def melt_rows(count: int, rng: np.random.Generator) -> Rows:
    """Two rows a block: analytical, and of the samples."""
    block, kind = np.divmod(np.arange(count), 2)
    exposure = rng.uniform(1e5, 1e8, block[-1] + 1)[block]
    rows = np.zeros(count, MELT.dtype(4))
    rows["EventId"] = 1 + block // SUMMARIES
    rows["SummaryId"] = 1 + block % SUMMARIES
    rows["SampleType"] = 1 + kind
    rows["EventRate"] = np.nan
    rows["ChanceOfLoss"] = kind * rng.integers(0, SAMPLES + 1, count) / SAMPLES
    rows["MeanLoss"] = rng.lognormal(9, 2, count)
    rows["SDLoss"] = kind * rng.lognormal(9, 2, count)
    rows["MaxLoss"] = rng.lognormal(11, 2, count)
    rows["FootprintExposure"] = exposure
    rows["MeanImpactedExposure"] = np.where(kind, exposure * rows["ChanceOfLoss"], exposure)
    rows["MaxImpactedExposure"] = exposure
    return rows


def our_seconds(encoder: CsvEncoder, rows: Rows) -> float:
    """Seconds to print all rows."""
    with Path(os.devnull).open("wb", buffering=0) as file:
        start = time.perf_counter()
        file.writelines(encoder.encode(rows[at : at + PIECE]) for at in range(0, len(rows), PIECE))
        return time.perf_counter() - start


def peer_seconds(peer: subprocess.Popen[str]) -> float:
    """Seconds the peer took for the same."""
    assert peer.stdin is not None
    assert peer.stdout is not None
    print("go", file=peer.stdin, flush=True)
    return float(peer.stdout.readline())


def compare(report: Report, rows: Rows, python: str | None) -> None:
    """Print rows a second, and the ratio if there is a peer."""
    encoder = CsvEncoder(report, 4)
    forms = ",".join("%d" if c.decimals is None else f"%.{c.decimals}f" for c in report.columns)
    with ExitStack() as stack:
        peer = None
        if python:
            saved = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "rows.npy"
            np.save(saved, rows)
            peer = stack.enter_context(
                subprocess.Popen(
                    [python, "-c", PEER, str(saved), str(PIECE), forms],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(ROUNDS + 1):
            ours.append(our_seconds(encoder, rows))
            if peer:
                theirs.append(peer_seconds(peer))
    # The first round compiles, and touches memory for the first time.
    mine = len(rows) / statistics.median(ours[1:])
    print(f"{report.name} {mine / 1e6:.1f} million rows/s")
    if theirs:
        other = len(rows) / statistics.median(theirs[1:])
        print(f"{report.name} {other / 1e6:.1f} million rows/s (peer), ratio {mine / other:.2f}")


def main() -> None:
    """Compare SELT and MELT."""
    rng = np.random.default_rng(1)
    python = os.environ.get("THALWEG_PEER_PYTHON")
    compare(SELT, selt_rows(1_000_000, rng), python)
    compare(MELT, melt_rows(400_000, rng), python)


if __name__ == "__main__":
    main()
