"""Memory budget and growth of runs: ``python -m tests.bench.budget [--gigabytes 4.3]``.

Computes the five reports of a run twice, within a small budget, so that most sums spill to disk,
and with enough memory for all. Tables must be equal byte for byte. Prints wall and CPU seconds,
peak memory, and how much larger the run would be as a dense table.

Then the growth: CPU seconds per event of row reports and of the ledger, at ten times the events.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.losses.inputs import parse_occurrence
from core.losses.ledger.calendar import ledger_bound, make_calendar
from core.losses.samples import SampleSpec, generate_inputs, generate_stream

from .__main__ import ROOT, SERVER, line

REPORTS = "aal,aal_mean,alct,ept,psept"
ROWS = "selt,melt,qelt"
SUMMARIES = 300
PERIODS = 10_000
"""Of both sizes whose growth is measured."""
BYTES_PER_EVENT = 610_000
"""Of 300 summaries with 1,000 samples, half of both with a loss."""
SECONDS_BETWEEN_LOOKS = 0.1


@dataclass(frozen=True)
class Measured:
    """One command."""

    seconds: float
    cpu: float
    peak: int
    """Largest resident memory but for mapped files, in bytes."""
    spilled: int
    """Largest size of its files beside the tables, in bytes."""


def _anonymous(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+)", status)
    return int(found[1]) * 1024 if found else 0


def _open_files(pid: int, folder: Path) -> int:
    """Bytes of the files that a process has open below a folder, deleted ones included."""
    total = 0
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0
    for descriptor in descriptors:
        try:
            if str(descriptor.readlink()).startswith(str(folder)):
                total += descriptor.stat().st_size
        except OSError:
            continue
    return total


def run(args: Sequence[str], spills: Path) -> Measured:
    """Run a command and watch its memory and its spilled sums."""
    peak = spilled = 0
    start = time.perf_counter()
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(args, env=variables, stderr=subprocess.PIPE)
    assert process.stderr
    messages: list[bytes] = []
    stream = process.stderr
    reader = threading.Thread(target=lambda: messages.append(stream.read()))
    reader.start()
    usage = None
    while usage is None:
        pid, status, resources = os.wait4(process.pid, os.WNOHANG)
        if pid:
            usage = resources
            process.returncode = os.waitstatus_to_exitcode(status)
            break
        peak = max(peak, _anonymous(process.pid))
        spilled = max(spilled, _open_files(process.pid, spills))
        time.sleep(SECONDS_BETWEEN_LOOKS)
    reader.join()
    if process.returncode:
        raise RuntimeError(b"".join(messages).decode())
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(time.perf_counter() - start, cpu, peak, spilled)


class Portfolio:
    """A stream and its inputs in a folder."""

    def __init__(
        self, folder: Path, events: int, summaries: int = SUMMARIES, periods: int = 0
    ) -> None:
        self.folder = folder
        folder.mkdir()
        self.spec = SampleSpec(events=events, summaries=summaries, samples=1000, periods=periods)
        self.stream = folder / "summary.bin"
        with self.stream.open("wb") as file:
            file.writelines(generate_stream(self.spec))
        for name, data in generate_inputs(self.spec).items():
            (folder / name).write_bytes(data)
        (folder / "spills").mkdir()

    def command(self, reports: str, out: str, *options: str) -> list[str]:
        args = [*SERVER, "aggregate", str(self.stream), "--reports", reports, "--no-progress"]
        if "ept" in reports:
            args += ["--occurrence", str(self.folder / "occurrence.bin")]
            args += ["--return-periods", str(self.folder / "returnperiods.bin")]
        if "qelt" in reports:
            args += ["--quantiles", str(self.folder / "quantile.bin")]
        return [*args, "--format", "bin", "--force", "--out", str(self.folder / out), *options]


def within_budget(folder: Path, gigabytes: float, budget: str) -> None:
    """Compare a run within a budget with one that has all the memory it needs."""
    events = max(2, int(gigabytes * 1e9 / BYTES_PER_EVENT))
    portfolio = Portfolio(folder / "budget", events)
    occurrence = parse_occurrence((portfolio.folder / "occurrence.bin").read_bytes())
    bound = ledger_bound(make_calendar(occurrence), portfolio.spec.samples, 4, SUMMARIES)
    size = portfolio.stream.stat().st_size
    print(f"{size / 1e9:.2f} GB, {events} events; dense bound {bound.state_bytes / 1e9:.1f} GB")
    spills = portfolio.folder / "spills"
    results = {}
    for name, memory in (("within", budget), ("unbounded", "64GB")):
        options = ["--memory-budget", memory, "--spill-dir", str(spills)]
        results[name] = result = run(portfolio.command(REPORTS, name, *options), spills)
        print(
            f"{name} {memory}: {result.seconds:.1f} s, CPU {result.cpu:.1f} s,"
            f" peak {result.peak / 1e9:.2f} GB, spilled {result.spilled / 1e9:.2f} GB",
            flush=True,
        )
    names = [f"{report}.bin" for report in REPORTS.split(",")]
    same = filecmp.cmpfiles(
        portfolio.folder / "within", portfolio.folder / "unbounded", names, shallow=False
    )
    print(f"equal byte for byte: {', '.join(same[0])}; not: {', '.join(same[1] + same[2]) or '-'}")
    slower = results["within"].seconds / results["unbounded"].seconds
    line("time within the budget / unbounded", slower)
    line("  in CPU seconds", results["within"].cpu / results["unbounded"].cpu)
    shutil.rmtree(portfolio.folder)
    if same[1] or same[2] or not same[0]:
        raise SystemExit("tables within the budget differ")


def growth(folder: Path, events: int, rounds: int) -> None:
    """CPU seconds per event at once and ten times the events."""
    per_event: dict[tuple[str, int], float] = {}
    portfolios = [Portfolio(folder / f"growth{k}", k * events, 75, PERIODS) for k in (1, 10)]
    tiny = Portfolio(folder / "tiny", 1, 1, PERIODS)
    for reports in (ROWS, REPORTS):
        seconds: dict[int, list[float]] = {0: [], 1: [], 10: []}
        for _ in range(rounds):
            for k, portfolio in zip((0, 1, 10), (tiny, *portfolios), strict=True):
                options = ["--threads", "1"]
                if reports == REPORTS:
                    options += ["--memory-budget", "8GB"]
                args = portfolio.command(reports, "out", *options)
                seconds[k].append(run(args, portfolio.folder / "spills").cpu)
        start = float(np.min(seconds[0]))
        for k in (1, 10):
            per_event[reports, k] = (float(np.min(seconds[k])) - start) / (k * events)
    for reports, text in ((ROWS, "row reports"), (REPORTS, "reports of the ledger")):
        once = per_event[reports, 1] * 1e6
        ratio = per_event[reports, 10] / per_event[reports, 1]
        target = 1.1 if reports == ROWS else None
        line(f"CPU per event at 10 x events, {text} ({once:.0f} us at 1 x)", ratio, target)


def main() -> None:
    """Measure both on a disk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.3)
    parser.add_argument("--budget", default="1GB")
    parser.add_argument("--events", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("budget", "growth"))
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    folder = Path(tempfile.mkdtemp())
    try:
        if args.only in {None, "budget"}:
            within_budget(folder, args.gigabytes, args.budget)
        if args.only in {None, "growth"}:
            growth(folder, args.events, args.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
