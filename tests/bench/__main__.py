"""Speeds as ratios within one run: ``python -m tests.bench``.

Times on a shared machine mean little, ratios of medians of interleaved rounds more.
``THALWEG_PEER_PYTHON`` names an interpreter with ``oasislmf`` to compare with; the
stream is the size the project's targets are stated for: 2,000 events of 40 summaries
with 1,000 samples, about 305 MB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core._jit import foreign_kernel
from core.losses.analysis import Analysis
from core.losses.samples import SampleSpec, generate_inputs, generate_stream

SERVER = [sys.executable, "-m", "app.command"]
ROOT = Path(__file__).parents[2]
ROUNDS = 5


@foreign_kernel
def bare_scan(words: Any, losses: Any, out: Any) -> int:  # noqa: ANN401
    """Sum, sum of squares, count and maximum of each block: the least a parser can do."""
    at = 3
    block = 0
    while at < len(words):
        at += 3
        total = 0.0
        squares = 0.0
        count = 0
        largest = 0.0
        while True:
            sidx = words[at]
            x = np.float64(losses[at + 1])
            at += 2
            if sidx == 0:
                break
            total += x
            squares += x * x
            count += 1
            largest = max(largest, x)
        out[block, 0] = total
        out[block, 1] = squares
        out[block, 2] = count
        out[block, 3] = largest
        block += 1
    return block


@foreign_kernel
def event_words(words: Any, out: Any) -> int:  # noqa: ANN401
    """Words at which blocks begin; returns how many."""
    at = 3
    block = 0
    while at < len(words):
        out[block] = at
        block += 1
        at += 3
        while words[at] != 0:
            at += 2
        at += 2
    return block


def medians(contests: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median seconds of each contest, run in turn in every round."""
    seconds: dict[str, list[float]] = {name: [] for name in contests}
    for _ in range(rounds):
        for name, run in contests.items():
            seconds[name].append(run())
    return {name: statistics.median(values) for name, values in seconds.items()}


def timed(run: Callable[[], object]) -> Callable[[], float]:
    """A contest that measures a call."""

    def measure() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return measure


