"""Faults injected into real runs: killed processes, full disks, and fifos that end early.

Of five faults three kill a process at a random instant, one gives the run a disk that is too
small, and one ends a stream of losses after so many bytes as if its producer had ended well. A
run that fails is loud if oasislmf's own log has an error. One that succeeds has missed the fault;
its outputs then tell whether that did harm.
"""

from __future__ import annotations

import csv
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from .comparing import compare
from .model import Cost, Model, kill_all, log_of, processes_of, size_of

HELPERS = ("socket-server", "oasislmf model", "resource_tracker", "sleep", "sed", "find", "rm ")
"""What merely tells the progress or waits, and the command itself: no process of losses."""
CUTTER = """#!/bin/bash
case "$*" in
  *{word}*)
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


@dataclass
class Fault:
    """One injected fault, and what became of the run."""

    kind: str
    what: str
    seconds: float
    """After the script of the run began."""
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


def inject(model: Model, mode: str, count: int, seed: int) -> int:
    """Inject so many faults into runs of two processes; return how many were not loud."""
    rng = random.Random(seed)  # noqa: S311 - which process is no secret
    model.run(mode, "faultless", 2)  # warm
    cost = model.run(mode, "faultless", 2)
    print(f"{mode} without a fault: {cost.wall:.1f} s", flush=True)
    found: list[Fault] = []
    attempts = 0
    while len(found) < count:
        attempts += 1
        assert attempts < 3 * count, "most faults come too late"
        kind = ("kill", "kill", "kill", "disk", "cut")[len(found) % 5]
        fault = _one(model, mode, kind, rng, cost)
        if fault is None:
            continue  # the run had ended before
        found.append(fault)
        print(
            f"  {len(found):3} {fault.kind:5} {fault.what[:50]:50} {fault.seconds:5.1f} s"
            f"  {fault.result:30} {fault.reason[-90:]}",
            flush=True,
        )
    with (model.work / f"faults_{mode}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([*map(astuple, found)])
    results = Counter((fault.kind, fault.result) for fault in found)
    for (kind, result), number in sorted(results.items()):
        print(f"  {mode}: {number:3} {kind:5} {result}")
    silent = sum(n for (_, result), n in results.items() if not result.startswith("loud"))
    print(f"  {mode}: {count - silent} of {count} faults reported (seed {seed})", flush=True)
    return silent


def _one(model: Model, mode: str, kind: str, rng: random.Random, cost: Cost) -> Fault | None:
    """Inject a fault into a run; None if the run had ended before."""
    if kind == "disk":
        run = model.folder("small")
        with _small_disk(run, rng, cost.disk) as size:
            fault = Fault(kind, f"{size} KiB", 0.0)
            return _finish(model, fault, run, model.start(mode, run, 2), cost)
    if kind == "cut":
        with _cut_stream(model, rng) as what:
            run = model.folder("fault")
            cut = _finish(model, Fault(kind, what, 0.0), run, model.start(mode, run, 2), cost)
            return cut if (model.work / "cutting" / "cut").exists() else None
    run = model.folder("fault")
    process = model.start(mode, run, 2)
    killed = _kill_one(run, rng, process, cost.wall)
    return _finish(model, killed, run, process, cost)


def _finish(
    model: Model,
    fault: Fault | None,
    run: Path,
    process: subprocess.Popen[bytes],
    cost: Cost,
) -> Fault | None:
    """Wait for the end of a run, and see how it ended."""
    code: int | None
    try:
        code = process.wait(60 + 4 * cost.wall)
    except subprocess.TimeoutExpired:
        code = None
        process.kill()
        process.wait()
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
            right = not compare(run / "output", model.folder("faultless") / "output").wrong
            fault.outputs = "right" if right else "wrong"
    return fault


def _kill_one(
    run: Path, rng: random.Random, process: subprocess.Popen[bytes], duration: float
) -> Fault | None:
    """Kill a process of a run after its script has begun."""
    while process.poll() is None and not any("gulmc" in c for _, c in processes_of(run)):
        time.sleep(0.02)
    seconds = rng.uniform(0, 0.7 * duration)
    time.sleep(seconds)
    own = [pair for pair in processes_of(run) if _computes(pair[1])]
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
    return Fault("kill", " ".join(Path(word).name for word in command.split()[:6]), seconds)


def _computes(command: str) -> bool:
    return bool(command) and not any(name in command for name in HELPERS)


@contextmanager
def _small_disk(folder: Path, rng: random.Random, peak: int) -> Iterator[int]:
    """A disk of its own for a run, with room for its inputs and for a part of the rest."""
    folder.mkdir(exist_ok=True)
    inputs = size_of(folder.with_name("faultless") / "input")
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
def _cut_stream(model: Model, rng: random.Random) -> Iterator[str]:
    """A program that ends one of its streams early: of those that fifos take to readers.

    What goes from one program of the peer to the next alone is their own affair.
    """
    program, word = rng.choice((("gulmc", ""), ("fmpy", "RI_2")))
    size = rng.randrange(1000, 60_000)
    folder = model.work / "cutting"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    real = model.peer.parent / program
    text = CUTTER.format(word=word, folder=folder, real=real, size=size)
    (folder / program).write_text(text)
    (folder / program).chmod(0o755)
    model.first = folder
    try:
        yield f"{program} ends after {size} bytes"
    finally:
        model.first = None
