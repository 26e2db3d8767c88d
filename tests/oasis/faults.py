"""Faults injected into real runs: killed processes, full disks, and streams that end early.

Of five faults three kill a process at a random instant, one gives the run a disk that is too
small, and one cuts a stream. A *fifo* or a *pipe* that is cut ends after so many bytes as if its
producer had ended well: the fifo goes to a reader of outputs, the pipe from one tool that computes
losses to the next. A *broken* pipe tells its producer, as the kernel does.

A run that fails is loud if oasislmf's own log has an error. One that succeeds has missed the fault;
its outputs then tell whether that did harm.

Each fault depends on the seed and its number alone, and is written to a file as soon as its run has
ended. So the injection can be stopped at any time, and goes on from there when it is called again.
"""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from .comparing import compare
from .model import HELPERS, MONITOR, Cost, CpuClock, Model, kill_all, log_of, processes_of, size_of

HANGING = 150.0
"""Seconds without any CPU time of all processes of a run, after which it hangs; our tools wait
up to 120 s for the reader of a fifo."""
CUTTER = """#!/bin/bash
case "$*" in
  {pattern})
    if mkdir {folder}/taken 2> /dev/null; then
      {real} "$@" | {{
        head -c {size}; [ "$(head -c 1 | wc -c)" -eq 1 ] && mkdir {folder}/cut; cat > /dev/null
      }}
      exit 0
    fi;;
esac
exec {real} "$@"
"""
"""A program whose first stream ends after ``size`` bytes as if all were well."""
BREAKER = """#!{python}
import io, os, runpy, sys

class Broken(io.RawIOBase):
    left = {size}

    def writable(self):
        return True

    def fileno(self):
        return 1

    def write(self, octets):
        octets = bytes(octets)
        if not self.left:
            os.makedirs("{folder}/cut", exist_ok=True)
            raise BrokenPipeError(32, "Broken pipe")
        written = os.write(1, octets[: self.left])
        self.left -= written
        return written

line = " ".join(sys.argv[1:])
if {chosen}:
    try:
        os.mkdir("{folder}/taken")
    except FileExistsError:
        pass
    else:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(Broken()))
sys.argv[0] = "{real}"
runpy.run_path("{real}", run_name="__main__")
"""
"""A program whose first stream can take ``size`` bytes and then breaks."""
STREAMS = {
    # program: pattern of its arguments, and where its stream goes
    "gul": ("gulmc", "*", "fifo"),
    "il": ("fmpy", "-a2*", "pipe"),
    "ri_IP1": ("fmpy", "*RI_1*", "pipe"),
    "ri": ("fmpy", "*RI_2*", "fifo"),
}
"""Streams of the light settings: program, pattern of its arguments, and what takes it on."""
OPTIONS = ("--resource-monitor-interval", "60")
"""Of runs with faults: looking at all processes each second costs as much as the run."""
KINDS = ("kill", "kill", "kill", "disk", "cut")


@dataclass
class Fault:
    """One injected fault, and what became of the run."""

    kind: str
    what: str
    ticks: float
    """CPU time of the script's processes before it."""
    code: int | None = None
    """Exit code of oasislmf; None if the run had to be ended, as it hung."""
    reason: str = ""
    """The first error in its log."""
    outputs: str = ""
    """Of a run that succeeded: ``right`` or ``wrong``; of one that failed, how many it left."""

    @property
    def result(self) -> str:
        """How loud it was."""
        if self.code is None:
            return "hung"
        if self.code != 0:
            left = f", {self.outputs} outputs left" if self.outputs != "0" else ""
            return ("loud" if self.reason else "failed without a reason") + left
        return f"silent, outputs {self.outputs}"


