"""All cores, and reports of periods and whole runs against the peer's tools.

``python -m tests.bench.runs``; with ``--only ten``, only all reports in one pass. The peer is an
interpreter with ``oasislmf``, named by ``THALWEG_PEER_PYTHON``. Its tools read a run directory,
and each parses the stream again; ours is one command for all reports. Both write packed records
to a file system in memory.
Commands are timed with their start-up, and in CPU seconds of all their processes. The peer has
indices of its streams, with which it is faster, and compiles before anything is measured.

Cores, annual losses and curves have a stream of 2 GB, so that start-up does not decide. SELT and
SPLT of it would not fit in memory, so all ten reports are of a shorter one.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from core.losses.events import StreamHeader
from core.losses.format import header_size
from core.losses.header import parse_header
from core.losses.policy import Policy
from core.losses.samples import SampleSpec
from core.losses.sections import Section, SectionAnalysis, SectionedRun, find_boundary
from tests.bench.__main__ import (
    SERVER,
    Setup,
    bare_scan,
    command,
    event_words,
    line,
    medians,
    timed,
)

Times = tuple[float, float]
"""Wall and CPU seconds."""

_SECTION = 16 << 20
TEN = "selt,melt,qelt,splt,mplt,qplt,aal,alct,ept,psept"
_PERIODS = 10_000
_FEWEST_PERIODS = 1000
_BYTES_PER_EVENT = 152_000
"""Of 75 summaries with 1,000 samples, half of both with a loss."""
_CURVES = ["-F", "-W", "-S", "-M", "-f", "-w", "-s", "-m", "-r"]
_TOOLS = {
    "elt": ["-s", "{out}/selt.bin", "-m", "{out}/melt.bin", "-q", "{out}/qelt.bin"],
    "plt": ["-s", "{out}/splt.bin", "-m", "{out}/mplt.bin", "-q", "{out}/qplt.bin"],
    "aal": ["-a", "{out}/aal.bin"],
    "alct": ["-a", "{out}/aal.bin", "-c", "{out}/alct.bin"],
    "lec": [*_CURVES, "-O", "{out}/ept.bin", "-o", "{out}/psept.bin"],
}


def sections(data: memoryview, header: StreamHeader) -> Iterator[Section]:
    """A stream in memory, cut into sections."""
    octets = np.frombuffer(data, np.uint8)
    begin = header_size(header.kind)
    while begin < len(data):
        target = begin + _SECTION
        found = find_boundary(octets[target:], header.float_width) if target < len(data) else None
        end = len(data) if found is None else target + found
        yield Section(0, header, begin, partial(_pieces, data[begin:end]))
        begin = end


def _pieces(data: memoryview) -> list[memoryview]:
    return [data]


def on_all_cores(run: Run, rounds: int) -> None:
    """MELT on one and two threads against the scan of one; and two scans, to show the bound."""
    octets = np.fromfile(run.setup.stream, np.uint8)
    words, losses = octets.view(np.int32), octets.view(np.float32)
    out = np.zeros((75 * run.spec.events, 4))
    header = parse_header(octets[:12].tobytes(), Policy(), None)
    assert header is not None

    def analyse(count: int) -> None:
        with ThreadPoolExecutor(count) as pool:

            def threads(function: Callable[[Any], Any], elements: Iterable[Any]) -> Iterator[Any]:
                yield from pool.map(function, elements)

            sectioned = SectionedRun(
                lambda sink, seen: SectionAnalysis(["melt"], sink, seen=seen),
                count,
                threads,
                lambda _name, _rows: None,
            )
            sectioned.run(sections(octets.data, header), lambda _result: None)

    middle = find_boundary(octets[len(octets) // 2 & ~3 :], header.float_width)
    assert middle is not None
    # A scan begins after the words of a header.
    cut = (len(octets) // 2 & ~3) // 4 + middle // 4 - 3
    halves = [(words[: cut + 3], losses[: cut + 3], out), (words[cut:], losses[cut:], out.copy())]

    def scan_halves() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda half: bare_scan(*half), halves))

    contests = {
        "bare": timed(lambda: bare_scan(words, losses, out)),
        "halves": timed(scan_halves),
        "one": timed(lambda: analyse(1)),
        "two": timed(lambda: analyse(2)),
    }
    for contest in contests.values():
        contest()
    result = medians(contests, rounds)
    line("bare scans of halves, two threads, speed / bare scan", result["bare"] / result["halves"])
    line("MELT in sections, one thread, speed / bare scan", result["bare"] / result["one"])
    line("MELT in sections, two threads, speed / bare scan", result["bare"] / result["two"], 1.6)


class Run:
    """A stream, its inputs, and the run directory that the peer's tools want.

    Args:
        spec: of the stream.
        peer: interpreter of the peer.
    """

    def __init__(self, spec: SampleSpec, peer: str | None) -> None:
        self.spec = spec
        self.setup = Setup(self.spec, peer)
        self.folder = self.setup.directory
        for name in ("ours", "theirs", "work/s"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        # The peer takes equal weights where it finds no file of them.
        for path in (self.folder / "input").glob("periods.*"):
            path.unlink()
        (self.folder / "work" / "s" / "P1.bin").hardlink_to(self.setup.stream)
        octets = np.memmap(self.setup.stream, np.uint8, "r")
        places = np.zeros(spec.summaries * spec.events, np.int64)
        places = places[: event_words(octets.view(np.int32), places)]
        index = np.zeros(len(places), np.dtype([("summary", "<i4"), ("offset", "<i8")]))
        index["summary"], index["offset"] = octets.view(np.int32)[places + 1], 4 * places
        index.tofile(self.folder / "work" / "s" / "P1.idx")

    def ours(self, reports: str) -> list[str]:
        """Our command for some reports."""
        given = self.folder / "input"
        args = [*SERVER, "aggregate", str(self.setup.stream), "--reports", reports]
        args += ["--format", "bin", "--memory-budget", "8GB"]
        args += ["--occurrence", str(given / "occurrence.bin")]
        if "ept" in reports:
            args += ["--return-periods", str(given / "returnperiods.bin")]
        if "qelt" in reports:
            args += ["--quantiles", str(given / "quantile.bin")]
            args += ["--event-rates", str(given / "event_rates.csv")]
        return [*args, "--no-progress", "--force", "--out", str(self.folder / "ours")]

    def theirs(self, tool: str) -> list[str]:
        """The command of one of the peer's tools."""
        assert self.setup.peer is not None
        name = "aal" if tool == "alct" else tool
        code = f"from oasislmf.pytools.{name}.cli import main; main()"
        stream = str(self.setup.stream)
        where = ["-i", stream] if name in {"elt", "plt"} else ["-K", "s"]
        out = [part.format(out=self.folder / "theirs") for part in _TOOLS[tool]]
        args = [self.setup.peer, "-c", code, "--run_dir", str(self.folder)]
        return [*args, *where, *out, "-E", "bin"]

    def measure(self, args: Sequence[str]) -> Times:
        """Run a command; wall and CPU seconds. Its tables are removed."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = command(args, self.folder)()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        for name in ("ours", "theirs"):
            for path in (self.folder / name).iterdir():
                path.unlink()
        return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def compare(
        self, text: str, tools: Sequence[str], reports: str, target: float, rounds: int
    ) -> None:
        """Run our command and the peer's in turn; print the ratio of medians."""
        commands = {name: self.theirs(name) for name in tools} | {"ours": self.ours(reports)}
        times: dict[str, list[Times]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, args in commands.items():
                times[name].append(self.measure(args))
        middle = {
            name: tuple(statistics.median(column) for column in zip(*measured, strict=True))
            for name, measured in times.items()
        }
        for name, (seconds, cpu) in middle.items():
            print(f"  {name}: {seconds:.2f} s, CPU {cpu:.2f} s")
        theirs = [sum(middle[tool][i] for tool in tools) for i in range(2)]
        size = self.setup.stream.stat().st_size / 1e9
        line(f"{text}, {size:.2f} GB", theirs[0] / middle["ours"][0], target)
        line("  in CPU seconds", theirs[1] / middle["ours"][1], target)

    def close(self) -> None:
        """Remove all files."""
        shutil.rmtree(self.folder)


def _spec(gigabytes: float) -> SampleSpec:
    events = max(2, int(gigabytes * 1e9 / _BYTES_PER_EVENT))
    return SampleSpec(events=events, summaries=75, samples=1000, periods=_PERIODS)


def against_peer(peer: str, sizes: tuple[float, float], rounds: int) -> None:
    """Whole commands, run in turn."""
    tiny = Run(SampleSpec(events=2, summaries=2, samples=7, periods=_FEWEST_PERIODS), peer)
    try:
        for tool in _TOOLS:
            tiny.measure(tiny.theirs(tool))
        tiny.measure(tiny.ours(TEN))
    finally:
        tiny.close()
    long, short = sizes
    if long:
        whole_runs_against_peer(peer, long, rounds)
    ten_against_peer(peer, short)


def whole_runs_against_peer(peer: str, gigabytes: float, rounds: int) -> None:
    """Annual losses and curves."""
    run = Run(_spec(gigabytes), peer)
    try:
        run.compare("AAL against aalpy", ["aal"], "aal", 8.0, rounds)
        # An lecpy takes minutes.
        run.compare("EPT and PSEPT against lecpy", ["lec"], "ept,psept", 10.0, 1)
    finally:
        run.close()


def ten_against_peer(peer: str, gigabytes: float) -> None:
    """All reports in one pass, and all tools after each other."""
    run = Run(_spec(gigabytes), peer)
    try:
        tools = ["elt", "plt", "alct", "lec"]
        run.compare("ten reports against all tools", tools, TEN, 12.0, 1)
    finally:
        run.close()


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of all but ten reports")
    parser.add_argument("--ten", type=float, default=0.6, help="GB of which all reports are made")
    parser.add_argument("--only", choices=("cores", "peer", "ten"))
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"load {load:.1f} on {len(os.sched_getaffinity(0))} cores")
    peer = os.environ.get("THALWEG_PEER_PYTHON")
    if args.only in {None, "cores"}:
        run = Run(_spec(args.gigabytes), None)
        try:
            on_all_cores(run, 5 * args.rounds)
        finally:
            run.close()
    if args.only != "cores" and peer:
        long = 0.0 if args.only == "ten" else args.gigabytes
        try:
            against_peer(peer, (long, args.ten), args.rounds)
        except subprocess.CalledProcessError as e:
            print(e.stderr.decode())
            raise
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
