"""Compares the reports of events and of periods with a live peer on generated streams.

``python -m tests.compat.differential --peer PYTHON --cases 200`` where PYTHON is an
interpreter that has ``oasislmf`` installed. Every case is a random portfolio: several
summaries, 1 to 1,000 samples, sparse to dense, events shuffled or not, in 1 to 4
partitions, with and without event rates and period weights, with dates in days or minutes.
Rows are compared after sorting, because the peer interleaves partitions as they become ready.
Dates with a time of day are before the 31st, where the peer is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core.arrays import Rows
from core.losses.analysis import Analysis
from core.losses.events import StreamHeader
from core.losses.format import Kind
from core.losses.inputs import (
    EventRates,
    Occurrence,
    Periods,
    day_ids,
    encode_occurrence,
    encode_periods,
    parse_event_rates,
)
from core.losses.merge import Partitions
from core.losses.parameters import ReportInputs
from core.losses.reports import REPORTS
from core.losses.writer import LossWriter

NAMES = ("selt", "melt", "qelt", "splt", "mplt", "qplt")
RTOL = 1e-6


class Case:
    """One random portfolio on disk, as a peer's run directory."""

    def __init__(self, directory: Path, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.directory = directory
        self.samples = int(rng.choice([1, 2, 3, 7, 10, 63, 64, 65, 100, 500, 1000]))
        self.events = int(rng.integers(1, 40))
        self.summaries = int(rng.integers(1, 8))
        self.partitions = int(rng.integers(1, 5))
        self.shuffled = bool(rng.integers(0, 2))
        self.density = float(rng.choice([0.02, 0.3, 0.7, 1.0]))
        count = int(rng.integers(1, 9))
        self.quantiles = np.sort(rng.random(count)).astype("f4")
        if rng.random() < 0.5:
            self.quantiles = np.unique(np.append(self.quantiles, [0.0, 1.0])).astype("f4")
        (directory / "input").mkdir(parents=True)
        self.quantiles.tofile(directory / "input" / "quantile.bin")
        self.files = [str(directory / f"p{i}.bin") for i in range(self.partitions)]
        self._write(rng)
        self.rates = directory / "input" / "event_rates.csv"
        if rng.random() < 0.5:
            lines = [f"{e},{rng.random():.6f}" for e in range(1, self.events + 1)]
            self.rates.write_text("EventIds,Event_rates\n" + "\n".join(lines) + "\n")

        self._write_occurrences(rng)

    def _write_occurrences(self, rng: np.random.Generator) -> None:
        """Some events do not occur, some twice in a period; some occurring events have no loss."""
        count = int(rng.integers(1, 80))
        periods = int(rng.choice([1, 5, 40]))
        granular = bool(rng.random() < 0.3)
        years, months, days = (rng.integers(1, top, count) for top in (9999, 13, 28))
        dates = day_ids(years, months, days)
        if granular:
            dates = dates * 1440 + rng.integers(0, 1440, count)
        self.occurrence = Occurrence(
            periods,
            rng.integers(1, self.events + 9, count).astype("i4"),
            rng.integers(1, periods, count, endpoint=True).astype("i4"),
            dates,
            granular=granular,
        )
        data = encode_occurrence(self.occurrence, "bin")
        (self.directory / "input" / "occurrence.bin").write_bytes(data)
        self.periods = None
        if rng.random() < 0.5:
            weights = rng.gamma(4, size=periods)
            self.periods = Periods(weights / weights.sum())
            packed = encode_periods(self.periods, "bin")
            (self.directory / "input" / "periods.bin").write_bytes(packed)

    def _write(self, rng: np.random.Generator) -> None:
        writer = LossWriter(StreamHeader(Kind.SUMMARY, 1, 3, self.samples, 1, 4))
        parts = [[writer.begin()] for _ in self.files]
        ids = np.arange(1, self.events + 1)
        if self.shuffled:
            rng.shuffle(ids)
        for event in ids:
            part = parts[int(rng.integers(0, self.partitions))]
            summaries = rng.permutation(self.summaries)[: rng.integers(1, self.summaries + 1)] + 1
            part += [self._block(rng, writer, int(event), int(s)) for s in summaries]
        for path, part in zip(self.files, parts, strict=True):
            Path(path).write_bytes(b"".join(part))

    def _block(
        self, rng: np.random.Generator, writer: LossWriter, event: int, summary: int
    ) -> bytes:
        present = np.flatnonzero(rng.random(self.samples) < self.density) + 1
        scale = 10.0 ** rng.integers(-2, 9)
        losses = (rng.gamma(1.5, scale, len(present))).astype("f4")
        if rng.random() < 0.3:
            losses = np.minimum(losses, np.float32(scale))
        if rng.random() < 0.2:
            losses[rng.random(len(losses)) < 0.3] = 0
        exposure = 0.0 if rng.random() < 0.05 else float(np.float32(scale * 20))
        special = {-1: losses.sum() / self.samples, -4: 3.0, -5: exposure}
        keys = [k for k in special if k == -1 or rng.random() < 0.8]
        sidx = np.concatenate([keys, present])
        values = np.concatenate([[special[k] for k in keys], losses])
        return writer.block(event, summary, sidx, values, exposure)


def ours(case: Case) -> dict[str, Rows]:
    """Our rows of one case."""
    rates = parse_event_rates(case.rates.read_bytes()) if case.rates.exists() else None
    if rates is None:
        # The peer has no rates then; ours would be those of the occurrences.
        rates = EventRates(np.zeros(0, np.int32), np.zeros(0))
    inputs = ReportInputs(case.quantiles, rates, case.occurrence, case.periods)
    parts: dict[str, list[Rows]] = {name: [] for name in NAMES}

    def make(name: str, sink: Any, seen: Any) -> Analysis:  # noqa: ANN401
        return Analysis(NAMES, sink, name=name, seen=seen, **inputs.to_dict())

    together = Partitions(case.files, make, lambda n, rows: parts[n].append(rows.copy()))
    for i, path in enumerate(case.files):
        together.receive(i, Path(path).read_bytes())
        together.close(i)
    return {n: np.concatenate([np.zeros(0, REPORTS[n].dtype(4)), *parts[n]]) for n in NAMES}


def difference(got: Rows, expected: Rows) -> str | None:
    """What differs between two tables after sorting, or None."""
    if len(got) != len(expected):
        return f"{len(got)} rows, the peer has {len(expected)}"
    names = got.dtype.names or ()
    keys = _keys(got)
    got, expected = np.sort(got, order=keys), np.sort(expected, order=keys)
    for name in names:
        a: npt.NDArray[Any] = got[name]
        b: npt.NDArray[Any] = expected[name]
        close = np.isclose(a, b, rtol=RTOL, atol=0, equal_nan=True)
        if not close.all():
            i = int(np.flatnonzero(~close)[0])
            return f"{(~close).sum()} values of {name}, first {a[i]!r} for {b[i]!r} in {got[i]}"
    return None


def _keys(rows: Rows) -> list[str]:
    """Columns by which rows are told apart: integers and the quantile."""
    return [n for n in rows.dtype.names or () if rows.dtype[n].kind == "i" or n == "Quantile"]


def main() -> int:
    """Run the cases; exit code 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    outcome: Counter[str] = Counter()
    identical: Counter[str] = Counter()
    start = time.perf_counter()
    driver = [args.peer, str(Path(__file__).with_name("peer_rows.py"))]
    with (
        tempfile.TemporaryDirectory() as scratch,
        subprocess.Popen(
            driver, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=scratch
        ) as peer,
    ):
        assert peer.stdin
        assert peer.stdout
        for seed in range(args.seed, args.seed + args.cases):
            case = Case(Path(scratch) / str(seed), seed)
            job = {"run_dir": str(case.directory), "files": case.files, "out": str(case.directory)}
            peer.stdin.write(json.dumps(job) + "\n")
            peer.stdin.flush()
            answer = peer.stdout.readline().strip()
            if answer != "ok":
                outcome[f"peer failed: {answer}"] += 1
                continue
            rows = ours(case)
            for name in NAMES:
                theirs = np.fromfile(case.directory / f"{name}.bin", rows[name].dtype)
                wrong = difference(rows[name], theirs)
                outcome["differ" if wrong else "equal"] += 1
                keys = _keys(theirs)
                same = len(theirs) == len(rows[name]) and (
                    np.sort(theirs, order=keys).tobytes()
                    == np.sort(rows[name], order=keys).tobytes()
                )
                identical[name] += same
                if wrong:
                    print(f"case {seed} {name}: {wrong}")
        peer.stdin.close()
    print(f"{args.cases} streams in {time.perf_counter() - start:.0f} s")
    print(f"tables: {dict(outcome)}; identical bytes: {dict(identical)}")
    return int(outcome["differ"] > 0)


if __name__ == "__main__":
    sys.exit(main())
