"""Changes single places of the modules that guard data, and sees whether a test notices.

    python -m tests.mutants --count 40 --processes 2 --only tokens

The sample is drawn by a seed. Known survivors stand in ``survivors.toml`` with the reason
why no test should notice them; of the others, nine in ten have to be noticed.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants import survivors
from tests.mutants.changes import Change, changes_of, sample
from tests.mutants.modules import MODULES, ROOT, missing, tests_of
from tests.mutants.trial import Tree

_ENOUGH = 0.9
"""Share of the changes that have to be noticed."""
_SLOWER = 4
"""Times as long as usual after which tests count as hanging."""
_AT_LEAST = 30.0
"""Seconds that tests may take in any case."""


class Trials:
    """Tries changes side by side, each process in a tree of its own.

    Args:
        directory: for the trees.
        processes: how many at once.
        deadline: when to begin no more, on the monotonic clock.
    """

    def __init__(self, directory: Path, processes: int, deadline: float) -> None:
        self._all = [Tree(directory / str(number)) for number in range(processes)]
        self._trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for tree in self._all:
            self._trees.put(tree)
        self._pool = ThreadPoolExecutor(processes)
        self._deadline = deadline
        self._lock = threading.Lock()
        self._usual: dict[str, float] = {}
        """Seconds that each file of tests takes."""
        self._done = 0

    def run(self, changes: Sequence[Change]) -> list[Change]:
        """Those that no test notices.

        Raises:
            TimeoutError: there was not time enough for all.
            RuntimeError: tests fail without any change.
        """
        files = dict.fromkeys(test for change in changes for test in tests_of(change.module))
        list(self._pool.map(self._time, files))
        print(f"{len(files)} files of tests pass without a change", flush=True)
        survived = list(self._pool.map(lambda change: self._try(change, len(changes)), changes))
        return [change for change, alive in zip(changes, survived, strict=True) if alive]

    def _time(self, test: str) -> None:
        tree = self._trees.get()
        try:
            self._usual[test] = tree.time(test)
        finally:
            self._trees.put(tree)

    def _try(self, change: Change, total: int) -> bool:
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"{self._done} of {total} changes were tried in time")
        tests = tests_of(change.module)
        tree = self._trees.get()
        try:
            changed = change.apply(tree.source(change.module))
            usual = sum(self._usual[test] for test in tests)
            alive = tree.survives(change.module, changed, tests, _AT_LEAST + _SLOWER * usual)
        finally:
            self._trees.put(tree)
        with self._lock:
            self._done += 1
            if alive or self._done % 20 == 0:
                print(f"[{self._done}/{total}]{f' {change}' if alive else ''}", flush=True)
        return alive

    def close(self) -> None:
        """End, whatever runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for tree in self._all:
            tree.stop()
        self._pool.shutdown()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="changes to try (200)")
    parser.add_argument("--seed", type=int, default=1, help="draws the sample (1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=30, help="longest it may take (30)")
    parser.add_argument(
        "--only", default=[""], nargs="+", help="modules whose path holds one of these"
    )
    parser.add_argument("--list", action="store_true", help="print the sample and try nothing")
    return parser.parse_args()


def _chosen(args: argparse.Namespace) -> tuple[list[Change], list[Change]]:
    """The changes to try, and those of the sample that are known to survive."""
    if lost := missing():
        sys.exit(f"tests/mutants/modules.py names what is not there: {', '.join(lost)}")
    everything = [
        change for module in MODULES for change in changes_of(module, (ROOT / module).read_bytes())
    ]
    known = survivors.load()
    for row in survivors.stale(known, everything):
        print(f"{row.module} ({row.place}): this survivor is no more: {row.before} / {row.after}")
    some = [c for c in everything if any(part in c.module for part in args.only)]
    if not some:
        sys.exit(f"no module of the table has {' or '.join(args.only)} in its path")
    drawn = sample(some, args.count, args.seed)
    listed = [change for change in drawn if any(row.is_of(change) for row in known)]
    print(f"{len(everything)} changes in {len(MODULES)} modules, {len(drawn)} in the sample")
    return [change for change in drawn if change not in listed], listed


def main() -> int:
    """Status 0 if enough are noticed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args = _arguments()
    changes, listed = _chosen(args)
    if args.list:
        print(*changes, sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        trials = Trials(Path(name), args.processes, time.monotonic() + 60 * args.minutes)
        try:
            alive = trials.run(changes)
        except (TimeoutError, RuntimeError) as e:
            print(e)
            return 1
        finally:
            trials.close()
    print("", "Noticed by no test:" if alive else "Every change was noticed.", sep="\n")
    print(*alive, sep="\n")
    noticed = len(changes) - len(alive)
    share = noticed / max(len(changes), 1)
    print(f"\n{noticed} of {len(changes)} noticed: {share:.1%}", end=" ")
    print(f"({len(listed)} more are known to survive)")
    return 0 if share >= _ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
