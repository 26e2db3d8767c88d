"""OpenQuake's reinsurance of events, for another process; it imports nothing of ours.

From stdin a list of cases: treaties (id, type, deductible, limit), policies (their fraction of, or
flag for, each treaty) and losses (event, policy, loss). To stdout, for each, the retention and what
each treaty takes, by event.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from openquake.baselib.general import BASE183  # type: ignore[import-not-found]
from openquake.risklib import reinsurance  # type: ignore[import-not-found]


def run(case: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Run one case."""
    treaties = pd.DataFrame(case["treaties"])
    treaties["code"] = list(BASE183[: len(treaties)])
    losses = pd.DataFrame(case["losses"], columns=["event_id", "agg_id", "loss"])
    by_policy = []
    for number, flags in enumerate(case["policies"], 1):
        policy = {"policy": number, "deductible": 0.0, "liability": 1e12, **flags}
        by_policy.append(reinsurance.by_policy(losses, policy, treaties))
    table = reinsurance.by_event(pd.concat(by_policy, ignore_index=True), treaties)
    columns = ["retention", *treaties["id"]]
    return {str(row["event_id"]): {c: row[c] for c in columns} for _, row in table.iterrows()}


print(json.dumps([run(case) for case in json.load(sys.stdin)]))
