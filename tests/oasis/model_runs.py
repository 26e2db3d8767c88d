"""Real runs of a small model, plain and with the runner: outputs, cost, and faults.

``python -m tests.oasis.model_runs --peer PYTHON`` runs oasislmf's own commands, with 1, 2 and 4
processes and in chunks, and compares every output file of the runner's with the plain one's. Then
it measures both with two processes: wall and CPU time, and the peaks of disk and memory. What
computing losses alone costs is measured with a reader that throws them away; the rest is the
output half. ``--faults 50`` kills processes of runs at random instants instead: every run has to
fail, and to say why.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from app.oasis.runner import write_runner
from tests.oasis_runs import RUN, read_table
from tests.server_process import ROOT

DISCARD = """#!{python}
import os, sys, threading
streams = [b.partition("=")[2] for a, b in zip(sys.argv, sys.argv[1:]) if a == "--stream"]
def drain(path):
    with open(path, "rb", 0) as file:
        while file.read(1 << 20):
            pass
threads = [threading.Thread(target=drain, args=(path,)) for path in streams]
word = os.open(sys.argv[sys.argv.index("--confirm") + 1], os.O_RDWR)
for thread in threads: thread.start()
for thread in threads: thread.join()
os.read(word, 64)
"""
"""A stand-in for our command that reads the streams of items and does nothing with them."""


@dataclass
class Cost:
    """Of one run."""

    wall: float = 0.0
    cpu: float = 0.0
    disk: int = 0
    memory: int = 0


@dataclass
class Model:
    """The model in a folder, and how it is run."""

    work: Path
    peer: Path
    scale: int = 1
    names: dict[str, Path] = field(default_factory=dict)

    def prepare(self) -> None:
        """Generate the model and its portfolio, and the input files of a run."""
        shutil.copytree(RUN / "model", self.work / "model")
        for path in self.work.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        shutil.copy(RUN / "run" / "analysis_settings.json", self.work)
        (self.work / "analysis_settings.json").chmod(0o644)
        source = self.work / "model" / "gen.py"
        text = source.read_text()
        if self.scale > 1:
            # As many locations in each area, in the same three accounts.
            text = text.replace(
                "range(1,NL+1):\n    acc=1+(i-1)//6",
                f"range(1,{self.scale}*NL+1):\n    acc=1+(i-1)%16//6",
            )
            text = text.replace("'WTC',cov,i,", "'WTC',cov,1+(i-1)%NL,")
            assert f"{self.scale}*NL" in text
        source.write_text(text)
        self._call([str(self.peer), "gen.py"], self.work / "model")
        self._call(["bash", "tobin.sh"], self.work / "model")
        exposure = self.work / "model" / "exposure"
        files = {"-x": "location", "-y": "account", "-i": "ri_info", "-s": "ri_scope", "-z": "keys"}
        command = ["oasislmf", "model", "generate-oasis-files", "-o", str(self.work / "input")]
        for flag, name in files.items():
            command += [flag, str(exposure / f"{name}.csv")]
        self._call(command, self.work)
        launcher = self.work / "thalweg-server"
        launcher.write_text(
            f'#!/bin/bash\nPYTHONPATH={ROOT} exec {sys.executable} -m app.command "$@"\n'
        )
        discard = self.work / "discard"
        discard.write_text(DISCARD.format(python=sys.executable))
        for server, name in ((launcher, "runner"), (discard, "losses")):
            server.chmod(0o755)
            self.names[name] = write_runner(self.work / name, server=server).parent

    @property
    def environ(self) -> dict[str, str]:
        """Of all commands."""
        (self.work / "tmp").mkdir(exist_ok=True)
        path = f"{self.peer.parent}{os.pathsep}{os.environ['PATH']}"
        plain = {name: v for name, v in os.environ.items() if not name.startswith("PYTHON")}
        return plain | {"PATH": path, "OASIS_TMPDIR": str(self.work / "tmp")}

    def _call(self, command: Sequence[str], cwd: Path) -> None:
        subprocess.run(command, cwd=cwd, env=self.environ, check=True, stdout=subprocess.DEVNULL)

    def command(self, action: str, name: str, mode: str, *options: str) -> list[str]:
        """A command of oasislmf about the run ``name``."""
        package = ["-p", str(self.names[mode])] if mode in self.names else []
        return [
            *("oasislmf", "model", action, "-o", str(self.work / "input")),
            *("-a", str(self.work / "analysis_settings.json")),
            *("-d", str(self.work / "model" / "model_data"), "-r", str(self.work / name)),
            *(*package, *options),
        ]

    def start(self, mode: str, name: str, processes: int) -> subprocess.Popen[bytes]:
        """Start a run."""
        shutil.rmtree(self.work / name, ignore_errors=True)
        command = self.command("generate-losses", name, mode, "-n", str(processes))
        log = (self.work / f"{name}.log").open("wb")
        with log:
            return subprocess.Popen(
                command, cwd=self.work, env=self.environ, stdout=log, stderr=subprocess.STDOUT
            )

    def run(self, mode: str, name: str, processes: int) -> Cost:
        """Run to the end; return what it cost."""
        cost = Cost()
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        process = self.start(mode, name, processes)
        stop = threading.Event()
        watch = threading.Thread(target=_watch, args=(self, name, cost, stop))
        watch.start()
        code = process.wait()
        stop.set()
        watch.join()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert code == 0, f"{name} failed: see {self.work / name}.log"
        cost.wall = time.perf_counter() - start
        cost.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return cost

    def run_chunks(self, mode: str, name: str, chunks: int) -> None:
        """Compute each chunk by itself, merge their work folders, and write the outputs."""
        shutil.rmtree(self.work / name, ignore_errors=True)
        options = ["-n", str(chunks), "--max-process-id", str(chunks)]
        for chunk in range(1, chunks + 1):
            number = ["--process-number", str(chunk)]
            self._call(
                self.command("generate-losses-chunk", name, mode, *options, *number), self.work
            )
        for chunk in range(1, chunks + 1):
            own = self.work / name / f"{chunk}.work"
            shutil.copytree(own, self.work / name / "work", dirs_exist_ok=True)
        self._call(self.command("generate-losses-output", name, mode, *options), self.work)


def _processes(folder: Path) -> Iterator[tuple[int, str]]:
    """Processes of a run, whose working directory is its folder: id and command."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                if (path / "cwd").readlink() == folder:
                    words = (path / "cmdline").read_bytes().split(b"\0")
                    yield int(path.name), b" ".join(words).decode(errors="replace")


