"""What requests of different kinds do to each other: ``python -m tests.bench.lanes``.

Each line is a ratio within one run of one service. ``--code`` names the checkout whose service is
measured, so that two can be compared; clients are those of this one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from .clients import KINDS, Client, Found, endless_batches, measure, slow_uploads
from .place import Data, Place, serving

ROOT = Path(__file__).parents[3]
MIXED = {"reductions": 8, "batches": 4, "posts": 4}
HEAVY = {"reductions": 8, "posts": 4, "batches": 4}
HOSTILE = {"hdf5 readers": 8, "seals": 4, "200 small reads a second": 1}
THEIRS = {
    f"hostile {name}": count
    for name, count in {**MIXED, **HOSTILE, "pipelined small reads": 4}.items()
}
OURS = ("small reads", "the same tile", "the same batch", "the same post", "reductions of one")
KINDS_ALONE = (
    "small reads without pause",
    "one tile",
    "one batch",
    "reductions",
    "posts",
    "quantiles",
    "selt",
    "batches",
    "small batches",
    "tiles",
    "hdf5 readers",
)
ROUNDS = 3
FIRST = 10
"""Requests of a lone user that are looked at one by one."""


def percentile(found: Found, share: float) -> float:
    """Milliseconds within which a share of the requests was answered."""
    return 1e3 * float(np.quantile(found.seconds, share)) if found.seconds else float("nan")


def latencies(name: str, found: Found, idle: Found | None = None) -> None:
    """Print the median and the 99th percentile, and what they are of those of an idle service."""
    median, late = percentile(found, 0.5), percentile(found, 0.99)
    text = f"{name}: p50 {median:.1f} ms, p99 {late:.1f} ms of {len(found.seconds)}"
    if idle is not None:
        ratios = median / percentile(idle, 0.5), late / percentile(idle, 0.99)
        text += f"; {ratios[0]:.2f} x and {ratios[1]:.2f} x idle"
    print(text, flush=True)


class Bars:
    """The measurements.

    Args:
        code: checkout of the service.
        data: its data.
        seconds: of each measurement.
        variables: settings of the service.
    """

    def __init__(
        self, code: Path, data: Data, seconds: float, variables: Mapping[str, str]
    ) -> None:
        self._code, self._data, self._seconds = code, data, seconds
        self._variables = dict(variables)

    def alone(self, starts: int) -> None:
        """A lone user's first requests after a start, after a burst, and after quiet."""
        steady: dict[str, list[float]] = {}
        moments: dict[tuple[str, str], list[list[float]]] = {}
        for _ in range(starts):
            for name in ("reductions", "posts", "tiles", "batches", "selt"):
                with serving(self._code, self._data, **self._variables) as place:
                    client = Client(place, KINDS[name])
                    self._first(moments, ("readiness", name), client)
                    measure(place, {"small reads without pause": 6, "posts": 2}, 1.0)
                    self._first(moments, ("a burst", name), client)
                    time.sleep(self._seconds)
                    client = Client(place, KINDS[name])
                    self._first(moments, ("quiet", name), client)
                    last = [client.once(100 + n) for n in range(FIRST)]
                    steady.setdefault(name, []).append(statistics.median(last))
        for (moment, name), rounds in sorted(moments.items()):
            usual = statistics.median(steady[name])
            took = [statistics.median(column) for column in zip(*rounds, strict=True)]
            worst = max(took[1:]) / usual
            print(
                f"{name} right after {moment}: first {1e3 * took[0]:.0f} ms, the next"
                f" {FIRST - 1} at most {worst:.2f} x the steady {1e3 * usual:.0f} ms",
                flush=True,
            )

    @staticmethod
    def _first(
        moments: dict[tuple[str, str], list[list[float]]], key: tuple[str, str], client: Client
    ) -> None:
        moments.setdefault(key, []).append([client.once(n) for n in range(FIRST)])

    def statistics(self) -> None:
        """Mean and standard deviation against numpy on a memory map."""
        frames = np.load(self._data.root / "scan.npy", mmap_mode="r")

        def numpy_seconds(skipped: int) -> float:
            begin = time.perf_counter()
            for row in frames:
                block = row[skipped:].astype(np.float64)
                block.sum(0), np.square(block).sum(0)
            return time.perf_counter() - begin

        with serving(self._code, self._data, **self._variables) as place:
            client = Client(place, KINDS["mean and deviation"])
            client.once()
            pairs = [(numpy_seconds(n), client.once(n)) for n in range(1, 6)]
        ratio = statistics.median(theirs / ours for theirs, ours in pairs)
        ours = statistics.median(ours for _, ours in pairs)
        speed = frames.nbytes / ours / 1e9
        print(f"mean and deviation: {speed:.2f} GB/s, {ratio:.2f} x numpy on a map", flush=True)

    def against(self, other: Path) -> None:
        """One client of each kind of request, in turns with the service of another checkout."""
        with (
            serving(self._code, self._data, **self._variables) as ours,
            serving(other, self._data, **self._variables) as theirs,
        ):
            for name in KINDS_ALONE:
                rates = [
                    [
                        measure(place, {name: 1}, self._seconds)[name].rate
                        for place in (ours, theirs)
                    ]
                    for _ in range(ROUNDS)
                ]
                ratio = statistics.median(one / another for one, another in rates)
                print(f"{name}: {ratio:.2f} x the other's", flush=True)

    def beside(self) -> None:
        """Small and quick reads beside heavy work, and that work beside them."""
        with serving(self._code, self._data, **self._variables) as place:
            run = self._runner(place)
            idle = {name: run({name: 1})[name] for name in ("small reads", "one tile", "one batch")}
            for name, found in idle.items():
                latencies(f"{name}, idle", found)
            alone = {name: run({name: count})[name].rate for name, count in HEAVY.items()}
            for name, count in HEAVY.items():
                mixed = run({name: count, "small reads": 1})
                self._beside(f"{count} {name}", mixed, idle, {name: alone[name]})
            mixed = run({**MIXED, "small reads": 1})
            self._beside("all of these", mixed, idle, alone)
            for name in ("one tile", "one batch"):
                mixed = run({**MIXED, name: 1})
                self._beside("all of these", mixed, idle, {})
            mixed = run({**MIXED, "small reads": 1, "small reads without pause": 6})
            self._beside("all and 6 small readers without pause", mixed, idle, alone)
            self._hostile(place, run, idle)

    def _hostile(
        self,
        place: Place,
        run: Callable[[Mapping[str, int]], dict[str, Found]],
        idle: Mapping[str, Found],
    ) -> None:
        with ExitStack() as stack:
            slow_uploads(place, 50, stack)
            for name, usual in idle.items():
                mixed = run({name: 1, **HOSTILE})
                what = "50 slow uploads, 8 hdf5 readers, 4 seals, 200 reads a second"
                latencies(f"{name} beside {what}", mixed[name], usual)

    def flood(self) -> None:
        """Small reads beside those of another owner who sends hundreds at once."""
        with serving(self._code, self._data, **self._variables) as place:
            run = self._runner(place)
            idle = run({"small reads": 1})["small reads"]
            mixed = run({"small reads": 1, "pipelined small reads": 4})
            latencies("small reads beside 4 x 50 in one moment", mixed["small reads"], idle)

    def turns(self) -> None:
        """One request at a time beside as many as another owner, or oneself, keeps going."""
        with serving(self._code, self._data, **self._variables) as place:
            run = self._runner(place)
            for name in ("his reductions", "his posts"):
                alone = run({name: 1})[name].rate
                for other, count in THEIRS.items():
                    if "small" in other:
                        continue
                    mixed = run({name: 1, other: count})
                    print(
                        f"{name} beside {count} {other}: {mixed[name].rate / alone:.2f} x alone,"
                        f" {mixed[name].rate:.1f} a second; those {mixed[other].rate:.1f}",
                        flush=True,
                    )
            for name in ("hostile reductions", "hostile posts"):
                alone = run({name: 2})[name].rate
                rate = run({name: 2, "hostile hdf5 readers": 8})[name].rate
                print(f"{name} beside one's own hdf5 readers: {rate / alone:.2f} x alone")
            usual = run({"his small posts": 1})["his small posts"]
            mixed = run({"his small posts": 1, "his psept": 4})
            latencies("his small posts beside 4 psept of his own", mixed["his small posts"], usual)
            alone = run({"his posts": 1})["his posts"].rate
            with ExitStack() as stack:
                endless_batches(place, 8, stack)
                rate = run({"his posts": 1})["his posts"].rate
            print(f"his posts beside batches that never come: {rate / alone:.2f} x alone")

    def owners(self) -> None:
        """What one owner sees for a long time beside another one who takes all that there is."""
        with serving(self._code, self._data, **self._variables) as place, ExitStack() as stack:
            usual = {name: measure(place, {name: 1}, 5.0)[name] for name in OURS}
            slow_uploads(place, 50, stack, owner="flooder")
            mixed = measure(place, {**dict.fromkeys(OURS, 1), **THEIRS}, self._seconds)
            for name in OURS:
                latencies(f"{name} beside a hostile owner", mixed[name], usual[name])
            for name in THEIRS:
                print(f"  {mixed[name].rate:.1f} a second: {name}", flush=True)

    def _runner(self, place: Place) -> Callable[[Mapping[str, int]], dict[str, Found]]:
        return lambda load: measure(place, load, self._seconds)

    @staticmethod
    def _beside(
        what: str,
        found: Mapping[str, Found],
        idle: Mapping[str, Found],
        alone: Mapping[str, float],
    ) -> None:
        for name, usual in idle.items():
            if name in found:
                latencies(f"{name} beside {what}", found[name], usual)
        rates = [
            f"{found[name].rate:.1f} {name}/s ({found[name].rate / rate:.2f} x alone)"
            for name, rate in alone.items()
        ]
        if rates:
            print("  " + ", ".join(rates), flush=True)

    def twice(self) -> None:
        """Two posts of quantiles at once against one."""
        with serving(self._code, self._data, **self._variables) as place:
            run = self._runner(place)
            one, two = run({"quantiles": 1})["quantiles"], run({"quantiles": 2})["quantiles"]
        print(f"two posts of quantiles at once: {two.rate / one.rate:.2f} x one", flush=True)

    def foreign(self) -> None:
        """Long work beside a program that keeps every core busy."""
        with serving(self._code, self._data, **self._variables) as place:
            run = self._runner(place)
            for name in ("reductions", "posts", "batches"):
                alone = run({name: 2})[name].rate
                with ExitStack() as stack:
                    for _ in range(os.cpu_count() or 1):
                        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                        stack.callback(busy.wait)
                        stack.callback(busy.kill)
                    beside = run({name: 2})[name].rate
                print(f"{name} beside a foreign program: {beside / alone:.2f} x alone", flush=True)

    def small_batches(self) -> None:
        """Batches of 8 KiB, one reader."""
        with serving(self._code, self._data, **self._variables) as place:
            rate = self._runner(place)({"small batches": 1})
            count = (self._data.root / "items").stat().st_size / 8192
            print(f"batches of 8 KiB: {rate['small batches'].rate * count:,.0f} a second")

    def memory(self) -> None:
        """Memory of the idle service."""
        with serving(self._code, self._data, **self._variables) as place:
            time.sleep(2.0)
            print(
                f"idle: {place.memory():.0f} MiB in {len(place.pids)} processes; ready after"
                f" {place.ready_seconds:.2f} s",
                flush=True,
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--code", type=Path, default=ROOT, help="checkout to measure")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    names = (
        "memory",
        "alone",
        "statistics",
        "beside",
        "twice",
        "foreign",
        "small_batches",
        "flood",
    )
    longer = ("owners", "turns")
    parser.add_argument("--only", choices=names + longer, action="append")
    parser.add_argument("--against", type=Path, help="another checkout, for each kind in turns")
    args = parser.parse_args(arguments)
    variables = dict(pair.split("=", 1) for pair in args.set)
    with tempfile.TemporaryDirectory() as directory:
        data = Data(Path(directory))
        bars = Bars(args.code.resolve(), data, args.seconds, variables)
        if args.against:
            bars.against(args.against.resolve())
        for name in args.only or (() if args.against else names):
            bars.alone(args.starts) if name == "alone" else getattr(bars, name)()


if __name__ == "__main__":
    main()
