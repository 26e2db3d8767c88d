"""Compares every report with a live peer: ``python -m tests.compat.oasis --peer PYTHON``.

PYTHON is an interpreter that has ``oasislmf``. Each seed is a random portfolio
(``portfolios.py``), of which both programs compute all tables (``families.py``). Tables are
compared by key, to 1e-5. A difference counts as a failure, unless all its rows are where a fault
of the peer is known to be (``faults.py``); each of these faults has a test.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from .families import FAMILIES, PeerError, Trial
from .faults import Judge
from .peer import Peer
from .portfolios import Portfolio


class Tally:
    """Outcomes by family."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self.faults: Counter[str] = Counter()
        self.failures = 0

    def note(self, family: str, outcome: str) -> None:
        self.outcomes[family][outcome] += 1
        self.failures += outcome == "differs"

    def __str__(self) -> str:
        lines = [f"{family:<10}{dict(counts)}" for family, counts in self.outcomes.items()]
        lines += [f"fault: {name}: {count} portfolios" for name, count in self.faults.items()]
        return "\n".join(lines)


def compare_all(trial: Trial, tally: Tally, families: list[str]) -> None:
    """Compare one portfolio."""
    seed = trial.portfolio.folder.name
    trial.prepare()
    judge = Judge(trial)
    faults = {"WRONG_INDEX"} if trial.wrong_indices else set()
    for family in families:
        if family == "summarise" and trial.portfolio.options.perspective == "summary":
            continue
        found: set[str] = set()
        outcome = "equal"
        try:
            for difference in FAMILIES[family](trial):
                names = judge.explain(difference)
                found.update(names)
                if not names:
                    outcome = "differs"
                    print(f"seed {seed} {trial.portfolio.options}\n  {difference}", flush=True)
        except PeerError as e:
            name = judge.explain_error(family, str(e))
            if name is None:
                outcome = "differs"
                print(f"seed {seed} {family}: {e} {trial.portfolio.options}", flush=True)
            else:
                found.add(name)
        if outcome == "equal" and found:
            outcome = "explained"
        tally.note(family, outcome)
        faults |= found
    tally.faults.update(faults)


def main() -> int:
    """Run the cases; exit code 1 if one differs without a known reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--families", default=",".join(FAMILIES))
    args = parser.parse_args()
    tally = Tally()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, Peer(args.peer, Path(scratch)) as peer:
        print(f"seeds {args.seed} to {args.seed + args.cases - 1}", flush=True)
        for seed in range(args.seed, args.seed + args.cases):
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                portfolio = Portfolio(Path(folder) / str(seed), seed)
                compare_all(Trial(portfolio, peer), tally, args.families.split(","))
    print(f"{args.cases} portfolios in {time.perf_counter() - start:.0f} s\n{tally}")
    return int(tally.failures > 0)


if __name__ == "__main__":
    sys.exit(main())