def command(
    args: Sequence[str], where: Path, env: Mapping[str, str] | None = None
) -> Callable[[], float]:
    """A contest that measures a process, which may leave its logs ``where`` it runs."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}

    def measure() -> float:
        start = time.perf_counter()
        subprocess.run(args, check=True, capture_output=True, env=variables, cwd=where)
        return time.perf_counter() - start

    return measure


def line(text: str, ratio: float, target: float | None = None) -> None:
    """Print one result."""
    goal = "" if target is None else f"  (target {target:g}x)"
    print(f"{text:<62}{ratio:8.2f}x{goal}", flush=True)


class Setup:
    """The streams on disk, on a file system in memory where there is one."""

    def __init__(self, spec: SampleSpec, peer: str | None) -> None:
        memory = Path("/dev/shm")  # noqa: S108 - a scratch directory is made in it
        parent = memory if memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30 else None
        self.directory = Path(tempfile.mkdtemp(dir=parent))
        self.peer = peer
        self.stream = self.directory / "summary.bin"
        with self.stream.open("wb") as file:
            file.writelines(generate_stream(spec))
        (self.directory / "input").mkdir()
        for name, data in generate_inputs(spec).items():
            (self.directory / "input" / name).write_bytes(data)
        tiny = SampleSpec(events=1, summaries=1, samples=3)
        self.tiny = self.directory / "tiny.bin"
        self.tiny.write_bytes(b"".join(generate_stream(tiny)))

    def ours(self, report: str, stream: Path) -> list[str]:
        args = [*SERVER, "aggregate", str(stream), "--reports", report]
        if report == "qelt":
            args += ["--quantiles", str(self.directory / "input" / "quantile.bin")]
        return [*args, "--force", "--out", str(self.directory / "ours")]

    def theirs(self, report: str, stream: Path) -> list[str]:
        assert self.peer is not None
        code = "from oasislmf.pytools.elt.cli import main; main()"
        out = str(self.directory / f"peer_{report}.csv")
        args = ["--run_dir", str(self.directory), "-i", str(stream), f"-{report[0]}", out]
        return [self.peer, "-c", code, *args]


def in_process(setup: Setup, rounds: int) -> None:
    """Parse and MELT against the bare scan of the same bytes."""
    octets = np.fromfile(setup.stream, np.uint8)
    words, losses = octets.view(np.int32), octets.view(np.float32)
    out = np.zeros((200_000, 4))
    data = octets.data

    def analyse(reports: Sequence[str], piece: int = 0, **options: Any) -> None:  # noqa: ANN401
        analysis = Analysis(reports, lambda _name, _rows: None, **options)
        step = piece or len(data)
        for at in range(0, len(data), step):
            analysis.receive(data[at : at + step])
        analysis.close()

    quantiles = np.array([0, 0.2, 0.4, 0.5, 0.75, 1], np.float32)
    contests = {
        "bare": timed(lambda: bare_scan(words, losses, out)),
        "melt": timed(lambda: analyse(["melt"])),
        "melt in 1 MiB pieces": timed(lambda: analyse(["melt"], 1 << 20)),
        "selt": timed(lambda: analyse(["selt"])),
        "qelt": timed(lambda: analyse(["qelt"], quantiles=quantiles)),
        "events": timed(lambda: analyse(["events"])),
        "all four": timed(lambda: analyse(["events", "selt", "melt", "qelt"], quantiles=quantiles)),
    }
    for run in contests.values():
        run()
    result = medians(contests, rounds)
    size = len(data) / 1e9
    print(f"bare scan {size / result['bare']:.1f} GB/s of {size * 1e3:.0f} MB")
    targets = {"melt": 0.9, "melt in 1 MiB pieces": 0.85, "qelt": 0.3, "all four": 0.25}
    for name in list(contests)[1:]:
        ratio = result["bare"] / result[name]
        line(f"in process, {name}, speed / bare scan", ratio, targets.get(name))


def against_peer(setup: Setup, rounds: int) -> None:
    """Whole commands on a file, start-up taken off."""
    for report, target in (("melt", None), ("qelt", 5.0), ("selt", 3.0)):
        contests = {
            "ours": command(setup.ours(report, setup.stream), setup.directory),
            "ours start": command(setup.ours(report, setup.tiny), setup.directory),
            "peer": command(setup.theirs(report, setup.stream), setup.directory),
            "peer start": command(setup.theirs(report, setup.tiny), setup.directory),
        }
        contests["peer start"]()
        t = medians(contests, rounds)
        ours, peer = t["ours"] - t["ours start"], t["peer"] - t["peer start"]
        text = f"{report.upper()} csv, {ours:.2f} s; eltpy {peer:.2f} s; net of start-up"
        line(text, peer / ours, target)
        line("  the same with start-up", t["peer"] / t["ours"])


def starts(setup: Setup) -> None:
    """First and later starts on a stream of a few bytes."""
    rows = {
        "thalweg-server": (setup.ours("melt", setup.tiny), "THALWEG_KERNEL_CACHE"),
    }
    if setup.peer:
        rows["eltpy"] = (setup.theirs("melt", setup.tiny), "NUMBA_CACHE_DIR")
    for name, (args, variable) in rows.items():
        with tempfile.TemporaryDirectory() as cache:
            run = command(args, setup.directory, {variable: cache, "HOME": cache, "TMPDIR": cache})
            cold = run()
            warm = statistics.median(run() for _ in range(3))
        print(f"start of {name}: cold {cold:.1f} s, warm {warm:.2f} s")


def long_stream(octets: npt.NDArray[np.uint8], size: int) -> Iterable[memoryview]:
    """A stream of ``size`` bytes or more, from one repeated under new event ids."""
    words = octets.view(np.int32)
    places = np.zeros(200_000, np.int64)
    places = places[: event_words(words, places)]
    yield octets.data[:12]
    step = int(words[places].max())
    for _ in range(-(-size // len(octets))):
        yield octets.data[12:]
        words[places] += step


def peak_memory(pid: int) -> float:
    """Largest resident memory of a process so far, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def memory(setup: Setup, size: int) -> None:
    """Peak resident memory of a process that reads a long stream from a pipe."""
    octets = np.fromfile(setup.stream, np.uint8)
    for reports in ("melt", "events,melt,qelt", "selt"):
        args = [*SERVER, "aggregate", "-", "--reports", reports, "--format", "bin"]
        if "qelt" in reports:
            args += ["--quantiles", "0.1,0.5,0.9"]
        args += ["--force", "--out", str(setup.directory / "long")]
        process = subprocess.Popen(args, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdin
        peaks = []
        sent = 0
        for piece in long_stream(octets.copy(), size if reports != "selt" else len(octets)):
            for at in range(0, len(piece), 1 << 24):
                process.stdin.write(piece[at : at + (1 << 24)])
                if not sent:
                    print(f"{reports}: {peak_memory(process.pid):.0f} MiB at start", end="")
                sent += len(piece[at : at + (1 << 24)])
                peaks.append((sent, peak_memory(process.pid)))
        process.stdin.close()
        code = process.wait()
        early = next(peak for at, peak in peaks if at > 100e6)
        print(
            f", {early:.0f} MiB after 0.1 GB, {peaks[-1][1]:.0f} MiB after"
            f" {sent / 1e9:.1f} GB, exit code {code}"
        )


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--long", type=float, default=3.0, help="GB of the long stream")
    modules = (
        *("summaries", "runs", "ingest", "posting", "service", "tiles", "decoding", "iterate"),
        "batches",
    )
    # Minutes, and gigabytes of disk.
    large = ("budget",)
    parts = ("core", "peer", "start", "memory", *modules, *large)
    parser.add_argument("--only", choices=parts)
    args = parser.parse_args()
    spec = SampleSpec(events=args.events, summaries=75, samples=1000)
    setup = Setup(spec, os.environ.get("THALWEG_PEER_PYTHON"))
    try:
        if args.only in {None, "core"}:
            in_process(setup, args.rounds)
        if args.only in {None, "peer"}:
            if setup.peer:
                against_peer(setup, args.rounds)
            else:
                print("set THALWEG_PEER_PYTHON to compare with the peer")
        if args.only in {None, "start"}:
            starts(setup)
        if args.only in {None, "memory"}:
            memory(setup, int(args.long * 1e9))
        for name in (*modules, *large):
            if args.only == name or (args.only is None and name in modules):
                # Modules of their own, which use what is here.
                module = [sys.executable, "-m", f"tests.bench.{name}"]
                subprocess.run(module, check=True, cwd=ROOT)
    finally:
        shutil.rmtree(setup.directory)


if __name__ == "__main__":
    main()