def _watch(model: Model, name: str, cost: Cost, stop: threading.Event) -> None:
    page = resource.getpagesize()
    while not stop.wait(0.2):
        size = 0
        for top in (model.work / name, model.work / "tmp"):
            for path in top.rglob("*"):
                with suppress(OSError):
                    if not path.is_symlink():
                        size += path.lstat().st_blocks * 512
        resident = 0
        for pid, _ in _processes(model.work / name):
            with suppress(OSError, ValueError):
                resident += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
        cost.disk, cost.memory = max(cost.disk, size), max(cost.memory, resident)


# -- outputs -----------------------------------------------------------------------------


def compare(ours: Path, theirs: Path) -> int:
    """Compare all outputs; print what differs, and return the number of unexplained files."""
    names = [
        {path.name for path in folder.glob("*_S*.csv") if "summary-info" not in path.name}
        for folder in (ours, theirs)
    ]
    wrong = len(names[0] ^ names[1])
    for name in sorted(names[0] ^ names[1]):
        print(f"  only in one: {name}")
    same = close = ties = 0
    for name in sorted(names[0] & names[1]):
        (header, lines), (their_header, expected) = (
            read_table(ours / name),
            read_table(theirs / name),
        )
        if (header, lines) == (their_header, expected):
            same += 1
        elif header == their_header and _is_close(lines, expected):
            close += 1
        elif (
            header == their_header and name.endswith(("ept.csv",)) and _same_curves(lines, expected)
        ):
            ties += 1
        else:
            wrong += 1
            print(f"  differs: {name}")
    print(f"  {same} files equal, {close} to the last digits, {ties} but for ties under weights")
    return wrong


def _is_close(lines: list[list[str]], expected: list[list[str]]) -> bool:
    if len(lines) != len(expected):
        return False
    values, expected_values = (np.array(rows, np.float64) for rows in (lines, expected))
    return bool(np.allclose(values, expected_values, rtol=1e-5, atol=0.0101, equal_nan=True))


def _same_curves(lines: list[list[str]], expected: list[list[str]]) -> bool:
    """Whether the same curves are there; the peer orders ties as an unstable sort does."""
    sides = [{tuple(line[:3]) for line in rows} for rows in (lines, expected)]
    return sides[1] <= sides[0]


# -- faults ------------------------------------------------------------------------------


