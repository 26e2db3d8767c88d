"""Real runs of a small model: outputs, costs and faults, compared with the peer's own.

``python -m tests.oasis.model_runs --peer PYTHON`` runs oasislmf's own commands in three ways:
plain, with the runner, and with the executables first on PATH; a fourth, ``--modes service``, has
the runner upload to a service. It compares every output file, with
1, 2 and 4 processes and in chunks, and then measures with two processes: wall and CPU time, and the
peaks of disk and memory. Reading the streams of items and dropping them shows how much of that
is the half that computes losses; the rest is the output half. With ``--saved`` no plain runs are
made: the peer's saved outputs of the same model take their place.

``--measure`` does the second alone, ``--scale 20`` on a portfolio as many times as large, and
``--modes losses,runner`` in these ways only. ``--faults 50`` kills processes, fills disks and cuts
streams of so many runs instead. It keeps its folder and goes on where it was stopped;
``--minutes 10`` stops it.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.server_process import ServerProcess

from .comparing import compare, peer_outputs, saved_outputs
from .faults import inject, summarise
from .model import MODES, Cost, Model

OURS = ("runner", "shims")
VARIANTS = ("gross losses", "load balancers")


@dataclass(frozen=True)
class Reference:
    """What runs are compared with: a plain run each, or the peer's saved outputs.

    Args:
        model: of the runs.
        modes: compared with it.
        saved: folder of the peer's outputs of the same model, instead of plain runs.
    """

    model: Model
    modes: tuple[str, ...]
    saved: Path | None = None

    @property
    def runs(self) -> tuple[str, ...]:
        """Modes to run."""
        return self.modes if self.saved is not None else ("plain", *self.modes)

    def compare(self, suffix: str, what: str, ties: Path | None = None) -> int:
        """Compare the runs ``<mode><suffix>``; return the number of files that differ."""
        wrong = 0
        theirs = self.saved or self.model.folder(f"plain{suffix}") / "output"
        for mode in self.modes:
            found = compare(self.model.folder(f"{mode}{suffix}") / "output", theirs, ties)
            print(f"  {mode}, {what}: {found}", flush=True)
            wrong += len(found.wrong)
        return wrong


def compare_runs(reference: Reference, processes: list[int], ties: Path | None) -> int:
    """Run with each number of processes, in each mode; return the number of files that differ."""
    wrong = 0
    for number in processes:
        for mode in reference.runs:
            cost = reference.model.run(mode, mode, number)
            print(f"{mode} with {number} processes: {cost}", flush=True)
        wrong += reference.compare("", f"{number} processes", ties)
    return wrong


def compare_chunks(reference: Reference, chunks: int, ties: Path | None) -> int:
    """Compute chunks and merge them, in each mode."""
    for mode in reference.runs:
        reference.model.run_chunks(mode, f"{mode}-chunks", chunks)
        print(f"{mode} in {chunks} chunks", flush=True)
    return reference.compare("-chunks", f"{chunks} chunks", ties)


def compare_whole(reference: Reference, ties: Path | None) -> int:
    """Run ``oasislmf model run``, from the exposure to the outputs, in each mode."""
    for mode in reference.runs:
        cost = reference.model.run(mode, f"{mode}-whole", 2, action="run")
        print(f"{mode}, oasislmf model run: {cost}", flush=True)
    return reference.compare("-whole", "oasislmf model run", ties)


def compare_variants(model: Model, names: list[str]) -> int:
    """Run shapes of scripts that other runs do not have, plain and in our ways."""
    settings = json.loads((model.work / "analysis_settings.json").read_text())
    gross = {"rl_output": True, "rl_summaries": settings["ri_summaries"]}
    balanced = ["--kernel-num-gul-per-lb", "2", "--kernel-num-fm-per-lb", "2"]
    variants: dict[str, tuple[dict[str, Any], list[str], tuple[str, ...]]] = {
        "gross losses": (gross, [], ("runner",)),
        "load balancers": ({}, balanced, OURS),
    }
    wrong = 0
    for name in names:
        model.settings, options, ours = variants[name]
        model.write_settings()
        for mode in ("plain", *ours):
            cost = model.run(mode, f"{mode}-variant", 2, *options)
            print(f"{mode}, {name}: {cost}", flush=True)
        outputs = {mode: model.folder(f"{mode}-variant") / "output" for mode in ("plain", *ours)}
        for mode in ours:
            found = compare(outputs[mode], outputs["plain"], shuffled=name == "load balancers")
            print(f"  {mode}, {name}: {found}", flush=True)
            wrong += len(found.wrong)
    model.settings = {}
    model.write_settings()
    return wrong


class Costs:
    """Costs of runs with two processes, by mode.

    Args:
        runs: costs of the runs of each mode; ``losses`` computes losses alone.
    """

    def __init__(self, runs: Mapping[str, Sequence[Cost]]) -> None:
        self._runs = runs

    def _median(self, mode: str, of: Callable[[Cost], float]) -> float:
        return statistics.median(of(cost) for cost in self._runs[mode])

    def _half(self, mode: str) -> tuple[float, float]:
        """CPU seconds of the output half, and its bytes on disk beyond the outputs."""
        cpu = self._median(mode, lambda c: c.cpu) - self._median("losses", lambda c: c.cpu)
        beyond = self._median(mode, lambda c: c.disk - c.left)
        return cpu, max(0.0, beyond - self._median("losses", lambda c: c.disk - c.left))

    def tell(self) -> None:
        """Print medians, and the output halves against the plain one."""
        for mode in self._runs:
            wall, cpu = self._median(mode, lambda c: c.wall), self._median(mode, lambda c: c.cpu)
            disk, memory = (self._median(mode, of) for of in (lambda c: c.disk, lambda c: c.memory))
            print(
                f"  {mode:7} wall {wall:7.1f} s  CPU {cpu:7.1f} s  peak disk {disk / 1e6:7.1f} MB"
                f"  peak memory {memory / 1e6:6.0f} MB",
                flush=True,
            )
        if not {"losses", "plain"} <= set(self._runs):
            return
        plain = self._half("plain")
        for mode in ("plain", *(mode for mode in OURS if mode in self._runs)):
            cpu, disk = self._half(mode)
            print(
                f"  output half, {mode}: CPU {cpu:.1f} s, disk beyond its files"
                f" {disk / 1e6:.1f} MB; of the plain one"
                f" {cpu / plain[0]:.2f} and {disk / max(plain[1], 1):.2f}"
                " (runner: at most 0.25 and 0.1)",
                flush=True,
            )


def measure(model: Model, times: int, modes: Sequence[str], *, warm: bool) -> None:
    """Print the costs of each mode with two processes."""
    costs: dict[str, list[Cost]] = {mode: [] for mode in modes}
    if not warm:
        for mode in modes:
            cost = model.run(mode, mode, 2)
            print(f"  {mode}, first, which compiles what is not compiled yet: {cost}", flush=True)
    for _ in range(times):
        for mode in modes:
            costs[mode].append(model.run(mode, mode, 2))
            print(f"  {mode}: {costs[mode][-1]}, load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"two processes, median of {times}, load {os.getloadavg()[0]:.1f}")
    Costs(costs).tell()


def start_service(folder: Path) -> str:
    """Start a service that ends with this process; its address."""
    server = ServerProcess(folder)
    atexit.register(server.kill)
    return server.url


def main() -> int:
    """Run what the options ask for; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", type=Path, required=True, help="python of oasislmf 2.5.8")
    parser.add_argument("--work", type=Path, default=Path("build/model-runs"))
    parser.add_argument("--processes", default="1,2,4", help="numbers of processes to compare")
    parser.add_argument("--scale", type=int, default=1, help="times the portfolio")
    parser.add_argument("--times", type=int, default=3, help="measured runs; 0 for none")
    parser.add_argument("--warm", action="store_true", help="no first run to compile")
    parser.add_argument("--measure", action="store_true", help="compare nothing")
    parser.add_argument("--unweighted", action="store_true", help="periods without weights")
    parser.add_argument("--light", action="store_true", help="one set of gul and ri alone")
    parser.add_argument("--saved", action="store_true", help="no plain runs: saved outputs of one")
    parser.add_argument("--no-chunks", action="store_true")
    parser.add_argument("--no-whole", action="store_true", help="no run from the exposure")
    parser.add_argument("--no-variants", action="store_true")
    parser.add_argument(
        "--modes",
        help="plain, runner, shims, service (one of our own) or losses (no outputs);"
        " default all but service",
    )
    parser.add_argument("--faults", type=int, help="faults to inject instead")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no fault after that")
    args = parser.parse_args()
    if not args.faults:
        shutil.rmtree(args.work, ignore_errors=True)
    modes = tuple(args.modes.split(",")) if args.modes else ("losses", *MODES)
    model = Model(
        args.work.resolve(),
        args.peer.absolute(),
        args.scale,
        weighted=not args.unweighted,
        light=args.light or bool(args.faults),
    )
    model.prepare()
    if "service" in modes:
        model.service = start_service(model.work / "service")
    if args.faults:
        until = time.monotonic() + 60 * args.minutes
        faulty = [mode for mode in modes if mode in MODES]
        found = {mode: inject(model, mode, args.faults, args.seed, until) for mode in faulty}
        silent = {mode: summarise(mode, faults) for mode, faults in found.items()}
        return min(1, silent.get("runner", 0))
    wrong = 0
    if not args.measure:
        # Without weights no tied losses have points of any order.
        ties = saved_outputs(model.work) if model.weighted else None
        ours = tuple(mode for mode in modes if mode in (*OURS, "service"))
        reference = Reference(model, ours, peer_outputs(model.work) if args.saved else None)
        numbers = [int(n) for n in args.processes.split(",") if n]
        wrong += compare_runs(reference, numbers, ties)
        wrong += 0 if args.no_chunks else compare_chunks(reference, 2, ties)
        wrong += 0 if args.no_whole else compare_whole(reference, ties)
        wrong += 0 if args.no_variants else compare_variants(model, list(VARIANTS))
    if args.times:
        measure(model, args.times, modes, warm=args.warm or not args.measure)
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main())