def inject(model: Model, mode: str, count: int, seed: int, until: float) -> list[Fault]:
    """Inject faults into runs of two processes, until there are so many or the time is over.

    Args:
        model: of the runs.
        mode: of the runs.
        count: faults, with those of earlier calls.
        seed: of what is chosen at random.
        until: ``time.monotonic()`` after which no more runs are started.

    Returns:
        All faults so far.
    """
    results = model.work / f"faults_{mode}_{seed}.csv"
    found = _read(results)
    cost = _faultless(model, mode)
    while len(found) < count and time.monotonic() < until:
        fault = _nth(model, mode, len(found), seed, cost)
        found.append(fault)
        with results.open("a", newline="") as file:
            csv.writer(file).writerow(astuple(fault))
        print(
            f"  {mode} {len(found):3} {fault.kind:5} {fault.what[:50]:50} {fault.ticks:5.0f} ticks"
            f"  {fault.result:30} {fault.reason[-90:]}",
            flush=True,
        )
    return found


def summarise(mode: str, found: list[Fault]) -> int:
    """Print how many faults of each kind were reported; return how many were not."""
    results = Counter((fault.kind, fault.result) for fault in found)
    for (kind, result), number in sorted(results.items()):
        print(f"  {mode}: {number:3} {kind:5} {result}")
    silent = sum(n for (_, result), n in results.items() if not result.startswith("loud"))
    print(f"  {mode}: {len(found) - silent} of {len(found)} faults reported", flush=True)
    return silent


def _read(path: Path) -> list[Fault]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Fault(kind, what, float(ticks), int(code) if code else None, reason, outputs)
            for kind, what, ticks, code, reason, outputs in csv.reader(file)
        ]


def _faultless(model: Model, mode: str) -> Cost:
    """What a run without a fault costs; measured once, as its outputs are kept."""
    saved = model.work / f"faultless_{mode}.json"
    if not saved.exists():
        if not model.folder(f"faultless-{mode}").exists():
            model.run(mode, f"faultless-{mode}", 2)  # warm
        cost = model.run(mode, f"faultless-{mode}", 2)
        saved.write_text(json.dumps(asdict(cost)))
    cost = Cost(**json.loads(saved.read_text()))
    print(f"{mode} without a fault: {cost}", flush=True)
    return cost


def _nth(model: Model, mode: str, number: int, seed: int, cost: Cost) -> Fault:
    """Inject the fault of a number; a run that ends before its fault is done again with another."""
    for attempt in range(20):
        rng = random.Random(f"{seed} {number} {attempt}")  # noqa: S311 - no secret
        fault = _one(model, mode, KINDS[number % len(KINDS)], rng, cost)
        if fault is not None:
            return fault
    raise AssertionError("faults come too late")


def _one(model: Model, mode: str, kind: str, rng: random.Random, cost: Cost) -> Fault | None:
    """Inject a fault into a run; None if the run had ended before."""
    if kind == "disk":
        run = model.folder("small")
        with _small_disk(model, mode, rng, cost.disk) as size:
            fault = Fault(kind, f"{size} KiB", 0.0)
            return _finish(model, mode, fault, run, model.start(mode, run, 2, *OPTIONS))
    if kind == "cut":
        with _cut_stream(model, rng) as (how, what):
            run = model.folder("fault")
            fault = Fault(how, what, 0.0)
            cut = _finish(model, mode, fault, run, model.start(mode, run, 2, *OPTIONS))
            return cut if (model.work / "cutting" / "cut").exists() else None
    run = model.folder("fault")
    process = model.start(mode, run, 2, *OPTIONS)
    killed = _kill_one(run, rng, process, cost.ticks)
    return _finish(model, mode, killed, run, process)


def _finish(
    model: Model, mode: str, fault: Fault | None, run: Path, process: subprocess.Popen[bytes]
) -> Fault | None:
    """Wait for the end of a run, and see how it ended."""
    code = _wait(run, process)
    kill_all(run)
    for path in (model.work / "tmp").iterdir():
        shutil.rmtree(path, ignore_errors=True)
    if fault is not None:
        lines = log_of(run).read_text(errors="replace").splitlines()
        reasons = [x for x in lines if "[ERROR]" in x or " - ERROR - " in x or "Error" in x]
        fault.code, fault.reason = code, reasons[0] if reasons else ""
        left = [p for p in (run / "output").glob("*_S*.*") if "summary-info" not in p.name]
        fault.outputs = str(len(left))
        if code == 0:
            expected = model.folder(f"faultless-{mode}") / "output"
            right = not compare(run / "output", expected).wrong
            fault.outputs = "right" if right else "wrong"
    return fault


