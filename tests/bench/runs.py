"""All cores, and reports of periods and whole runs against the peer's tools.

``python -m tests.bench.runs``. The peer is an interpreter with ``oasislmf``, named by
``THALWEG_PEER_PYTHON``. Its tools read a run directory, and each parses the stream again;
ours is one command for all reports. Both write packed records to a file system in memory.
Commands are timed with their start-up, and in CPU seconds of all their processes.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from tests.bench.__main__ import SERVER, Setup, bare_scan, command, line, medians, timed

_SECTION = 8 << 20
TEN = "selt,melt,qelt,splt,mplt,qplt,aal,alct,ept,psept"
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


def on_all_cores(setup: Setup, rounds: int) -> None:
    """MELT on one and two threads against the scan of one."""
    octets = np.fromfile(setup.stream, np.uint8)
    words, losses = octets.view(np.int32), octets.view(np.float32)
    out = np.zeros((200_000, 4))
    header = parse_header(octets[:12].tobytes(), Policy(), None)
    assert header is not None

    def analyse(count: int) -> None:
        with ThreadPoolExecutor(count) as pool:

            def threads(function: Callable[[Any], Any], elements: Iterable[Any]) -> Iterator[Any]:
                yield from pool.map(function, elements)

            run = SectionedRun(
                lambda sink, seen: SectionAnalysis(["melt"], sink, seen=seen),
                count,
                threads,
                lambda _name, _rows: None,
            )
            run.run(sections(octets.data, header), lambda _result: None)

    contests = {
        "bare": timed(lambda: bare_scan(words, losses, out)),
        "one": timed(lambda: analyse(1)),
        "two": timed(lambda: analyse(2)),
    }
    for run in contests.values():
        run()
    result = medians(contests, rounds)
    line("MELT in sections, one thread, speed / bare scan", result["bare"] / result["one"])
    line("MELT in sections, two threads, speed / bare scan", result["bare"] / result["two"], 1.6)


def _ours(setup: Setup, reports: str) -> list[str]:
    given = setup.directory / "input"
    args = [*SERVER, "aggregate", str(setup.stream), "--reports", reports, "--format", "bin"]
    args += ["--occurrence", str(given / "occurrence.bin"), "--memory-budget", str(8 << 30)]
    if "ept" in reports:
        args += ["--return-periods", str(given / "returnperiods.bin")]
    if "qelt" in reports:
        args += ["--quantiles", str(given / "quantile.bin")]
    return [*args, "--no-progress", "--out", str(setup.directory / "ours")]


def _theirs(setup: Setup, tool: str) -> list[str]:
    assert setup.peer is not None
    name = "aal" if tool == "alct" else tool
    code = f"from oasislmf.pytools.{name}.cli import main; main()"
    where = ["-i", str(setup.stream)] if name in {"elt", "plt"} else ["-K", "s"]
    out = [part.format(out=setup.directory / "theirs") for part in _TOOLS[tool]]
    return [setup.peer, "-c", code, "--run_dir", str(setup.directory), *where, *out, "-E", "bin"]


def _measured(args: Sequence[str], setup: Setup) -> Callable[[], tuple[float, float]]:
    run = command(args, setup.directory)

    def measure() -> tuple[float, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = run()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return measure


def against_peer(setup: Setup, rounds: int) -> None:
    """Whole commands, run in turn."""
    for name in ("ours", "theirs", "work/s"):
        (setup.directory / name).mkdir(parents=True, exist_ok=True)
    (setup.directory / "work" / "s" / "P1.bin").hardlink_to(setup.stream)
    contests = {name: _measured(_theirs(setup, name), setup) for name in _TOOLS}
    for name in ("aal", "ept,psept", TEN):
        contests[f"ours {name}"] = _measured(_ours(setup, name), setup)
    for run in contests.values():
        run()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contests}
    for _ in range(rounds):
        for name, run in contests.items():
            times[name].append(run())
    middle = {
        name: tuple(statistics.median(column) for column in zip(*measured, strict=True))
        for name, measured in times.items()
    }
    for name, (seconds, cpu) in middle.items():
        print(f"  {name}: {seconds:.2f} s, CPU {cpu:.2f} s")
    _compare(middle, "AAL against aalpy", ["aal"], "aal", 8.0)
    _compare(middle, "EPT and PSEPT against lecpy", ["lec"], "ept,psept", 10.0)
    tools = ["elt", "plt", "alct", "lec"]
    _compare(middle, "all ten reports against all tools", tools, TEN, 12.0)


def _compare(
    times: Mapping[str, tuple[float, ...]],
    text: str,
    tools: Sequence[str],
    reports: str,
    target: float,
) -> None:
    ours = times[f"ours {reports}"]
    theirs = [sum(times[tool][i] for tool in tools) for i in range(2)]
    line(f"{text}, with start-up", theirs[0] / ours[0], target)
    line("  in CPU seconds", theirs[1] / ours[1])


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("cores", "peer"))
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"load {load:.1f} on {len(os.sched_getaffinity(0))} cores")
    spec = SampleSpec(events=2000, summaries=75, samples=1000)
    setup = Setup(spec, os.environ.get("THALWEG_PEER_PYTHON"))
    try:
        if args.only in {None, "cores"}:
            on_all_cores(setup, 3 * args.rounds)
        if args.only in {None, "peer"} and setup.peer:
            try:
                against_peer(setup, args.rounds)
            except subprocess.CalledProcessError as e:
                print(e.stderr.decode())
                raise
    finally:
        shutil.rmtree(setup.directory)


if __name__ == "__main__":
    main()