def faults(model: Model, mode: str, count: int, seed: int) -> int:
    """Kill a random process of each of so many runs; return how many did not fail loudly."""
    rng = random.Random(seed)  # noqa: S311 - which process is no secret
    duration = model.run(mode, "faultless", 2).wall
    silent = done = 0
    rows = []
    while done < count:
        process = model.start(mode, "fault", 2)
        killed = _kill_one(model.work / "fault", rng, process, duration)
        code = process.wait()
        text = (model.work / "fault.log").read_text(errors="replace")
        if killed is None:
            continue  # it had ended before
        done += 1
        reasons = [line for line in text.splitlines() if "[ERROR]" in line]
        silent += code == 0
        rows.append((killed, code, reasons[0][-160:] if reasons else ""))
        print(f"  {done:3} rc {code:4}  {killed[:60]:60}  {rows[-1][2][:90]}", flush=True)
    with (model.work / f"faults_{mode}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("killed", "code", "reason"), *rows])
    print(f"  {mode}: {count - silent} of {count} faults reported (seed {seed})")
    return silent


def _kill_one(
    folder: Path, rng: random.Random, process: subprocess.Popen[bytes], duration: float
) -> str | None:
    """Kill a process of a run after its script has begun; return its command."""
    while process.poll() is None and not any("gulmc" in c for _, c in _processes(folder)):
        time.sleep(0.02)
    time.sleep(rng.uniform(0, 0.7 * duration))
    own = [pair for pair in _processes(folder) if pair[0] != process.pid and _is_of_run(pair[1])]
    if process.poll() is not None or not own:
        return None
    pid, command = rng.choice(own)
    try:
        # One that is about to end cannot be stopped any more: killing it is no fault.
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.02)
        stopped = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        os.kill(pid, signal.SIGKILL)
    except (OSError, IndexError):
        return None
    if not stopped:
        return None
    return " ".join(Path(word).name for word in command.split()[:4])


def _is_of_run(command: str) -> bool:
    """Not what merely tells the progress, nor the command itself and its helpers."""
    helpers = ("socket-server", "oasislmf model", "resource_tracker", "sleep", "sed", "find")
    return bool(command) and not any(name in command for name in helpers)


# -- all of it ---------------------------------------------------------------------------


def _measure(model: Model, times: int) -> None:
    modes = ("losses", "plain", "runner")
    costs: dict[str, list[Cost]] = {mode: [] for mode in modes}
    for mode in modes:
        model.run(mode, mode, 2)  # compiles what is not compiled yet
    for _ in range(times):
        for mode in modes:
            costs[mode].append(model.run(mode, mode, 2))

    def median(mode: str, of: Callable[[Cost], float]) -> float:
        return statistics.median(of(cost) for cost in costs[mode])

    base = median("losses", lambda c: c.cpu)
    print(f"two processes, median of {times}, load {os.getloadavg()[0]:.1f}")
    for mode in modes:
        left = sum(path.stat().st_size for path in (model.work / mode / "output").rglob("*.csv"))
        wall, cpu = median(mode, lambda c: c.wall), median(mode, lambda c: c.cpu)
        disk, memory = median(mode, lambda c: c.disk), median(mode, lambda c: c.memory)
        print(
            f"  {mode:8} wall {wall:7.1f} s  CPU {cpu:7.1f} s  output half {cpu - base:7.1f} s"
            f"  peak disk {disk / 1e6:8.1f} MB, {max(0, disk - left) / 1e6:.1f} beyond the outputs"
            f"  peak memory {memory / 1e6:8.0f} MB"
        )
    ours, theirs = (median(mode, lambda c: c.cpu) - base for mode in ("runner", "plain"))
    print(f"  output half, runner / plain: {ours / theirs:.2f} of the CPU time (at most 0.25)")


def main() -> int:
    """Run what the options ask for; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", type=Path, required=True, help="python of oasislmf 2.5.8")
    parser.add_argument("--work", type=Path, default=Path("build/model-runs"))
    parser.add_argument("--processes", default="1,2,4", help="numbers of processes to compare")
    parser.add_argument("--scale", type=int, default=1, help="times the portfolio")
    parser.add_argument("--times", type=int, default=3, help="measured runs; 0 for none")
    parser.add_argument("--no-chunks", action="store_true")
    parser.add_argument("--faults", type=int, help="kill processes of so many runs instead")
    parser.add_argument("--mode", choices=("runner", "plain"), default="runner", help="of faults")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    model = Model(args.work.resolve(), args.peer.absolute(), args.scale)
    model.prepare()
    if args.faults:
        return min(1, faults(model, args.mode, args.faults, args.seed))
    wrong = 0
    for processes in (int(text) for text in args.processes.split(",") if text):
        for mode in ("plain", "runner"):
            cost = model.run(mode, mode, processes)
            print(f"{mode} with {processes} processes: {cost.wall:.1f} s", flush=True)
        wrong += compare(model.work / "runner" / "output", model.work / "plain" / "output")
    if not args.no_chunks:
        model.run_chunks("runner", "chunks", 2)
        print("in two chunks, against one run of the runner")
        wrong += compare(model.work / "chunks" / "output", model.work / "runner" / "output")
    if args.times:
        _measure(model, args.times)
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main())
