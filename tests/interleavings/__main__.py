"""Explore all pairs of acts, and print what was seen: ``python -m tests.interleavings [NAME]``."""

from __future__ import annotations

import logging
import sys

import structlog

from . import run_acts
from .exploring import Explored
from .pairs import told
from .runs_world import exploring


def main(name: str) -> int:
    total, found = Explored(), 0
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with exploring() as scheduler:
        plans = (run_acts.plans, run_acts.of_jobs, run_acts.alone_of_jobs, run_acts.at_limits)
        for plan in (plan for kind in plans for plan in kind(scheduler)):
            if name not in plan.name:
                continue
            explored = plan.explore(scheduler)
            total.add(explored)
            found += 1
            calls = "+".join(map(str, explored.longest))
            print(f"{explored.classes:7} orders of {calls:>5} calls, {plan.name}")
            if explored.shortest is not None:
                print(told(plan, explored.shortest))
    print(
        f"{found} pairs, {total.calls} calls, {total.classes} orders that differ"
        f" of {total.executions} tried in {total.seconds:.0f} s of CPU,"
        f" {len(total.failures)} with faults"
    )
    return bool(total.failures)


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