def _wait(run: Path, process: subprocess.Popen[bytes]) -> int | None:
    """Wait for the end of a run; return its exit code, or None after killing one that hangs."""
    clock, used, since = CpuClock(), 0, time.monotonic()
    while True:
        try:
            return process.wait(2)
        except subprocess.TimeoutExpired:
            pass
        if (ticks := clock.read(run)) != used:
            used, since = ticks, time.monotonic()
        elif time.monotonic() - since > HANGING:
            process.kill()
            process.wait()
            return None


def _kill_one(
    run: Path, rng: random.Random, process: subprocess.Popen[bytes], duration: int
) -> Fault | None:
    """Kill a process of a run after a part of the CPU time that its script takes."""
    while process.poll() is None and not any("gulmc" in c for _, c in processes_of(run)):
        time.sleep(0.02)
    until, clock = rng.uniform(0, 0.95 * duration), CpuClock()
    while process.poll() is None and clock.read(run) < until:
        time.sleep(0.1)
    own = [pair for pair in processes_of(run) if _computes(pair[1]) and not _counts(pair[0])]
    if process.poll() is not None or not own:
        return None
    pid, command = rng.choice(own)
    try:
        # One that is about to end cannot be stopped any more: killing it is no fault.
        os.kill(pid, signal.SIGSTOP)
        stopped = _is_stopped(pid)
        os.kill(pid, signal.SIGKILL)
    except (OSError, IndexError):
        return None
    if not stopped:
        return None
    return Fault("kill", " ".join(Path(word).name for word in command.split()[:6]), until)


def _is_stopped(pid: int) -> bool:
    """Whether a process stops, which takes it a turn of a busy processor.

    Raises:
        OSError: it has ended.
    """
    for _ in range(500):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state in "TZX":
            return state == "T"
        time.sleep(0.02)
    return False


def _counts(pid: int) -> bool:
    """Whether a process is a subshell in which the watcher of errors counts processes.

    It goes on without.
    """
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        return MONITOR in Path(f"/proc/{parent}/cmdline").read_text()
    except OSError:
        return False


def _computes(command: str) -> bool:
    return bool(command) and not any(name in command for name in HELPERS if name != MONITOR)


@contextmanager
def _small_disk(model: Model, mode: str, rng: random.Random, peak: int) -> Iterator[int]:
    """A disk of its own for a run, with room for its inputs and for a part of the rest."""
    folder = model.folder("small")
    folder.mkdir(exist_ok=True)
    inputs = size_of(model.folder(f"faultless-{mode}") / "input")
    size = int(inputs + rng.uniform(0.1, 0.8) * (peak - inputs)) // 1024
    # As root only, as on a machine for tests.
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder)], check=True
    )
    try:
        yield size
    finally:
        # A process that has just been killed may be there for a moment.
        for _ in range(50):
            if (
                subprocess.run(
                    ["umount", str(folder)], check=False, stderr=subprocess.DEVNULL
                ).returncode
                == 0
            ):
                break
            time.sleep(0.1)


@contextmanager
def _cut_stream(model: Model, rng: random.Random) -> Iterator[tuple[str, str]]:
    """A program that ends one of its streams early; yields how, and what stream after how much."""
    stream = rng.choice([*STREAMS])
    program, pattern, how = STREAMS[stream]
    if rng.random() < 0.25:
        how = "broken"
    size = rng.randrange(1000, 60_000)
    folder = model.work / "cutting"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    template = BREAKER if how == "broken" else CUTTER
    text = template.format(
        pattern=pattern,
        chosen=f"{pattern.strip('*')!r} in line",
        folder=folder,
        python=model.peer,
        real=model.peer.parent / program,
        size=size,
    )
    (folder / program).write_text(text)
    (folder / program).chmod(0o755)
    model.first = folder
    try:
        yield how, f"{stream} of {program} after {size} bytes"
    finally:
        model.first = None
