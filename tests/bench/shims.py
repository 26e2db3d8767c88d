"""What it costs to start an executable of a run: ``python -m tests.bench.shims``.

A run starts dozens of them. CPU seconds (user and system) of whole processes, the least of
interleaved rounds, against the import of numpy and numba alone; and with ``THALWEG_PEER_PYTHON``,
which names an interpreter with ``oasislmf``, against what the peer's ``eltpy --help`` takes, which
does no work, and against its tools at the same work.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.oasis.shims.installing import write_shims
from core.losses.samples import SampleSpec, generate_stream

ROUNDS = 9
SPEC = SampleSpec(events=4, summaries=2, samples=10)
OF_IMPORT, OF_PEERS_HELP = 1.5, 0.6

Contest = Sequence[str | Path]


def cpu_seconds(command: Contest) -> float:
    """User and system seconds of a process and its children."""
    before = os.times()
    subprocess.run(list(command), check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system


def least(contests: dict[str, Contest], rounds: int) -> dict[str, float]:
    """Least CPU seconds of each contest, run in turn in every round."""
    seconds: dict[str, list[float]] = {name: [] for name in contests}
    for _ in range(rounds):
        for name, command in contests.items():
            seconds[name].append(cpu_seconds(command))
    return {name: min(values) for name, values in seconds.items()}


def write_run(folder: Path) -> None:
    """A small stream, its quantiles, and what ``katpy`` concatenates."""
    (folder / "input").mkdir()
    np.array([0.5, 0.9], "<f4").tofile(folder / "input/quantile.bin")
    (folder / "stream").write_bytes(b"".join(generate_stream(SPEC)))


def commands(tools: Path, label: str) -> dict[str, Contest]:
    """The command lines of one side."""
    elt: Contest = [
        tools / "eltpy",
        "-E",
        "bin",
        "-i",
        "stream",
        "-m",
        f"{label}_m",
        "-q",
        f"{label}_q",
    ]
    kat: Contest = [tools / "katpy", "-m", "-f", "bin", "-i", f"{label}_m", "-o", f"{label}.csv"]
    return {
        f"{label}: eltpy --help": [tools / "eltpy", "--help"],
        f"{label}: eltpy, {SPEC.events} events": elt,
        f"{label}: katpy of that": kat,
    }


def main() -> None:
    """Print the seconds and their ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    peer = os.environ.get("THALWEG_PEER_PYTHON")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        write_run(folder)
        write_shims(folder / "shims")
        bare: Contest = [sys.executable, "-I", "-c", "import numpy, numba"]
        contests = {"import numpy, numba": bare, **commands(folder / "shims", "ours")}
        if peer:
            contests |= commands(Path(peer).parent, "peer")
        least(contests, 1)  # kernels of the peer are compiled, files are in the page cache
        seconds = least(contests, rounds)
        _print(seconds)


def _judge(ratio: float, limit: float) -> str:
    return f"at most {limit}: {'ok' if ratio <= limit else 'MISSED'}"


def _print(seconds: dict[str, float]) -> None:
    base = seconds["import numpy, numba"]
    theirs = seconds.get("peer: eltpy --help")
    print(f"load {os.getloadavg()[0]:.1f}; CPU seconds, least of interleaved rounds")
    for name, value in seconds.items():
        text = f"{value:7.3f}  {value / base:5.2f} of the import"
        if name.startswith("ours"):
            text += f" ({_judge(value / base, OF_IMPORT)})"
            if theirs is not None:
                ratio = value / theirs
                text += f", {ratio:4.2f} of the peer's --help"
                text += f" ({_judge(ratio, OF_PEERS_HELP)})"
        print(f"{text}  {name}")


if __name__ == "__main__":
    main()
